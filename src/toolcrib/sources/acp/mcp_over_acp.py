"""Carries MCP messages over the connection to an editor, in both published forms.

A different component owns the connection.

Sources: ACP schema 1.19, with `mcp/connect`, `mcp/message` and `mcp/disconnect`; and its successor, as in the
TypeScript SDK 2.4.0, where each `mcp/message` is independent of a connection. Both are unstable, so all code that
depends on them is here.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import anyio

from toolcrib.sources.acp.port import METHOD_NOT_FOUND
from toolcrib.sources.mcp.carrier import Channel, Unanswered, Unreachable

logger = logging.getLogger(__name__)

Json = dict[str, Any]

OUR_IDS = "toolcrib-mcp-"
"""The prefix of the ids of our requests. The ids of the ACP SDK are numbers."""

MAX_UNREAD = 10_000
"""How many unread messages one session may have. A server that sends more at once is disconnected."""

DISCONNECT_S = 2.0
"""How long to wait for an editor to confirm the end of a connection, in seconds."""

CANCEL = "$/cancel_request"
"""Source: ACP, "Request cancellation"."""

REQUEST_CANCELLED = -32800
INVALID_REQUEST, INVALID_PARAMS = -32600, -32602
UNAVAILABLE, TOO_MANY = -33001, -33000
"""Source: the TypeScript SDK 2.4.0, `McpBindingErrorCode`."""

_VERSION = "2026-07-28"
_UNSUPPORTED_VERSION = -32022
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
"""Source: MCP 2026-07-28."""

Send = Callable[[Json], Awaitable[None]]
Answered = Callable[[Json], None]


class McpOverAcp:
    """A `Carrier` of MCP sessions over the `mcp/*` messages of one connection to an editor.

    It runs in one event loop; `take` and `close` never wait and never raise. The reader of the connection must give
    other tasks a turn now and then, because they read what was taken.
    """

    def __init__(self, send: Send) -> None:
        """`send` writes one JSON-RPC message on the connection. It raises if the connection has ended."""
        self._send = send
        self.waiting: dict[str, Answered] = {}
        """The callback for the answer, by the id of our request. For the sessions of this module, like the next two."""
        self.connections: dict[str, _ConnectedSession] = {}
        self.active: dict[tuple[str, str], tuple[_ConnectionlessSession, str | int]] = {}
        """The session and its own id of the request, by server and request."""
        self._open: set[_McpSession] = set()
        self._writing: set[asyncio.Task[None]] = set()
        self._opening: set[asyncio.Future[_McpSession]] = set()
        self._is_closed = False

    @asynccontextmanager
    async def open(self, server_id: str) -> AsyncGenerator[Channel]:
        """Open a channel, as described in `Carrier.open`."""
        session = await self._opened(server_id)
        self._open.add(session)
        try:
            yield session
        finally:
            self._open.discard(session)
            session.drop()
            with anyio.move_on_after(DISCONNECT_S, shield=True), suppress(Unreachable):
                await session.disconnect()

    def take(self, message: Mapping[str, Any]) -> bool:
        """Take `message` if it is one of ours, and return whether it was. The SDK must not see such a message: it would
        refuse it."""
        method = message.get("method")
        if isinstance(method, str):
            if method.startswith("mcp/"):
                self._take_mcp(method, message)
                return True
            return method == CANCEL and "id" not in message and self._is_withdrawn(message.get("params"))
        wire_id = message.get("id")
        if "method" in message or not isinstance(wire_id, str) or not wire_id.startswith(OUR_IDS):
            return False
        if (answered := self.waiting.pop(wire_id, None)) is not None:
            answered({**message})
        return True

    def close(self, error: Exception | None = None) -> None:
        """End every session, because the connection has ended. No new session begins after this."""
        if self._is_closed:
            return
        self._is_closed = True
        logger.debug("the connection that carries MCP has ended: %s", error)
        for session in self._open:
            session.end()
        for opening in self._opening:
            if not opening.done():
                opening.set_exception(_gone())
        self.waiting.clear()
        self.connections.clear()
        self.active.clear()

    # -- for sessions of this module -----------------------------------------------------------------------------------

    async def write(self, message: Json) -> None:
        """Write one message.

        Raises:
            Unreachable: the connection has ended.
            ValueError, TypeError: the message cannot be written.
        """
        if self._is_closed:
            raise _gone()
        try:
            await self._send(message)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _gone() from error

    async def request(self, method: str, params: Json, answered: Answered, wire_id: str | None = None) -> None:
        """Send a request, and call `answered` with the answer, in the order of the messages. Raises as `write` does."""
        wire_id = wire_id or new_id()
        self.waiting[wire_id] = answered
        try:
            await self.write({"jsonrpc": "2.0", "id": wire_id, "method": method, "params": params})
        except (Unreachable, ValueError, TypeError):
            self.waiting.pop(wire_id, None)
            raise

    def refuse(self, request_id: object, code: int, message: str) -> None:
        """Answer a request of the editor with an error, as soon as it can be written."""
        self.write_soon({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})

    def write_soon(self, message: Json) -> None:
        """Write one message as soon as possible, or drop it if that fails."""

        async def write() -> None:
            with suppress(Unreachable, ValueError, TypeError):
                await self.write(message)

        if not self._is_closed:
            task = asyncio.get_running_loop().create_task(write(), name="message to the editor")
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    # -- opening ------------------------------------------------------------------------------------------------------

    async def _opened(self, server_id: str) -> _McpSession:
        if self._is_closed:
            raise _gone()
        opening: asyncio.Future[_McpSession] = asyncio.get_running_loop().create_future()

        def answered(answer: Json) -> None:
            # Immediately, because the editor's very next message may use the connection.
            try:
                session = self._session(server_id, answer)
            except Unreachable as error:
                if not opening.done():
                    opening.set_exception(error)
                return
            if opening.done():  # the opener has gone
                session.abandon()
            else:
                opening.set_result(session)

        self._opening.add(opening)
        try:
            await self.request("mcp/connect", {"serverId": server_id}, answered)
            session = await opening
        except BaseException:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().abandon()
            opening.cancel()
            raise
        finally:
            self._opening.discard(opening)
        if self._is_closed:
            raise _gone()
        return session

    def _session(self, server_id: str, answer: Json) -> _McpSession:
        """Return the session for an answer to `mcp/connect`. A client of the second form does not know this method."""
        match answer:
            case {"result": {"connectionId": str() as connection_id}} if connection_id not in self.connections:
                session = self.connections[connection_id] = _ConnectedSession(self, connection_id)
                return session
            case {"error": {"code": code}} if code == METHOD_NOT_FOUND:
                return _ConnectionlessSession(self, server_id)
            case {"error": {"code": int() as code, **error}}:
                raise Unreachable(
                    f"is no longer offered by the client (error {code})",
                    diagnosis=f"The client said: {error.get('message')}",
                    lasting=code in {UNAVAILABLE, INVALID_PARAMS},
                )
            case _:
                raise Unreachable("could not be opened: the client's answer to `mcp/connect` contains no connection")

    # -- what the editor says -----------------------------------------------------------------------------------------

    def _take_mcp(self, method: str, message: Mapping[str, Any]) -> None:
        sent = _object(message.get("params"))
        inner_method, inner = sent.get("method"), _object(sent.get("params"))
        has_id, request_id = "id" in message, message.get("id")
        if method != "mcp/message":
            if has_id:
                self.refuse(request_id, METHOD_NOT_FOUND, f"{method} is not supported here")
            return
        connection_id = sent.get("connectionId")
        session = self.connections.get(connection_id) if isinstance(connection_id, str) else None
        if session is not None and isinstance(inner_method, str):
            if not has_id:
                session.take_notification(inner_method, inner)
            elif (question := _as_id(request_id)) is not None and not session.awaits_answer_to(question):
                session.take_request(question, inner_method, inner)
            else:
                self.refuse(request_id, INVALID_REQUEST, "the id of the request is invalid or already in use")
            return
        if has_id:
            self.refuse(request_id, INVALID_PARAMS, "unknown MCP connection, or the message has no method")
            return
        key = (sent.get("serverId"), sent.get("requestId"))
        if isinstance(inner_method, str) and all(isinstance(part, str) for part in key):
            active = self.active.get(cast("tuple[str, str]", key))
            if active is not None:  # a message that comes too late is dropped
                owner, owners_id = active
                owner.take_notification(owners_id, inner_method, inner)

    def _is_withdrawn(self, params: object) -> bool:
        question = _as_id(_object(params).get("requestId"))
        session = next((each for each in self.connections.values() if each.awaits_answer_to(question)), None)
        if session is None or question is None:
            return False
        session.withdraw(question)
        return True


@dataclass(frozen=True, slots=True)
class _Sent:
    """A running request of the session."""

    request_id: str | int
    """The session's own id of the request."""
    wire_id: str
    method: str


