"""The gateway over standard input and output. It ends when the client closes the input, or at a signal."""

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
from toolcrib.operations.operation_table import DEFAULT_SET
from toolcrib.sources.mcp.connection import stop_servers_quickly
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway

LIST_FIRST_S = 0.1
"""How long the start of servers is delayed so that a client gets its list of tools immediately, in seconds."""


async def serve_stdio(
    crib: Toolcrib,
    config: Config,
    *,
    exposed: str | Sequence[str] = DEFAULT_SET,
    alongside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    follows: bool = True,
    to_stderr: bool = False,
) -> None:
    """Serve until the input is closed, or SIGINT or SIGTERM arrives. Then all started servers are stopped.

    Servers start when the client has declared its capabilities. `alongside` runs as a task from then on. `exposed`: see
    `Gateway`. `follows`: the gateway applies changes of the file of `config`. `to_stderr`: what functions of this
    program print goes to standard error, and not among the protocol messages.
    """
    stop_servers_quickly()
    # Signals are received until the very end. A client closes the input, waits briefly and then sends SIGTERM. That
    # must not end the gateway while it stops its servers.
    with signals_to_stop() as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, signals, tasks.cancel_scope)

            async def start(client: Client) -> None:
                crib.client = client
                await tasks.start(_run_crib, crib, config if follows else None, gateway, alongside)

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
    alongside: Callable[[], Coroutine[Any, Any, None]] | None,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Enter the crib at the first request that needs it, or after a moment. The first `tools/list` needs no server."""
    task_status.started()
    with anyio.move_on_after(LIST_FIRST_S):
        await gateway.startup.asked.wait()
    async with nullcontext() if crib.is_running else crib, anyio.create_task_group() as tasks:
        gateway.startup.begin()
        if alongside is not None:
            tasks.start_soon(alongside)
        await crib.follow(config, gateway.reload)


async def _cancel_on_signal(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


@contextmanager
def signals_to_stop() -> Generator[AsyncIterator[signal.Signals]]:
    """Receive SIGINT and SIGTERM. Outside the main thread no signal ever arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield _never()
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        yield signals


async def _never() -> AsyncGenerator[signal.Signals]:
    await anyio.sleep_forever()
    yield signal.SIGTERM


class _StandardInput:
    """The lines of standard input, read by a daemon thread.

    A blocked read cannot be cancelled. The SDK's own reader uses a thread that the interpreter waits for, so after a
    signal the program would only end when the client sends one more line.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            # A duplicate descriptor, because the interpreter takes the lock of `sys.stdin` when it ends.
            with os.fdopen(os.dup(0), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

        threading.Thread(target=read, name="standard input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            yield line
