"""One live connection to an MCP server: transport, negotiated era, and a listing that survives odd definitions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import httpx2
from anyio.abc import TaskStatus
from mcp.client import stdio
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.session import ClientSession, MessageHandlerFnT
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, Implementation, RequestId
from mcp_types import methods as surfaces
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from toolcrib.sources.definitions import label
from toolcrib.sources.mcp.last_words import LastWords, listening
from toolcrib.sources.mcp.server import HttpServer, McpServer, StdioServer, inherited
from toolcrib.version import VERSION

HTTP_TIMEOUT_S = 30.0
HTTP_READ_TIMEOUT_S = 300.0

CLOSED_GRACE_S = 1.0
TERMINATED_GRACE_S = 0.5
"""How long a server may take to end once its input is closed, and once it was sent SIGTERM, where we are one ourselves.

A client gives us two seconds for each. With the SDK's own two and two for our servers, one that ignores both would
outlive us.
"""

CLIENT_INFO = Implementation(name="toolcrib", title="Toolcrib", version=VERSION)


WHOLE = "toolcrib/whole"
"""The key under which the answer to a call passes the session, as it was sent."""


class ListingDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, except that one malformed tool in a page does not cost the page, nor a tool its answer.

    The SDK validates `tools/list` as a whole. Here the session sees a page without the definitions that its model
    rejects, and `listed` keeps every definition as it was sent, for our own reader to judge. It validates what a call
    gives as strictly; a tool that has run must not lose its answer to that, so the session sees an empty one which
    carries the real one as `WHOLE`.
    """

    def __init__(self, read_stream: ReadStream[SessionMessage | Exception], write_stream: WriteStream[SessionMessage]):
        super().__init__(read_stream, write_stream)
        self.listed: list[object] = []
        self.odd: set[str] = set()
        """Names of the definitions that the session was not shown."""
        self.ended = anyio.Event()
        """Set when nothing will come from the server any more."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self.ended.set()

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        raw = await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        sent = raw.get("tools")
        if method == "tools/list" and isinstance(sent, list):
            wires = cast("list[object]", sent)
            self.listed.extend(wires)
            accepted: list[object] = []
            for wire in wires:
                if _is_acceptable(wire):
                    accepted.append(wire)
                elif (name := label(wire)) is not None:
                    self.odd.add(name)
            return {**raw, "tools": accepted}
        if method == "tools/call":
            return {"content": [], "resultType": "complete", WHOLE: raw}
        return raw


@dataclass(frozen=True, slots=True)
class Connection:
    """A session that has agreed on an era, and the dispatcher under it."""

    session: ClientSession
    dispatcher: ListingDispatcher
    over_http: bool
    """Whether it goes over HTTP, where one call may be cut off alone and arguments may travel as headers."""
    forgotten: anyio.Event
    """Set when an HTTP server has said that it does not know our session, as after a restart."""

    @property
    def is_open(self) -> bool:
        return not self.dispatcher.ended.is_set() and not self.forgotten.is_set()

    def give_up(self) -> None:
        """Let whoever holds the connection end it."""
        self.dispatcher.ended.set()


def _is_acceptable(wire: object) -> bool:
    page = {"tools": [wire], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    try:
        surfaces.validate_server_result("tools/list", LATEST_MODERN_VERSION, page)
    except ValidationError:
        return False
    return True


def stop_servers_quickly() -> None:
    """Let the SDK wait for its servers only so long that we end in time ourselves; for a process that is a server."""
    stdio.PROCESS_TERMINATION_TIMEOUT = CLOSED_GRACE_S
    stdio.FORCE_KILL_TIMEOUT = TERMINATED_GRACE_S


@asynccontextmanager
async def connect(
    server: McpServer, on_message: MessageHandlerFnT, said: LastWords, *, call_timeout_s: float
) -> AsyncGenerator[Connection]:
    """Start or reach `server`, agree on a protocol era, and stay connected for the block.

    What it says beside the protocol goes to `said`: its standard error, or the statuses it refuses with.

    Raises:
        OSError, MCPError, httpx2.HTTPError: as the transport or the handshake fails, alone or in an exception group.
    """
    forgotten = anyio.Event()
    async with _transport(server, said, forgotten, call_timeout_s) as (read_stream, write_stream):
        dispatcher = ListingDispatcher(read_stream, write_stream)
        session = ClientSession(dispatcher=dispatcher, message_handler=on_message, client_info=CLIENT_INFO)
        async with session:
            await _negotiate(session)
            if isinstance(server, HttpServer):
                said.clear()  # the era it does not speak was refused with a status, which says nothing of what follows
            yield Connection(session, dispatcher, isinstance(server, HttpServer), forgotten)


async def _negotiate(session: ClientSession) -> None:
    """The newest era first; whatever is no clear yes falls back to the handshake.

    A server that starts slowly may answer the probe after we gave it up and so have settled on the new era before the
    handshake reaches it: it then names that era in its refusal, and is asked once more.
    """
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError):
        try:
            await session.initialize()
        except MCPError as refusal:
            if refusal.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await session.discover()


@asynccontextmanager
async def _transport(
    server: McpServer, said: LastWords, forgotten: anyio.Event, call_timeout_s: float
) -> AsyncGenerator[Any]:
    # A server may hold its stream open for as long as a call may take.
    read_timeout_s = max(HTTP_READ_TIMEOUT_S, call_timeout_s + HTTP_TIMEOUT_S)
    match server:
        case StdioServer():
            if server.cwd is not None and not await anyio.Path(server.cwd).is_dir():
                # The system says of it the same as of a program that does not exist.
                raise NotADirectoryError(f"its working directory {server.cwd} is no folder")
            env = {**inherited(os.environ), **server.env}
            parameters = StdioServerParameters(
                command=server.command,
                args=list(server.args),
                env=env,
                cwd=server.cwd,
                encoding_error_handler="replace",
            )
            async with listening(said) as errlog:
                # A start that is cancelled half-way would leave a process that nobody waits for.
                with anyio.CancelScope(shield=True) as starting:
                    async with stdio_client(parameters, errlog=errlog) as streams:
                        starting.shield = False
                        yield streams
        case HttpServer(transport="sse"):
            async with sse_client(server.url, headers=dict(server.headers), sse_read_timeout=read_timeout_s) as streams:
                yield streams
        case HttpServer():
            async with _http_client(server, said, forgotten, read_timeout_s) as client:
                async with streamable_http_client(server.url, http_client=client) as streams:
                    yield streams


def _http_client(
    server: HttpServer, said: LastWords, forgotten: anyio.Event, read_timeout_s: float
) -> httpx2.AsyncClient:
    async def note(response: httpx2.Response) -> None:
        # The SDK turns every refusal into one and the same error; the status is what a person needs to know.
        if response.status_code >= 400:
            said.append(f"HTTP {response.status_code} {response.reason_phrase}\n".encode())
        # Source: MCP specification 2025-11-25, "Session Management": 404 to a session's id means that it is over. Not
        # to a GET: servers without the optional stream for their own messages answer so too.
        request = response.request
        if response.status_code == 404 and request.method == "POST" and MCP_SESSION_ID in request.headers:
            forgotten.set()

    timeout = httpx2.Timeout(HTTP_TIMEOUT_S, read=read_timeout_s)
    return httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, event_hooks={"response": [note]})
