"""Runs a tool: makes all checks in a fixed order before it sends anything to the source."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import orjson

from toolcrib.catalog.access import Access
from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.view import View
from toolcrib.core.digests import digest
from toolcrib.core.errors import (
    ApprovalPending,
    CapabilityMissing,
    InvalidArguments,
    InvalidTool,
    NextAction,
    NotAuthorized,
    NotExpanded,
    RateLimited,
    SignInRequired,
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
from toolcrib.operations.calling.approval_question import Intent
from toolcrib.operations.calling.approver import Approver
from toolcrib.operations.calling.argument_repair import repaired
from toolcrib.operations.calling.limits import CallLimits
from toolcrib.operations.calling.source_requests import NOT_KNOWN, RunningRequests, under_catalog_names
from toolcrib.operations.calling.validation import violations_apart, violations_of
from toolcrib.operations.suggestions import not_found
from toolcrib.sources.base import ProgressListener

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Runner:
    """Runs tools. It has the limits, approvals and running requests that all calls of one crib share."""

    limits: CallLimits = field(default_factory=CallLimits)
    approver: Approver = field(default_factory=Approver)
    running: RunningRequests = field(default_factory=RunningRequests)
    view_of: Callable[[CallContext], View] | None = None
    """Returns the current view of a principal, because a person may think for minutes; None if views do not change."""

    async def call_tool(
        self,
        view: View,
        reference: str,
        arguments: object,
        context: CallContext,
        *,
        only_read: bool = False,
        progress: ProgressListener | None = None,
        found: tuple[Tool | None, Handle | None] | None = None,
    ) -> ToolResult:
        """Run the tool of `reference`, a handle from `expand_tool`.

        With `only_read`, run it only if its source is trusted and says that the tool is read-only. `found` is the
        result of `view.resolve(reference)`, if the caller has it.

        Raises:
            ToolNotFound: no visible tool has this id.
            NotAuthorized: the principal can see the tool but not call it, the call was not approved, or the tool may
                change something and `only_read` is set.
            ApprovalPending: nothing ran; a person must approve the call first, and the client cannot show the question.
            NotExpanded: `reference` is a tool id instead of a handle, so the caller may not know the arguments.
            StaleExpansion: the definition differs from the one that was shown.
            CapabilityMissing: nothing ran; the system lacks something that the tool needs.
            InvalidArguments: nothing ran; hints and details say what is wrong where.
            RateLimited: nothing ran; the principal exceeded its rate limit.
            SourceUnavailable: the source cannot be reached, or stopped.
            SignInRequired: nothing ran; a person has to sign in to the source first.
            ToolFailed: the source refused to run the tool, or asks for input and the client cannot be asked.

        `ToolNotFound`, `NotAuthorized`, `StaleExpansion`, `CapabilityMissing` and `SourceUnavailable` can also be the
        result of a change that happened while a person was being asked. Each error has a `next_action`.

        Source: discovery protocol v0.1, `call_tool` and behavioural rule 4.
        """
        if view.principal != context.principal:
            raise ValueError(f"a view for {view.principal.id} cannot serve a call for {context.principal.id}")
        tool, shown = found or view.resolve(reference)
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
        problem = None if result.is_error or result.needs_input else await _output_problem(tool, result, context)
        if problem is None:
            return result
        logger.warning("%s: %s", tool.id, problem)
        return replace(result, warnings=(*result.warnings, problem))

    def view_now(self, view: View, context: CallContext) -> View:
        """Return the current view for the current principal of `context`."""
        return view if self.view_of is None else self.view_of(replace(context, principal=context.principal_now))

    async def _checked(
        self, view: View, tool: Tool, shown: Handle | None, arguments: object, context: CallContext, *, only_read: bool
    ) -> _Order:
        """Make all checks in their order, and return the call as an order."""
        access = _admitted(view, tool, shown)
        given: object = cast("object", {}) if arguments is None else arguments
        problems = tool.arguments.quick_violations(given)
        if problems is not None:
            return _placed(view, tool, _matching(tool, given, problems), access, only_read=only_read)
        problems = await violations_apart(tool.arguments, given, context.principal)
        order = _placed(view, tool, _matching(tool, given, problems), access, only_read=only_read)
        # The check in a separate process took time, in which the policy may have changed.
        return self._placed_again(order, context, only_read=only_read)

    async def _run_approved(
        self, order: _Order, context: CallContext, progress: ProgressListener | None, *, only_read: bool
    ) -> ToolResult:
        tool = order.tool
        intent = Intent(context.principal.id, tool.id, order.definition, tool.summary, order.arguments)
        try:
            consent = await self.approver.ask(intent, context)
        except ApprovalPending as pending:
            again = NextAction(
                "call_read_only_tool" if only_read else "call_tool",
                {"tool_id": tool.handle, "arguments": order.arguments},
            )
            raise pending.leading_to(again) from pending
        now = self._placed_again(order, context, only_read=only_read)
        await self.approver.keep(intent, consent)
        result = await self._run(now, context, progress)
        return replace(result, wire=self.approver.paused(intent, consent, result.wire))

    async def _run(self, order: _Order, context: CallContext, progress: ProgressListener | None) -> ToolResult:
        """Send the call to its source, within the caller's deadline."""
        tool, entry = order.tool, order.entry
        with self.running.asking(f"`{tool.id}`", context, hints=[NOT_KNOWN]):
            try:
                result = await entry.source.call_tool(entry.offered(tool), order.arguments, context, progress=progress)
            except StaleExpansion as stale:
                raise StaleExpansion(stale.message, hints=stale.hints, next_action=_expand(tool)) from stale
            except SignInRequired as wanted:
                logger.warning("%s", " ".join(filter(None, (wanted.message, wanted.diagnosis))))
                again = {"tool_id": tool.handle, "arguments": dict(order.arguments)}
                raise wanted.leading_to(NextAction("call_tool", again)) from wanted
            except SourceUnavailable as gone:
                # If the request was sent, a retry is only safe if a trusted source says that the tool is idempotent.
                retryable = gone.retryable or (entry.trusted and tool.annotations.idempotent)
                logger.warning("%s", " ".join(filter(None, (gone.message, gone.diagnosis))))
                raise SourceUnavailable(
                    gone.message,
                    hints=gone.hints if retryable else (*gone.hints, NOT_KNOWN),
                    diagnosis=gone.diagnosis,
                    # Without a safe retry, only a different tool can help.
                    next_action=_expand(tool) if retryable else _search_another(tool),
                    retryable=retryable,
                    retry_after_s=gone.retry_after_s,
                ) from gone
            if result.needs_input and context.client is None:
                # A retry would end in the same way, so only a different tool can help.
                raise ToolFailed(
                    f"`{tool.id}` asks for input, but your client cannot be asked for it.",
                    next_action=_search_another(tool),
                )
            return ToolResult(under_catalog_names(entry, result.wire), result.warnings)

    def _placed_again(self, order: _Order, context: CallContext, *, only_read: bool) -> _Order:
        """Check an order again, because time has passed.

        Raises:
            ToolcribError: the order would now be refused; see `call_tool`.
            StaleExpansion: the definition or the server of the tool has changed.
        """
        view = self.view_now(order.view, context)
        tool, shown = view.resolve(order.tool.handle)
        if tool is None:
            raise not_found(view, order.tool.handle)
        now = _placed(view, tool, order.arguments, _admitted(view, tool, shown), only_read=only_read)
        if now.definition != order.definition or not now.entry.is_same_server(order.entry):
            raise StaleExpansion(
                f"`{tool.id}` did not run: its definition changed while a person was being asked. Expand it again.",
                next_action=_expand(tool),
            )
        return now


