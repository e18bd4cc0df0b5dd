"""Requests per second of the gateway over HTTP, beside the SDK's own server and a bare endpoint.

    python benchmarks/throughput.py

Every server is a process of its own, and this one only sends: the same raw requests of MCP 2026-07-28, or of the HTTP
API, over the same number of kept-alive connections. Policy and audit are on. The SDK's low-level server answers from a
constant what the gateway found, the bare endpoint answers its very bytes unread, and the relay is the SDK's server over
the SDK's client. All take turns; what counts is the ratio, turn by turn. `cpu_ms` is the processor time that the server
itself spent on a request, which other work on the machine moves least; `p99_ms` is of one turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

import catalog
import load
import servers

TEXT = {"text": "x" * 100}
QUERY = "send a message to the people of a channel"


@dataclass(slots=True)
class Contender:
    """One server, asked one kind of request."""

    server: servers.Reachable
    url: str
    sent: bytes
    per_s: list[float] = field(default_factory=list[float])
    cpu_ms: list[float] = field(default_factory=list[float])
    p99_ms: list[float] = field(default_factory=list[float])
    load_cpu: list[float] = field(default_factory=list[float])
    """Part of a core that the sender took."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--tools", type=int, default=1_000, help="in the gateway's catalog")
    given = parser.parse_args()
    with ExitStack() as stack:
        requests = await contenders(stack, given.tools)
        for turn in range(given.rounds + 1):
            for engines in requests.values():
                names = [*engines]
                first = turn % len(names)
                for name in names[first:] + names[:first]:
                    await take_turn(engines[name], given.seconds, given.connections, counts=turn > 0)
    report = {
        "benchmark": "requests over HTTP",
        "connections": given.connections,
        "rounds": given.rounds,
        "seconds_of_a_turn": given.seconds,
        "tools": given.tools,
        "from_shared_sets": catalog.SHARED.exists(),
        "requests": {request: summary(engines) for request, engines in requests.items()},
        "skipped": {} if find_spec("fastmcp") else {"fastmcp proxy": "fastmcp is not installed"},
    }
    print(json.dumps(report, indent=1))


