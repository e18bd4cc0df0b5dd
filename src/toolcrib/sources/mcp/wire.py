"""Connections without TLS under the HTTP client: fewer turns of the loop, and one packet for a request."""

# ruff: noqa: ASYNC109  the client hands in how long each step may take

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any, cast

import anyio
import httpcore2

MAX_UNSENT_BYTES = 64 * 1024
"""What waits for the end of a request before it is sent."""

MAX_UNREAD_BYTES = 256 * 1024
"""What is taken of an answer that nobody reads yet."""

EYEBALLS_S = 0.25
"""After how long another address of a name is tried beside the first, in seconds. Source: RFC 8305, section 8."""


class PlainWire(httpcore2.AsyncNetworkBackend):
    """Connects by asyncio's own transports.

    The client's own streams, by way of anyio, give up their turn for each part of a request, which is sent as a packet
    of its own, and switch reading on and off for each part of an answer.
    """

    def __init__(self, otherwise: httpcore2.AsyncNetworkBackend) -> None:
        """`otherwise` is for other event loops, and for what is no TCP."""
        self._otherwise = otherwise

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        loop = _own_loop()
        if loop is None or local_address is not None or socket_options is not None:
            return await self._otherwise.connect_tcp(host, port, timeout, local_address, socket_options)
        try:
            with anyio.fail_after(timeout):
                _, stream = await loop.create_connection(_Stream, host, port, happy_eyeballs_delay=EYEBALLS_S)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:  # whose words quote the address
            raise httpcore2.ConnectError("All connection attempts failed") from error
        return stream

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return await self._otherwise.connect_unix_socket(path, timeout, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._otherwise.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream, asyncio.Protocol):
    """One connection. HTTP asks and then reads: what is written goes out when somebody reads, in one packet if it fits,
    or when it has become much."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._unsent = bytearray()
        self._unread = bytearray()
        self._is_at_end = False
        self._failure: Exception | None = None
        self._is_held_up = False
        """Whether the other side takes what is sent more slowly than it comes."""
        self._news: asyncio.Future[None] | None = None
        """Set while somebody waits."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._flush()
        if not self._unread and not self._is_at_end:
            await self._wait(lambda: bool(self._unread) or self._is_at_end, timeout, httpcore2.ReadTimeout)
        if not self._unread and self._failure is not None:
            raise httpcore2.ReadError(str(self._failure)) from self._failure
        part = bytes(self._unread[:max_bytes])
        del self._unread[:max_bytes]
        if self._transport is not None and not self._is_at_end and not self._unread:
            self._transport.resume_reading()
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer
        if len(self._unsent) < MAX_UNSENT_BYTES:
            return
        self._flush()
        await self._wait(lambda: not self._is_held_up or self._is_at_end, timeout, httpcore2.WriteTimeout)
        if self._is_at_end:
            raise httpcore2.WriteError(str(self._failure or "")) from self._failure

    async def aclose(self) -> None:
        if self._transport is not None:
            self._transport.abort()  # whatever is not sent by now, nobody waits for its answer

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise NotImplementedError("it is for plain HTTP")

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of one that is idle: whether it is at its end
            return bool(self._unread) or self._is_at_end or self._transport is None or self._transport.is_closing()
        return None

    def _flush(self) -> None:
        if self._unsent and self._transport is not None and not self._is_at_end:
            self._transport.write(bytes(self._unsent))
        self._unsent.clear()

    async def _wait(
        self, happened: Callable[[], bool], timeout: float | None, late: type[httpcore2.TimeoutException]
    ) -> None:
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not happened():
            news = self._news = loop.create_future()
            timer = None if until is None else loop.call_at(until, _set, news)
            try:
                await news
            finally:
                self._news = None
                if timer is not None:
                    timer.cancel()
            if until is not None and loop.time() >= until and not happened():
                raise late

    def _tell(self) -> None:
        if self._news is not None:
            _set(self._news)

    # -- what the transport tells -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > MAX_UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._tell()

    def eof_received(self) -> None:
        self._is_at_end = True
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_at_end, self._failure = True, exc
        self._tell()

    def pause_writing(self) -> None:
        self._is_held_up = True

    def resume_writing(self) -> None:
        self._is_held_up = False
        self._tell()


def _own_loop() -> asyncio.BaseEventLoop | None:
    """The running loop if it is of asyncio itself: others do not try several addresses side by side."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, asyncio.BaseEventLoop) else None


def _set(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)