@dataclass(frozen=True, slots=True)
class _Order:
    """A call that has passed all checks."""

    view: View
    tool: Tool
    entry: SourceEntry
    arguments: Mapping[str, Any]
    access: Access

    @property
    def definition(self) -> str:
        """The digest to which a permanent approval is bound: of this definition and this server."""
        return digest([self.tool.digests.wire, self.entry.identity])


def _admitted(view: View, tool: Tool, shown: Handle | None) -> Access:
    """Make the checks that do not depend on the arguments. Return whether a person must be asked (`ASK` or `CALL`)."""
    access = view.access_to(tool)
    if access < Access.ASK:
        raise NotAuthorized(f"`{view.principal.id}` is not allowed to call `{tool.id}`. Use a different tool.")
    if shown is None:
        raise NotExpanded(
            f"`{tool.id}` is a tool id, not a handle. Nothing ran. Call `expand_tool` first, then pass its handle.",
            next_action=_expand(tool),
        )
    if not view.takes(shown, tool):
        raise StaleExpansion(
            f"The definition of `{tool.id}` changed after you expanded it. Nothing ran. Expand it again and use the "
            "new handle.",
            next_action=_expand(tool),
        )
    if (lack := view.lacking.get(tool.id)) is not None:
        raise CapabilityMissing(f"`{tool.id}` did not run. {lack}", next_action=_search_another(tool))
    return access


