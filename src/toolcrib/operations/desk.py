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
from weakref import WeakValueDictionary

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
from toolcrib.core.tools import Path, Tool
from toolcrib.operations.arguments import check_operation, checked, read
from toolcrib.operations.calling import CallLimits, Runner, complete, get_prompt, read_resource
from toolcrib.operations.fetched import NOTHING, Fetched
from toolcrib.operations.messages import Answer, DetailLevel, Expansions, expanded_by, node_count_of
from toolcrib.operations.showing import MAX_EXPANDED, Operations
from toolcrib.operations.suggestions import searching
from toolcrib.operations.tools import CALLS
from toolcrib.operations.trails import Trails
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

_ON_THE_WIRE = {"expand_tools": _EXPANDING}

_P = ParamSpec("_P")
_A = TypeVar("_A", bound=Answer)


@dataclass(slots=True)
class Errand:
    """One running operation."""

    operation: str
    context: CallContext
    """The context, with the trace of the operation."""
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

    @property
    def noting(self) -> CallContext:
        """The context, with a function that stores the approval here."""
        return replace(self.context, note_approval=self._note)

    def fetched(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set `result` as the answer, and return it."""
        self.answer = ToolResult(result)
        return result

    def _note(self, approval: Consent) -> None:
        self.approval = approval

    @property
    def trace_id(self) -> str:
        return self.context.trace_id or ""


@dataclass(frozen=True)
class Desk:
    """Answers and records all operations of one crib."""

    operations: Operations = field(default_factory=Operations)
    runner: Runner = field(default_factory=Runner)
    trails: Trails = field(default_factory=Trails)
    recorders: list[Recorder] = field(default_factory=list[Recorder])
    """Each recorder receives every operation."""
    lookups: CallLimits = field(default_factory=partial(CallLimits, what="operations"))
    """The rate limit for all operations that come from outside of this program, including calls and failed requests.

    `Runner.limits` only counts calls that run. Without this limit, failing requests would be unlimited and would fill
    the audit."""
    bundle_of: Callable[[CallContext], str | None] = attrgetter("bundle")
    """Returns the name of the bundle that limits an operation, for the record."""
    _refusing: WeakValueDictionary[str, anyio.Lock] = field(default_factory=WeakValueDictionary[str, anyio.Lock])
    """A lock for each principal that currently gets rate-limit errors, by its id."""

    def look(
        self,
        operation: Callable[Concatenate[View, _P], _A],
        view: View,
        context: CallContext,
        *args: _P.args,
        **given: _P.kwargs,
    ) -> _A:
        """Run a method of `operations`, and return its answer.

        Raises:
            ToolcribError: the method failed.
            InvalidArguments: a value has the wrong type; see `read`.
        """
        name = _ON_THE_WIRE.get(operation.__name__, operation.__name__)
        with self._errand(name, view, context, given) as errand:
            answer = cast("Callable[..., _A]", operation)(view, *args, **read(name, given))
            return self._shown(errand, answer.in_trace(errand.trace_id))

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
        operation = "call_read_only_tool" if only_read else "call_tool"
        given = {"tool_id": reference, "arguments": arguments}
        with self._errand(operation, view, context, given) as errand:
            return await self._call(errand, view, reference, arguments, progress)

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
        check_operation(name)
        async with self._admitted(context, NextAction(name, arguments)):
            with self._errand(name, view, context, arguments) as errand:
                given = checked(view, name, arguments)
                if name in CALLS:
                    return await self._call(errand, view, given["tool_id"], given.get("arguments"), progress)
                return self._shown(errand, self._answer(view, name, given).in_trace(errand.trace_id))

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
            async with self._refusing.setdefault(context.principal.id, anyio.Lock()):
                await anyio.sleep(REFUSAL_INTERVAL_S)
            raise

    async def get_prompt(
        self, view: View, context: CallContext, name: str, arguments: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Fetch a prompt with its arguments filled in; see `calling.get_prompt`. It has the rate limit of `perform`."""
        async with self._admitted(context):
            with self._errand("prompts/get", view, context, {}, Fetched.prompt(name, arguments)) as errand:
                return errand.fetched(await get_prompt(view, name, arguments, errand.noting, runner=self.runner))

    async def read_resource(self, view: View, context: CallContext, uri: str) -> Mapping[str, Any]:
        """Read a resource; see `calling.read_resource`. The rate limit is that of `perform`."""
        async with self._admitted(context):
            with self._errand(
                "resources/read", view, context, {}, Fetched.resource(uri, view.prompts_and_resources)
            ) as errand:
                return errand.fetched(await read_resource(view, uri, errand.noting, runner=self.runner))

    async def complete(self, view: View, context: CallContext, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete an argument of a prompt or template; see `calling.complete`. It has the rate limit of `perform`."""
        async with self._admitted(context):
            fetched = Fetched.completion(params, view.prompts_and_resources)
            with self._errand("completion/complete", view, context, {}, fetched) as errand:
                return errand.fetched(await complete(view, params, errand.noting, runner=self.runner))

    def _answer(self, view: View, name: str, given: dict[str, Any]) -> Answer:
        match name:
            case "list":
                return self.operations.list(view, **given)
            case "list_categories":
                return self.operations.list_categories(view, **given)
            case "search_tools":
                if "detail_level" in given:
                    given["detail_level"] = DetailLevel(given["detail_level"])
                return self.operations.search_tools(view, **given)
            case "search_tool_by_category":
                return self.operations.search_tool_by_category(view, **given)
            case "search_nodes":
                return self.operations.search_nodes(view, **given)
            case "expand_tool":
                return self._expand(view, given)
            case _:
                raise ValueError(f"unknown operation {name}")

    def _expand(self, view: View, given: Mapping[str, Any]) -> Answer:
        tool_id, tool_ids = given.get("tool_id"), given.get("tool_ids")
        if tool_id is not None and tool_ids is None:
            return self.operations.expand_tool(view, tool_id)
        if tool_ids is not None and tool_id is None:
            return self.operations.expand_tools(view, tool_ids)
        both = [*dict.fromkeys([tool_id, *tool_ids])][:MAX_EXPANDED] if tool_id is not None and tool_ids else []
        raise InvalidArguments(
            "Pass either `tool_id` (one tool) or `tool_ids` (several). Nothing was expanded.",
            next_action=NextAction("expand_tool", {"tool_ids": both}) if both else NextAction("list"),
        )

    async def _call(
        self, errand: Errand, view: View, reference: str, arguments: object, progress: ProgressListener | None
    ) -> ToolResult:
        try:
            errand.answer = await self.runner.call_tool(
                view,
                reference,
                arguments,
                errand.noting,
                only_read=errand.operation == "call_read_only_tool",
                progress=progress,
            )
        except (NotExpanded, StaleExpansion, InvalidArguments) as error:
            # An expansion after this error joins its trace.
            if view.find(tool_id := errand.tool_ids[0]) is not None:
                self.trails.remember(errand.context.principal.id, [tool_id], errand.trace_id)
            if not isinstance(error, NotExpanded):
                raise
            raise self._by_handle(errand, view, arguments) or error from error
        self.trails.end(errand.context.principal.id, errand.tool_ids[0])
        return errand.answer

    def _by_handle(self, errand: Errand, view: View, arguments: object) -> NotExpanded | None:
        """Return the error for a call by tool id, with the handle that this principal has; None if it has none."""
        tool = view.find(errand.tool_ids[0])
        given = self.trails.handle_of(errand.context.principal.id, errand.tool_ids[0])
        handle = Handle.parse(given) if given is not None else None
        if tool is None or handle is None or not view.takes(handle, tool):
            return None
        sent = {"arguments": cast("Mapping[str, Any]", arguments)} if isinstance(arguments, Mapping) else {}
        return NotExpanded(
            f"`{tool.id}` is a tool id, not a handle. Nothing ran. Call the tool by its handle: `{given}`.",
            next_action=NextAction(errand.operation, {"tool_id": given, **sent}),
        )

    def _shown(self, errand: Errand, answer: _A) -> _A:
        """Note and return `answer`. Its errors about tools that existed before get a search as their next action."""
        if isinstance(answer, Expansions):
            errors = {asked: self._as_known(errand, asked, error) for asked, error in answer.errors.items()}
            answer = replace(answer, errors=errors)
        errand.answer, errand.tool_ids = answer, answer.tool_ids
        handles = {each.tool_id: each.handle for each in expanded_by(answer)}
        expands = errand.operation == _EXPANDING
        self.trails.remember(
            errand.context.principal.id, answer.tool_ids, errand.trace_id, handles, is_expansion=expands
        )
        return answer

    def _as_known(self, errand: Errand, asked: str, error: ToolcribError) -> ToolcribError:
        """Return `error`. If the tool existed before, the next action is a search, not a tool with a similar id."""
        if isinstance(error, ToolNotFound) and self.trails.holds(errand.context.principal.id, asked):
            return error.leading_to(searching(asked))
        return error

    @contextmanager
    def _errand(
        self,
        operation: str,
        view: View,
        context: CallContext,
        given: Mapping[str, object],
        fetched: Fetched = NOTHING,
    ) -> Generator[Errand]:
        """Record an operation that is answered in a block. `given` can have any shape."""
        reference = _tool(given)
        tool, handle = view.resolve(reference) if reference is not None else (None, None)
        named = tool.id if tool is not None else handle.tool_id if handle is not None else reference
        errand = Errand(
            operation,
            replace(context, trace_id=self._trace(operation, context, handle, tool)),
            query=query[:MAX_RECORDED_CHARS] if isinstance(query := given.get("query"), str) else None,
            path=_path(given),
            tool_ids=() if named is None else (named[:MAX_RECORDED_CHARS],),
            item=None if fetched.item is None else fetched.item[:MAX_RECORDED_CHARS],
            arguments=fetched.arguments,
        )
        if operation in CALLS:
            errand.input_schema = tool.input_schema if tool is not None else None
            if isinstance(arguments := given.get("arguments"), Mapping):
                errand.arguments = cast("Mapping[str, Any]", arguments)
        began, at = time.monotonic(), time.time()
        outcome, told = GIVEN_UP, dict[str, Any]()
        try:
            yield errand
            outcome = TOOL_ERROR if isinstance(errand.answer, ToolResult) and errand.answer.is_error else OK
        except ToolcribError as error:
            known = self._as_known(errand, named, error) if named is not None else error
            outcome, told = known.code.value, known.to_wire()
            if known is error:
                raise
            raise known from error
        except Exception:
            outcome = FAULT
            raise
        finally:
            if self.recorders:
                self._record(errand, outcome, told, at, time.monotonic() - began)

    def _trace(self, operation: str, context: CallContext, handle: Handle | None, tool: Tool | None) -> str:
        if handle is not None and handle.trace_id is not None:
            return handle.trace_id
        if context.trace_id is not None:
            return context.trace_id
        if tool is None:
            return new_trace_id()
        return self.trails.of(context.principal.id, tool.id, expands=operation == _EXPANDING) or new_trace_id()

    def _record(self, errand: Errand, outcome: str, told: Mapping[str, Any], at: float, duration_s: float) -> None:
        event = OperationPerformed(
            at=at,
            trace_id=errand.trace_id,
            principal=errand.context.principal.id,
            operation=errand.operation,
            outcome=outcome,
            duration_s=duration_s,
            answer_bytes=_size(errand.answer.to_wire() if errand.answer is not None else told),
            query=errand.query,
            path=errand.path,
            tool_ids=errand.tool_ids,
            node_count=node_count_of(errand.answer),
            arguments=errand.arguments,
            input_schema=errand.input_schema,
            approval=errand.approval,
            item=errand.item,
            bundle=self.bundle_of(errand.context),
        )
        for record in self.recorders:
            try:
                record(event)
            except Exception:
                logger.exception("a recorder failed on %s", errand.operation)


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
