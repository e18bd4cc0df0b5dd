"""The clients behind the requests, as sources may ask them for input and tell them what they log: one way for each
protocol era.

A client of the handshake era is sent a request in the middle of its own. One of the newer era is not: it is told in the
answer what is missing, and comes back with it. What waits for it meanwhile is a visit.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
import mcp_types
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from toolcrib.core.client import LOG_LEVELS, Resumption
from toolcrib.core.errors import ToolFailed
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.surfaces.mcp_gateway.connections import Ctx, connection_of
from toolcrib.surfaces.mcp_gateway.logs import LogMessages, in_answer_to, level_of_request, level_set

ANSWER_S = 600.0
"""How long a client may take to answer a question, in seconds: a person thinks."""

MAX_VISITS = 1_000
"""Visits that wait for their clients at once; one more ends the one that has waited longest."""

MAX_ROUNDS = 10
"""How often one call may ask for input. The SDKs' clients give up after as many."""

FIRST_POLL_S, LAST_POLL_S = 0.05, 0.25
"""A source that asks nothing and only wants to be called again is, after the first, then after twice as long."""

Send = Callable[[CallContext], Awaitable[Mapping[str, Any]]]
"""Sends one request to its source: the result as it came, `input_required` included."""

_SOURCE_STATE = "source:"
_VISIT = "visit:"

_ASKED: Mapping[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "elicitation/create": (mcp_types.ElicitRequest, mcp_types.ElicitResult),
    "roots/list": (mcp_types.ListRootsRequest, mcp_types.ListRootsResult),
    "sampling/createMessage": (mcp_types.CreateMessageRequest, mcp_types.CreateMessageResultWithTools),
}
"""What a client can be asked, with its request and its answer."""


def askable(capabilities: mcp_types.ClientCapabilities | None) -> Mapping[str, Any]:
    """What of a client's capabilities a source may use."""
    if capabilities is None:
        return {}
    return capabilities.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"elicitation", "roots", "sampling"}
    )


class _Connected:
    """A client of the handshake era; two are equal that are on one connection."""

    __slots__ = ("connection", "messages")

    def __init__(self, connection: Connection, messages: LogMessages) -> None:
        self.connection = connection
        self.messages = messages

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Connected) and self.connection is other.connection

    def __hash__(self) -> int:
        return hash(self.connection)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return askable(self.connection.client_capabilities)

    @property
    def log_level(self) -> str | None:
        return level_set(self.connection)

    def log(self, params: Mapping[str, Any]) -> None:
        self.messages.put(params)


class HandshakeClient(_Connected):
    """One during one of its requests."""

    __slots__ = ("ctx",)

    def __init__(self, ctx: Ctx, messages: LogMessages) -> None:
        super().__init__(connection_of(ctx), messages)
        self.ctx = ctx

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        _check_askable(method, self.capabilities)
        request, result = _ASKED[method]
        try:
            answer = await self.ctx.session.send_request(
                cast("mcp_types.ServerRequest", request.model_validate({"method": method, "params": dict(params)})),
                result,
                request_read_timeout_seconds=ANSWER_S,
                metadata=ServerMessageMetadata(related_request_id=self.ctx.request_id),
            )
        except MCPError as error:
            raise ToolFailed(f"The client did not answer {method}: {error.message}") from error
        except ValidationError as error:
            raise ToolFailed(f"The question or the answer of {method} is none.") from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


class StandingClient(_Connected):
    """The one behind a pipe, between its requests."""

    __slots__ = ()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        _check_askable(method, self.capabilities)
        try:
            return await self.connection.send_raw_request(method, params, {"timeout": ANSWER_S})
        except MCPError as error:
            raise ToolFailed(f"The client did not answer {method}: {error.message}") from error