class _McpSession:
    """One MCP session, as a `Channel`: sends requests and receives answers. Subclasses know the form of the
    messages."""

    def __init__(self, carrier: McpOverAcp) -> None:
        self._carrier = carrier
        self._arriving, self._arrived = anyio.create_memory_object_stream[Json | Unanswered](MAX_UNREAD)
        self._sent: dict[str | int, _Sent] = {}

    async def receive(self) -> Json | Unanswered | None:
        try:
            return await self._arrived.receive()
        except anyio.EndOfStream:
            return None

    async def send(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"method": str() as method, "id": str() | int() as request_id}:
                await self._request(request_id, method, message.get("params"))
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as request_id}} if (
                request_id in self._sent
            ):
                await self._cancel(self._sent.pop(request_id), message["params"])
            case {"method": str() as method}:
                with suppress(ValueError, TypeError):
                    await self._tell(method, message.get("params"))
            case {"id": str() | int() as request_id}:
                await self._answer(request_id, message)
            case _:
                pass

    def end(self) -> None:
        """Signal that no more messages come."""
        self._arriving.close()

    def drop(self) -> None:
        """Close both ends: no more messages come, and none are read."""
        self._arriving.close()
        self._arrived.close()

    def abandon(self) -> None:
        """Give up a session that nothing uses."""
        self.drop()

    async def disconnect(self) -> None:
        """Tell the editor that the session ends."""
        raise NotImplementedError

    def _deliver(self, message: Json | Unanswered) -> None:
        try:
            self._arriving.send_nowait(message)
        except anyio.WouldBlock:
            logger.warning(
                "an MCP server in the editor sends messages faster than they can be read; it is disconnected"
            )
            self.end()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass

    async def _request(self, request_id: str | int, method: str, params: object) -> None:
        sent = self._sent[request_id] = _Sent(request_id, new_id(), method)

        def answered(answer: Json) -> None:
            self._sent.pop(request_id, None)
            self._settled(sent)
            self._deliver(self._outcome(sent, answer))

        try:
            await self._carrier.request("mcp/message", self._envelope(sent, params), answered, sent.wire_id)
        except (ValueError, TypeError) as error:
            self._sent.pop(request_id, None)
            self._settled(sent)
            diagnosis = f"The request cannot be written as JSON: {error}."
            self._deliver(Unanswered(request_id, "did not get the request", diagnosis))

    def _envelope(self, sent: _Sent, params: object) -> Json:
        raise NotImplementedError

    def _settled(self, sent: _Sent) -> None:
        """Note that the request is answered, or never will be."""

    def _outcome(self, sent: _Sent, answer: Json) -> Json | Unanswered:
        raise NotImplementedError

    async def _cancel(self, sent: _Sent, params: Json) -> None:
        self._carrier.waiting.pop(sent.wire_id, None)
        self._settled(sent)
        await self._carrier.write({"jsonrpc": "2.0", "method": CANCEL, "params": {"requestId": sent.wire_id}})

    async def _tell(self, method: str, params: object) -> None:
        """Send a notification to the server. The second form has none."""

    async def _answer(self, request_id: str | int, answer: Mapping[str, Any]) -> None:
        """Answer a request of the server. The second form has none."""


