"""The plain connections under the HTTP client, against a server of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpcore2
import pytest
from tests.waiting import until

from toolcrib.sources.mcp.wire import MAX_UNREAD_BYTES, MAX_UNSENT_BYTES, PlainWire

pytestmark = pytest.mark.anyio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

MANY = 8 * max(MAX_UNSENT_BYTES, MAX_UNREAD_BYTES)


@asynccontextmanager
async def asking(serve: Serve) -> AsyncGenerator[tuple[httpcore2.AsyncConnectionPool, str]]:
    """A client, and the address of a server that does `serve` with each connection."""

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError):  # the client has gone
            await serve(reader, writer)
        writer.close()

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(each, "127.0.0.1", 0)
    wire = PlainWire(httpcore2.AsyncMockBackend([]))
    async with server, httpcore2.AsyncConnectionPool(network_backend=wire) as pool:
        yield pool, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    for writer in writers:
        with suppress(ConnectionError):
            await writer.wait_closed()


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def test_a_request_is_sent_as_one_packet() -> None:
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read(10_000))
        writer.write(answer(b"yes"))

    async with asking(serve) as (pool, url):
        assert (await pool.request("POST", url, content=b"the body")).content == b"yes"
    assert came[0].startswith(b"POST / HTTP/1.1\r\n")
    assert came[0].endswith(b"\r\n\r\nthe body")


async def test_what_is_much_goes_through_whole_both_ways() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer(await reader.readexactly(MANY)))
        await writer.drain()

    body = bytes(range(256)) * (MANY // 256)
    async with asking(serve) as (pool, url):
        assert (await pool.request("POST", url, content=body)).content == body


async def test_one_connection_serves_requests_in_turn_until_its_server_closes_it() -> None:
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        for _ in range(2):
            await head_of(reader)
            connections[-1] += 1
            writer.write(answer(b""))

    async with asking(serve) as (pool, url):
        for _ in range(2):
            await pool.request("GET", url)
        await until(pool.connections[0].has_expired, "the client heard that it was closed")
        await pool.request("GET", url)
    assert connections == [2, 1]


async def test_an_answer_that_breaks_off_or_does_not_come_is_told_as_such() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with asking(break_off) as (pool, url):
        with pytest.raises(httpcore2.RemoteProtocolError):
            await pool.request("GET", url)

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with asking(be_silent) as (pool, url):
        with pytest.raises(httpcore2.ReadTimeout):
            await pool.request("GET", url, extensions={"timeout": {"read": 0.01}})


async def test_where_nobody_listens_it_is_said_without_the_address() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nobody is to come")

    async with asking(serve) as (_, url):
        pass
    async with httpcore2.AsyncConnectionPool(network_backend=PlainWire(httpcore2.AsyncMockBackend([]))) as pool:
        with pytest.raises(httpcore2.ConnectError, match=r"^All connection attempts failed$"):
            await pool.request("GET", url)
