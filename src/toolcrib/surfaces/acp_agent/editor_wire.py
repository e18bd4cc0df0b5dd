"""The JSON lines of one connection to an editor. The SDK receives only the messages that it can route."""

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

from toolcrib.sources.acp.mcp_over_acp import McpOverAcp
from toolcrib.sources.acp.port import ClientGone

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""The maximum length of one message, in bytes. Longer messages are skipped."""

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
"""Source: JSON-RPC 2.0, section 5.1."""

PROMPT = "session/prompt"

HALF_PAIR = rb"\ud"
"""The start of a lone surrogate when it is escaped in JSON."""


class EditorLines(Protocol):
    """A two-way stream of lines."""

    async def read(self) -> bytes | None:
        """Return the next line. Returns empty bytes for a line that is too long, and None at the end."""
        ...

    async def write(self, line: bytes) -> None:
        """Send a line, including its line break. Returns when the line was passed on.

        Raises:
            OSError: the reader has closed.
        """
        ...


class EditorWire:
    """A transport for the SDK's connection, with the three methods that it uses. Source: `acp._transport.Transport`."""

    def __init__(self, lines: EditorLines) -> None:
        self._lines = lines
        self._writing = anyio.Lock()
        self._closed = False
        self._has_ended = False
        self._reading: anyio.CancelScope | None = None
        self.mcp = McpOverAcp(self.send)
        """Receives the MCP messages of the connection, because the SDK does not route them."""
        self._prompts: dict[int | str, Any] = {}
        """The parameters of the unanswered prompts, by request id."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises `ConnectionError` if the editor has closed."""
        if "method" not in message:
            self._prompts.pop(message.get("id", ""), None)
        line = _line(message)
        async with self._writing:
            if self._closed:
                raise ConnectionError("Connection closed")
            try:
                await self._lines.write(line)
            except OSError as error:
                raise ConnectionError(f"the editor stopped reading: {error}") from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message for the SDK. Returns None when the editor has left, or after `end`."""
        try:
            while (line := await self._read()) is not None:
                if line.strip() and (message := await self._judged(line)) is not None:
                    return message
        except OSError as error:
            logger.info("the editor disconnected: %s", error)
        self.mcp.close(ClientGone("The editor has closed its connection."))
        return None

    def end(self) -> None:
        """Stop receiving, as if the editor had left. Messages to the editor can still be sent until `close`."""
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
        """Return the message of a line if the SDK handles it.

        Messages that would end the SDK's loop are answered here.
        """
        try:
            value = _value(line)
        except (ValueError, RecursionError):
            await self._refuse(PARSE_ERROR, "Parse error")
            return None
        match value:
            case {"method": str(), **rest} if isinstance(rest.get("id"), int | str | None):
                pass
            case {"id": int() | str() as request_id, "error": error} if "method" not in value and not _is_error(error):
                # The SDK would treat this as an error object and end the connection.
                told = {"code": INTERNAL_ERROR, "message": "the response contains an invalid error object"}
                value = {"jsonrpc": "2.0", "id": request_id, "error": told}
            case {"id": int() | str()} if "method" not in value:
                pass
            case {"result": _} | {"error": _}:  # a response without an id; refusing it could start an endless exchange
                return None
            case _:
                await self._refuse(INVALID_REQUEST, "Invalid Request")
                return None
        message = cast("dict[str, Any]", value)
        if self.mcp.take(message):
            await anyio.lowlevel.checkpoint()  # so that many of these messages do not block their receivers
            return None
        return self._as_routed(message)

    def _as_routed(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Convert `message` to one that the SDK routes.

        Returns None for a notification that the SDK has no route for.
        """
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
        """Convert a cancelled prompt request to `session/cancel`. Other `$/` notifications may be ignored.

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
        logger.warning("the editor sent an invalid message: %s", message)
        try:
            await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})
        except ConnectionError:
            return


class StreamLines:
    """The lines of a pair of asyncio streams, for example of a socket."""

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

    Two daemon threads read and write them, because a blocked read or write cannot be cancelled. An editor that does not
    read only delays its own messages. If the task that writes a line is cancelled, the whole line is still sent.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._leaving: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        # A private copy of standard output, so that a stray `print` cannot corrupt the protocol.
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
                except RuntimeError:  # the loop has ended
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
    except TypeError:  # a model may write an integer beyond 64 bits or a lone surrogate
        return json.dumps(message, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _value(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:  # lone surrogates are legal JSON: an editor may cut text inside an emoji
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
    if sent.done():  # the writer was cancelled
        return
    if error is None:
        sent.set_result(None)
    else:
        sent.set_exception(error)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
