"""Tests that slow and idle HTTP connections are closed without blocking other connections."""

from __future__ import annotations

import asyncio
import resource
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.until import DEADLINE_S, until

from toolcrib.surfaces.http.http_connections import BoundedConnection, ConnectionLimits, Connections
from toolcrib.surfaces.http.http_serving import BoundedServer

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
SOON = ConnectionLimits(head_s=0.05, body_s=0.05, unread_s=0.05)
"""Short limits for tests that wait until a connection is closed."""


class App:
    """An application with routes that answer at once, read a body, or wait."""

    def __init__(self) -> None:
        self.left = anyio.Event()
        """Set when a client disconnects while its body is being read."""
        self.go_on = anyio.Event()
        """The routes `/long` and `/events` wait for this event."""
        self.asked_to_wait = 0
        self.routes = Starlette(
            routes=[
                Route("/", self._hello),
                Route("/body", self._body, methods=["POST"]),
                Route("/refused", self._refused, methods=["POST"]),
                Route("/long", self._long),
                Route("/events", self._events),
                Route("/large", self._large),
            ]
        )

    async def _hello(self, _: Request) -> Response:
        return PlainTextResponse("hello")

    async def _body(self, request: Request) -> Response:
        try:
            return PlainTextResponse(str(len(await request.body())))
        except ClientDisconnect:
            self.left.set()
            raise

    async def _refused(self, _: Request) -> Response:
        return PlainTextResponse("no", 401)

    async def _long(self, _: Request) -> Response:
        self.asked_to_wait += 1
        await self.go_on.wait()
        return PlainTextResponse("at last")

    async def _events(self, _: Request) -> Response:
        async def events() -> AsyncGenerator[bytes]:
            yield b"first\n"
            await self.go_on.wait()
            yield b"last\n"

        return StreamingResponse(events())

    async def _large(self, _: Request) -> Response:
        return Response(bytes(32 * 1024 * 1024))


@dataclass(frozen=True)
class Served:
    app: App
    port: int
    server: BoundedServer
    stack: AsyncExitStack

    async def open(self, sent: bytes = b"") -> tuple[StreamReader, StreamWriter]:
        """Opens a connection, sends `sent`, and closes the connection at the end of the test."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.stack.callback(writer.close)
        writer.write(sent)
        return reader, writer

    @property
    def open_ones(self) -> int:
        return len(self.server.server_state.connections)


@asynccontextmanager
async def served(bounds: ConnectionLimits) -> AsyncGenerator[Served]:
    app = App()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = BoundedServer(app.routes, Connections(bounds), lambda: None)
        async with AsyncExitStack() as stack:
            serving = asyncio.create_task(server.serve(sockets=[bound]))
            await until(lambda: server.started, "the server listens")
            with anyio.fail_after(DEADLINE_S):
                yield Served(app, bound.getsockname()[1], server, stack)
            app.go_on.set()
            await stack.aclose()
            server.should_exit = True
            await serving


async def answered(reader: StreamReader) -> tuple[int, bytes]:
    """Reads the status and the body of the next response, which has a `Content-Length`."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    return int(head.split()[1]), await reader.readexactly(int(length.partition(b":")[2]))


async def test_a_connection_that_sends_nothing_is_closed() -> None:
    async with served(SOON) as here:
        reader, _ = await here.open()
        assert await reader.read() == b""


async def test_a_request_head_sent_byte_by_byte_times_out() -> None:
    async with served(SOON) as here:
        reader, writer = await here.open()

        async def drip() -> None:
            while True:
                writer.write(b"G")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert (await answered(reader))[0] == 408
        dripping.cancel()


async def test_the_timeout_of_a_later_request_head_starts_at_its_first_byte() -> None:
    async with served(SOON) as here:
        reader, writer = await here.open(GET)
        assert await answered(reader) == (200, b"hello")
        writer.write(GET)
        assert await answered(reader) == (200, b"hello")
        writer.write(b"GET / HTTP/1.1\r\n")
        assert (await answered(reader))[0] == 408
        assert await reader.read() == b""


