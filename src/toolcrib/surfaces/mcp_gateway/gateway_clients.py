"""The clients behind requests. Sources can ask them for input and send them log messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import anyio
import mcp_types
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.methods import INPUT_REQUIRED_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolcrib.core.client import ANSWER_S, LOG_LEVELS, Resumption
from toolcrib.core.errors import ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.sources.base import ProgressListener
from toolcrib.surfaces.mcp_gateway.client_logs import LogMessages, send_log
from toolcrib.surfaces.mcp_gateway.request_context import (
    ASKED,
    MAX_ROUNDS,
    Ctx,
    askable,
    check_askable,
    connection_of,
    context_of,
    level_set,
    principal_of,
)
from toolcrib.surfaces.mcp_gateway.suspended_calls import TICKET, SuspendableCall, SuspendedCalls

FIRST_POLL_S, LAST_POLL_S = 0.05, 0.25
"""The wait before a source without questions is called again, in seconds.

It doubles from the first to the last value.
"""

Send = Callable[[CallContext, ProgressListener | None], Awaitable[Mapping[str, Any]]]
"""Sends one request to its source. Returns the unchanged result, which may be `input_required`."""

_SOURCE_STATE = "source:"


@dataclass(eq=False)
class _Connected(ABC):
    """A client of the handshake era. Two objects are equal if they share a connection."""

    connection: Connection
    tasks: TaskGroup | None
    """Runs the task that sends log messages, until the client takes no more."""
    _messages: LogMessages | None = field(default=None, init=False)

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
        if self._messages is None:
            lowest = partial(_lowest_level, self.connection)
            self._messages = LogMessages(self.tasks, lowest, self._send_log)
        self._messages.put(params)

    async def finish(self) -> None:
        """Send the remaining log messages before the answer, and take no more."""
        self.tasks = None
        if self._messages is not None:
            await self._messages.finish()

    @abstractmethod
    async def _send_log(self, params: Mapping[str, Any]) -> None:
        """Send one log message."""


@dataclass(eq=False)
class _HandshakeClient(_Connected):
    """A client of the handshake era during one of its requests."""

    ctx: Ctx

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        check_askable(method, params, self.capabilities)
        request, result = ASKED[method]
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
            raise ToolFailed(f"The request {method} to the client, or its answer, is not valid MCP.") from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _send_log(self, params: Mapping[str, Any]) -> None:
        await send_log(self.ctx, params)


class _PipeClient(_Connected):
    """The client at the other end of a pipe, between its requests."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        check_askable(method, params, self.capabilities)
        try:
            return await self.connection.send_raw_request(method, params, {"timeout": ANSWER_S})
        except MCPError as error:
            raise ToolFailed(f"The client did not answer {method}: {error.message}") from error

    async def _send_log(self, params: Mapping[str, Any]) -> None:
        await self.connection.notify("notifications/message", params)


def _lowest_level(connection: Connection) -> str:
    """Return the lowest level of the log messages that a client wants."""
    return level_set(connection) or LOG_LEVELS[0]


class Clients:
    """Forwards requests to their sources, and the sources' questions to the clients that sent the requests."""

    def __init__(self, *, sole: bool) -> None:
        """`sole`: there is only one client."""
        self._tasks: TaskGroup | None = None
        self._suspended: SuspendedCalls | None = None
        self._who = "the one client" if sole else None

    def run_in(self, tasks: TaskGroup) -> None:
        """Run the requests that wait for a client to return in `tasks`."""
        self._tasks, self._suspended = tasks, SuspendedCalls(tasks)

    def between_requests(self, connection: Connection) -> _PipeClient:
        """Return the only client of the handshake era, for the time between its requests."""
        return _PipeClient(connection, self._tasks)

    async def carry(self, ctx: Ctx, send: Send) -> Mapping[str, Any]:
        """Return the result of `send`. For a client of the newer era it may be `input_required`, which must be sealed.

        Raises:
            ToolcribError: `send` failed, or the client did not answer the source's question (`ToolFailed`).
            MCPError: the client returned to a request that has ended.
        """
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await self._carry_back_and_forth(ctx, send)
        client = _HandshakeClient(connection_of(ctx), self._tasks, ctx)
        try:
            return await _carry_through(client, send)
        finally:
            await client.finish()

    async def _carry_back_and_forth(self, ctx: Ctx, send: Send) -> Mapping[str, Any]:
        params: Mapping[str, Any] = ctx.params or {}
        can_ask = ctx.method in INPUT_REQUIRED_METHODS  # the SDK seals the state of these methods only
        state, answers = params.get("requestState"), cast("Mapping[str, Any]", params.get("inputResponses") or {})
        if not can_ask:
            state, answers = None, dict[str, Any]()
        if self._suspended is not None and isinstance(state, str) and state.startswith(TICKET):
            return await self._suspended.come_back(state, ctx, answers)
        own_state = state.removeprefix(_SOURCE_STATE) if isinstance(state, str) else None
        resumed = Resumption.of(answers, own_state) if answers or own_state is not None else None
        capabilities: Mapping[str, Any] = askable(ctx.session.client_capabilities) if can_ask else {}
        call = SuspendableCall(self._who, capabilities, ctx, self._tasks)
        context = replace(context_of(ctx), client=call, resumed=resumed, returned_as=lambda: principal_of(call.ctx))

        async def request() -> Mapping[str, Any]:
            return _passed(await send(context, _progress_to(call)), capabilities)

        if capabilities and self._suspended is not None:
            return await self._suspended.begin(call, request)
        try:
            return await request()
        finally:
            await call.finish()


async def _carry_through(client: _HandshakeClient, send: Send) -> Mapping[str, Any]:
    """Carry a request of a client that can answer questions while it waits."""
    context = replace(context_of(client.ctx), client=client)
    progress, poll_s = _progress_to(client), FIRST_POLL_S
    for _ in range(MAX_ROUNDS):
        result = await send(context, progress)
        if result.get("resultType") != "input_required":
            return result
        questions = cast("Mapping[str, Mapping[str, Any]]", result.get("inputRequests") or {})
        if not questions:
            await anyio.sleep(poll_s)
            poll_s = min(2 * poll_s, LAST_POLL_S)
        answers = {
            key: await client.ask(question["method"], question.get("params") or {})
            for key, question in questions.items()
        }
        context = replace(context, resumed=Resumption.of(answers, result.get("requestState")))
    raise ToolFailed(f"The tool asked for input more than {MAX_ROUNDS} times. The call was cancelled.")


def _progress_to(client: _HandshakeClient | SuspendableCall) -> ProgressListener | None:
    """Return a listener that reports progress to the client's current request, or None if the client wants no progress.

    The current request changes when a client returns with answers.
    """
    if (client.ctx.meta or {}).get("progress_token") is None:
        return None

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        if (client.ctx.meta or {}).get("progress_token") is not None:
            await client.ctx.session.report_progress(progress, total, message)

    return progress


def _passed(result: Mapping[str, Any], capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Mark the state of a source's own request for input. Other results are returned unchanged.

    Raises:
        ToolFailed: the source asks for something that the client did not declare as a capability.
    """
    if result.get("resultType") != "input_required":
        return result
    questions = cast("Mapping[str, Mapping[str, Any]]", result.get("inputRequests") or {})
    for question in questions.values():
        check_askable(question["method"], question.get("params") or {}, capabilities)
    asked = {key: result[key] for key in ("resultType", "inputRequests") if key in result}
    if isinstance(result.get("requestState"), str):
        asked["requestState"] = f"{_SOURCE_STATE}{result['requestState']}"
    return asked
