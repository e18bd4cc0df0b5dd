"""Answers operations: each one belongs to a trace and is recorded, whether it succeeds or fails."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import anyio
import orjson

from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    InvalidArguments,
    NextAction,
    NotExpanded,
    RateLimited,
    StaleExpansion,
    ToolcribError,
    ToolNotFound,
)
from toolcrib.core.events import OK, TOOL_ERROR, Consent, OperationPerformed, Recorder
from toolcrib.core.handles import Handle
from toolcrib.core.principal import CallContext, new_trace_id
from toolcrib.core.results import ToolResult
from toolcrib.core.threads import KeyedLocks
from toolcrib.core.tools import Path, Tool
from toolcrib.operations.arguments import checked, read, unknown_operation
from toolcrib.operations.calling import CallLimits, Runner, complete, get_prompt, read_resource
from toolcrib.operations.calling.fetching import NOTHING_FETCHED, FetchedItem
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.operation_table import CALLS, OPERATION_TABLE
from toolcrib.operations.protocol_messages import Answer, Expansions, expanded_by, node_count_of
from toolcrib.operations.suggestions import searching
from toolcrib.operations.trace_memory import TraceMemory
from toolcrib.sources.base import ProgressListener

logger = logging.getLogger(__name__)

GIVEN_UP = "GIVEN_UP"
"""The outcome of an operation whose caller left before the answer."""

FAULT = "FAULT"
"""The outcome of an operation that ended with an internal error."""

MAX_RECORDED_CHARS = 2_000
"""The most characters of a query or an id that are recorded."""

MAX_RECORDED_NAMES = 100
"""The most names of a path that are recorded, from its beginning."""

REFUSAL_INTERVAL_S = 0.05
"""The shortest time between two rate-limit errors for one principal, in seconds. Further errors wait for their turn."""

_EXPANDING = "expand_tool"

_P = ParamSpec("_P")
_A = TypeVar("_A", bound=Answer)


@dataclass(slots=True)
class _OperationCall:
    """One operation while it runs, and what is recorded about it."""

    operation: str
    context: CallContext
    """The context, with the trace of the operation."""
    trace_id: str
    found: tuple[Tool | None, Handle | None]
    """The requested tool and its handle, as `View.resolve` returns them."""
    query: str | None
    path: Path | None
    tool_ids: tuple[str, ...]
    """The requested tool; after the answer, the tools in the answer."""
    item: str | None = None
    """The requested prompt or resource."""
    arguments: Mapping[str, Any] | None = None
    """The arguments of a call, a prompt or a template."""
    input_schema: Mapping[str, Any] | None = None
    """The input schema of the called tool."""
    approval: Consent | None = None
    """How the approval of a call, a prompt or a resource was settled."""
    answer: Answer | ToolResult | None = None

    def note_approval(self, approval: Consent) -> None:
        self.approval = approval

    def fetched(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set `result` as the answer, and return it."""
        self.answer = ToolResult(result)
        return result