@pytest.mark.parametrize("sent", [b"", b"x" * 99])
async def test_an_incomplete_body_times_out(sent: bytes) -> None:
    async with served(SOON) as here:
        reader, _ = await here.open(b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n" + sent)
        status, body = await answered(reader)
        assert status == 408
        assert b"Nothing ran" in body
        await here.app.left.wait()


async def test_the_connection_closes_when_an_answered_request_has_an_incomplete_body() -> None:
    async with served(SOON) as here:
        reader, _ = await here.open(b"POST /refused HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nx")
        assert await answered(reader) == (401, b"no")
        assert await reader.read() == b""


async def test_a_complete_request_may_run_longer_than_the_receive_timeouts() -> None:
    async with served(SOON) as here:
        silent, _ = await here.open()
        calling, _ = await here.open(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")
        listening, _ = await here.open(b"GET /events HTTP/1.1\r\nHost: here\r\n\r\n")
        await listening.readuntil(b"first\n")
        assert await silent.read() == b""  # the time limit has passed for all connections
        here.app.go_on.set()
        assert await answered(calling) == (200, b"at last")
        await listening.readuntil(b"last\n")


async def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    async with served(SOON) as here:
        _, writer = await here.open()
        cast("Any", writer.transport).pause_reading()
        writer.write(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n")
        await until(lambda: here.server.server_state.total_requests == 1, "the answer was written")
        await until(lambda: not here.open_ones, "the connection has ended")


async def test_a_client_that_reads_slowly_gets_the_complete_response() -> None:
    async with served(ConnectionLimits(unread_s=0.5)) as here:
        reader, _ = await here.open(b"GET /large HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        got = 0
        while part := await reader.read(256 * 1024):
            got += len(part)
            await asyncio.sleep(0.01)
        assert got > 32 * 1024 * 1024


async def test_pipelined_requests_are_buffered_with_a_limit() -> None:
    ahead = 40_000
    async with served(ConnectionLimits()) as here:
        here.app.go_on.set()
        reader, writer = await here.open(GET.replace(b"/", b"/events", 1) * ahead)
        most = 0
        for _ in range(200):
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
            [connection] = cast("set[BoundedConnection]", here.server.server_state.connections)
            most = max(most, len(connection.conn.trailing_data[0]))
        writer.transport.abort()
    assert 0 < most <= 512 * 1024


async def test_hundreds_of_silent_connections_do_not_block_other_clients() -> None:
    """Opens ten times the allowed number: silent connections are closed, and connections with requests stay open."""
    async with served(ConnectionLimits(connections=40)) as here:
        calling, _ = await here.open(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")
        await until(lambda: here.app.asked_to_wait, "the long request is running")
        kept, kept_writer = await here.open(GET)
        assert await answered(kept) == (200, b"hello")
        most = 0
        for number in range(400):
            await here.open()
            most = max(most, here.open_ones)
            if number % 20 == 0:
                fresh, _ = await here.open(GET)
                assert await answered(fresh) == (200, b"hello")
        assert most <= 41  # a new connection is counted before the old one is closed
        kept_writer.write(GET)
        assert await answered(kept) == (200, b"hello")
        here.app.go_on.set()
        assert await answered(calling) == (200, b"at last")


async def test_a_new_connection_gets_503_when_all_connections_are_busy() -> None:
    async with served(ConnectionLimits(connections=3)) as here:
        busy = [(await here.open(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n"))[0] for _ in range(3)]
        await until(lambda: here.app.asked_to_wait == 3, "all requests are running")
        refused, _ = await here.open(GET)
        assert (await answered(refused))[0] == 503
        here.app.go_on.set()
        for reader in busy:
            assert await answered(reader) == (200, b"at last")
        again, _ = await here.open(GET)
        assert await answered(again) == (200, b"hello")


def test_the_open_file_limit_is_raised_and_connections_use_half() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        bounds = ConnectionLimits.of_this_process()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised > 256
    assert bounds.connections == min(ConnectionLimits().connections, raised // 2)