async def contenders(stack: ExitStack, tools: int) -> dict[str, dict[str, Contender]]:
    """By request, the servers that are asked it, `toolcrib` first."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    # The SDK's server lists all its tools on every call to one, so the one that is called has no others.
    echo = stack.enter_context(servers.reachable("echo", "--http"))
    many = stack.enter_context(servers.reachable("echo", "--http", "--tools", str(tools)))
    gateway = stack.enter_context(
        servers.gateway(servers.write_config(folder / "both.json", echo=echo.entry, many=many.entry))
    )
    function = stack.enter_context(servers.reachable("function", str(servers.write_config(folder / "nothing.json"))))

    search = {"name": "search_tools", "arguments": {"query": QUERY}}
    call = await _call(gateway.url, "echo.echo")
    call_function = await _call(function.url, "functions.echo")
    known: dict[str, Any] = {
        "tools": await load.ask(gateway.url, "tools/list"),
        "calls": {
            "search_tools": await load.ask(gateway.url, "tools/call", search),
            "call_tool": await load.ask(function.url, "tools/call", call_function),
        },
    }
    (answers := folder / "answers.json").write_text(json.dumps(known))
    constant = stack.enter_context(servers.reachable("constant", str(answers)))
    (bodies := folder / "bodies").mkdir()
    asked = {"list": ("tools/list", None), "search": ("tools/call", search), "call": ("tools/call", call_function)}
    for name, (method, params) in asked.items():
        server = function if name == "call" else gateway
        (bodies / f"{name}.json").write_bytes(await load.answer(server.url, load.request(server.url, method, params)))
    api = {
        "api_search": (gateway, "search_tools", search["arguments"]),
        "api_call": (function, "call_tool", call_function["arguments"]),
    }
    for name, (server, operation, arguments) in api.items():
        url = _operation(server, operation)
        (bodies / f"{name}.json").write_bytes(await load.answer(url, load.post(url, arguments)))
    bare = stack.enter_context(servers.reachable("bare", str(bodies)))

    def asking(server: servers.Reachable, method: str, params: Any = None, path: str = "") -> Contender:
        url = server.url + path
        return Contender(server, url, load.request(url, method, params))

    requests: dict[str, dict[str, Contender]] = {
        "tools/list": {
            "toolcrib": asking(gateway, "tools/list"),
            "sdk constant": asking(constant, "tools/list"),
            "bare": asking(bare, "tools/list", path="/list"),
        },
        "search_tools": {
            "toolcrib": asking(gateway, "tools/call", search),
            "sdk constant": asking(constant, "tools/call", search),
            "bare": asking(bare, "tools/call", search, path="/search"),
        },
        "call_tool of a function": {
            "toolcrib": asking(function, "tools/call", call_function),
            "sdk constant": asking(constant, "tools/call", call_function),
            "bare": asking(bare, "tools/call", call_function, path="/call"),
        },
        "call_tool of a server over HTTP": {
            "toolcrib": asking(gateway, "tools/call", call),
            "the server itself": asking(echo, "tools/call", {"name": "echo", "arguments": TEXT}),
        },
    }
    for name, (server, operation, arguments) in api.items():
        requests[f"POST /v1/{operation}"] = {
            "toolcrib": _posting(server, _operation(server, operation), arguments),
            "bare": _posting(bare, f"{bare.url}/{name}", arguments),
        }
    one = servers.write_config(folder / "one.json", echo=echo.entry)
    roles = {"sdk relay": "relay"} | ({"fastmcp proxy": "proxy"} if find_spec("fastmcp") else {})
    for engine, role in roles.items():
        between = stack.enter_context(servers.reachable(role, str(one), "--http"))
        through = asking(between, "tools/call", {"name": "echo", "arguments": TEXT})
        requests["call_tool of a server over HTTP"][engine] = through
    return requests


def _operation(server: servers.Reachable, name: str) -> str:
    return f"{server.url.removesuffix('/mcp')}/v1/{name}"


def _posting(server: servers.Reachable, url: str, arguments: Any) -> Contender:
    return Contender(server, url, load.post(url, arguments))


async def _call(url: str, tool_id: str) -> dict[str, Any]:
    expand = {"name": "expand_tool", "arguments": {"tool_id": tool_id}}
    expanded = await load.ask(url, "tools/call", expand)
    return {"name": "call_tool", "arguments": {"tool_id": expanded["structuredContent"]["handle"], "arguments": TEXT}}


async def take_turn(contender: Contender, seconds: float, connections: int, *, counts: bool) -> None:
    process = psutil.Process(contender.server.pid)
    before, own = process.cpu_times(), time.process_time()
    done = await load.for_seconds(contender.url, contender.sent, seconds=seconds, connections=connections)
    after, took = process.cpu_times(), time.process_time() - own
    if counts:
        spent_s = after.user + after.system - before.user - before.system
        contender.per_s.append(done.per_s)
        contender.cpu_ms.append(1000 * spent_s / done.answers)
        contender.p99_ms.append(done.p99_ms)
        contender.load_cpu.append(took / done.seconds)


def summary(engines: dict[str, Contender]) -> dict[str, Any]:
    mine = engines["toolcrib"]
    others = {name: engine for name, engine in engines.items() if engine is not mine}
    return {
        "per_s": {name: _spread(engine.per_s, 0) for name, engine in engines.items()},
        "cpu_ms": {name: _spread(engine.cpu_ms, 3) for name, engine in engines.items()},
        "p99_ms": {name: _spread(engine.p99_ms, 2) for name, engine in engines.items()},
        "load_generator_cpu": {name: _spread(engine.load_cpu, 2) for name, engine in engines.items()},
        "per_s_of_toolcrib_to": {name: _ratio(mine.per_s, engine.per_s) for name, engine in others.items()},
        "p99_of_toolcrib_to": {name: _ratio(mine.p99_ms, engine.p99_ms) for name, engine in others.items()},
        "cpu_of_toolcrib_to": {name: _ratio(mine.cpu_ms, engine.cpu_ms) for name, engine in others.items()},
    }


def _ratio(mine: list[float], theirs: list[float]) -> dict[str, float]:
    return _spread([one / other for one, other in zip(mine, theirs, strict=True)], 2)


def _spread(values: list[float], digits: int) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), digits),
        "least": round(ordered[0], digits),
        "most": round(ordered[-1], digits),
    }


asyncio.run(main())
