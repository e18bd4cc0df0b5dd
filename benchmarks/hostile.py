"""Well-behaved calls next to attacks on the gateway over HTTP: `python benchmarks/hostile.py`.

The gateway, its servers and the attacker are processes of their own. For each attack there is a new gateway. First
`ada` alone calls a tool, on kept connections and on a new connection for each call. Then the attack begins, and `ada`
goes on. What counts is the ratio of the two p99, the calls of `ada` that failed, and the memory of the gateway.

To add an attack, write a coroutine function here and decorate it with `@attack(...)`:

    @attack(big=servers.started("echo", "--tools", "1000"))
    async def searches(target: Target) -> None:
        \"\"\"One principal searches as fast as it is answered.\"\"\"
        target.begins()
        while True:
            ...

The keyword arguments of `attack` are servers that the gateway gets next to `echo`, as in an `mcp.json`: there an attack
by a server goes. The function runs until it is cancelled. It calls `target.begins()` when what it needs is set up: the
measurement waits for that. `target.token` is the token of the attack's own principal. For that, the policy asks a
person before each call but for those of the server `costly`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import os
import random
import resource
import sys
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import psutil

import costly
import load
import servers
from toolcrib.operations.calling.limits import DEFAULT_LOOKUP_RATE

MIB = 1024 * 1024

BAR_P99 = 3.0
"""The p99 of well-behaved calls under an attack, at most so many times that without."""

BAR_MIB = 100.0
"""How much more memory the gateway may have at the end of an attack than before."""

ADA = [f"ada-{number}" for number in range(64)]
"""The principals of `ada`, who takes turns with them: their calls together are faster than one principal may ask."""


def token_of(principal: str) -> str:
    return f"the token of {principal}"


def attacker(name: str) -> str:
    """The principal of one attack: when all run at once, none uses up what another may have."""
    return f"eve-{name}"


TEXT = {"text": "x" * 100}

CALL_LIMIT_S = 10.0
"""A well-behaved call that took longer has failed."""

SET_UP_LIMIT_S = 60.0
"""How long an attack may take until it begins."""

OPENING_LIMIT_S = 15.0
"""An attack by connections begins once all were open, or after so long: the gateway may keep some from being opened."""

UNREAD_S = 300.0
"""How long a connection that reads nothing is kept before it is opened again, since it does not see its end."""

USUAL_FILES = 1_024
"""The soft limit of open files that most systems set."""

HANDSHAKE_VERSION = "2025-11-25"

CAN_BE_ASKED: Mapping[str, Any] = {"elicitation": {"form": {}}}


@dataclass(frozen=True, slots=True)
class Target:
    """The gateway, as an attack sees it."""

    url: str
    """Of MCP."""
    token: str
    """A good one, of a principal that attacks."""

    @property
    def base(self) -> str:
        """Without the path."""
        return self.url.removesuffix("/mcp")

    def begins(self) -> None:
        """Tell whoever measures that the attack is under way."""
        print("begins", flush=True)

    async def connect(self) -> tuple[StreamReader, StreamWriter]:
        """A new connection, from one of many addresses of this machine: each has only so many ports."""
        at = urlsplit(self.url)
        here = (f"127.0.0.{random.randint(2, 250)}", 0)
        return await asyncio.open_connection(at.hostname, at.port, local_addr=here)

    def head(self, path: str, length: int, **headers: str) -> bytes:
        """That of a request with a good token."""
        at = urlsplit(self.url)
        said = {"Host": at.netloc, "Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        said |= {"Content-Length": str(length), **headers}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
        return "\r\n".join(lines).encode()


Attacking = Callable[[Target], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Attack:
    run: Attacking
    servers: Mapping[str, Mapping[str, Any]]
    """What the gateway has next to `echo`, as in an `mcp.json`."""


ATTACKS: dict[str, Attack] = {}


def attack(**entries: Mapping[str, Any]) -> Callable[[Attacking], Attacking]:
    """Put a coroutine function into `ATTACKS`, under its name; see the top of this file."""

    def put(run: Attacking) -> Attacking:
        ATTACKS[run.__name__] = Attack(run, entries)
        return run

    return put


# -- the attacks ------------------------------------------------------------------------------------------------------


@attack()
async def silent_connections(target: Target) -> None:
    """Ten thousand connections that send nothing, without a token; each that is closed is opened again."""
    await _many(target, 10_000, lambda reader, _: reader.read())


@attack()
async def dripped_heads(target: Target) -> None:
    """A thousand requests whose heads come at a byte a second, without a token."""

    async def drip(_: StreamReader, writer: StreamWriter) -> None:
        await _drip(writer, b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Header: value\r\n" * 1_000)

    await _many(target, 1_000, drip)


@attack()
async def dripped_bodies(target: Target) -> None:
    """A thousand requests with a good token whose bodies come at a byte a second."""

    async def drip(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(target.head("/v1/list", 4 * MIB))
        await _drip(writer, b" " * 10_000)

    await _many(target, 1_000, drip)


@attack()
async def unsent_bodies(target: Target) -> None:
    """Six hundred requests with a good token that send 4 MiB but for the last byte."""

    async def withhold(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(target.head("/v1/list", 4 * MIB))
        for _part in range(63):
            writer.write(b" " * 65_536)
            await writer.drain()
        writer.write(b" " * 65_535)
        await reader.read()

    await _many(target, 600, withhold)


@attack()
async def unread_answers(target: Target) -> None:
    """Four hundred connections that ask for ten thousand answers and read none."""

    async def ask(_: StreamReader, writer: StreamWriter) -> None:
        _stop_reading(writer)
        for _request in range(10_000):
            writer.write(target.head("/v1/list", 2) + b"{}")
            await writer.drain()
        await asyncio.sleep(UNREAD_S)

    await _many(target, 400, ask)


@attack()
async def unread_streams(target: Target) -> None:
    """Four thousand streams of changes that are never read."""
    sent = load.request(
        target.url,
        "subscriptions/listen",
        {"notifications": {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}},
        token=target.token,
    )

    async def listen(_: StreamReader, writer: StreamWriter) -> None:
        _stop_reading(writer)
        writer.write(sent)
        await asyncio.sleep(UNREAD_S)

    await _many(target, 4_000, listen)


@attack()
async def sessions(target: Target) -> None:
    """One principal begins sessions of the handshake era as fast as it is answered."""
    params = {
        "protocolVersion": HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "eve", "version": "1"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    accept = {"Accept": "application/json, text/event-stream"}
    await _repeat(target, target.head("/mcp", len(body), **accept) + body, connections=8)


@attack()
async def questions(target: Target) -> None:
    """One principal leaves as many questions open as it can."""
    await _repeat(target, await call_of(target.token, target.url, CAN_BE_ASKED), connections=8)


@attack()
async def wrong_paths(target: Target) -> None:
    """One principal lists paths of two million numbers."""
    await _post(target, "list", {"path": [1] * 2_000_000})


@attack()
async def unknown_keys(target: Target) -> None:
    """One principal searches with 380 keys of ten thousand characters that no operation has."""
    await _post(target, "search_tools", {f"{number}{'x' * 10_000}": 1 for number in range(380)})


COSTLY = {"command": sys.executable, "args": [str(Path(__file__).with_name("costly.py"))]}


@attack(costly=COSTLY)
async def wrong_texts(target: Target) -> None:
    """One principal calls a tool that takes a list of texts with two million numbers."""
    await _call_costly(target, "takes_texts")


@attack(costly=COSTLY)
async def chained_choices(target: Target) -> None:
    """One principal calls a tool with lists within lists, each of which its schema looks at twice."""
    await _call_costly(target, "takes_chain")


@attack(costly=COSTLY)
async def many_alternatives(target: Target) -> None:
    """One principal calls a tool with half a million texts, of which each may be one of 1,500."""
    await _call_costly(target, "takes_alternatives")


@attack(costly=COSTLY)
async def very_many_alternatives(target: Target) -> None:
    """One principal calls a tool with 800,000 numbers, of which each may be one of 5,000."""
    await _call_costly(target, "takes_choices")


@attack(costly=COSTLY)
async def costly_patterns(target: Target) -> None:
    """One principal calls a tool with 200,000 characters, for which there are 500 patterns that look around."""
    await _call_costly(target, "takes_patterns")


@attack(costly=COSTLY)
async def recursive_answers(target: Target) -> None:
    """A server answers 140 objects within one another, each of which may be one of two."""
    await _call_costly(target, "gives_itself")


@attack(costly=COSTLY)
async def answers_of_alternatives(target: Target) -> None:
    """A server answers half a million texts, of which each may be one of 1,500."""
    await _call_costly(target, "gives_alternatives")


@attack(costly=COSTLY)
async def wrong_answers(target: Target) -> None:
    """A server answers two million numbers where it promises texts."""
    await _call_costly(target, "gives_texts")


# -- what attacks share -----------------------------------------------------------------------------------------------


async def _many(target: Target, count: int, use: Callable[[StreamReader, StreamWriter], Awaitable[object]]) -> None:
    """Have `count` connections used at once. One that ends is opened again, at most five hundred of them a second."""
    opening, opened, all_opened = asyncio.Semaphore(200), itertools.count(1), asyncio.Event()

    async def begin() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(all_opened.wait(), OPENING_LIMIT_S)
        target.begins()

    async def keep() -> None:
        while True:
            with suppress(OSError):
                async with opening:
                    reader, writer = await target.connect()
                if next(opened) >= count:
                    all_opened.set()
                try:
                    await use(reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(random.uniform(0, 2 * count / 500))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(begin())
        for _ in range(count):
            tasks.create_task(keep())


async def _repeat(target: Target, sent: bytes, *, connections: int) -> None:
    """Send the same request again and again, the next when one is answered, over so many kept connections."""
    target.begins()

    async def repeat() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await target.connect()
                try:
                    while True:
                        writer.write(sent)
                        await _answer(reader)
                finally:
                    writer.close()
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(repeat())


async def _call_costly(target: Target, tool: str) -> None:
    """Call a tool of `costly.py` again and again."""
    _, _, name = tool.partition("_")
    sent: Mapping[str, Any] = costly.value_for(name) if tool.startswith("takes_") else {}
    expand = {"name": "expand_tool", "arguments": {"tool_id": f"costly.{tool}"}}
    body = await load.answer(target.url, load.request(target.url, "tools/call", expand, token=target.token))
    handle = json.loads(body)["result"]["structuredContent"]["handle"]
    await _post(target, "call_tool", {"tool_id": handle, "arguments": sent})


async def _post(target: Target, operation: str, arguments: Mapping[str, Any]) -> None:
    """Ask for an operation of the API again and again."""
    body = json.dumps(arguments, separators=(",", ":")).encode()
    await _repeat(target, target.head(f"/v1/{operation}", len(body)) + body, connections=2)


async def _answer(reader: StreamReader) -> bytes:
    """The body of the next answer, whatever its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        body = b""
        while (length := int(await reader.readuntil(b"\r\n"), 16)) > 0:
            body += (await reader.readexactly(length + 2))[:-2]
        await reader.readexactly(2)
        return body
    length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return await reader.readexactly(int(length.partition(b":")[2]))


