"""The messages of one connection to an editor: lines of JSON, of which the SDK sees those that it routes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from queue import SimpleQueue
from typing import Any, Protocol, cast

import anyio
import anyio.lowlevel
import orjson

from toolcrib.sources.acp.mcp_frames import McpFrames
from toolcrib.sources.acp.port import ClientGone

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Of one message; a longer one is passed over."""

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
"""Source: JSON-RPC 2.0, section 5.1."""

PROMPT = "session/prompt"

HALF_PAIR = rb"\ud"
"""What half of a surrogate pair begins with where it is written as JSON."""


class Lines(Protocol):
    """Where lines come from and go to."""

    async def read(self) -> bytes | None:
        """The next line; None once there are no more, and no bytes for one that is too long."""
        ...

    async def write(self, line: bytes) -> None:
        """Send a line, its break included; returns when it is on its way.

        Raises:
            OSError: nobody reads any more.
        """
        ...


class EditorWire:
    """A transport for the SDK's connection. Source: `acp._transport.Transport`, of which it has the three methods."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._writing = anyio.Lock()
        self._closed = False
        self._has_ended = False
        self._reading: anyio.CancelScope | None = None
        self.mcp = McpFrames(self.send)
        """Takes the messages of MCP aside, of which the SDK routes none."""
        self._prompts: dict[int | str, Any] = {}
        """Parameters of the prompts that are not answered yet, by the ids of their requests."""

    async def send(self, message: dict[str, Any]) -> None:
        """Raises `ConnectionError` where nobody reads any more."""
        if "method" not in message:
            self._prompts.pop(message.get("id", ""), None)
        line = _line(message)
        async with self._writing:
            if self._closed:
                raise ConnectionError("Connection closed")
            try:
                await self._lines.write(line)
            except OSError as error:
                raise ConnectionError(f"the editor reads no more: {error}") from error

    async def receive(self) -> dict[str, Any] | None:
        """The next message for the SDK; None once the editor has gone, or after `end`."""
        try:
            while (line := await self._read()) is not None:
                if line.strip() and (message := await self._judged(line)) is not None:
                    return message
        except OSError as error:
            logger.info("the editor is gone: %s", error)
        self.mcp.close(ClientGone("The editor has closed its connection."))
        return None

    def end(self) -> None:
        """Nothing more is received, as if the editor had gone; what is said to it still goes out until `close`."""
        self._has_ended = True
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        self._closed = True
        self.mcp.close(ClientGone("The connection to the editor is closed."))

    async def _read(self) -> bytes | None:
        if not self._has_ended:
            with anyio.CancelScope() as self._reading:
                return await self._lines.read()
        return None

    async def _judged(self, line: bytes) -> dict[str, Any] | None:
        """The message of a line, where it is one and for the SDK; what would end its loop is answered here."""
        try:
            value = _value(line)
        except (ValueError, RecursionError):
            await self._refuse(PARSE_ERROR, "Parse error")
            return None
        match value:
            case {"method": str(), **rest} if isinstance(rest.get("id"), int | str | None):
                pass
            case {"id": int() | str() as request_id, "error": error} if "method" not in value and not _is_error(error):
                # The SDK, which takes it for one, would end the connection.
                told = {"code": INTERNAL_ERROR, "message": "the answer is an error in a form that is none"}
                value = {"jsonrpc": "2.0", "id": request_id, "error": told}
            case {"id": int() | str()} if "method" not in value:
                pass
            case {"result": _} | {"error": _}:  # an answer to nothing; were it refused, two sides could go on for ever
                return None
            case _:
                await self._refuse(INVALID_REQUEST, "Invalid Request")
                return None
        message = cast("dict[str, Any]", value)
        if self.mcp.take(message):
            await anyio.lowlevel.checkpoint()  # a flood of them must not keep their takers from running
            return None
        return self._as_routed(message)

    def _as_routed(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """`message` as the SDK has a route for it; None where it has none and nobody waits for an answer."""
        match message:
            case {"method": str() as method, "id": int() | str() as request_id}:
                if method == PROMPT:
                    self._prompts[request_id] = message.get("params")
            case {"method": str() as method} if method.startswith("$/"):
                return self._cancel(method, message.get("params"))
            case _:
                pass
        return message

    def _cancel(self, method: str, params: object) -> dict[str, Any] | None:
        """What a prompt is cancelled by, where its request was; others of these may be passed over.

        Source: ACP, "Cancellation": `$/cancel_request` names a request by its id.
        """
        match params:
            case {"requestId": int() | str() as request_id} if method == "$/cancel_request":
                match self._prompts.get(request_id):
                    case {"sessionId": str() as session_id}:
                        return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}}
                    case _:
                        return None
            case _:
                return None

    async def _refuse(self, code: int, message: str) -> None:
        logger.warning("the editor sent a line that is no message: %s", message)
        try:
            await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})
        except ConnectionError:
            return


class StreamLines:
    """The lines of a pair of asyncio's streams, as a socket has them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._begun = bytearray()

    async def read(self) -> bytes | None:
        while (at := self._begun.find(b"\n")) < 0:
            if len(self._begun) > MAX_LINE_BYTES:
                return await self._passed_over()
            more = await self._reader.read(65_536)
            if not more:
                return None
            self._begun += more
        line = bytes(self._begun[: at + 1])
        del self._begun[: at + 1]
        return line

    async def write(self, line: bytes) -> None:
        self._writer.write(line)
        await self._writer.drain()

    async def _passed_over(self) -> bytes | None:
        while (at := self._begun.find(b"\n")) < 0:
            self._begun.clear()
            more = await self._reader.read(65_536)
            if not more:
                return None
            self._begun += more
        del self._begun[: at + 1]
        return b""


