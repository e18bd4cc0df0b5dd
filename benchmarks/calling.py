"""What the gateway adds to a call over stdio, beside calling the server directly and through FastMCP's proxy.

    python benchmarks/calling.py

One server, one client program, calls in turn. What counts is the difference to the direct call before it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

BAR_MS = 2.0

SERVER = """
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
async def tools(ctx, params):
    return ListToolsResult(tools=[Tool(name="echo", description="Give back a text.", input_schema=schema)])
async def call(ctx, params):
    return CallToolResult(content=[TextContent(type="text", text=params.arguments["text"])])
async def main():
    server = Server("echo", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""

PROXY = """
import sys
from fastmcp.server import create_proxy
config = {"mcpServers": {"echo": {"command": sys.executable, "args": ["-c", sys.argv[1]]}}}
create_proxy(config).run(transport="stdio", show_banner=False)
"""

Call = Callable[[], Awaitable[Any]]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    calls: int = parser.parse_args().calls
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = folder / "mcp.json"
        server = {"command": sys.executable, "args": ["-c", SERVER]}
        config.write_text(json.dumps({"mcpServers": {"echo": server}}))

        async def client(*command: str) -> Client:
            parameters = StdioServerParameters(command=sys.executable, args=list(command))
            return await stack.enter_async_context(Client(parameters))

        direct = await client("-c", SERVER)
        gateway = await client("-m", "toolcrib", "serve", str(config), "--no-cache")
        arguments = {"text": "x" * 100}
        expanded = await gateway.call_tool("expand_tool", {"tool_id": "echo.echo"})
        handle = expanded.structured_content["handle"]
        engines: dict[str, Call] = {
            "direct": lambda: direct.call_tool("echo", arguments),
            "toolcrib": lambda: gateway.call_tool("call_tool", {"tool_id": handle, "arguments": arguments}),
        }
        skipped: dict[str, str] = {}
        try:
            import fastmcp  # noqa: F401
        except ImportError:
            skipped["fastmcp proxy"] = "fastmcp is not installed"
        else:
            proxy = await client("-c", PROXY, SERVER)
            (name,) = [tool.name for tool in (await proxy.list_tools()).tools]
            engines["fastmcp proxy"] = lambda: proxy.call_tool(name, arguments)
        taken: dict[str, list[float]] = {engine: [] for engine in engines}
        for number in range(calls + 20):
            for engine, call in engines.items():
                began = time.perf_counter()
                result = await call()
                if number >= 20:  # the first ones start what starts late
                    taken[engine].append(1000 * (time.perf_counter() - began))
                if result.is_error:
                    raise SystemExit(f"{engine} failed: {result}")
    added = {
        engine: statistics.median(mine - direct for mine, direct in zip(times, taken["direct"], strict=True))
        for engine, times in taken.items()
        if engine != "direct"
    }
    report = {
        "benchmark": "a call over stdio",
        "calls": calls,
        "median_ms": {engine: round(statistics.median(times), 3) for engine, times in taken.items()},
        "added_ms": {engine: round(ms, 3) for engine, ms in added.items()},
        "skipped": skipped,
        "bar_ms": BAR_MS,
        "met": added["toolcrib"] <= BAR_MS,
    }
    print(json.dumps(report, indent=1))


anyio.run(main)