async def _drip(writer: StreamWriter, sent: bytes) -> None:
    for at in range(len(sent)):
        writer.write(sent[at : at + 1])
        await writer.drain()
        await asyncio.sleep(1)


def _stop_reading(writer: StreamWriter) -> None:
    cast("asyncio.Transport", writer.transport).pause_reading()


async def run_attack(name: str, target: Target) -> None:
    """Run one attack in this process, until it is ended."""
    os.nice(19)  # an attacker has a processor of its own; here it must not take the gateway's
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    await ATTACKS[name].run(target)


# -- what is measured -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Calls:
    """Those of `ada`."""

    latencies_ms: list[float] = field(default_factory=list[float])
    failed: int = 0
    why: str | None = None
    """Of the first that failed."""

    def fail(self, error: BaseException) -> None:
        self.failed += 1
        self.why = self.why or f"{type(error).__name__}: {error}"[:300]

    def percentile(self, part: float) -> float | None:
        ordered = sorted(self.latencies_ms)
        return round(ordered[int(part * len(ordered))], 2) if ordered else None


async def call_of(token: str, url: str, capabilities: Mapping[str, Any] | None = None) -> bytes:
    """A call of the one tool, as it goes over the wire."""
    expand = {"name": "expand_tool", "arguments": {"tool_id": "echo.echo"}}
    body = await load.answer(url, load.request(url, "tools/call", expand, token=token))
    handle = json.loads(body)["result"]["structuredContent"]["handle"]
    call = {"name": "call_tool", "arguments": {"tool_id": handle, "arguments": TEXT}}
    return load.request(url, "tools/call", call, token=token, capabilities=capabilities)


