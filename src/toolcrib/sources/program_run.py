"""Runs one program, with limits on its time and its output, and ends everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

MAX_OUTPUT_BYTES = 1_000_000
"""The maximum size of standard output and of standard error. Further output is dropped."""

GRACE_S = 1.0
"""The time between the signal that asks a program to end and the one that kills it, in seconds."""

LAST_OUTPUT_S = 0.5
"""How long to wait for the last output after the program ended, in seconds. A child may hold the output open
forever."""

_LOOK_S = 0.01


@dataclass(slots=True)
class Output:
    """The output of one pipe, up to the limit."""

    data: bytes = b""
    left_out_bytes: int = 0

    def take(self, chunk: bytes) -> None:
        room = MAX_OUTPUT_BYTES - len(self.data)
        self.data += chunk[:room]
        self.left_out_bytes += len(chunk[room:])

    @property
    def text(self) -> str:
        """The output as UTF-8, with a note on how much was left out."""
        text = self.data.decode("utf-8", "replace")
        return f"{text}\n[{self.left_out_bytes} more bytes were left out]" if self.left_out_bytes else text


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a finished program."""

    exit_code: int | None
    """Below 0, the number of the signal that ended the program. None if it was stopped because of its time limit."""
    stdout: Output
    stderr: Output


async def run_program(
    argv: Sequence[str], *, given: bytes | None, cwd: str | None, env: Mapping[str, str], timeout_s: float
) -> Run:
    """Run `argv` with exactly the environment `env`, and with `given` as its input. The run is over when the program
    ends.

    Processes that it started and that still run are killed then, unless they left its process group.

    Raises:
        OSError: the program cannot be started.
    """
    process = await _started(argv, given, cwd, env)
    try:
        return await _followed(process, given, timeout_s)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _started(argv: Sequence[str], given: bytes | None, cwd: str | None, env: Mapping[str, str]) -> Process:
    # A start that is cancelled half-way would leave a process without an owner.
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(
            list(argv),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    raise AssertionError("the shielded scope is never cancelled")  # pragma: no cover


async def _followed(process: Process, given: bytes | None, timeout_s: float) -> Run:
    stdout, stderr = Output(), Output()
    is_over = False
    with anyio.move_on_after(timeout_s):
        async with anyio.create_task_group() as tasks:
            ends = [anyio.Event(), anyio.Event()]
            tasks.start_soon(_read, process.stdout, stdout, ends[0])
            tasks.start_soon(_read, process.stderr, stderr, ends[1])
            if given is not None:
                tasks.start_soon(_write, process.stdin, given)
            await _exit(process)
            is_over = True
            with anyio.move_on_after(LAST_OUTPUT_S):
                for end in ends:
                    await end.wait()
            tasks.cancel_scope.cancel()
    return Run(process.returncode if is_over else None, stdout, stderr)


async def _read(stream: ByteReceiveStream | None, output: Output, end: anyio.Event) -> None:
    if stream is not None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for chunk in stream:
                output.take(chunk)
    end.set()


async def _write(stream: ByteSendStream | None, given: bytes) -> None:
    if stream is not None:
        # The program need not read all of its input.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await stream.send(given)
            await stream.aclose()


async def _exit(process: Process) -> None:
    # Not `process.wait()`: asyncio also waits there for the end of the pipes, which a child may hold open.
    while process.returncode is None:  # noqa: ASYNC110
        await anyio.sleep(_LOOK_S)


async def _end(process: Process) -> None:
    """Ask the program to end if it still runs, kill the rest of its process group, and close its pipes."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(GRACE_S):
            await _exit(process)
    _signal(process, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)  # Windows has no SIGKILL
    with anyio.move_on_after(GRACE_S):
        await _exit(process)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.aclose()
    # A process that left the group may still hold our end of a pipe. asyncio's transport would then never close, and
    # would warn about it.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


def _signal(process: Process, number: int) -> None:
    """Send a signal to the process group. The program leads its own group, whose id stays reserved after the program
    ended."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":  # pragma: no cover
            process.terminate()
        else:
            os.killpg(process.pid, number)
