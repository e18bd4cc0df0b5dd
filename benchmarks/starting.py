"""From the start of the gateway to its first answer, beside an empty server on the same SDK.

    python benchmarks/starting.py

Twenty servers are configured and their definitions kept. Each run is a process of its own, the two in turn; what counts
is the ratio, run by run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVERS = 20
BAR = 1.3

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}

# An installation has its bytecode, the SDK's here included; a checkout keeps its own from the first of these starts.
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}

EMPTY = """
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult
async def tools(ctx, params):
    return ListToolsResult(tools=[])
async def main():
    server = Server("empty", on_list_tools=tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""

SERVER = """
import anyio, sys
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, Tool
async def tools(ctx, params):
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "Where to look"}}}
    told = "Does thing {} of {}."
    names = range(25)
    listed = [Tool(name=f"tool_{n}", description=told.format(n, sys.argv[1]), input_schema=schema) for n in names]
    return ListToolsResult(tools=listed)
async def main():
    server = Server(sys.argv[1], on_list_tools=tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        config, cache = Path(folder, "mcp.json"), Path(folder, "cache.sqlite")
        names = [f"server{n}" for n in range(SERVERS)]
        servers = {name: {"command": sys.executable, "args": ["-c", SERVER, name]} for name in names}
        config.write_text(json.dumps({"mcpServers": servers}))
        gateway = [sys.executable, "-m", "toolcrib", "serve", str(config), "--cache", str(cache)]
        listed_s = answered(gateway, search=True)  # fills the cache
        pairs = [(answered(gateway), answered([sys.executable, "-c", EMPTY])) for _ in range(runs)]
        first_search_s = answered(gateway, search=True)
    ratio = statistics.median(mine / empty for mine, empty in pairs)
    report = {
        "benchmark": "start to the first tools/list answer",
        "servers": SERVERS,
        "gateway_s": round(statistics.median(mine for mine, _ in pairs), 3),
        "empty_server_s": round(statistics.median(empty for _, empty in pairs), 3),
        "ratio": round(ratio, 3),
        "bar": BAR,
        "met": ratio <= BAR,
        "first_search_with_kept_definitions_s": round(first_search_s, 3),
        "first_search_without_s": round(listed_s, 3),
    }
    print(json.dumps(report, indent=1))


def answered(command: list[str], *, search: bool = False) -> float:
    """Seconds from the start of `command` to its answer to `tools/list`, or to a first search after that."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    )
    if process.stdin is None or process.stdout is None:
        raise SystemExit("no pipes")
    with process:
        for message in (INITIALIZE, INITIALIZED, LIST):
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("id") != 2:
            pass
        if search:
            call = {"name": "search_tools", "arguments": {"query": "does thing 3"}}
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if not answer["result"]["structuredContent"]["results"]:
                raise SystemExit("nothing was found")
        took = time.perf_counter() - began
        process.stdin.close()
    return took


if __name__ == "__main__":
    main()
