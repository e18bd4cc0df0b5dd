"""One live connection to an MCP server: transport, protocol era, and lists that are read page by page."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
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

from toolcrib.sources.environment import inherited
from toolcrib.sources.mcp.asking import AskedSession, RequestHandlers
from toolcrib.sources.mcp.backlog import Backlog, bounded
from toolcrib.sources.mcp.carried_transport import carried
from toolcrib.sources.mcp.http_transport import TIMEOUT_S, Health, HttpClient, refusal_by_sdk
from toolcrib.sources.mcp.oauth.credentials import Credentials
from toolcrib.sources.mcp.refused_requests import MAX_MESSAGE_BYTES, Closed, Outcomes, RequestRefused, refusal_in
from toolcrib.sources.mcp.server_output import LastWords, Secrets, listening
from toolcrib.sources.mcp.server_spec import AnyServer, CarriedServer, HttpServer, StdioServer
from toolcrib.sources.mcp.shapes import is_definition
from toolcrib.sources.mcp.sse_transport import streamed
from toolcrib.sources.mcp.stdio_transport import Grace, piped
from toolcrib.sources.tool_definitions import label
from toolcrib.version import VERSION

MAX_PAGES = 1_000
MAX_DEFINITIONS = 100_000
"""How many pages and definitions of one list are read. A server whose list is longer is not followed further."""

AT_ONCE = 200
"""How many definitions are checked before others get a turn. Each takes microseconds, but a page can hold millions."""


async def walk(page: Callable[[str | None], Awaitable[object]], count: Callable[[], int]) -> bool:
    """Read page after page: `page` takes a cursor (None first), and returns the next cursor if it is a string.

    `count` returns how many definitions were read so far. Returns False if the list exceeds the maximum length.
    """
    cursors: set[str] = set()
    cursor: str | None = None
    while True:
        following = await page(cursor)
        if not isinstance(following, str) or not following:
            return count() < MAX_DEFINITIONS
        if following in cursors or len(cursors) >= MAX_PAGES or count() >= MAX_DEFINITIONS:
            return False
        cursors.add(following)
        cursor = following


HTTP_READ_TIMEOUT_S = 300.0

GRACE_OF_A_SERVER = Grace(closed_s=1.0, terminated_s=0.5)
"""The grace if this process is itself a server. A client gives us two seconds for each step, and a server that ignores
both must not outlive us."""

CLIENT_INFO = Implementation(name="toolcrib", title="Toolcrib", version=VERSION)


QUESTION_S = 600.0
"""How long a call's time limit is extended while a person is asked a question, in seconds."""

WHOLE = "toolcrib/whole"
"""The key under which the unchanged answer passes through the SDK's session."""

CAPABILITIES = "toolcrib/capabilities"
"""The key of a request's `_meta` under which the capabilities of the requesting client pass through the session."""

