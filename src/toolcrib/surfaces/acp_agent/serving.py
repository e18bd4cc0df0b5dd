"""Serving of one editor over a connection, until the editor closes it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import anyio
from acp import run_agent

from toolcrib.surfaces.acp_agent.agent import CribAgent, Setup
from toolcrib.surfaces.acp_agent.editor_wire import EditorLines, EditorWire, StandardLines, StreamLines


async def serve_lines(setup: Setup, lines: EditorLines) -> None:
    """Serve one editor until `lines` ends. When this returns, all servers and terminals of its sessions have ended.

    This also holds if the task is cancelled. The connection ends last, because the agent asks the editor to release
    terminals.
    """
    wire, gone = EditorWire(lines), anyio.Event()
    async with anyio.create_task_group() as connection:
        try:
            async with anyio.create_task_group() as sessions:
                agent = CribAgent(setup, sessions, wire.mcp)
                connection.start_soon(_listen, agent, wire, gone)
                try:
                    await gone.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        await agent.close()
                sessions.cancel_scope.cancel()
        finally:
            wire.end()


async def _listen(agent: CribAgent, wire: EditorWire, gone: anyio.Event) -> None:
    """Handle messages until the editor leaves or `wire.end()` is called. Cancellation does not stop it."""
    try:
        with anyio.CancelScope(shield=True):
            # The SDK counts `session/close` and `session/resume` as unstable methods.
            await run_agent(agent, wire, use_unstable_protocol=True)
    finally:
        gone.set()


async def serve_streams(setup: Setup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one editor over a pair of streams, as `serve_lines` does."""
    await serve_lines(setup, StreamLines(reader, writer))


async def serve_stdio(setup: Setup) -> None:
    """Serve one editor over standard input and output. SIGINT and SIGTERM also end it."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, signals, tasks.cancel_scope)
            await serve_lines(setup, StandardLines())
            tasks.cancel_scope.cancel()


async def _cancel_on_signal(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()
