"""One run of a program: bounded in time and in what it may say, and ended with everything that it started."""

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
"""Of standard output, and of standard error; the program may say more, and it is not kept."""

GRACE_S = 1.0
"""Between the signal that asks a program to end and the one that makes it end."""

LAST_OUTPUT_S = 0.5
"""For what a program said last to arrive once it has ended; what it left behind may hold its output open for ever."""

_LOOK_S = 0.01


@dataclass(slots=True)
class Output:
    """What came out of one pipe, up to a bound."""

    data: bytes = b""
    left_out_bytes: int = 0

    def take(self, chunk: bytes) -> None:
        room = MAX_OUTPUT_BYTES - len(self.data)
        self.data += chunk[:room]
        self.left_out_bytes += len(chunk[room:])

    @property
    def text(self) -> str:
        """It, as UTF-8, and how much of it was left out."""
        text = self.data.decode("utf-8", "replace")
        return f"{text}\n[{self.left_out_bytes} more bytes were left out]" if self.left_out_bytes else text


@dataclass(frozen=True, slots=True)
class Run:
    """How a program ended."""

    exit_code: int | None
    """Below 0, the number of the signal that ended it; None where it was ended because its time was over."""
    stdout: Output
    stderr: Output


async def run_program(
    argv: Sequence[str], *, given: bytes | None, cwd: str | None, env: Mapping[str, str], timeout_s: float
) -> Run:
    """Run `argv` with exactly the environment `env`, and `given` as its input; it is over when the program is.

    What is left then of the processes that it started is killed, unless they made themselves independent of it.

    Raises:
        OSError: it cannot be started.
    """
    process = await _started(argv, given, cwd, env)
    try:
        return await _followed(process, given, timeout_s)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _started(argv: Sequence[str], given: bytes | None, cwd: str | None, env: Mapping[str, str]) -> Process:
    # A start that is cancelled half-way would leave a process that nobody waits for.
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(
            list(argv),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    raise AssertionError("nobody cancels that scope")  # pragma: no cover


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
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):  # it need not read all of it
            await stream.send(given)
            await stream.aclose()


async def _exit(process: Process) -> None:
    # Not `process.wait()`: asyncio waits there for the end of the pipes too, which a child may hold open.
    while process.returncode is None:  # noqa: ASYNC110
        await anyio.sleep(_LOOK_S)


async def _end(process: Process) -> None:
    """Ask it to end where it still runs, then kill what is left of its group, and let go of its pipes."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(GRACE_S):
            await _exit(process)
    _signal(process, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    with anyio.move_on_after(GRACE_S):
        await _exit(process)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.aclose()
    # What left the group may still hold our end of a pipe; asyncio's transport would then never close, and say so.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


def _signal(process: Process, number: int) -> None:
    """To everything in its group: it is the head of one of its own, whose id is its own even after its end."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":  # pragma: no cover
            process.terminate()
        else:
            os.killpg(process.pid, number)
