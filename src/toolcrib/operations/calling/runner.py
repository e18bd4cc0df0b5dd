"""Run one tool: every check in its order, in one place, before anything leaves for the source."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import orjson

from toolcrib.catalog.access import Access
from toolcrib.catalog.state import SourceEntry
from toolcrib.catalog.view import View
from toolcrib.core.digests import digest
from toolcrib.core.errors import (
    CapabilityMissing,
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
from toolcrib.core.schema import Violation, undecided, violations_to_wire
from toolcrib.core.tools import Tool
from toolcrib.operations.calling.approving import Approver
from toolcrib.operations.calling.limits import CallLimits
from toolcrib.operations.calling.links import under_catalog_names
from toolcrib.operations.calling.questions import Intent
from toolcrib.operations.calling.slips import repaired
from toolcrib.operations.calling.under_way import NOT_KNOWN, UnderWay
from toolcrib.operations.calling.validation import violations_apart, violations_of
from toolcrib.operations.suggestions import not_found
from toolcrib.sources.base import ProgressListener

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Runner:
    """Runs tools, and holds what all calls of one crib share."""

    limits: CallLimits = field(default_factory=CallLimits)
    approver: Approver = field(default_factory=Approver)
    under_way: UnderWay = field(default_factory=UnderWay)
    view_of: Callable[[CallContext], View] | None = None
    """The view of whoever asks as of now, since a person may think for minutes; None where no view becomes another."""

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
            CapabilityMissing: nothing ran; the system lacks something that the tool needs.
            InvalidArguments: nothing ran; hints and details say what is wrong where.
            RateLimited: nothing ran; the principal calls faster than the limits allow.
            SourceUnavailable: the source cannot be reached, or went away.
            ToolFailed: the source refused to run it, or asks for input and nobody can be asked.

        `ToolNotFound`, `NotAuthorized`, `StaleExpansion`, `CapabilityMissing` and `SourceUnavailable` may also tell
        what became of the tool while a person was asked. Each error has a `next_action`.

        Source: discovery protocol v0.1, `call_tool` and behavioural rule 4.
        """
        if view.principal != context.principal:
            raise ValueError(f"a view for {view.principal.id} cannot serve a call for {context.principal.id}")
        tool, shown = view.resolve(reference)
        if tool is None:
            raise not_found(view, reference)
        try:
            order = await self._checked(view, tool, shown, arguments, context, only_read=only_read)
            self.limits.admit(context.principal)
            if order.access is Access.CALL:
                result = await self._run(order, context, progress)
            else:
                result = await self._run_approved(order, context, progress, only_read=only_read)
        except ToolcribError as error:
            if error.next_action is not None:
                raise
            raise error.leading_to(_step_after(error, view, tool)) from error
        return await _with_warnings(tool, result, context)

    def view_now(self, view: View, context: CallContext) -> View:
        """What has become of `view` by now, for whoever asks by now."""
        return view if self.view_of is None else self.view_of(replace(context, principal=context.principal_now))

    async def _checked(
        self, view: View, tool: Tool, shown: Handle | None, arguments: object, context: CallContext, *, only_read: bool
    ) -> _Order:
        """The call as an order that passed all checks, in their order."""
        access = _admitted(view, tool, shown)
        given: object = cast("object", {}) if arguments is None else arguments
        problems = tool.arguments.quick_violations(given)
        if problems is not None:
            return _placed(view, tool, _matching(tool, given, problems), access, only_read=only_read)
        problems = await violations_apart(tool.arguments, given, context.principal)
        order = _placed(view, tool, _matching(tool, given, problems), access, only_read=only_read)
        # That took a while, in which the policy may have changed.
        return self._placed_again(order, context, only_read=only_read)

    async def _run_approved(
        self, order: _Order, context: CallContext, progress: ProgressListener | None, *, only_read: bool
    ) -> ToolResult:
        tool = order.tool
        intent = Intent(context.principal.id, tool.id, order.definition, tool.summary, order.arguments)
        consent = await self.approver.ask(intent, context)
        now = self._placed_again(order, context, only_read=only_read)
        await self.approver.keep(intent, consent)
        result = await self._run(now, context, progress)
        return replace(result, wire=self.approver.paused(intent, consent, result.wire))

    async def _run(self, order: _Order, context: CallContext, progress: ProgressListener | None) -> ToolResult:
        with self.under_way.asking(f"`{order.tool.id}`", context, hints=[NOT_KNOWN]):
            return await _run(order, context, progress)

    def _placed_again(self, order: _Order, context: CallContext, *, only_read: bool) -> _Order:
        """The same order, as may be by now; raises as for a new one, and `StaleExpansion` where it would be another."""
        view = self.view_now(order.view, context)
        tool, shown = view.resolve(order.tool.handle)
        if tool is None:
            raise not_found(view, order.tool.handle)
        now = _placed(view, tool, order.arguments, _admitted(view, tool, shown), only_read=only_read)
        if now.definition != order.definition or not now.entry.is_same_server(order.entry):
            raise StaleExpansion(
                f"`{tool.id}` was not run: it has become another while a person was asked. Expand it again.",
                next_action=_expand(tool),
            )
        return now


@dataclass(frozen=True, slots=True)
class _Order:
    """One call that a view lets through."""

    view: View
    tool: Tool
    entry: SourceEntry
    arguments: Mapping[str, Any]
    access: Access

    @property
    def definition(self) -> str:
        """What a lasting approval binds: exactly this definition, of exactly this server."""
        return digest([self.tool.digests.wire, self.entry.identity])


