"""The gateway over standard input and output, ended by a signal or by the client that closes the input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, cast

import anyio
from anyio.abc import TaskStatus
from mcp.server.stdio import stdio_server

from toolcrib.config import Config
from toolcrib.core.client import Client
from toolcrib.core.principal import LOCAL
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.tools import DEFAULT_SET
from toolcrib.sources.mcp.connection import stop_servers_quickly
from toolcrib.surfaces.mcp_gateway.server import Gateway

LIST_FIRST_S = 0.1
"""How long servers are held back so that a client has its list of tools at once, in seconds."""


async def serve_stdio(
    crib: Toolcrib,
    config: Config,
    *,
    exposed: str | Sequence[str] = DEFAULT_SET,
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    follows: bool = True,
    to_stderr: bool = False,
) -> None:
    """Serve until the input is closed, or SIGINT or SIGTERM arrives; every server that was started is stopped then.

    Servers are started from when the client has said what it can be asked for; `beside` is run from then on.
    `exposed`: see `Gateway`. `follows`: changes of the file of `config` are taken over.
    `to_stderr`: what functions of this program print goes there, and not among the messages.
    """
    stop_servers_quickly()
    # Signals are held to the very end: a client closes the input, waits a little and then sends SIGTERM, which must not
    # end the gateway between two servers that are being stopped.
    with signals_to_stop() as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, signals, tasks.cancel_scope)

            async def start(client: Client) -> None:
                crib.client = client
                await tasks.start(_run_crib, crib, config if follows else None, gateway, beside)

            gateway = Gateway(crib, config, principal=LOCAL, exposed=exposed, on_introduced=start)
            pipes = stdio_server(stdin=cast("anyio.AsyncFile[str]", _StandardInput()))
            async with gateway, pipes as (read, write):
                with redirect_stdout(sys.stderr) if to_stderr else nullcontext():
                    await gateway.server.run(read, write, gateway.server.create_initialization_options())
            tasks.cancel_scope.cancel()


async def _run_crib(
    crib: Toolcrib,
    config: Config | None,
    gateway: Gateway,
    beside: Callable[[], Coroutine[Any, Any, None]] | None,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Enter the crib at the first question, or soon: a client wants its list of tools first, which takes no server."""
    task_status.started()
    with anyio.move_on_after(LIST_FIRST_S):
        await gateway.opening.asked.wait()
    async with nullcontext() if crib.is_running else crib, anyio.create_task_group() as tasks:
        gateway.opening.begin()
        if beside is not None:
            tasks.start_soon(beside)
        await crib.follow(config, gateway.reload)


async def _cancel_on_signal(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


@contextmanager
def signals_to_stop() -> Generator[AsyncIterator[signal.Signals]]:
    """SIGINT and SIGTERM as they arrive; none do in a thread that is not the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield _never()
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        yield signals


async def _never() -> AsyncGenerator[signal.Signals]:
    await anyio.sleep_forever()
    yield signal.SIGTERM


class _StandardInput:
    """The lines of standard input, read by a thread that the end of the program does not wait for.

    A blocked read cannot be cancelled, and the SDK's own reader sits in a thread that the interpreter waits for: a
    signal would then end nothing until the client sends one more line.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            # A descriptor of its own: the interpreter takes the lock of `sys.stdin` when it ends.
            with os.fdopen(os.dup(0), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

        threading.Thread(target=read, name="standard input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            yield line
