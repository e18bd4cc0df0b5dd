"""Requests of MCP 2026-07-28 over raw HTTP/1.1: one POST each, kept-alive connections, the next when one is answered.

No client of an SDK: that would be measured too. Each connection has one request under way.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

VERSION = "2026-07-28"

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(
    url: str,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    number: int = 1,
    token: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
) -> bytes:
    """One request as it goes over the wire, with the headers that the era requires.

    `capabilities` is what the client says that it can be asked for; nothing by default.

    Source: MCP 2026-07-28, "Transports", standard request headers.
    """
    at = urlsplit(url)
    envelope = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**(params or {}), "_meta": envelope}}
    sent = json.dumps(body, separators=(",", ":")).encode()
    headers = {
        "Host": at.netloc,
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(sent)),
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }
    if "name" in (params or {}):
        headers["Mcp-Name"] = str((params or {})["name"])
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    lines = [f"POST {at.path or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + sent


def post(url: str, body: Mapping[str, Any], *, token: str | None = None) -> bytes:
    """One request of the HTTP API as it goes over the wire."""
    at = urlsplit(url)
    sent = json.dumps(body, separators=(",", ":")).encode()
    lines = [f"POST {at.path} HTTP/1.1", f"Host: {at.netloc}", "Content-Type: application/json"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, f"Content-Length: {len(sent)}", "", ""]).encode() + sent


@dataclass(frozen=True, slots=True)
class Load:
    """What came of it."""

    answers: int
    seconds: float
    latencies_ms: Sequence[float]
    """Of each, from the request to the end of its answer."""

    @property
    def p99_ms(self) -> float:
        return sorted(self.latencies_ms)[int(0.99 * len(self.latencies_ms))]

    @property
    def per_s(self) -> float:
        return self.answers / self.seconds


async def for_seconds(url: str, sent: bytes, *, seconds: float, connections: int) -> Load:
    """Send the same request again and again for a while."""
    return await all_of(url, repeat(sent), connections=connections, seconds=seconds)


async def all_of(url: str, sent: Iterator[bytes], *, connections: int, seconds: float | None = None) -> Load:
    """Send every request once, in order over all connections; those that `seconds` are enough for, where given."""
    return await _load(url, sent, connections, deadline=None if seconds is None else time.perf_counter() + seconds)


async def ask(url: str, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The result of one request.

    Raises:
        SystemExit: it was refused.
    """
    body = await answer(url, request(url, method, params))
    message = json.loads(body)
    if "result" not in message or message["result"].get("isError"):
        raise SystemExit(f"{url}: {method} {params} was answered with {message}")
    return message["result"]


async def answer(url: str, sent: bytes) -> bytes:
    """The body of the answer to one request."""
    bodies: list[bytes] = []
    connection = await _connected(url, lambda: _Connection(iter([sent]), None, bodies))
    await connection.ended
    return bodies[0]


async def _load(url: str, sent: Iterator[bytes], connections: int, deadline: float | None) -> Load:
    began = time.perf_counter()
    opened = [await _connected(url, lambda: _Connection(sent, deadline)) for _ in range(connections)]
    await asyncio.gather(*(connection.ended for connection in opened))
    took = [latency for connection in opened for latency in connection.latencies_ms]
    return Load(len(took), time.perf_counter() - began, took)


async def _connected(url: str, make: Callable[[], _Connection]) -> _Connection:
    at = urlsplit(url)
    return (await asyncio.get_running_loop().create_connection(make, at.hostname or "", at.port or 80))[1]


class _Connection(asyncio.Protocol):
    """Sends the next request when the last one is answered; bodies are kept only where a list is given for them."""

    def __init__(self, sent: Iterator[bytes], deadline: float | None, bodies: list[bytes] | None = None) -> None:
        self._sent = sent
        self._deadline = deadline
        self._bodies = bodies
        self._got = b""
        self._began = 0.0
        self.latencies_ms: list[float] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None)
        if not head.startswith(b"HTTP/1.1 200") or length is None:
            self._fail(f"the answer is not a whole one: {self._got[:500]!r}")
        elif len(body) >= int(length.partition(b":")[2]):
            self.latencies_ms.append(1000 * (time.perf_counter() - self._began))
            self._got = b""
            if self._bodies is not None:
                self._bodies.append(body)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the server hung up: {exc}")

    def _next(self) -> None:
        over = self._deadline is not None and time.perf_counter() >= self._deadline
        sent = None if over else next(self._sent, None)
        if sent is not None:
            self._began = time.perf_counter()
            self._transport.write(sent)
        elif not self.ended.done():
            self.ended.set_result(None)
            self._transport.close()

    def _fail(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(SystemExit(why))
            self._transport.close()