@dataclass(frozen=True)
class Dispatcher:
    """Answers and records all operations of one crib."""

    operations: Operations = field(default_factory=Operations)
    runner: Runner = field(default_factory=Runner)
    traces: TraceMemory = field(default_factory=TraceMemory)
    recorders: list[Recorder] = field(default_factory=list[Recorder])
    """Each recorder receives every operation."""
    lookups: CallLimits = field(default_factory=partial(CallLimits, what="operations"))
    """The rate limit for all operations that come from outside of this program, including calls and failed requests.

    `Runner.limits` only counts calls that run. Without this limit, failing requests would be unlimited and would fill
    the audit."""
    bundle_of: Callable[[CallContext], str | None] = attrgetter("bundle")
    """Returns the name of the bundle that limits an operation, for the record."""
    _refusing: KeyedLocks = field(default_factory=KeyedLocks)
    """The locks of the principals that currently get rate-limit errors, by their ids."""

    def perform_method(
        self,
        name: str,
        method: Callable[Concatenate[View, _P], _A],
        view: View,
        context: CallContext,
        *args: _P.args,
        **given: _P.kwargs,
    ) -> _A:
        """Return the answer of `method`, usually a method of `operations`. `name` is the recorded operation.

        Raises:
            ToolcribError: the method failed.
            InvalidArguments: a value has the wrong type; see `read`.
        """
        with self._recorded(name, view, context, given) as call:
            answer = cast("Callable[..., _A]", method)(self._within(view, call), *args, **read(name, given))
            return self._shown(call, answer.in_trace(call.trace_id))

    async def call_tool(
        self,
        view: View,
        context: CallContext,
        reference: str,
        arguments: object,
        *,
        only_read: bool = False,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run an expanded tool; see `Runner.call_tool`."""
        name = "call_read_only_tool" if only_read else "call_tool"
        given = {"tool_id": reference, "arguments": arguments}
        with self._recorded(name, view, context, given) as call:
            return await self._run_tool(call, view, reference, arguments, progress)

    async def perform(
        self,
        view: View,
        context: CallContext,
        name: str,
        arguments: Mapping[str, Any],
        *,
        progress: ProgressListener | None = None,
    ) -> Answer | ToolResult:
        """Answer one operation, given by its name from `OPERATIONS` and its JSON arguments.

        Raises:
            ToolcribError: the operation failed.
            InvalidArguments: no operation has this name, or `arguments` do not match its schema.
            RateLimited: the principal exceeded its rate limit. This error comes at most once per `REFUSAL_INTERVAL_S`.
        """
        if (operation := OPERATION_TABLE.get(name)) is None:
            raise unknown_operation(name)
        async with self._admitted(context, NextAction(name, arguments)):
            with self._recorded(name, view, context, arguments) as call:
                given = checked(view, operation, arguments)
                if operation.answer is None:
                    return await self._run_tool(call, view, given["tool_id"], given.get("arguments"), progress)
                answer = operation.answer(self.operations, self._within(view, call), **given)
                return self._shown(call, answer.in_trace(call.trace_id))

    @asynccontextmanager
    async def _admitted(self, context: CallContext, again: NextAction | None = None) -> AsyncGenerator[None]:
        """Check the rate limit before a block that answers a request. `again` is the next action of the error."""
        try:
            # Not recorded: otherwise one fast principal could push the operations of others out of the audit.
            try:
                self.lookups.admit(context.principal)
            except RateLimited as error:
                raise (error if again is None else error.leading_to(again)) from error
            yield
        except RateLimited:
            # Without this wait, errors for one principal with many connections would use most of the processor time.
            async with self._refusing.of(context.principal.id):
                await anyio.sleep(REFUSAL_INTERVAL_S)
            raise

    async def get_prompt(
        self, view: View, context: CallContext, name: str, arguments: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Fetch a prompt with its arguments filled in; see `calling.get_prompt`. It has the rate limit of `perform`."""
        async with self._admitted(context):
            with self._recorded("prompts/get", view, context, {}, FetchedItem.prompt(name, arguments)) as call:
                return call.fetched(await get_prompt(view, name, arguments, call.context, runner=self.runner))

    async def read_resource(self, view: View, context: CallContext, uri: str) -> Mapping[str, Any]:
        """Read a resource; see `calling.read_resource`. The rate limit is that of `perform`."""
        async with self._admitted(context):
            with self._recorded(
                "resources/read", view, context, {}, FetchedItem.resource(uri, view.prompts_and_resources)
            ) as call:
                return call.fetched(await read_resource(view, uri, call.context, runner=self.runner))

    async def complete(self, view: View, context: CallContext, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete an argument of a prompt or template; see `calling.complete`. It has the rate limit of `perform`."""
        async with self._admitted(context):
            fetched = FetchedItem.completion(params, view.prompts_and_resources)
            with self._recorded("completion/complete", view, context, {}, fetched) as call:
                return call.fetched(await complete(view, params, call.context, runner=self.runner))

    async def _run_tool(
        self, call: _OperationCall, view: View, reference: str, arguments: object, progress: ProgressListener | None
    ) -> ToolResult:
        try:
            call.answer = await self.runner.call_tool(
                view,
                reference,
                arguments,
                call.context,
                only_read=call.operation == "call_read_only_tool",
                progress=progress,
                found=call.found,
            )
        except (NotExpanded, StaleExpansion, InvalidArguments) as error:
            # An expansion after this error joins its trace.
            if view.find(tool_id := call.tool_ids[0]) is not None:
                self.traces.remember(call.context.principal.id, [tool_id], call.trace_id)
            if not isinstance(error, NotExpanded):
                raise
            raise self._by_handle(call, view, arguments) or error from error
        self.traces.end(call.context.principal.id, call.tool_ids[0])
        self.traces.use(call.context.principal.id, call.tool_ids, call.trace_id)
        return call.answer

    def _by_handle(self, call: _OperationCall, view: View, arguments: object) -> NotExpanded | None:
        """Return the error for a call by tool id, with the handle that this principal has; None if it has none."""
        tool = view.find(call.tool_ids[0])
        given = self.traces.handle_of(call.context.principal.id, call.tool_ids[0])
        handle = Handle.parse(given) if given is not None else None
        if tool is None or handle is None or not view.takes(handle, tool):
            return None
        sent = {"arguments": cast("Mapping[str, Any]", arguments)} if isinstance(arguments, Mapping) else {}
        return NotExpanded(
            f"`{tool.id}` is a tool id, not a handle. Nothing ran. Call the tool by its handle: `{given}`.",
            next_action=NextAction(call.operation, {"tool_id": given, **sent}),
        )

    def _shown(self, call: _OperationCall, answer: _A) -> _A:
        """Note and return `answer`. Its errors about tools that existed before get a search as their next action."""
        if isinstance(answer, Expansions):
            errors = {asked: self._as_known(call, asked, error) for asked, error in answer.errors.items()}
            answer = replace(answer, errors=errors)
        call.answer, call.tool_ids = answer, answer.tool_ids
        handles = {each.tool_id: each.handle for each in expanded_by(answer)}
        expands = call.operation == _EXPANDING
        self.traces.remember(call.context.principal.id, answer.tool_ids, call.trace_id, handles, is_expansion=expands)
        if expands:
            self.traces.use(call.context.principal.id, answer.tool_ids, call.trace_id)
        return answer

    def _within(self, view: View, call: _OperationCall) -> View:
        """Return `view` with the tools that its principal used before in the trace of `call`."""
        used = self.traces.used(call.context.principal.id, call.trace_id)
        return replace(view, used=used) if used else view

    def _as_known(self, call: _OperationCall, asked: str, error: ToolcribError) -> ToolcribError:
        """Return `error`. If the tool existed before, the next action is a search, not a tool with a similar id."""
        if isinstance(error, ToolNotFound) and self.traces.holds(call.context.principal.id, asked):
            return error.leading_to(searching(asked))
        return error

    @contextmanager
    def _recorded(
        self,
        operation: str,
        view: View,
        context: CallContext,
        given: Mapping[str, object],
        fetched: FetchedItem = NOTHING_FETCHED,
    ) -> Generator[_OperationCall]:
        """Record an operation that is answered in a block. `given` can have any shape."""
        reference = _tool(given)
        tool, handle = view.resolve(reference) if reference is not None else (None, None)
        named = tool.id if tool is not None else handle.tool_id if handle is not None else reference
        trace_id = self._trace(operation, context, handle, tool)
        call = _OperationCall(
            operation,
            context,
            trace_id,
            (tool, handle),
            query=query[:MAX_RECORDED_CHARS] if isinstance(query := given.get("query"), str) else None,
            path=_path(given),
            tool_ids=() if named is None else (named[:MAX_RECORDED_CHARS],),
            item=None if fetched.item is None else fetched.item[:MAX_RECORDED_CHARS],
            arguments=fetched.arguments,
        )
        call.context = replace(context, trace_id=trace_id, note_approval=call.note_approval)
        if operation in CALLS:
            call.input_schema = tool.input_schema if tool is not None else None
            if isinstance(arguments := given.get("arguments"), Mapping):
                call.arguments = cast("Mapping[str, Any]", arguments)
        began, at = time.monotonic(), time.time()
        outcome, told = GIVEN_UP, dict[str, Any]()
        try:
            yield call
            outcome = TOOL_ERROR if isinstance(call.answer, ToolResult) and call.answer.is_error else OK
        except ToolcribError as error:
            known = self._as_known(call, named, error) if named is not None else error
            outcome, told = known.code.value, known.to_wire()
            if known is error:
                raise
            raise known from error
        except Exception:
            outcome = FAULT
            raise
        finally:
            if self.recorders:
                self._record(call, outcome, told, at, time.monotonic() - began)

    def _trace(self, operation: str, context: CallContext, handle: Handle | None, tool: Tool | None) -> str:
        if handle is not None and handle.trace_id is not None:
            return handle.trace_id
        if context.trace_id is not None:
            return context.trace_id
        if tool is None:
            return new_trace_id()
        return self.traces.of(context.principal.id, tool.id, expands=operation == _EXPANDING) or new_trace_id()

    def _record(
        self, call: _OperationCall, outcome: str, told: Mapping[str, Any], at: float, duration_s: float
    ) -> None:
        event = OperationPerformed(
            at=at,
            trace_id=call.trace_id,
            principal=call.context.principal.id,
            operation=call.operation,
            outcome=outcome,
            duration_s=duration_s,
            answer_bytes=_size(call.answer.to_wire() if call.answer is not None else told),
            query=call.query,
            path=call.path,
            tool_ids=call.tool_ids,
            node_count=node_count_of(call.answer),
            arguments=call.arguments,
            input_schema=call.input_schema,
            approval=call.approval,
            item=call.item,
            bundle=self.bundle_of(call.context),
        )
        for record in self.recorders:
            try:
                record(event)
            except Exception:
                logger.exception("a recorder failed on %s", call.operation)


def _tool(given: Mapping[str, object]) -> str | None:
    """Return the requested tool of an operation; the first one of several."""
    several = given.get("tool_ids")
    first = cast("list[object]", several)[0] if isinstance(several, list) and several else None
    return next((each for each in (given.get("tool_id"), first) if isinstance(each, str)), None)


def _path(given: Mapping[str, object]) -> Path | None:
    for key in ("path", "category", "category_path"):
        value = given.get(key)
        if isinstance(value, str) and value:
            return (value[:MAX_RECORDED_CHARS],)
        if isinstance(value, list | tuple):
            return tuple(str(part)[:MAX_RECORDED_CHARS] for part in cast("list[object]", value)[:MAX_RECORDED_NAMES])
    return None


def _size(wire: Mapping[str, Any]) -> int:
    try:
        return len(orjson.dumps(wire))
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        return len(repr(wire))
