"""A program as a server: started, spoken to through its standard input and output, and ended with all it started.

In place of the SDK's own transport, which takes quadratic time over a long line, keeps any length of it, and does not
notice the end of a program whose children keep its output open.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TextIO, cast

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import (
    ServerProcess,
    close_process_job,
    create_windows_process,
    get_windows_executable_command,
    terminate_windows_process_tree,
)
from mcp.shared.message import SessionMessage

from toolcrib.sources.mcp.last_words import LastWords
from toolcrib.sources.mcp.messages import Lines, received
from toolcrib.sources.mcp.server import StdioServer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grace:
    """How long a server may take to end, in seconds."""

    closed_s: float = 2.0
    """Once its input is closed, before it is sent SIGTERM. Source: MCP specification 2025-11-25, "Shutdown"."""
    terminated_s: float = 2.0
    """Once it was sent SIGTERM, before it is killed."""


FLUSH_S = 0.5
"""For what was already said to a server to be written, before its input is closed."""

KILLED_S = 2.0
"""Until the end of a killed process is seen; one that cannot be killed is left."""

EXIT_SEEN_S = 1.0
"""How often it is looked whether the program is still there, and how long its last lines may take once it is not."""

_POLL_S = 0.01

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def piped(
    server: StdioServer,
    environ: Mapping[str, str],
    errlog: TextIO,
    words: LastWords,
    *,
    grace: Grace,
    max_message_bytes: int,
) -> AsyncGenerator[Streams]:
    """Start `server`, and yield what it says and what is said to it; on leaving, end it and the processes it started.

    A line that is no message comes as an exception, and does not end anything. `environ` is added to what every
    server inherits; what it writes to standard error goes to `errlog`, and its exit code, if it ends by itself, to
    `words`.

    Raises:
        OSError: the program cannot be started.
    """
    # A start that is cancelled half-way would leave a process that nobody waits for; nor may anything come in between.
    with anyio.CancelScope(shield=True) as starting:
        process = await _started(server, {**get_default_environment(), **environ}, errlog)
        arriving, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        pipe = _Pipe(process, arriving, leaving, max_message_bytes)
        async with anyio.create_task_group() as tasks:
            starting.shield = False
            for task in (pipe.read, pipe.write, pipe.watch):
                tasks.start_soon(task)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    # The reader now only drains: who is stuck writing does not read what is still to be said to it.
                    incoming.close()
                    outgoing.close()
                    with anyio.move_on_after(FLUSH_S):
                        await pipe.all_written.wait()
                    words.exit_code = await pipe.end(grace)
                    for stream in (arriving, leaving):
                        await stream.aclose()
                tasks.cancel_scope.cancel()


class _Pipe:
    """A running server's two pipes, and the tasks at their ends."""

    def __init__(
        self,
        process: ServerProcess,
        arriving: MemoryObjectSendStream[Incoming],
        leaving: MemoryObjectReceiveStream[SessionMessage],
        max_message_bytes: int,
    ) -> None:
        self._process = process
        self._stdin = cast("ByteSendStream", process.stdin)
        self._stdout = cast("ByteReceiveStream", process.stdout)
        self._arriving = arriving
        self._leaving = leaving
        self._max_message_bytes = max_message_bytes
        self._all_read = anyio.Event()
        self.all_written = anyio.Event()

    async def read(self) -> None:
        lines = Lines(self._max_message_bytes)
        try:
            async for chunk in self._stdout:
                for line in lines.feed(chunk):
                    await self._arrive(line)
            await self._arrive(lines.rest())  # the last words of a server that forgot to end its line, or died in it
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            pass  # nobody listens any more, or the pipe broke: either way nothing more can come
        finally:
            self._all_read.set()
            await self._arriving.aclose()
            await self._drain()

    async def write(self) -> None:
        try:
            async for message in self._leaving:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._stdin.send(text.encode("utf-8", "replace") + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await self._arriving.aclose()  # it may live on; but who cannot be asked does not answer
        finally:
            self.all_written.set()

    async def watch(self) -> None:
        """End the connection with the program, even where a child of its own still holds its output open."""
        await self._exit(EXIT_SEEN_S)
        with anyio.move_on_after(EXIT_SEEN_S):
            await self._all_read.wait()
        await self._arriving.aclose()

    async def end(self, grace: Grace) -> int | None:
        """Close its input, wait, terminate, wait, kill: the program first, then whatever is left of its group.

        Returns its exit code if it ended before it was terminated.
        """
        await _close(self._stdin)
        with anyio.move_on_after(grace.closed_s):
            await self._exit(_POLL_S)
        exit_code = self._process.returncode
        await _end_group(self._process, grace)
        with anyio.move_on_after(KILLED_S):
            await self._exit(_POLL_S)
        if self._process.returncode is None:
            logger.warning("process %d cannot be killed; it is left behind", self._process.pid)
        close_process_job(self._process)
        await _close(self._stdout)
        # What left the group may still hold our end of a pipe; asyncio's transport would then never close, and say so.
        transport = getattr(getattr(self._process, "_process", None), "_transport", None)
        if transport is not None:
            with suppress(PermissionError):
                transport.close()
        return exit_code

    async def _arrive(self, line: bytes) -> None:
        for message in await received(line, self._max_message_bytes):
            await self._arriving.send(message)

    async def _drain(self) -> None:
        """Let a server that still writes come to its end, rather than block on a pipe that is full."""
        with (
            anyio.CancelScope(shield=True),
            suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError),
        ):
            while True:
                await self._stdout.receive()

    async def _exit(self, look_s: float) -> None:
        # Not `process.wait()`: asyncio waits there for the end of the pipes too, which a child may hold open.
        while self._process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(look_s)


async def _started(server: StdioServer, environ: dict[str, str], errlog: TextIO) -> ServerProcess:
    """A process that is the head of a group of its own, so that it can be ended with all that it starts."""
    arguments = list(server.args)
    if sys.platform == "win32":  # pragma: no cover
        command = await anyio.to_thread.run_sync(get_windows_executable_command, server.command)
        return await create_windows_process(command, arguments, environ, errlog, server.cwd)
    return await anyio.open_process(
        [server.command, *arguments], env=environ, stderr=errlog, cwd=server.cwd, start_new_session=True
    )


async def _end_group(process: ServerProcess, grace: Grace) -> None:
    if sys.platform == "win32":  # pragma: no cover
        await terminate_windows_process_tree(process)
    elif isinstance(process, Process):
        await terminate_posix_process_tree(process, grace.terminated_s)


async def _close(pipe: AsyncResource) -> None:
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await pipe.aclose()