class StandardLines:
    """The lines of this program's standard input and output.

    Read and written by threads that the end of the program does not wait for: neither can be cancelled while it is
    blocked, and an editor that does not read holds up its own messages and nothing else. A line whose writer was
    cancelled goes out all the same, and whole.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._leaving: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        # Descriptors of their own: nothing that is printed by accident must get in between.
        self._out = os.dup(1)
        os.dup2(2, 1)
        loop = asyncio.get_running_loop()

        def feed(line: bytes | None) -> bool:
            try:
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            except RuntimeError:  # the loop has ended
                return False
            return True

        def read() -> None:
            with os.fdopen(os.dup(0), "rb") as lines:
                is_begun = False
                while line := lines.readline(MAX_LINE_BYTES):
                    is_whole = line.endswith(b"\n")
                    if not feed(line if is_whole and not is_begun else b""):
                        return
                    is_begun = not is_whole
            feed(None)

        def write() -> None:
            while True:
                line, sent = self._leaving.get()
                error: OSError | None = None
                try:
                    _write_all(self._out, line)
                except OSError as broken:
                    error = broken
                try:
                    loop.call_soon_threadsafe(_settle, sent, error)
                except RuntimeError:  # likewise
                    return

        threading.Thread(target=read, name="standard input", daemon=True).start()
        threading.Thread(target=write, name="standard output", daemon=True).start()

    async def read(self) -> bytes | None:
        return await self._lines.get()

    async def write(self, line: bytes) -> None:
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving.put((line, sent))
        await sent


def _line(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer beyond 64 bits, or half a surrogate pair: a model writes what it likes
        return json.dumps(message, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _value(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:  # JSON can hold half a surrogate pair, as of a text that an editor cut within an emoji
        if HALF_PAIR not in line.lower():
            raise
        return json.loads(line)


def _is_error(value: object) -> bool:
    match value:
        case {"code": int(), "message": str()}:
            return True
        case _:
            return False


def _settle(sent: asyncio.Future[None], error: OSError | None) -> None:
    if sent.done():  # nobody waits any more
        return
    if error is None:
        sent.set_result(None)
    else:
        sent.set_exception(error)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
