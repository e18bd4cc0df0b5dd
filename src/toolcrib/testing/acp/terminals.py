"""The terminals of a fake editor: real programs, or scripted output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, TypeAlias

from acp import RequestError
from acp.schema import TerminalExitStatus, TerminalOutputResponse

_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class TerminalCommand:
    """A command that an agent wants to run."""

    session_id: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    output_byte_limit: int | None = None


@dataclass(frozen=True, slots=True)
class ScriptedCommand:
    """A command that does not really run. It shows `output` and has ended, or lasts until it is killed."""

    output: str = ""
    exit_code: int = 0
    until_killed: bool = False


Script: TypeAlias = Mapping[str, ScriptedCommand | str] | Callable[[TerminalCommand], ScriptedCommand | str]
"""Scripted commands by name, or a function that returns one.

A name that is missing is a program that does not exist. A string is the output of a successful command.
"""


class _Run(Protocol):
    @property
    def output(self) -> bytes: ...
    @property
    def ended(self) -> TerminalExitStatus | None: ...
    async def wait(self) -> TerminalExitStatus: ...
    async def kill(self) -> None: ...


class FakeTerminal:
    """One command from `create` to `release`."""

    def __init__(self, terminal_id: str, commanded: TerminalCommand, run: _Run) -> None:
        self.id = terminal_id
        self.commanded = commanded
        self.was_killed = False
        self.is_open = True
        """Whether the terminal was not released yet."""
        self._run = run

    @property
    def shown(self) -> TerminalOutputResponse:
        """The output so far. With a limit, it is the end of the output, starting at a complete character."""
        output = self._run.output
        limit = self.commanded.output_byte_limit
        cut = 0 if limit is None else max(len(output) - limit, 0)
        if cut:
            output = output[cut:].lstrip(bytes(range(0x80, 0xC0)))
        return TerminalOutputResponse(
            output=output.decode(errors="replace"), truncated=cut > 0, exit_status=self._run.ended
        )

    async def wait(self) -> TerminalExitStatus:
        return await self._run.wait()

    async def kill(self) -> None:
        self.was_killed = True
        await self._run.kill()

    async def release(self) -> None:
        self.is_open = False
        await self._run.kill()

    async def end(self) -> None:
        """End the command without recording that it was killed or released."""
        await self._run.kill()


class FakeTerminals:
    """All terminals of an editor. `log` also contains the released ones."""

    def __init__(self, script: Script | None, changed: Callable[[], None]) -> None:
        self.script = script
        """The scripted commands, or None if commands really run."""
        self.log: list[FakeTerminal] = []
        self._changed = changed
        self._numbers = count(1)

    @property
    def open(self) -> tuple[FakeTerminal, ...]:
        return tuple(terminal for terminal in self.log if terminal.is_open)

    async def create(self, commanded: TerminalCommand) -> FakeTerminal:
        """Start a command in a new terminal.

        Raises:
            RequestError: the program does not exist.
        """
        run = await _started(commanded) if self.script is None else _ScriptedRun(_scripted(self.script, commanded))
        terminal = FakeTerminal(f"terminal-{next(self._numbers)}", commanded, run)
        self.log.append(terminal)
        self._changed()
        return terminal

    def get(self, session_id: str, terminal_id: str) -> FakeTerminal:
        """Return an open terminal.

        Raises:
            RequestError: the session has no such terminal, or it was released.
        """
        for terminal in self.open:
            if terminal.id == terminal_id and terminal.commanded.session_id == session_id:
                return terminal
        raise RequestError.invalid_params({"details": f"This session has no terminal `{terminal_id}`."})

    async def kill(self, session_id: str, terminal_id: str) -> None:
        await self.get(session_id, terminal_id).kill()
        self._changed()

    async def release(self, session_id: str, terminal_id: str) -> None:
        await self.get(session_id, terminal_id).release()
        self._changed()

    async def end(self) -> None:
        """End all commands. Terminals that were not released stay visible in `open`."""
        for terminal in self.log:
            await terminal.end()


async def _started(commanded: TerminalCommand) -> _Run:
    shell = not commanded.args and " " in commanded.command.strip()  # editors run a whole command line in a shell
    program = ("/bin/sh", "-c", commanded.command) if shell else (commanded.command, *commanded.args)
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **commanded.env},
            cwd=commanded.cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise RequestError.internal_error({"details": str(error)}) from error
    return _RealRun(process)


def _scripted(script: Script, commanded: TerminalCommand) -> ScriptedCommand:
    scripted = script(commanded) if callable(script) else script.get(commanded.command)
    if scripted is None:
        raise RequestError.internal_error({"details": f"Program `{commanded.command}` not found."})
    return ScriptedCommand(scripted) if isinstance(scripted, str) else scripted


class _ScriptedRun:
    def __init__(self, scripted: ScriptedCommand) -> None:
        self.output = scripted.output.encode()
        self._end = asyncio.Event()
        self.ended: TerminalExitStatus | None = None
        if not scripted.until_killed:
            self._ends(TerminalExitStatus(exit_code=scripted.exit_code))

    async def wait(self) -> TerminalExitStatus:
        await self._end.wait()
        return self.ended or TerminalExitStatus()

    async def kill(self) -> None:
        if self.ended is None:
            self._ends(TerminalExitStatus(signal="SIGKILL"))

    def _ends(self, status: TerminalExitStatus) -> None:
        self.ended = status
        self._end.set()


class _RealRun:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._shown = bytearray()
        self._reading = asyncio.create_task(self._read())

    @property
    def output(self) -> bytes:
        return bytes(self._shown)

    @property
    def ended(self) -> TerminalExitStatus | None:
        code = self._process.returncode
        if code is None or not self._reading.done():
            return None
        return TerminalExitStatus(signal=signal.Signals(-code).name) if code < 0 else TerminalExitStatus(exit_code=code)

    async def wait(self) -> TerminalExitStatus:
        await asyncio.shield(self._reading)
        return self.ended or TerminalExitStatus()

    async def kill(self) -> None:
        if not self._reading.done():
            # Children may hold the output open even after the program has ended, so the whole group is killed.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        stream = self._process.stdout
        while stream is not None and (chunk := await stream.read(_CHUNK)):
            self._shown += chunk
        await self._process.wait()
