"""An editor's end of a byte stream: recorded JSON-RPC messages, one per line, with the faults that a test asks for."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, TypeAlias, cast

from acp import RequestError

from toolcrib.testing.acp.faults import Delay, Drop, Fault, Garbage, Hang, Hold, Instead, Refuse, WrongId

Message: TypeAlias = dict[str, Any]

_NEVER_ASKED = 4_000_000_000


@dataclass(frozen=True, slots=True)
class Frame:
    """A message as it was on the wire. `message` is None for a line that is not a JSON object."""

    sender: Literal["agent", "client"]
    message: Message | None
    line: bytes
    """The line, including its line feed if it had one."""

    @property
    def method(self) -> str | None:
        """The method. None for a response."""
        return self.message.get("method") if self.message else None

    @property
    def params(self) -> Any:
        return self.message.get("params") if self.message else None


class RecordedWire:
    """The message transport under the SDK's connection.

    `takes` is called first with each message of the agent. If it returns True, the SDK does not see the message.
    `changed` is called after each message was recorded or sent.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        frames: list[Frame],
        faults: Mapping[str, Fault],
        takes: Callable[[Message], bool],
        changed: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = frames
        self._faults = faults
        self._takes = takes
        self._changed = changed
        self._inbox: asyncio.Queue[Message | None] = asyncio.Queue()
        self._at_answer: dict[str | int, Fault] = {}
        self._numbers = count(1)
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._is_read_out = False
        self.was_dropped = False
        self.spawn(self._read())

    async def send(self, message: Message) -> None:
        method = message.get("method")
        fault = self._faults.get(method) if method else self._at_answer.pop(message["id"], None)
        if self.was_dropped:
            if method is None:
                return  # the agent can no longer receive answers
            raise ConnectionError("Connection closed")
        if isinstance(fault, Drop) and not (method and fault.after):
            self.drop()
            return
        if isinstance(fault, Garbage):
            await self.send_line(fault.line)
        if isinstance(fault, WrongId):
            message = {**message, "id": _NEVER_ASKED + next(self._numbers)}
        await self.send_line(json.dumps(message, separators=(",", ":")).encode(), message)
        if isinstance(fault, Drop):
            self.drop()

    async def send_line(self, line: bytes, message: Message | None = None) -> None:
        """Send a line unchanged, followed by a line feed."""
        line += b"\n"
        self._frames.append(Frame("client", message, line))
        self._changed()
        self._writer.write(line)
        await self._writer.drain()

    async def request(self, method: str, params: Any) -> Any:
        """Send a request with any method. The SDK does not know about it.

        Raises:
            RequestError: the agent answered with an error.
            ConnectionError: the connection was lost.
        """
        own_id = f"fake-{next(self._numbers)}"
        answered = self._pending[own_id] = asyncio.get_running_loop().create_future()
        try:
            await self.send({"jsonrpc": "2.0", "id": own_id, "method": method, "params": params})
            if self._ended:
                raise ConnectionError("Connection closed")
            return await answered
        finally:
            del self._pending[own_id]

    @property
    def is_open(self) -> bool:
        """Whether the stream is open, or messages from before its end are still unread."""
        return not (self.was_dropped or self._is_read_out)

    async def receive(self) -> Message | None:
        message = await self._inbox.get()
        if message is None:
            self._is_read_out = True
            self._changed()
        return message

    async def close(self) -> None:
        """End the stream, so that the agent sees it, and cancel the running tasks."""
        self._end()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Drop the connection: nothing more is read or written."""
        self.was_dropped = True
        self._writer.transport.abort()
        self._end()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` concurrently until it or the connection ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, ConnectionError):
            raise failure  # goes to the loop's exception handler, because no caller awaits the task

    async def _read(self) -> None:
        try:
            while (line := await self._reader.readline()) and not self.was_dropped:
                message = _parsed(line)
                self._frames.append(Frame("agent", message, line))
                if message is not None:
                    self._arrived(message)
                self._changed()
        except (ConnectionError, ValueError) as error:  # ValueError: a line is longer than the reader's limit
            self._frames.append(Frame("agent", None, repr(error).encode()))
        self._end()

    def _arrived(self, message: Message) -> None:
        method = message.get("method")
        if not isinstance(method, str):
            self._answered(message)
            return
        fault = self._faults.get(method) if "id" in message else None
        match fault:
            case Refuse(code, text, data):
                error = {"code": code, "message": text} | ({} if data is None else {"data": data})
                self.spawn(self.send({"jsonrpc": "2.0", "id": message["id"], "error": error}))
            case Instead(result):
                self.spawn(self.send({"jsonrpc": "2.0", "id": message["id"], "result": result}))
            case Hang():
                pass
            case Drop(after=False):
                self.drop()
            case Delay() | Hold():
                self.spawn(self._later(message, fault))
            case _:
                if fault is not None:
                    self._at_answer[message["id"]] = fault
                self._handle(message)

    async def _later(self, message: Message, fault: Delay | Hold) -> None:
        await (asyncio.sleep(fault.seconds) if isinstance(fault, Delay) else fault.until.wait())
        self._handle(message)

    def _handle(self, message: Message) -> None:
        if not self._takes(message):
            self._inbox.put_nowait(message)

    def _answered(self, message: Message) -> None:
        answered = self._pending.get(message["id"]) if isinstance(message.get("id"), str) else None
        if answered is None:
            self._inbox.put_nowait(message)
        elif answered.done():
            return
        elif error := message.get("error"):
            answered.set_exception(RequestError(error["code"], error["message"], error.get("data")))
        else:
            answered.set_result(message.get("result"))

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._inbox.put_nowait(None)
        for answered in self._pending.values():
            if not answered.done():
                answered.set_exception(ConnectionError("Connection closed"))
        self._changed()


def _parsed(line: bytes) -> Message | None:
    try:
        message: Any = json.loads(line)
    except ValueError:
        return None
    return cast(Message, message) if isinstance(message, dict) else None
