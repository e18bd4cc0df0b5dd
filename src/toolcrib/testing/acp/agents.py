"""The agent at the other end of a fake editor's stream: in this process, or as a program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio

_LINE_LIMIT = 64 * 1024 * 1024
_CHUNK = 65_536

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]
"""Serves one connection until its reader ends."""


class AgentGone(ConnectionError):
    """The connection to the agent was lost. The message contains the standard error of an agent program."""


class AgentHere:
    """An agent in this process, at the other end of a pair of sockets.

    Leaving the object ends the stream, and cancels an agent that does not end by itself. Errors of the agent are then
    raised, unless another error is already being raised, or the error only reports the end of the stream.
    """

    def __init__(self, serve: Serve, *, grace_s: float) -> None:
        self._serve = serve
        self._grace_s = grace_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The editor's end of the streams. Closing the writer ends the agent's input."""
        return _there(self._streams)

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair()
        self._streams = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
        reader, writer = await asyncio.open_connection(sock=theirs, limit=_LINE_LIMIT)
        self._serving = asyncio.create_task(self._run(reader, writer))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        serving = _there(self._serving)
        with anyio.CancelScope(shield=True):
            await asyncio.wait((serving,), timeout=self._grace_s)
            serving.cancel()
            await asyncio.wait((serving,))
        failure = None if serving.cancelled() else serving.exception()
        if failure is not None and error is None and not isinstance(failure, ConnectionError):
            raise failure

    async def gone(self) -> AgentGone:
        """Return an error that says how the agent ended. Its cause is the error of the agent."""
        serving = _there(self._serving)
        done, _ = await asyncio.wait((serving,), timeout=self._grace_s)
        gone = AgentGone("The agent ended the connection.")
        gone.__cause__ = serving.exception() if done and not serving.cancelled() else None
        return gone

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()


class AgentProgram:
    """An agent program that speaks over its standard streams. When it is left, the program ends or is killed.

    `env` is added to this process's environment.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: str | Path | None, grace_s: float
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._grace_s = grace_s
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = bytearray()
        self._reading: asyncio.Task[None] | None = None

    @property
    def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The editor's end of the streams. Closing the writer ends the program's input."""
        process = _there(self._process)
        return _there(process.stdout), _there(process.stdin)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode if self._process else None

    @property
    def stderr(self) -> str:
        return self._stderr.decode(errors="replace")

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, **self._env},
            cwd=self._cwd,
            limit=_LINE_LIMIT,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(_there(self._process.stderr)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = _there(self._process)
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait_for(process.wait(), self._grace_s)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            await self._read_out()

    async def gone(self) -> AgentGone:
        """Return an error that says how the program ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_there(self._process).wait(), self._grace_s)
        await self._read_out()
        how = "closed its output" if self.exit_code is None else f"ended with {self.exit_code}"
        return AgentGone(f"The agent's program {how}; its standard error:\n{self.stderr or '(nothing)'}")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(_CHUNK):
            self._stderr += chunk

    async def _read_out(self) -> None:
        # Child processes of the program may hold its standard error open after it has ended.
        await asyncio.wait((_there(self._reading),), timeout=1)


def _there(value: Any) -> Any:
    if value is None:
        raise RuntimeError("The agent is not running: enter it first.")
    return value