async def calls_of_ada(url: str) -> Iterator[bytes]:
    """Calls of the one tool without end, of one of her principals after the other."""
    return itertools.cycle([await call_of(token_of(principal), url) for principal in ADA])


async def behave(url: str, sent: Iterator[bytes], seconds: float) -> Calls:
    """Send calls for a while, as four clients: two keep their connections, two connect for each."""
    calls, deadline = Calls(), time.perf_counter() + seconds

    async def kept() -> None:
        while (left_s := deadline - time.perf_counter()) > 0:
            try:
                async with asyncio.timeout(left_s + CALL_LIMIT_S):
                    done = await load.all_of(url, sent, seconds=left_s, connections=1)
                calls.latencies_ms.extend(done.latencies_ms)
            except (SystemExit, OSError, TimeoutError) as error:
                calls.fail(error)
                await asyncio.sleep(0.05)

    async def fresh() -> None:
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    await load.answer(url, next(sent))
                calls.latencies_ms.append(1000 * (time.perf_counter() - began))
            except (SystemExit, OSError, TimeoutError) as error:
                calls.fail(error)
                await asyncio.sleep(0.05)

    await asyncio.gather(kept(), kept(), fresh(), fresh())
    return calls


@asynccontextmanager
async def attacked(name: str, url: str) -> AsyncGenerator[None]:
    """The attack of this name, by a process of its own, for the block."""
    words = [__file__, "--attack", name, "--at", url]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    try:
        if process.stdout is None:
            raise RuntimeError("its output is a pipe")
        async with asyncio.timeout(SET_UP_LIMIT_S):
            if not await process.stdout.readline():
                raise SystemExit(f"the attack {name} did not begin")
        yield
        if process.returncode is not None:
            raise SystemExit(f"the attack {name} ended by itself")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Memory:
    """The resident set of the gateway."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.peak_mib = 0.0

    @property
    def mib(self) -> float:
        return round(self._process.memory_info().rss / MIB, 1)

    async def watch(self) -> None:
        """Note the most, until cancelled."""
        while True:
            self.peak_mib = max(self.peak_mib, self.mib)
            await asyncio.sleep(0.1)


def gateway_for(stack: ExitStack, names: Sequence[str]) -> servers.Reachable:
    """A gateway that these attacks can be run against."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    echo = stack.enter_context(servers.reachable("echo", "--http")).entry
    more = {server: entry for name in names for server, entry in ATTACKS[name].servers.items()}
    path = servers.write_config(folder / "mcp.json", echo=echo, **more)
    config = json.loads(path.read_text())
    ours = config["toolcrib"]
    # A principal of `ada` may call faster than the default allows. The default for all operations stays.
    ours |= {"calls_per_minute": 0, "lookups_per_minute": DEFAULT_LOOKUP_RATE.calls_per_minute}
    ours["auth"] = {
        "tokens": [
            {"sha256": hashlib.sha256(token_of(principal).encode()).hexdigest(), "principal": principal}
            for principal in (*ADA, *map(attacker, names))
        ]
    }
    asking = [{"then": "allow", "sources": ["costly"]}, {"then": "ask", "principals": [attacker("*")]}]
    ours["policy"] = {"rules": asking, "otherwise": "allow"}
    path.write_text(json.dumps(config))
    return stack.enter_context(servers.gateway(path))


