"""Run one tool: every check in its order, in one place, before anything leaves for the source."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import anyio

from toolcrib.calling.limits import CallLimits
from toolcrib.calling.links import under_catalog_names
from toolcrib.calling.slips import repaired
from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    InvalidArguments,
    InvalidTool,
    NextAction,
    NotAuthorized,
    NotExpanded,
    SourceUnavailable,
    StaleExpansion,
)
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Violation
from toolcrib.core.tools import Tool
from toolcrib.disclosure.operations import not_found
from toolcrib.sources.base import ProgressListener

logger = logging.getLogger(__name__)


async def call_tool(
    view: View,
    reference: str,
    arguments: object,
    context: CallContext,
    *,
    limits: CallLimits | None = None,
    progress: ProgressListener | None = None,
) -> ToolResult:
    """Run the tool that `reference`, a handle from `expand_tool`, stands for.

    Every call that would reach its source counts against `limits`, which are those of the whole crib.

    Raises:
        ToolNotFound: no visible tool has this id.
        NotAuthorized: it may be seen and not called.
        NotExpanded: `reference` is a bare id, so nobody was shown what it takes.
        StaleExpansion: the definition is not the one that was shown.
        InvalidArguments: nothing ran; hints and details say what is wrong where.
        RateLimited: nothing ran; the principal calls faster than `limits` allow.
        SourceUnavailable: the source cannot be reached, or went away.
        ToolFailed: the source refused to run it.

    Source: discovery protocol v0.1, `call_tool` and behavioural rule 4.
    """
    if view.principal != context.principal:
        raise ValueError(f"a view for {view.principal.id} cannot serve a call for {context.principal.id}")
    tool, shown = _resolve(view, reference)
    if not view.may_call(tool):
        raise NotAuthorized(f"`{tool.id}` may be seen and not called by `{view.principal.id}`.")
    _check_expansion(tool, shown)
    checked = _check_arguments(tool, arguments)
    entry = view.sources.get(tool.source)
    if entry is None:
        raise SourceUnavailable(f"The source `{tool.source}` is gone.", next_action=NextAction("list"))
    if limits is not None:
        limits.admit(context.principal)
    try:
        with anyio.fail_after(context.remaining_s()):
            result = await entry.source.call_tool(tool, checked, context, progress=progress)
    except TimeoutError as error:
        raise SourceUnavailable(f"`{tool.id}` was given up: the caller's time is over.") from error
    except StaleExpansion as stale:
        raise StaleExpansion(stale.message, hints=stale.hints, next_action=_expand(tool)) from stale
    except SourceUnavailable as gone:
        # Once the request had gone out, only where its owner vouches that running twice is the same as running once.
        retryable = gone.retryable or (entry.trusted and tool.annotations.idempotent)
        logger.warning("%s", " ".join(filter(None, (gone.message, gone.diagnosis))))
        raise SourceUnavailable(
            gone.message,
            hints=gone.hints if retryable else (*gone.hints, "Whether it has run is not known."),
            diagnosis=gone.diagnosis,
            # The same again would end the same; another tool may do it.
            next_action=_expand(tool)
            if retryable
            else NextAction("search_tools", {"query": tool.summary or tool.name}),
            retryable=retryable,
            retry_after_s=gone.retry_after_s,
        ) from gone
    return _with_warnings(tool, ToolResult(under_catalog_names(entry, result.wire), result.warnings))


def _resolve(view: View, reference: str) -> tuple[Tool, str | None]:
    """The tool, and the handle it was referred to by; None for a bare id."""
    tool = view.find(reference)
    if tool is not None:
        return tool, None
    name, at, _ = reference.rpartition("@")
    tool = view.find(name) if at else None
    if tool is None:
        raise not_found(view, reference)
    return tool, f"{tool.id}{reference[len(name) :]}"


def _check_expansion(tool: Tool, shown: str | None) -> None:
    if shown is None:
        raise NotExpanded(
            f"`{tool.id}` was not expanded, so its arguments are not known. Expand it, then call it by its handle.",
            next_action=_expand(tool),
        )
    if shown != tool.handle:
        raise StaleExpansion(
            f"The definition of `{tool.id}` is not the one behind this handle. Expand it again.",
            next_action=_expand(tool),
        )


def _check_arguments(tool: Tool, arguments: object) -> Mapping[str, Any]:
    given = cast("dict[str, Any]", {} if arguments is None else arguments)
    problems = tool.arguments.violations(given) or _unsendable(given)
    if not problems and isinstance(given, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  it came off a wire
        return given
    repair = repaired(tool.input_schema, tool.arguments, given)
    what = "; ".join(problem.message for problem in problems[:3]) or "they are not an object"
    raise InvalidArguments(
        f"Nothing was run: the arguments of `{tool.id}` do not match its schema: {what}.",
        hints=[repair.what] if repair is not None else [],
        next_action=(
            NextAction("call_tool", {"tool_id": tool.handle, "arguments": repair.arguments})
            if repair is not None
            else _expand(tool)
        ),
        retryable=False,
        details={"violations": [problem.to_wire() for problem in problems]},
    )


def _unsendable(given: object) -> tuple[Violation, ...]:
    """A schema that does not look into a text passes half a surrogate pair, which ends a connection when written."""
    try:
        json.dumps(given, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return (Violation("", "a text holds half a surrogate pair, which is no Unicode text", "type"),)
    except (TypeError, ValueError, RecursionError) as error:
        return (Violation("", f"this cannot be written as JSON: {error}", "type"),)
    return ()


def _expand(tool: Tool) -> NextAction:
    return NextAction("expand_tool", {"tool_id": tool.id})


def _with_warnings(tool: Tool, result: ToolResult) -> ToolResult:
    """The result as it came; one that misses the tool's own output schema is passed on with a warning, never lost."""
    problem = None if result.is_error or result.needs_input else _output_problem(tool, result)
    if problem is None:
        return result
    logger.warning("%s: %s", tool.id, problem)
    return replace(result, warnings=(*result.warnings, problem))


def _output_problem(tool: Tool, result: ToolResult) -> str | None:
    try:
        schema = tool.results
    except InvalidTool as error:
        return f"the answer cannot be checked: {error.message}"
    if schema is None:
        return None
    if result.structured_content is None:
        return "the answer has no structured content, though the tool declares an output schema"
    violations = schema.violations(result.structured_content, "the answer")
    return f"the answer misses the tool's output schema: {violations[0].message}" if violations else None
