"""The transport to a program: starts it, talks to it over standard input and output, and ends its whole process group.

The SDK's own transport is not used: it takes quadratic time over a long line, keeps lines of any length, and does not
notice that a program ended while its children keep its output open.
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

from toolcrib.sources.mcp.server_output import LastWords
from toolcrib.sources.mcp.server_spec import StdioServer
from toolcrib.sources.mcp.wire_messages import LineSplitter, received

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grace:
    """How long a server may take to end, in seconds."""

    closed_s: float = 2.0
    """The time between closing the server's input and SIGTERM. Source: MCP specification 2025-11-25, "Shutdown"."""
    terminated_s: float = 2.0
    """The time between SIGTERM and SIGKILL."""


FLUSH_S = 0.5
"""How long to wait, in seconds, until everything sent is written, before the server's input is closed."""

KILLED_S = 2.0
"""How long to wait for the end of a killed process, in seconds. A process that cannot be killed is left behind."""

EXIT_SEEN_S = 1.0
"""How often to check whether the program still runs, and how long its last lines may take afterwards, in seconds."""

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
    """Start `server`, and yield the streams for incoming and outgoing messages. At the end, stop it and its children.

    A line that is not a message arrives as an exception and ends nothing. `environ` is added to what every server
    inherits. The server's standard error goes to `errlog`. If the server ends by itself, its exit code goes to `words`.

    Raises:
        OSError: the program cannot be started.
    """
    # A start that is cancelled half-way would leave a process without an owner, so both are shielded.
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
                    # From here on the reader only drains, because a server that is blocked in writing does not read its
                    # last input.
                    incoming.close()
                    outgoing.close()
                    with anyio.move_on_after(FLUSH_S):
                        await pipe.all_written.wait()
                    words.exit_code = await pipe.end(grace)
                    for stream in (arriving, leaving):
                        await stream.aclose()
                tasks.cancel_scope.cancel()


class _Pipe:
    """The two pipes of a running server, and the tasks at their ends."""

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
        lines = LineSplitter(self._max_message_bytes)
        try:
            async for chunk in self._stdout:
                for line in lines.feed(chunk):
                    await self._arrive(line)
            await self._arrive(lines.rest())  # the last line, if the server did not end it or died while writing it
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            pass  # the session has ended or the pipe is broken: nothing more can come
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
            await self._arriving.aclose()  # the server may still run, but without input it cannot answer
        finally:
            self.all_written.set()

    async def watch(self) -> None:
        """End the connection when the program ends, even if its own child still holds its output open."""
        await self._exit(EXIT_SEEN_S)
        with anyio.move_on_after(EXIT_SEEN_S):
            await self._all_read.wait()
        await self._arriving.aclose()

    async def end(self, grace: Grace) -> int | None:
        """Close the server's input, wait, terminate, wait, kill: first the program, then the rest of its process group.

        Returns the exit code if the program ended before it was terminated.
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
        # A process that left the group may still hold our end of a pipe. asyncio's transport would then never close,
        # and would warn about it.
        transport = getattr(getattr(self._process, "_process", None), "_transport", None)
        if transport is not None:
            with suppress(PermissionError):
                transport.close()
        return exit_code

    async def _arrive(self, line: bytes) -> None:
        for message in await received(line, self._max_message_bytes):
            await self._arriving.send(message)

    async def _drain(self) -> None:
        """Read the rest of the server's output, so that the server can end and does not block on a full pipe."""
        with (
            anyio.CancelScope(shield=True),
            suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError),
        ):
            while True:
                await self._stdout.receive()

    async def _exit(self, look_s: float) -> None:
        # Not `process.wait()`: asyncio also waits there for the end of the pipes, which a child may hold open.
        while self._process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(look_s)


async def _started(server: StdioServer, environ: dict[str, str], errlog: TextIO) -> ServerProcess:
    """Start a process as the leader of its own group, so that it can be ended together with its children."""
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