@dataclass(slots=True, eq=False)
class _Question:
    method: str
    params: Mapping[str, Any]
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True, eq=False)
class _Visit:
    """A request that goes on while its client, of the newer era, is away to find answers; it is that client, too."""

    who: object
    """The same for two visits of one client; None where that cannot be known."""
    capabilities: Mapping[str, Any]
    log_level: str | None
    """Of the request in which the client is here, or was last."""
    messages: LogMessages = field(default_factory=lambda: LogMessages(None, lambda: None))
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    news: anyio.Event = field(default_factory=anyio.Event)
    """Set when there is a question, or the end."""
    returned: anyio.Event = field(default_factory=anyio.Event)
    """Set when the client is back."""
    questions: dict[str, _Question] = field(default_factory=dict[str, _Question])
    """Those without an answer, by key."""
    asked: int = 0
    result: Mapping[str, Any] | None = None
    failure: Exception | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Visit) and self.who is not None and self.who is other.who)

    def __hash__(self) -> int:
        return id(self) if self.who is None else id(self.who)

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None

    def log(self, params: Mapping[str, Any]) -> None:
        self.messages.put(params)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        _check_askable(method, self.capabilities)
        self.asked += 1
        key, question = f"input-{self.asked}", _Question(method, params)
        self.questions[key] = question
        self.news.set()
        try:
            await question.answered.wait()
        finally:
            self.questions.pop(key, None)
        return question.answer or {}


