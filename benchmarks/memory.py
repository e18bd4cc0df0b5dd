"""Memory of the gateway over many calls, as a series of its resident set: `python benchmarks/memory.py`.

The gateway serves HTTP, its one server is a process of its own. Every call carries another text; of ten requests one is
a search for other words, one expands a tool, and one is a call with wrong arguments, since what is kept of questions or
errors would grow too. Searches put the words of one vocabulary into ever other orders: how words are read is remembered
by design, up to 65,536 of them. Growth counts from the second half on: allocators and caches settle first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import psutil

import catalog
import load
import servers

MIB = 1024 * 1024

BAR_BYTES = 20.0
"""Growth per call that counts as none, in bytes: 2 MiB in the whole run, what an allocator gives and takes."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument(
        "--server", choices=("stdio", "http"), default="stdio", help="how the gateway reaches its server"
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        gateway = stack.enter_context(servers.gateway(_config(stack, given.server)))
        handle = await expanded(gateway.url)
        process = psutil.Process(gateway.pid)
        sent = requests(gateway.url, handle)
        series = [{"calls": 0, "rss_mib": _rss(process)}]
        each = max(1, given.calls // given.samples)
        for calls in range(each, given.calls + 1, each):
            # Seven of ten requests are calls that are run, and one is a call that is refused.
            await load.all_of(gateway.url, islice(sent, round(each / 0.8)), connections=given.connections)
            series.append({"calls": calls, "rss_mib": _rss(process)})
            print(f"{calls} calls: {series[-1]['rss_mib']:.2f} MiB", file=sys.stderr)
    second_half = series[len(series) // 2 :]
    slope = _slope([point["calls"] for point in second_half], [point["rss_mib"] * MIB for point in second_half])
    report = {
        "benchmark": "memory of the gateway",
        "calls": given.calls,
        "server": given.server,
        "series": series,
        "growth_bytes_per_call": round(slope, 2),
        "spread_mib": round(statistics.pstdev(point["rss_mib"] for point in second_half), 3),
        "bar_bytes_per_call": BAR_BYTES,
        "met": slope <= BAR_BYTES,
    }
    print(json.dumps(report, indent=1))


def _config(stack: ExitStack, transport: str) -> Path:
    over_http = transport == "http"
    echo = stack.enter_context(servers.reachable("echo", "--http")).entry if over_http else servers.started("echo")
    return servers.write_config(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mcp.json", echo=echo)


async def expanded(url: str) -> str:
    """The handle of the one tool."""
    answer = await load.ask(url, "tools/call", {"name": "expand_tool", "arguments": {"tool_id": "echo.echo"}})
    return answer["structuredContent"]["handle"]


def requests(url: str, handle: str) -> Iterator[bytes]:
    """Ten at a time, without end; hardly two are the same."""
    source = random.Random(0)
    words = [word for query in catalog.queries(200) for word in query.split()]
    number = 0
    while True:
        for at in range(10):
            number += 1
            name, arguments = "call_tool", {"tool_id": handle, "arguments": {"text": f"{number} {'x' * 100}"}}
            if at == 3:
                name, arguments = "search_tools", {"query": " ".join(source.choices(words, k=8))}
            elif at == 6:
                name, arguments = "expand_tool", {"tool_id": "echo.echo"}
            elif at == 9:
                arguments = {"tool_id": handle, "arguments": {"test": number}}
            yield load.request(url, "tools/call", {"name": name, "arguments": arguments}, number=number)


def _rss(process: psutil.Process) -> float:
    return round(process.memory_info().rss / MIB, 3)


def _slope(xs: list[float], ys: list[float]) -> float:
    return statistics.linear_regression(xs, ys).slope if len(xs) > 1 else 0.0


asyncio.run(main())