async def measured(name: str, seconds: float) -> dict[str, Any]:
    """What one attack does to `ada` and to the gateway."""
    with ExitStack() as stack:
        gateway = gateway_for(stack, [name])
        sent = await calls_of_ada(gateway.url)
        await behave(gateway.url, sent, min(1.0, seconds))  # the first calls connect to servers
        alone = await behave(gateway.url, sent, seconds)
        memory = Memory(gateway.pid)
        before = memory.mib
        watching = asyncio.create_task(memory.watch())
        async with attacked(name, gateway.url):
            under_attack = await behave(gateway.url, sent, seconds)
            end = memory.mib
        watching.cancel()
    return summary(alone, under_attack, {"before": before, "peak": memory.peak_mib, "end": end})


def summary(alone: Calls, under_attack: Calls, rss_mib: Mapping[str, float]) -> dict[str, Any]:
    p99, p99_alone = under_attack.percentile(0.99), alone.percentile(0.99)
    ratio = round(p99 / p99_alone, 2) if p99 and p99_alone else None
    return {
        "calls": {"alone": len(alone.latencies_ms), "attacked": len(under_attack.latencies_ms)},
        "p50_ms": {"alone": alone.percentile(0.5), "attacked": under_attack.percentile(0.5)},
        "p99_ms": {"alone": p99_alone, "attacked": p99},
        "p99_ratio": ratio,
        "failed": under_attack.failed,
        "first_failure": under_attack.why,
        "rss_mib": dict(rss_mib),
        "met": (
            ratio is not None
            and ratio <= BAR_P99
            and under_attack.failed == 0
            and rss_mib["end"] - rss_mib["before"] <= BAR_MIB
        ),
    }