class Clients:
    """Carries a request to its source for whichever client it came from, as often as the source asks in between."""

    def __init__(self, *, sole: bool) -> None:
        """`sole`: there is one client and no other."""
        self._tasks: TaskGroup | None = None
        self._sole = self if sole else None
        self._waiting: dict[str, _Visit] = {}

    def run_in(self, tasks: TaskGroup) -> None:
        """Let the requests that wait for a client to come back live in `tasks`."""
        self._tasks = tasks

    def standing(self, connection: Connection) -> StandingClient:
        """The one client of the handshake era while none of its requests is being answered."""

        async def send(params: Mapping[str, Any]) -> None:
            await connection.notify("notifications/message", params)

        messages = LogMessages(self._tasks, lambda: level_set(connection) or LOG_LEVELS[0], send)
        return StandingClient(connection, messages)

    async def carry(self, ctx: Ctx, send: Send) -> Mapping[str, Any]:
        """The result of `send`; for a client of the newer era it may be `input_required`, which is to be sealed.

        Raises:
            ToolcribError: as `send` does, or `ToolFailed` where the client does not answer what the source asks.
            MCPError: the client comes back to what is over.
        """
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await self._visited(ctx, send)
        connection = connection_of(ctx)
        messages = LogMessages(self._tasks, lambda: level_set(connection) or LOG_LEVELS[0], in_answer_to(ctx))
        try:
            return await self._asked_at_once(HandshakeClient(ctx, messages), send)
        finally:
            await _finish(messages)

    async def _asked_at_once(self, client: HandshakeClient, send: Send) -> Mapping[str, Any]:
        context, poll_s = CallContext(LOCAL, client=client), FIRST_POLL_S
        for _ in range(MAX_ROUNDS):
            result = await send(context)
            if result.get("resultType") != "input_required":
                return result
            questions = cast("Mapping[str, Any]", result.get("inputRequests") or {})
            if not questions:
                await anyio.sleep(poll_s)
                poll_s = min(2 * poll_s, LAST_POLL_S)
            answers = {
                key: await client.ask(question["method"], question.get("params") or {})
                for key, question in questions.items()
            }
            context = replace(context, resumed=Resumption(answers, result.get("requestState")))
        raise ToolFailed(f"The tool asked for more input after {MAX_ROUNDS} times, and was given up.")

    async def _visited(self, ctx: Ctx, send: Send) -> Mapping[str, Any]:
        params = ctx.params or {}
        state, answers = params.get("requestState"), cast("Mapping[str, Any]", params.get("inputResponses") or {})
        if isinstance(state, str) and state.startswith(_VISIT):
            visit = self._waiting.pop(state, None)
            if visit is None:
                raise MCPError(INVALID_PARAMS, "The call that this answers is over, or was answered already.")
            return await self._stay(visit, ctx, answers)
        own_state = state.removeprefix(_SOURCE_STATE) if isinstance(state, str) else None
        resumed = Resumption(answers, own_state) if answers or own_state is not None else None
        capabilities = askable(ctx.session.client_capabilities)
        visit = _Visit(self._sole, capabilities, level_of_request(ctx))
        visit.messages = LogMessages(self._tasks, lambda: visit.log_level, in_answer_to(ctx))
        context = CallContext(LOCAL, client=visit, resumed=resumed)
        if not capabilities or self._tasks is None:
            try:
                return _passed(await send(context), {})
            finally:
                await _finish(visit.messages)
        self._tasks.start_soon(_run, visit, send, context)
        return await self._stay(visit, ctx, {})

    async def _stay(self, visit: _Visit, ctx: Ctx, answers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Hand over the answers, and wait for the result or for the next questions."""
        visit.log_level = level_of_request(ctx)
        visit.messages.send_with(in_answer_to(ctx))
        visit.returned.set()
        for key, answer in answers.items():
            if (question := visit.questions.pop(key, None)) is not None:
                question.answer = answer
                question.answered.set()
        try:
            if not visit.questions and not visit.is_over:
                visit.news = anyio.Event()
                await visit.news.wait()
            await visit.messages.sent()
        except anyio.get_cancelled_exc_class():
            visit.scope.cancel()  # whoever waited has gone
            visit.messages.end()
            raise
        if visit.failure is not None:
            raise visit.failure
        if visit.result is not None:
            return _passed(visit.result, visit.capabilities)
        return self._leave(visit)

    def _leave(self, visit: _Visit) -> Mapping[str, Any]:
        """Let the client go with the questions that are open; what is logged meanwhile waits for it."""
        visit.messages.hold()
        ticket = f"{_VISIT}{secrets.token_urlsafe(18)}"
        if len(self._waiting) >= MAX_VISITS:
            self._waiting.pop(next(iter(self._waiting))).scope.cancel()
        self._waiting[ticket] = visit
        visit.returned = anyio.Event()
        if self._tasks is not None:
            self._tasks.start_soon(self._expire, ticket, visit, visit.returned)
        asked = {key: {"method": each.method, "params": dict(each.params)} for key, each in visit.questions.items()}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": ticket}

    async def _expire(self, ticket: str, visit: _Visit, returned: anyio.Event) -> None:
        with anyio.move_on_after(ANSWER_S):
            await returned.wait()
            return
        self._waiting.pop(ticket, None)
        visit.scope.cancel()


async def _finish(messages: LogMessages) -> None:
    """Let the last messages out before the answer; whoever has gone gets none."""
    try:
        await messages.sent()
    finally:
        messages.end()


async def _run(visit: _Visit, send: Send, context: CallContext) -> None:
    with visit.scope:
        try:
            visit.result = await send(context)
        except Exception as error:  # noqa: BLE001  raised again where the client waits for it
            visit.failure = error
    visit.news.set()


def _passed(result: Mapping[str, Any], capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """A source's own request for input, its state marked as that; a result of any other kind as it is.

    Raises:
        ToolFailed: it asks for what the client never said it can.
    """
    if result.get("resultType") != "input_required":
        return result
    for question in cast("Mapping[str, Mapping[str, Any]]", result.get("inputRequests") or {}).values():
        _check_askable(str(question.get("method")), capabilities)
    asked = {key: result[key] for key in ("resultType", "inputRequests") if key in result}
    if isinstance(result.get("requestState"), str):
        asked["requestState"] = f"{_SOURCE_STATE}{result['requestState']}"
    return asked


def _check_askable(method: str, capabilities: Mapping[str, Any]) -> None:
    if method not in _ASKED or method.partition("/")[0] not in capabilities:
        raise ToolFailed(f"This asks the client for {method}, which it cannot answer.")