def _admitted(view: View, tool: Tool, shown: Handle | None) -> Access:
    """Whether the principal may call the tool, or is to be asked, by all checks that do not look at the arguments."""
    access = view.access_to(tool)
    if access < Access.ASK:
        raise NotAuthorized(f"`{tool.id}` may be seen and not called by `{view.principal.id}`.")
    _check_expansion(view, tool, shown)
    if (lack := view.lacking.get(tool.id)) is not None:
        raise CapabilityMissing(f"`{tool.id}` was not run. {lack}", next_action=_search_another(tool))
    return access


def _placed(view: View, tool: Tool, arguments: Mapping[str, Any], access: Access, *, only_read: bool) -> _Order:
    if only_read and not (tool.annotations.read_only and view.is_trusted(tool.source)):
        raise NotAuthorized(
            f"`{tool.id}` is not known to only read.",
            next_action=NextAction("call_tool", {"tool_id": tool.handle, "arguments": arguments}),
        )
    entry = view.sources.get(tool.source)
    if entry is None:
        raise SourceUnavailable(f"The source `{tool.source}` is gone.", next_action=NextAction("list"))
    return _Order(view, tool, entry, arguments, access)


async def _run(order: _Order, context: CallContext, progress: ProgressListener | None) -> ToolResult:
    tool, entry = order.tool, order.entry
    try:
        result = await entry.source.call_tool(entry.offered(tool), order.arguments, context, progress=progress)
    except StaleExpansion as stale:
        raise StaleExpansion(stale.message, hints=stale.hints, next_action=_expand(tool)) from stale
    except SourceUnavailable as gone:
        # Once the request had gone out, only where its owner vouches that running twice is the same as running once.
        retryable = gone.retryable or (entry.trusted and tool.annotations.idempotent)
        logger.warning("%s", " ".join(filter(None, (gone.message, gone.diagnosis))))
        raise SourceUnavailable(
            gone.message,
            hints=gone.hints if retryable else (*gone.hints, NOT_KNOWN),
            diagnosis=gone.diagnosis,
            # The same again would end the same; another tool may do it.
            next_action=_expand(tool) if retryable else _search_another(tool),
            retryable=retryable,
            retry_after_s=gone.retry_after_s,
        ) from gone
    if result.needs_input and context.client is None:
        # The same again would end the same; another tool may do it.
        raise ToolFailed(
            f"`{tool.id}` asks for input, and your client cannot be asked.", next_action=_search_another(tool)
        )
    return ToolResult(under_catalog_names(entry, result.wire), result.warnings)


def _check_expansion(view: View, tool: Tool, shown: Handle | None) -> None:
    if shown is None:
        raise NotExpanded(
            f"Nothing was run: `{tool.id}` is an id. Call the tool by the handle that `expand_tool` gave; without one, "
            "expand the tool first.",
            next_action=_expand(tool),
        )
    if not view.takes(shown, tool):
        raise StaleExpansion(
            f"The definition of `{tool.id}` is not the one behind this handle. Expand it again.",
            next_action=_expand(tool),
        )


def _matching(tool: Tool, given: object, problems: Sequence[Violation]) -> Mapping[str, Any]:
    """The arguments, if there is nothing wrong with them.

    Raises:
        InvalidArguments: there is.
    """
    problems = problems or _unsendable(given)
    if not problems and isinstance(given, dict):
        return cast("dict[str, Any]", given)
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
        details={"violations": violations_to_wire(problems)},
    )


def _unsendable(given: object) -> tuple[Violation, ...]:
    """A schema that does not look into a text passes half a surrogate pair, which ends a connection when written."""
    with suppress(TypeError):  # which it raises for an integer beyond 64 bits as well
        orjson.dumps(given)
        return ()
    try:
        json.dumps(given, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return (Violation("", "a text holds half a surrogate pair, which is no Unicode text", "type"),)
    except (TypeError, ValueError, RecursionError) as error:
        return (Violation("", f"this cannot be written as JSON: {error}", "type"),)
    return ()


def _expand(tool: Tool) -> NextAction:
    return NextAction("expand_tool", {"tool_id": tool.id})


def _step_after(error: ToolcribError, view: View, tool: Tool) -> NextAction:
    """The next action after an error about a call of `tool` that has none."""
    match error:
        case InvalidArguments() | RateLimited() | ToolFailed():
            # The tool itself is good: its definition says what to do otherwise, or the same again.
            return _expand(tool)
        case NotAuthorized():
            # Words that describe the tool would find it again, so this shows what else is in its place.
            _, near = view.ontology.nearest(view.ontology.places(tool)[0])
            return NextAction("list", {"path": [*near.path]} if near.path else {})
        case _:
            return _search_another(tool)


def _search_another(tool: Tool) -> NextAction:
    return NextAction("search_tools", {"query": tool.summary or tool.name})


async def _with_warnings(tool: Tool, result: ToolResult, context: CallContext) -> ToolResult:
    """The result as it came; one that misses the tool's own output schema is passed on with a warning, never lost."""
    problem = None if result.is_error or result.needs_input else await _output_problem(tool, result, context)
    if problem is None:
        return result
    logger.warning("%s: %s", tool.id, problem)
    return replace(result, warnings=(*result.warnings, problem))


async def _output_problem(tool: Tool, result: ToolResult, context: CallContext) -> str | None:
    try:
        schema = tool.results
    except InvalidTool as error:
        return f"the answer cannot be checked: {error.message}"
    if schema is None:
        return None
    if result.structured_content is None:
        return "the answer has no structured content, though the tool declares an output schema"
    violations = await violations_of(schema, result.structured_content, context.principal, "the answer")
    if not violations:
        return None
    first = violations[0]
    said = first.message
    return said if first == undecided("the answer") else f"the answer misses the tool's output schema: {said}"
