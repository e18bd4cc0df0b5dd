"""What the gateway adds to a call over stdio and over HTTP, beside FastMCP's proxy and a bare relay.

    python benchmarks/calling.py

The same transport on both legs: one server, one client program, calls in turn. What counts is the difference to the
direct call of the same turn. The relay is the SDK's server over the SDK's client and nothing else: what it adds,
everything adds that stands between and speaks by this SDK.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import servers

BAR_MS = 2.0

WARM_UP = 20
"""Turns before those that count: the first ones start what starts late."""

Call = Callable[[], Awaitable[Any]]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--transport", choices=("stdio", "http"), nargs="+", default=["stdio", "http"])
    given = parser.parse_args()
    transports = {transport: await measure(transport, given.calls) for transport in given.transport}
    report = {
        "benchmark": "a call",
        "calls": given.calls,
        "transports": transports,
        "skipped": {} if find_spec("fastmcp") else {"fastmcp proxy": "fastmcp is not installed"},
        "bar_ms": BAR_MS,
        "met": {
            transport: measured["added_ms"]["toolcrib"]["p50"] <= BAR_MS for transport, measured in transports.items()
        },
    }
    print(json.dumps(report, indent=1))


async def measure(transport: str, calls: int) -> dict[str, Any]:
    """Milliseconds of a call by engine, and what each adds to the direct one."""
    async with AsyncExitStack() as stack:
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mcp.json"
        clients = await (over_stdio if transport == "stdio" else over_http)(stack, config)
        arguments = {"text": "x" * 100}
        engines: dict[str, Call] = {}
        for engine, client in clients.items():
            if engine == "toolcrib":
                expanded = await client.call_tool("expand_tool", {"tool_id": "echo.echo"})
                called = {"tool_id": expanded.structured_content["handle"], "arguments": arguments}
                engines[engine] = lambda client=client, called=called: client.call_tool("call_tool", called)
            else:
                (name,) = [tool.name for tool in (await client.list_tools()).tools]
                engines[engine] = lambda client=client, name=name: client.call_tool(name, arguments)
        taken = await in_turn(engines, calls)
    added = {
        engine: [mine - direct for mine, direct in zip(times, taken["direct"], strict=True)]
        for engine, times in taken.items()
        if engine != "direct"
    }
    return {
        "taken_ms": {engine: _spread(times) for engine, times in taken.items()},
        "added_ms": {engine: _spread(times) for engine, times in added.items()},
        "added_to_direct": {
            engine: round(statistics.median(times) / statistics.median(taken["direct"]), 2)
            for engine, times in added.items()
        },
    }


async def over_stdio(stack: AsyncExitStack, config: Path) -> Mapping[str, Client]:
    """A client of each engine over pipes; every engine starts the server for itself."""
    servers.write_config(config, echo=servers.started("echo"))
    serve = [sys.executable, "-m", "toolcrib", "serve", str(config), "--no-cache"]
    commands = {"direct": servers.command("echo"), "toolcrib": serve}
    commands["sdk relay"] = servers.command("relay", str(config))
    if find_spec("fastmcp"):
        commands["fastmcp proxy"] = servers.command("proxy", str(config))
    nowhere = stack.enter_context(_nowhere())
    return {
        engine: await stack.enter_async_context(
            Client(stdio_client(StdioServerParameters(command=words[0], args=words[1:]), errlog=nowhere))
        )
        for engine, words in commands.items()
    }


async def over_http(stack: AsyncExitStack, config: Path) -> Mapping[str, Client]:
    """A client of each engine over HTTP; all reach the same server."""
    echo = stack.enter_context(servers.reachable("echo", "--http"))
    servers.write_config(config, echo=echo.entry)
    reached = {"direct": echo, "toolcrib": stack.enter_context(servers.gateway(config))}
    reached["sdk relay"] = stack.enter_context(servers.reachable("relay", str(config), "--http"))
    if find_spec("fastmcp"):
        reached["fastmcp proxy"] = stack.enter_context(servers.reachable("proxy", str(config), "--http"))
    return {engine: await stack.enter_async_context(Client(server.url)) for engine, server in reached.items()}


async def in_turn(engines: Mapping[str, Call], calls: int) -> dict[str, list[float]]:
    """Milliseconds of each call; the engines alternate, and so does which of them is first."""
    taken: dict[str, list[float]] = {engine: [] for engine in engines}
    names = [*engines]
    for number in range(calls + WARM_UP):
        first = number % len(names)
        for engine in names[first:] + names[:first]:
            began = time.perf_counter()
            result = await engines[engine]()
            if number >= WARM_UP:
                taken[engine].append(1000 * (time.perf_counter() - began))
            if result.is_error:
                raise SystemExit(f"{engine} failed: {result}")
    return taken


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50": round(statistics.median(ordered), 3),
        "p90": round(ordered[int(0.9 * len(ordered))], 3),
    }


anyio.run(main)
