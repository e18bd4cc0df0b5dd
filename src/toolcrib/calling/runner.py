"""Run one tool: every check in its order, in one place, before anything leaves for the source."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio

from toolcrib.calling.approving import Approver, Intent
from toolcrib.calling.limits import CallLimits
from toolcrib.calling.links import under_catalog_names
from toolcrib.calling.slips import repaired
from toolcrib.catalog.access import Access
from toolcrib.catalog.state import SourceEntry
from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    InvalidArguments,
    InvalidTool,
    NextAction,
    NotAuthorized,
    NotExpanded,
    RateLimited,
    SourceUnavailable,
    StaleExpansion,
    ToolcribError,
    ToolFailed,
)
from toolcrib.core.handles import Handle
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Violation
from toolcrib.core.tools import Tool
from toolcrib.disclosure.suggestions import not_found
from toolcrib.sources.base import ProgressListener

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Runner:
    """Runs tools, and holds what all calls of one crib share."""

    limits: CallLimits = field(default_factory=CallLimits)
    approver: Approver = field(default_factory=Approver)

    async def call_tool(
        self,
        view: View,
        reference: str,
        arguments: object,
        context: CallContext,
        *,
        only_read: bool = False,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run the tool that `reference`, a handle from `expand_tool`, stands for.

        With `only_read`, only one that its source's owner vouches is read-only.

        Raises:
            ToolNotFound: no visible tool has this id.
            NotAuthorized: it may be seen and not called, or nobody approved, or it may do more than read.
            NotExpanded: `reference` is a bare id, so nobody was shown what it takes.
            StaleExpansion: the definition is not the one that was shown.
            InvalidArguments: nothing ran; hints and details say what is wrong where.
            RateLimited: nothing ran; the principal calls faster than the limits allow.
            SourceUnavailable: the source cannot be reached, or went away.
            ToolFailed: the source refused to run it.

        Each has a `next_action`.

        Source: discovery protocol v0.1, `call_tool` and behavioural rule 4.
        """
        if view.principal != context.principal:
            raise ValueError(f"a view for {view.principal.id} cannot serve a call for {context.principal.id}")
        tool, shown = view.resolve(reference)
        if tool is None:
            raise not_found(view, reference)
        try:
            return await self._call(view, tool, shown, arguments, context, only_read=only_read, progress=progress)
        except ToolcribError as error:
            if error.next_action is not None:
                raise
            # Where the tool itself is good, its definition says what to do otherwise, or the same again.
            again = isinstance(error, InvalidArguments | RateLimited | ToolFailed)
            raise error.leading_to(_expand(tool) if again else _search_another(tool)) from error

    async def _call(
        self,
        view: View,
        tool: Tool,
        shown: Handle | None,
        arguments: object,
        context: CallContext,
        *,
        only_read: bool,
        progress: ProgressListener | None,
    ) -> ToolResult:
        access = view.access_to(tool)
        if access < Access.ASK:
            raise NotAuthorized(f"`{tool.id}` may be seen and not called by `{view.principal.id}`.")
        _check_expansion(tool, shown)
        checked = _check_arguments(tool, arguments)
        if only_read and not (tool.annotations.read_only and view.is_trusted(tool.source)):
            raise NotAuthorized(
                f"`{tool.id}` is not known to only read.",
                next_action=NextAction("call_tool", {"tool_id": tool.handle, "arguments": checked}),
            )
        entry = view.sources.get(tool.source)
        if entry is None:
            raise SourceUnavailable(f"The source `{tool.source}` is gone.", next_action=NextAction("list"))
        self.limits.admit(context.principal)
        if access is Access.CALL:
            result = await _run(entry, tool, checked, context, progress)
        else:
            intent = Intent(context.principal.id, tool.id, tool.digests.wire, tool.summary, checked)
            async with self.approver.approved(intent, context) as approved:
                result = await _run(entry, tool, checked, context, progress)
                approved.goes_on = result.needs_input
        return _with_warnings(tool, ToolResult(under_catalog_names(entry, result.wire), result.warnings))


async def _run(
    entry: SourceEntry,
    tool: Tool,
    arguments: Mapping[str, Any],
    context: CallContext,
    progress: ProgressListener | None,
) -> ToolResult:
    try:
        with anyio.fail_after(context.remaining_s()):
            return await entry.source.call_tool(tool, arguments, context, progress=progress)
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
            next_action=_expand(tool) if retryable else _search_another(tool),
            retryable=retryable,
            retry_after_s=gone.retry_after_s,
        ) from gone


def _check_expansion(tool: Tool, shown: Handle | None) -> None:
    if shown is None:
        raise NotExpanded(
            f"`{tool.id}` was not expanded, so its arguments are not known. Expand it, then call it by its handle.",
            next_action=_expand(tool),
        )
    if f"{tool.id}@{shown.digest}" != tool.handle:
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


def _search_another(tool: Tool) -> NextAction:
    return NextAction("search_tools", {"query": tool.summary or tool.name})


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