_FORM: Mapping[str, Mapping[str, Any]] = {
    "tools/call": {"content": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "completion/complete": {"completion": {"values": []}},
}
"""An empty answer for every method whose real answer passes through the session as `WHOLE`."""


OnLog = Callable[[Mapping[str, Any], Context | None], None]
"""Takes the parameters of one log message, and the context in which it was read if that identifies its request."""


def _unheard(params: Mapping[str, Any], read_in: Context | None) -> None:
    pass


class ListingDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, changed so that an invalid tool does not cost its page, and no tool loses its answer.

    The SDK validates `tools/list` as a whole. Here the session sees a page without the definitions that its model
    rejects. `listed` keeps every definition as it was sent, for our own reader to check.

    The SDK validates the answer to a call as strictly. A tool that has run must not lose its answer to that, so the
    session sees an empty answer that carries the real one as `WHOLE`. Prompts and resources work in the same way.

    Errors from the server come without the secrets of the server's configuration.

    Log messages go to `on_log` one after the other, before the answer that follows them. The SDK would start a task for
    each, and a server can write more of them than fit into memory. For the same reason a `Backlog` limits the server's
    requests, and progress reports are limited too.
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
        """Names of the definitions that the session did not see."""
        self.version = LATEST_MODERN_VERSION
        """The negotiated protocol version, by which the session validates a page."""
        self.ended = anyio.Event()
        """Set when nothing more can come from the server."""
        self.ended_because = ""
        """What the server did that made us end the connection; empty if we did not end it."""

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
        # Messages are read in this task, so waiting here delays this server and nothing else.
        try:
            await self._backlog.room()
        except TimeoutError:
            self.ended_because = "sent requests and did not read the answers"
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
            wires = cast("list[object]", sent)[: MAX_DEFINITIONS - len(self.listed)]
            accepted: list[object] = []
            for number, wire in enumerate(wires if self._over_http else (), 1):
                if number % AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
                # The session validates all that it sees in one step, and needs only what defines headers.
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
        """Send a request as the SDK does. Raise `RequestRefused` if the transport reports why there is no answer."""
        stays_open = method == "subscriptions/listen"
        self._in_flight_requests += not stays_open
        if opts is not None and (on_progress := opts.get("on_progress")) is not None:
            opts = {**opts, "on_progress": bounded(on_progress)}
        try:
            return await super().send_raw_request(method, params, opts, _related_request_id=related_request_id)
        except MCPError as error:
            refusal = refusal_in(error) or refusal_by_sdk(error, self._max_message_bytes)
            if refusal is not None:
                raise RequestRefused(refusal) from error
            if self._closed:
                raise Closed from error
            if error.code == URL_ELICITATION_REQUIRED:
                raise  # its data contains an address that a person must open unchanged
            secrets = self._secrets
            raise MCPError(error.code, secrets.hidden(error.message), secrets.hidden_in(error.data)) from error
        finally:
            self._in_flight_requests -= not stays_open
            # A server that was away is used on a new connection, which lists first. This one lasts as long as its
            # requests.
            self.end_if_lost()

    def end_if_lost(self) -> None:
        """End the connection if the server was away and no request is waiting; but not during the negotiation."""
        if self._health.on_lost is not None and self._health.lost and not self._in_flight_requests:
            self.ended.set()


@dataclass(frozen=True, slots=True)
class Connection:
    """A session with a negotiated protocol era, and the dispatcher under it."""

    session: ClientSession
    dispatcher: ListingDispatcher
    over_http: bool
    """Whether the transport is HTTP, where a single call may be cut off and arguments may travel as headers."""
    health: Health = field(default_factory=Health)
    """What was found out about an HTTP server on the way."""

    @property
    def is_modern(self) -> bool:
        """Whether the connection is of the newer protocol era, without a handshake."""
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def forgotten(self) -> anyio.Event:
        return self.health.forgotten

    @property
    def is_open(self) -> bool:
        return self.dispatcher.is_open and not (self.health.forgotten.is_set() or self.health.lost)

    def give_up(self) -> None:
        """Ask the task that holds the connection to end it."""
        self.dispatcher.ended.set()


def _says_of_headers(wire: object) -> bool:
    try:
        return b'"x-mcp-header"' in orjson.dumps(wire)
    except TypeError:  # for example an integer beyond 64 bits
        return True


def _as_sent_for(params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return `params` with the requesting client's capabilities, if the server reads them with every request."""
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
    """Wait for servers only briefly, so that this process ends in time; for a process that is a server itself."""
    global _grace  # noqa: PLW0603
    _grace = GRACE_OF_A_SERVER


@asynccontextmanager
async def connect(
    server: AnyServer,
    on_message: MessageHandlerFnT,
    said: LastWords,
    *,
    call_timeout_s: float,
    asking: RequestHandlers,
    on_log: OnLog = _unheard,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    secrets: Secrets | None = None,
    credentials: Credentials | None = None,
) -> AsyncGenerator[Connection]:
    """Start or reach `server`, negotiate a protocol era, and stay connected for the block.

    An answer of more than `max_message_bytes` is not read, and only that request fails.

    What the server says outside the protocol goes to `said`: its standard error, or its HTTP error statuses. `asking`
    answers the server's requests, and `on_log` takes its log messages. `secrets` are hidden in its errors; the default
    is the values in `env` and `headers`. `credentials` are the tokens from signing in to a server over HTTP.

    Raises:
        OSError, MCPError, httpx2.HTTPError: the transport or the handshake failed, alone or in an exception group.
    """
    outcomes, health = Outcomes(), Health()
    async with _transport(
        server,
        said,
        outcomes,
        health,
        call_timeout_s=call_timeout_s,
        max_message_bytes=max_message_bytes,
        credentials=credentials,
    ) as (reading, writing):
        dispatcher = ListingDispatcher(
            reading,
            writing,
            outcomes=outcomes,
            health=health,
            secrets=secrets or Secrets(server),
            max_message_bytes=max_message_bytes,
            on_log=on_log,
            over_http=isinstance(server, HttpServer),
        )
        session = AskedSession(asking, dispatcher=dispatcher, message_handler=on_message, client_info=CLIENT_INFO)
        async with session:
            await _negotiate(session)
            dispatcher.version = session.protocol_version or LATEST_MODERN_VERSION
            if isinstance(server, HttpServer):
                # The server refused the unsupported era with a status, which says nothing about what follows.
                said.clear()
                health.lost, health.on_lost = False, dispatcher.end_if_lost
            yield Connection(session, dispatcher, isinstance(server, HttpServer), health)


async def _negotiate(session: ClientSession) -> None:
    """Try the newest era first; fall back to the handshake unless the server clearly accepts.

    A slow server may answer the probe after we gave up. It then has settled on the new era before the handshake reaches
    it, and names that era in its refusal. So it is probed once more.
    """
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError) as error:
        if isinstance(error, RequestRefused) and (error.refusal.unreached or error.refusal.wants_sign_in):
            raise  # the handshake would not succeed either
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
    credentials: Credentials | None,
) -> AsyncGenerator[Any]:
    if isinstance(server, StdioServer):
        if server.cwd is not None and not await anyio.Path(server.cwd).is_dir():
            # The system reports this in the same way as a missing program.
            raise NotADirectoryError(f"its working directory {server.cwd} is not a folder")
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
    # A server may hold its stream open as long as a call may take, plus the time in which a person answers a question.
    answer_timeout_s = max(HTTP_READ_TIMEOUT_S, call_timeout_s + TIMEOUT_S) + QUESTION_S
    client = HttpClient(
        server,
        said,
        outcomes,
        health,
        credentials=credentials,
        answer_timeout_s=answer_timeout_s,
        max_message_bytes=max_message_bytes,
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