def _placed(view: View, tool: Tool, arguments: Mapping[str, Any], access: Access, *, only_read: bool) -> _Order:
    if only_read and not (tool.annotations.read_only and view.is_trusted(tool.source)):
        raise NotAuthorized(
            f"`{tool.id}` may change something, so `call_read_only_tool` does not run it. Use `call_tool`.",
            next_action=NextAction("call_tool", {"tool_id": tool.handle, "arguments": arguments}),
        )
    entry = view.sources.get(tool.source)
    if entry is None:
        raise SourceUnavailable(f"The source `{tool.source}` no longer exists.", next_action=NextAction("list"))
    return _Order(view, tool, entry, arguments, access)


def _matching(tool: Tool, given: object, problems: Sequence[Violation]) -> Mapping[str, Any]:
    """Return the arguments if they have no problems.

    Raises:
        InvalidArguments: they have problems, or are not an object.
    """
    problems = problems or _unsendable(given)
    if not problems and isinstance(given, dict):
        return cast("dict[str, Any]", given)
    repair = repaired(tool.input_schema, tool.arguments, given)
    what = "; ".join(problem.message for problem in problems[:3]) or "they are not an object"
    raise InvalidArguments(
        f"The arguments of `{tool.id}` do not match its input schema: {what}. Nothing ran.",
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
    """Return what prevents `given` from being sent. A schema can accept half a surrogate pair, which breaks writing."""
    with suppress(TypeError):  # orjson also raises it for an integer beyond 64 bits, which can be sent
        orjson.dumps(given)
        return ()
    try:
        json.dumps(given, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return (Violation("", "a string contains half a surrogate pair, which is not valid Unicode", "type"),)
    except (TypeError, ValueError, RecursionError) as error:
        return (Violation("", f"this cannot be written as JSON: {error}", "type"),)
    return ()


def _expand(tool: Tool) -> NextAction:
    return NextAction("expand_tool", {"tool_id": tool.id})


def _step_after(error: ToolcribError, view: View, tool: Tool) -> NextAction:
    """Return the next action for an error about a call of `tool` that has none."""
    match error:
        case InvalidArguments() | RateLimited() | ToolFailed():
            # The tool itself is the right one: its definition shows how to call it differently, or again.
            return _expand(tool)
        case NotAuthorized():
            # A search with the tool's words would find it again, so list its category to show alternatives.
            _, near = view.ontology.nearest(view.ontology.places(tool)[0])
            return NextAction("list", {"path": [*near.path]} if near.path else {})
        case _:
            return _search_another(tool)


def _search_another(tool: Tool) -> NextAction:
    return NextAction("search_tools", {"query": tool.summary or tool.name})


async def _output_problem(tool: Tool, result: ToolResult, context: CallContext) -> str | None:
    """Return why the answer does not match the tool's output schema, or None if it does."""
    try:
        schema = tool.results
    except InvalidTool as error:
        return f"the answer cannot be checked: {error.message}"
    if schema is None:
        return None
    if result.structured_content is None:
        return "the answer has no structured content, but the tool declares an output schema"
    violations = await violations_of(schema, result.structured_content, context.principal, "the answer")
    if not violations:
        return None
    first = violations[0]
    said = first.message
    return said if first == undecided("the answer") else f"the answer does not match the tool's output schema: {said}"