class _ConnectedSession(_McpSession):
    """The first form: messages belong to a connection, either side may send requests, and errors are the server's
    own."""

    def __init__(self, carrier: McpOverAcp, connection_id: str) -> None:
        super().__init__(carrier)
        self._connection_id = connection_id
        self._server_requests: set[str | int] = set()
        """Requests of the server that are not answered yet."""
        self._streams: dict[str | int, str | int] = {}
        """The session's own id of a stream of changes, by the server's id of it."""

    def awaits_answer_to(self, question: str | int | None) -> bool:
        return question in self._server_requests

    def take_request(self, question: str | int, method: str, params: Json) -> None:
        self._server_requests.add(question)
        self._deliver({"jsonrpc": "2.0", "id": question, "method": method, "params": params})

    def take_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and self.awaits_answer_to(question := _as_id(params.get("requestId"))):
            self.withdraw(cast("str | int", question))
            return
        self._deliver({"jsonrpc": "2.0", "method": method, "params": self._with_own_ids(method, params)})

    def withdraw(self, question: str | int) -> None:
        """Withdraw a request of the server. ACP wants an answer to it, so it gets an error; the session sends none."""
        self._server_requests.discard(question)
        self._deliver({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": question}})
        self._carrier.refuse(question, REQUEST_CANCELLED, "Request cancelled")

    def abandon(self) -> None:
        self.drop()
        if self._leave():
            params = {"connectionId": self._connection_id}
            self._carrier.write_soon({"jsonrpc": "2.0", "id": new_id(), "method": "mcp/disconnect", "params": params})

    def _leave(self) -> bool:
        """Forget the connection, and return whether it was still known."""
        if self._carrier.connections.get(self._connection_id) is not self:
            return False
        del self._carrier.connections[self._connection_id]
        return True

    async def disconnect(self) -> None:
        if not self._leave():
            return
        for sent in self._sent.values():
            self._carrier.waiting.pop(sent.wire_id, None)
        for question in self._server_requests:
            self._carrier.refuse(question, REQUEST_CANCELLED, "The MCP session has ended")
        heard = asyncio.Event()
        await self._carrier.request("mcp/disconnect", {"connectionId": self._connection_id}, lambda _: heard.set())
        await heard.wait()

    def _envelope(self, sent: _Sent, params: object) -> Json:
        return _message(params, connectionId=self._connection_id, method=sent.method)

    def _outcome(self, sent: _Sent, answer: Json) -> Json | Unanswered:
        return _inner(sent.request_id, answer)

    async def _cancel(self, sent: _Sent, params: Json) -> None:
        """Cancel a request with MCP's own message, where the request has the id of its frame, and with ACP's message.

        The form prescribes neither. A client that forwards messages to a server understands the first. A client whose
        SDK runs a handler for each request understands the second. Each ignores the unknown one.
        """
        self._carrier.waiting.pop(sent.wire_id, None)  # first: the answer must not arrive in between
        await self._tell("notifications/cancelled", {**params, "requestId": sent.wire_id})
        await super()._cancel(sent, params)

    async def _tell(self, method: str, params: object) -> None:
        said = _message(params, connectionId=self._connection_id, method=method)
        await self._carrier.write({"jsonrpc": "2.0", "method": "mcp/message", "params": said})

    async def _answer(self, request_id: str | int, answer: Mapping[str, Any]) -> None:
        if request_id not in self._server_requests:
            return
        self._server_requests.discard(request_id)
        outcome = {key: answer[key] for key in ("result", "error") if key in answer}
        try:
            await self._carrier.write({"jsonrpc": "2.0", "id": request_id, **outcome})
        except (ValueError, TypeError):
            self._carrier.refuse(request_id, -32603, "the answer cannot be written as JSON")

    def _with_own_ids(self, method: str, params: Json) -> Json:
        """Return `params` with the session's own ids of its requests.

        A stream of changes is identified by the id of its request, which is the id of our frame. If the client uses its
        own ids towards its server, the first message on the stream shows which one it uses.
        """
        if method == "notifications/cancelled" and (ended := _as_id(params.get("requestId"))) is not None:
            return {**params, "requestId": self._own_id(ended)}
        meta = _object(params.get("_meta"))
        stream = _as_id(meta.get(_SUBSCRIPTION))
        if stream is None:
            return params
        own = self._own_id(stream)
        if own is stream and method == "notifications/subscriptions/acknowledged":
            asked = (sent.request_id for sent in self._sent.values() if sent.method == "subscriptions/listen")
            own = next((request_id for request_id in asked if request_id not in self._streams.values()), stream)
            self._streams[stream] = own
        return {**params, "_meta": {**meta, _SUBSCRIPTION: own}}

    def _own_id(self, wire_id: str | int) -> str | int:
        asked = (sent.request_id for sent in self._sent.values() if sent.wire_id == wire_id)
        return next(asked, self._streams.get(wire_id, wire_id))


class _ConnectionlessSession(_McpSession):
    """The second form: each request names its server and its own id, and only messages about a request come back.

    This form carries only the newer era of MCP.
    """

    def __init__(self, carrier: McpOverAcp, server_id: str) -> None:
        super().__init__(carrier)
        self._server_id = server_id

    def take_notification(self, request_id: str | int, method: str, params: Json) -> None:
        """Deliver a message about the request that has the session's own id `request_id`."""
        meta = _object(params.get("_meta"))
        if _SUBSCRIPTION in meta:
            params = {**params, "_meta": {**meta, _SUBSCRIPTION: request_id}}
        self._deliver({"jsonrpc": "2.0", "method": method, "params": params})

    async def disconnect(self) -> None:
        left, self._sent = self._sent, {}
        for sent in left.values():
            await self._cancel(sent, {})

    async def _request(self, request_id: str | int, method: str, params: object) -> None:
        if method == "initialize":
            # Sessions of both eras understand this error: it tells them to use the newer era.
            data = {"supported": [_VERSION], "requested": str(_object(params).get("protocolVersion"))}
            error = {"code": _UNSUPPORTED_VERSION, "message": "Unsupported protocol version", "data": data}
            self._deliver({"jsonrpc": "2.0", "id": request_id, "error": error})
            return
        await super()._request(request_id, method, params)

    def _envelope(self, sent: _Sent, params: object) -> Json:
        self._carrier.active[self._server_id, sent.wire_id] = (self, sent.request_id)
        return _message(params, serverId=self._server_id, requestId=sent.wire_id, method=sent.method)

    def _settled(self, sent: _Sent) -> None:
        self._carrier.active.pop((self._server_id, sent.wire_id), None)

    def _outcome(self, sent: _Sent, answer: Json) -> Json | Unanswered:
        if "result" in answer:
            outcome = _inner(sent.request_id, _object(answer["result"]))
            return outcome if sent.method != "server/discover" else _discovered(outcome)
        error = _object(answer.get("error"))
        code, diagnosis = error.get("code"), f"The client said: {error.get('message')}"
        return _not_carried(sent.request_id, code, diagnosis) if isinstance(code, int) else _inner(sent.request_id, {})


def new_id() -> str:
    """Return an id for a request of ours. No other component uses such ids on the same connection."""
    return f"{OUR_IDS}{uuid.uuid4()}"


def _gone() -> Unreachable:
    return Unreachable("was offered by a client that is no longer connected", lasting=True)


def _inner(request_id: str | int, answer: Json) -> Json | Unanswered:
    """Return the server's own answer. If it has a result and an error, the result counts."""
    if isinstance(answer.get("result"), dict):
        return {"jsonrpc": "2.0", "id": request_id, "result": answer["result"]}
    error = _object(answer.get("error"))
    if "result" not in answer and isinstance(error.get("code"), int):
        return {"jsonrpc": "2.0", "id": request_id, "error": {"message": "", **error}}
    return Unanswered(request_id, "answered with something that is not an MCP message", ran=True)


def _discovered(outcome: Json | Unanswered) -> Json | Unanswered:
    """Make up for a missing discovery: in the second form a server need not support it, and only one version is
    possible."""
    match outcome:
        case {"id": request_id, "error": {"code": code}} if code == METHOD_NOT_FOUND:
            told: Json = {"supportedVersions": [_VERSION], "capabilities": {"tools": {}}, "resultType": "complete"}
            return {"jsonrpc": "2.0", "id": request_id, "result": {**told, "ttlMs": 0, "cacheScope": "private"}}
        case _:
            return outcome


def _not_carried(request_id: str | int, code: int, diagnosis: str) -> Unanswered:
    if code == UNAVAILABLE:
        what = "is no longer offered by the client"
        return Unanswered(request_id, what, diagnosis, lasting=True, unreached=True)
    if code == METHOD_NOT_FOUND:
        what = "is offered by a client that does not forward messages to it"
        return Unanswered(request_id, what, diagnosis, lasting=True, unreached=True)
    if code == TOO_MANY:
        return Unanswered(request_id, "has too many running requests", diagnosis, retryable=True)
    return Unanswered(request_id, f"did not answer through its client (error {code})", diagnosis)


def _message(params: object, **envelope: str) -> Json:
    return {**envelope} if params is None else {**envelope, "params": params}


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _as_id(value: object) -> str | int | None:
    """Return `value` as a request id: 7 for 7.0, because JSON does not distinguish them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
