"""One live connection to an MCP server: transport, negotiated era, and a listing that survives odd definitions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.lowlevel
import orjson
from anyio.abc import TaskStatus
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.session import ClientSession, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    Implementation,
    JSONRPCRequest,
    RequestId,
)
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolcrib.sources.definitions import label
from toolcrib.sources.environment import inherited
from toolcrib.sources.mcp import pages
from toolcrib.sources.mcp.asking import AskedSession, Asking
from toolcrib.sources.mcp.backlog import Backlog, bounded
from toolcrib.sources.mcp.carried import carried
from toolcrib.sources.mcp.http import TIMEOUT_S, Health, HttpClient, refusal_by_sdk
from toolcrib.sources.mcp.last_words import LastWords, listening
from toolcrib.sources.mcp.pipes import Grace, piped
from toolcrib.sources.mcp.refusals import MAX_MESSAGE_BYTES, Closed, Outcomes, Refused, refusal_in
from toolcrib.sources.mcp.secrets import Secrets
from toolcrib.sources.mcp.server import AnyServer, CarriedServer, HttpServer, StdioServer
from toolcrib.sources.mcp.shapes import is_definition
from toolcrib.sources.mcp.sse import streamed
from toolcrib.version import VERSION

HTTP_READ_TIMEOUT_S = 300.0

GRACE_OF_A_SERVER = Grace(closed_s=1.0, terminated_s=0.5)
"""Where we are one ourselves: a client gives us two seconds for each, and a server that ignores both must not outlive
us."""

CLIENT_INFO = Implementation(name="toolcrib", title="Toolcrib", version=VERSION)


QUESTION_S = 600.0
"""How long a call is not held against its server because a person is asked something, in seconds."""

WHOLE = "toolcrib/whole"
"""The key under which an answer passes the session, as it was sent."""

CAPABILITIES = "toolcrib/capabilities"
"""The key of a request's `_meta` under which the capabilities of whoever it is made for pass the session."""

