"""Receives the redirect at the end of a sign-in: a web server on this machine for one request of one browser.

Source: RFC 8252, section 7.3.
"""

from __future__ import annotations

import html
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

HOST = "127.0.0.1"
PATH = "/callback"

_REQUEST_S = 10.0
"""How long a browser may take to send its request, in seconds."""
_MAX_REQUEST_BYTES = 32_768
_MAX_CONNECTIONS = 16

Finish = Callable[[str], Awaitable[str]]
"""Takes the address to which a browser was redirected, and returns what the browser shows, as text.

It raises a `RedirectRefused` for an answer that ends the sign-in without success.
"""


class RedirectRefused(Exception):
    """The answer ends the sign-in. The message is shown in the browser and to the person at the terminal."""


class RedirectListener:
    """Listens on one port of this machine, from before the link is made until the answer came."""

    def __init__(self, port: int = 0) -> None:
        """Listen on `port`, or on any free one.

        Raises:
            OSError: the port is in use.
        """
        self._socket = socket.create_server((HOST, port), backlog=_MAX_CONNECTIONS, reuse_port=False)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    @property
    def redirect(self) -> str:
        return f"http://{HOST}:{self.port}{PATH}"

    def close(self) -> None:
        self._socket.close()

    async def answer(self, state: str, finish: Finish) -> None:
        """Wait for the redirect of the sign-in `state`, pass it to `finish`, and show its result in the browser.

        Other requests are refused and do not end the wait: any program on this machine can send one.

        Raises:
            RedirectRefused: `finish` raised it.
        """
        refused: list[RedirectRefused] = []
        places = anyio.Semaphore(_MAX_CONNECTIONS)
        taking = anyio.Lock()
        listener = await anyio.abc.SocketListener.from_socket(self._socket)

        async def handle(stream: anyio.abc.SocketStream) -> None:
            async with stream, places:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, TimeoutError):
                    with anyio.fail_after(_REQUEST_S):
                        target = _target(await _head(stream), self.port)
                    if target is None or parse_qs(urlsplit(target).query).get("state") != [state]:
                        await stream.send(_page(HTTPStatus.BAD_REQUEST, "This is not the answer to a sign-in."))
                        return
                    async with taking:
                        try:
                            told, status = await finish(f"http://{HOST}:{self.port}{target}"), HTTPStatus.OK
                        except RedirectRefused as error:
                            refused.append(error)
                            told, status = str(error), HTTPStatus.BAD_REQUEST
                        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                            await stream.send(_page(status, told))
                        tasks.cancel_scope.cancel()

        async with listener, anyio.create_task_group() as tasks:
            await listener.serve(handle)
        if refused:
            raise refused[0]


async def _head(stream: anyio.abc.SocketStream) -> bytes:
    """Return the head of an HTTP request, cut at `_MAX_REQUEST_BYTES`."""
    head = bytearray()
    while b"\r\n\r\n" not in head and len(head) < _MAX_REQUEST_BYTES:
        head += await stream.receive(4_096)
    return bytes(head)


def _target(head: bytes, port: int) -> str | None:
    """Return the target of a GET of our path, or None. The `Host` must be this machine, and not a name for it that a
    page on the internet has chosen."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    hosts = [line.partition(":")[2].strip().lower() for line in lines[1:] if line.lower().startswith("host:")]
    if len(words) != 3 or words[0] != "GET" or hosts not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
        return None
    return words[1] if urlsplit(words[1]).path == PATH and words[1].startswith(PATH) else None


def _page(status: HTTPStatus, told: str) -> bytes:
    """Return a response with a page that shows `told`. It runs no script, and does not pass its address on."""
    body = (
        "<!doctype html><meta charset=utf-8><title>Toolcrib</title>"
        '<body style="font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;padding:0 1rem">'
        f"<h1>Toolcrib</h1><p>{html.escape(told)}</p>"
    ).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