async def soaked(names: Sequence[str], minutes: float, seconds: float) -> dict[str, Any]:
    """All of these attacks at once on one gateway, for so many minutes; `series` has a point for each."""
    with ExitStack() as stack:
        gateway = gateway_for(stack, names)
        sent = await calls_of_ada(gateway.url)
        await behave(gateway.url, sent, min(1.0, seconds))
        alone = await behave(gateway.url, sent, seconds)
        memory = Memory(gateway.pid)
        before = memory.mib
        watching = asyncio.create_task(memory.watch())
        whole, series = Calls(), list[dict[str, Any]]()
        deadline = time.perf_counter() + 60 * minutes
        attacks = [attacked(name, gateway.url) for name in names]
        for each in attacks:
            await each.__aenter__()
        try:
            while (left_s := deadline - time.perf_counter()) > 0:
                part = await behave(gateway.url, sent, min(60.0, left_s))
                whole.latencies_ms += part.latencies_ms
                whole.failed, whole.why = whole.failed + part.failed, whole.why or part.why
                point = {"p99_ms": part.percentile(0.99), "failed": part.failed, "rss_mib": memory.mib}
                series.append(point)
                print(json.dumps(point), file=sys.stderr)
            end = memory.mib
        finally:
            for each in reversed(attacks):
                await each.__aexit__(None, None, None)
        watching.cancel()
    return {
        **summary(alone, whole, {"before": before, "peak": memory.peak_mib, "end": end}),
        "minutes": minutes,
        "series": series,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement, without and with an attack")
    parser.add_argument("--only", nargs="+", choices=[*ATTACKS], default=[*ATTACKS], metavar="ATTACK")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="all attacks at once for so long, such as 20")
    parser.add_argument("--attack", choices=[*ATTACKS], help=argparse.SUPPRESS)
    parser.add_argument("--at", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack is not None:
        await run_attack(given.attack, Target(given.at, token_of(attacker(given.attack))))
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(USUAL_FILES, hard), hard))  # the gateway inherits it
    if given.soak is not None:
        attacks = {"all at once": await soaked(given.only, given.soak, given.seconds)}
    else:
        attacks = dict[str, Any]()
        for name in given.only:
            attacks[name] = await measured(name, given.seconds)
            print(json.dumps({name: attacks[name]}), file=sys.stderr)
    report = {
        "benchmark": "well-behaved calls next to attacks",
        "seconds": given.seconds,
        "bar_p99_ratio": BAR_P99,
        "bar_mib": BAR_MIB,
        "attacks": attacks,
        "met": all(each["met"] for each in attacks.values()),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