_FORM: Mapping[str, Mapping[str, Any]] = {
    "tools/call": {"content": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "completion/complete": {"completion": {"values": []}},
}
"""An empty answer to every request whose real answer passes the session as `WHOLE`."""


OnLog = Callable[[Mapping[str, Any], Context | None], None]
"""Takes the parameters of one log message, and the context it was read in where that tells what it is about."""


def _unheard(params: Mapping[str, Any], read_in: Context | None) -> None:
    pass


class ListingDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, except that one malformed tool in a page does not cost the page, nor a tool its answer.

    The SDK validates `tools/list` as a whole. Here the session sees a page without the definitions that its model
    rejects, and `listed` keeps every definition as it was sent, for our own reader to judge. It validates what a call
    gives as strictly; a tool that has run must not lose its answer to that, so the session sees an empty one which
    carries the real one as `WHOLE`. The same goes for prompts and resources.

    Errors of the server come without what its configuration made known to it alone.

    Log messages go to `on_log` one after the other as they come, before the answer that follows them. The SDK would
    make a task of each, and a server can write more of them than fit into memory.

    For the same reason a `Backlog` bounds what a server asks, and reports of progress are bounded too.
    """

    def __init__(
        self,
        read_stream: ReadStream[SessionMessage | Exception],
        write_stream: WriteStream[SessionMessage],
        *,
        outcomes: Outcomes,
        health: Health,
        secrets: Secrets,
        max_message_bytes: int,
        on_log: OnLog,
        over_http: bool,
    ) -> None:
        super().__init__(read_stream, write_stream)
        self._arriving = read_stream
        self._on_log = on_log
        outcomes.deliver = self._resolve_pending
        self._health = health
        self._secrets = secrets
        self._over_http = over_http
        self._max_message_bytes = max_message_bytes
        self._in_flight_requests = 0
        self._backlog = Backlog()
        self.listed: list[object] = []
        self.odd: set[str] = set()
        """Names of the definitions that the session was not shown."""
        self.version = LATEST_MODERN_VERSION
        """What was agreed on: the session judges a page by it."""
        self.ended = anyio.Event()
        """Set when nothing will come from the server any more."""
        self.ended_because = ""
        """What the server did that we ended the connection for; empty where we did not."""

    @property
    def is_open(self) -> bool:
        return not (self._closed or self.ended.is_set())

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if method == "notifications/message":
                self._on_log(params or {}, getattr(self._arriving, "last_context", None))
                return True
            return on_notify_intercept is not None and on_notify_intercept(method, params)

        async def answer(
            asked: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            with self._backlog.answering(params):
                return await on_request(asked, method, params)

        try:
            await super().run(answer, on_notify, intercept, task_status=task_status)
        finally:
            self.ended.set()

    async def _dispatch_request(
        self,
        req: JSONRPCRequest,
        metadata: MessageMetadata,
        on_request: OnRequest,
        sender_ctx: Context | None,
    ) -> None:
        # Called where messages are read, so that waiting here holds up the server, and nothing else.
        try:
            await self._backlog.room()
        except TimeoutError:
            self.ended_because = "asked and did not read the answers"
            self.ended.set()
            await anyio.sleep_forever()
        await super()._dispatch_request(req, metadata, on_request, sender_ctx)

    async def _handle_request(
        self,
        req: JSONRPCRequest,
        dctx: Any,
        scope: anyio.CancelScope,
        on_request: OnRequest,
    ) -> None:
        with self._backlog.holding():
            await super()._handle_request(req, dctx, scope, on_request)

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        sent_for = _as_sent_for(params)
        raw = await self._sent(method, sent_for, opts, _related_request_id)
        sent = raw.get("tools")
        if method == "tools/list" and isinstance(sent, list):
            wires = cast("list[object]", sent)[: pages.MAX_DEFINITIONS - len(self.listed)]
            accepted: list[object] = []
            for number, wire in enumerate(wires if self._over_http else (), 1):
                if number % pages.AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
                # The session validates all that it is shown in one step, and needs no more than what says of headers.
                if _says_of_headers(wire) and is_definition(wire, method, self.version):
                    accepted.append(wire)
                elif (name := label(wire)) is not None:
                    self.odd.add(name)
            self.listed.extend(wires)
            return {**raw, "tools": accepted}
        if (form := _FORM.get(method)) is not None:
            return {**form, "ttlMs": 0, "cacheScope": "private", "resultType": "complete", WHOLE: raw}
        return raw

    async def _sent(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None,
        related_request_id: RequestId | None,
    ) -> dict[str, Any]:
        """The SDK's own way, with what the transport has to say in place of an answer, as `Refused`."""
        stays_open = method == "subscriptions/listen"
        self._in_flight_requests += not stays_open
        if opts is not None and (on_progress := opts.get("on_progress")) is not None:
            opts = {**opts, "on_progress": bounded(on_progress)}
        try:
            return await super().send_raw_request(method, params, opts, _related_request_id=related_request_id)
        except MCPError as error:
            refusal = refusal_in(error) or refusal_by_sdk(error, self._max_message_bytes)
            if refusal is not None:
                raise Refused(refusal) from error
            if self._closed:
                raise Closed from error
            if error.code == URL_ELICITATION_REQUIRED:
                raise  # its data holds an address that a person has to open as it is
            secrets = self._secrets
            raise MCPError(error.code, secrets.hidden(error.message), secrets.hidden_in(error.data)) from error
        finally:
            self._in_flight_requests -= not stays_open
            # Who was away is asked on a new connection, which lists first; this one lasts as long as its requests.
            self.end_if_lost()

    def end_if_lost(self) -> None:
        """End, once nobody waits, where the server was away; but not while it is still found out how to speak to it."""
        if self._health.on_lost is not None and self._health.lost and not self._in_flight_requests:
            self.ended.set()


@dataclass(frozen=True, slots=True)
class Connection:
    """A session that has agreed on an era, and the dispatcher under it."""

    session: ClientSession
    dispatcher: ListingDispatcher
    over_http: bool
    """Whether it goes over HTTP, where one call may be cut off alone and arguments may travel as headers."""
    health: Health = field(default_factory=Health)
    """What is found out of an HTTP server on the way."""

    @property
    def is_modern(self) -> bool:
        """Whether it is of the newer era, without a handshake."""
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def forgotten(self) -> anyio.Event:
        return self.health.forgotten

    @property
    def is_open(self) -> bool:
        return self.dispatcher.is_open and not (self.health.forgotten.is_set() or self.health.lost)

    def give_up(self) -> None:
        """Let whoever holds the connection end it."""
        self.dispatcher.ended.set()


def _says_of_headers(wire: object) -> bool:
    try:
        return b'"x-mcp-header"' in orjson.dumps(wire)
    except TypeError:  # an integer beyond 64 bits, say
        return True


def _as_sent_for(params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`params` with the capabilities of whom the request is for, where its server reads them with every request."""
    meta = (params or {}).get("_meta")
    if params is None or not isinstance(meta, dict) or CAPABILITIES not in meta:
        return params
    rest = dict(cast("dict[str, Any]", meta))
    capabilities = rest.pop(CAPABILITIES)
    if CLIENT_CAPABILITIES_META_KEY in rest:
        rest[CLIENT_CAPABILITIES_META_KEY] = capabilities
    return {**{key: value for key, value in params.items() if key != "_meta"}, **({"_meta": rest} if rest else {})}


_grace = Grace()


def stop_servers_quickly() -> None:
    """Wait for servers only so long that we end in time ourselves; for a process that is a server."""
    global _grace  # noqa: PLW0603
    _grace = GRACE_OF_A_SERVER


@asynccontextmanager
async def connect(
    server: AnyServer,
    on_message: MessageHandlerFnT,
    said: LastWords,
    *,
    call_timeout_s: float,
    asking: Asking,
    on_log: OnLog = _unheard,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> AsyncGenerator[Connection]:
    """Start or reach `server`, agree on a protocol era, and stay connected for the block.

    An answer of more than `max_message_bytes` is not read, and fails alone.

    What it says beside the protocol goes to `said`: its standard error, or the statuses it refuses with. What it asks
    for is answered by `asking`, what it logs is taken by `on_log`.

    Raises:
        OSError, MCPError, httpx2.HTTPError: as the transport or the handshake fails, alone or in an exception group.
    """
    outcomes, health = Outcomes(), Health()
    async with _transport(
        server, said, outcomes, health, call_timeout_s=call_timeout_s, max_message_bytes=max_message_bytes
    ) as (reading, writing):
        dispatcher = ListingDispatcher(
            reading,
            writing,
            outcomes=outcomes,
            health=health,
            secrets=Secrets(server),
            max_message_bytes=max_message_bytes,
            on_log=on_log,
            over_http=isinstance(server, HttpServer),
        )
        session = AskedSession(asking, dispatcher=dispatcher, message_handler=on_message, client_info=CLIENT_INFO)
        async with session:
            await _negotiate(session)
            dispatcher.version = session.protocol_version or LATEST_MODERN_VERSION
            if isinstance(server, HttpServer):
                # The era it does not speak was refused with a status, which says nothing of what follows.
                said.clear()
                health.lost, health.on_lost = False, dispatcher.end_if_lost
            yield Connection(session, dispatcher, isinstance(server, HttpServer), health)


async def _negotiate(session: ClientSession) -> None:
    """The newest era first; whatever is no clear yes falls back to the handshake.

    A server that starts slowly may answer the probe after we gave it up and so have settled on the new era before the
    handshake reaches it: it then names that era in its refusal, and is asked once more.
    """
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError) as error:
        if isinstance(error, Refused) and error.refusal.unreached:
            raise  # it will not be where it was not
        try:
            await session.initialize()
        except MCPError as refusal:
            if refusal.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await session.discover()


@asynccontextmanager
async def _transport(
    server: AnyServer,
    said: LastWords,
    outcomes: Outcomes,
    health: Health,
    *,
    call_timeout_s: float,
    max_message_bytes: int,
) -> AsyncGenerator[Any]:
    if isinstance(server, StdioServer):
        if server.cwd is not None and not await anyio.Path(server.cwd).is_dir():
            # The system says of it the same as of a program that does not exist.
            raise NotADirectoryError(f"its working directory {server.cwd} is no folder")
        environ = {**inherited(os.environ, (server.command, *server.args)), **server.env}
        async with listening(said) as errlog:
            async with piped(
                server, environ, errlog, said, grace=_grace, max_message_bytes=max_message_bytes
            ) as streams:
                yield streams
        return
    if isinstance(server, CarriedServer):
        async with carried(server, max_message_bytes=max_message_bytes) as streams:
            yield streams
        return
    # A server may hold its stream open for as long as a call may take, and a person who is asked something in it.
    answer_timeout_s = max(HTTP_READ_TIMEOUT_S, call_timeout_s + TIMEOUT_S) + QUESTION_S
    client = HttpClient(
        server, said, outcomes, health, answer_timeout_s=answer_timeout_s, max_message_bytes=max_message_bytes
    )
    if server.transport == "sse":
        async with client, streamed(client, server.url, max_message_bytes=max_message_bytes) as streams:
            yield streams
    else:
        async with (
            client,
            streamable_http_client(server.url, http_client=client, max_sse_event_size=max_message_bytes) as streams,
        ):
            yield streams
