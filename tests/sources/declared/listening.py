"""A small HTTP server in the event loop of the test. It records each request exactly and answers by path."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSStream


@dataclass(frozen=True, slots=True)
class Heard:
    """One received request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Server:
    """`answers`: raw responses by path; `/` is the default."""

    answers: dict[str, bytes]
    port: int = 0
    heard: list[Heard] = field(default_factory=list[Heard])
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead, ssl.SSLError):
            async with stream:
                secured = stream if self.tls is None else await TLSStream.wrap(stream, ssl_context=self.tls)
                read = BufferedByteReceiveStream(secured)
                head = (await read.receive_until(b"\r\n\r\n", 1_000_000)).decode()
                first, *lines = head.split("\r\n")
                method, target, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await read.receive_exactly(int(headers.get("content-length", 0)))
                self.heard.append(Heard(method, target, headers, body))
                await secured.send(self.answers.get(target.partition("?")[0], self.answers.get("/", answer("fine"))))
                if target == "/never":
                    await anyio.sleep_forever()
                await secured.aclose()


def answer(body: str | bytes, status: str = "200 OK", *headers: str, kind: str = "text/plain") -> bytes:
    body = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *headers,
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(to: str, status: str = "302 Found") -> bytes:
    return answer("", status, f"Location: {to}")


@asynccontextmanager
async def listening(
    answers: dict[str, bytes] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Server]:
    server = Server(answers or {}, tls=tls)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        server.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()
