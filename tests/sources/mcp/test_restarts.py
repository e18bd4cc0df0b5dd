"""Servers that fail repeatedly: when they are restarted, what callers are told, and what counts as working."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests.processes import is_running
from tests.servers import faulty
from tests.servers.launching import events, faulty_entry, faulty_server, received, replace_config, write_config
from tests.until import until

from toolcrib.catalog import intake
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.base import Listing
from toolcrib.sources.mcp import HttpServer, McpServer, Patience, StdioServer
from toolcrib.sources.mcp import mcp_source as module
from toolcrib.sources.mcp.mcp_source import McpSource

pytestmark = pytest.mark.anyio

SERVER = Path(faulty.__file__).read_text(encoding="utf-8")
PATIENT = Patience(start_s=30, list_s=30, call_s=30)


class Clock:
    """A clock that a test sets, in seconds. No real time passes."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A source with one server, called directly, and its clock."""

    def __init__(self, source: McpSource, clock: Clock, tools: dict[str, Tool]) -> None:
        self.source = source
        self.clock = clock
        self.tools = tools

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await self.source.call_tool(self.tools[name], arguments, CallContext())

    async def refused(self, name: str, **arguments: Any) -> SourceUnavailable:
        with pytest.raises(SourceUnavailable) as caught:
            await self.call(name, **arguments)
        return caught.value


@asynccontextmanager
async def bench_of(server: McpServer, **options: Any) -> AsyncGenerator[Bench]:
    clock = Clock()
    async with McpSource("bench", server, patience=PATIENT, now=clock, **options) as source:
        yield Bench(source, clock, {tool.name: tool for tool in (await source.list_tools()).tools})


class Counted(McpSource):
    """Counts how often it is listed."""

    listings = 0

    async def list_tools(self) -> Listing:
        try:
            return await super().list_tools()
        finally:
            self.listings += 1


class Program:
    """A server whose program can be replaced. It counts every start."""

    def __init__(self, folder: Path, text: str = SERVER) -> None:
        self._path = folder / "server.py"
        self._starts = folder / "starts"
        self.log = folder / "seen.jsonl"
        self.becomes(text)
        words = (str(self._path), "die-in-call", "--log", str(self.log))
        self.server = StdioServer(sys.executable, words)

    def becomes(self, text: str) -> None:
        noted = f"open({str(self._starts)!r}, 'a').write('x')\n"
        future = "from __future__ import annotations\n"
        self._path.write_text(future + noted + text.replace(future, ""))

    @property
    def starts(self) -> int:
        return len(self._starts.read_text()) if self._starts.exists() else 0


SICK = "import sys; sys.exit('the vice is missing')"


# -- servers that die in calls ----------------------------------------------------------------------------------------


async def test_a_server_that_dies_in_every_call_is_not_started_for_every_call(tmp_path: Path) -> None:
    async with bench_of(faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))) as bench:
        errors = [await bench.refused("crash") for _ in range(20)]

        assert len(events(log, "start")) == 2
        assert len(received(log, "tools/call")) == 2
        first, second, *others = errors
        assert [error.retryable for error in (first, second)] == [False, False], "they had been sent"
        assert (first.retry_after_s, second.retry_after_s) == (None, 2.0)
        for error in others:
            assert (error.retryable, error.retry_after_s) == (True, 2.0)
            assert "`bench` stopped" in error.message
            assert "It failed 2 times in a row. Toolcrib retries in 2 s." in error.message

        bench.clock.now += 2.0
        errors = [await bench.refused("crash") for _ in range(20)]
        assert len(events(log, "start")) == 3
        assert "It failed 3 times in a row. Toolcrib retries in 4 s." in errors[-1].message


async def test_a_hundred_calls_lost_in_one_death_count_as_one_failure(tmp_path: Path) -> None:
    async with bench_of(faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))) as bench:
        errors: list[SourceUnavailable] = []

        async def crash() -> None:
            errors.append(await bench.refused("crash"))

        for starts in (1, 2, 2):
            async with anyio.create_task_group() as calls:
                for _ in range(100):
                    calls.start_soon(crash)
            assert len(events(log, "start")) == starts
        assert bench.source.breaker.failures == 2
        assert [error.retryable for error in errors].count(True) >= 100, "the last hundred were not sent"


async def test_a_server_that_answers_between_its_deaths_is_always_restarted_at_once(tmp_path: Path) -> None:
    async with bench_of(faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))) as bench:
        for starts in range(2, 6):
            await bench.refused("crash")
            assert (await bench.call("echo", text="back")).text == "back"
            assert len(events(log, "start")) == starts


async def test_an_error_answer_of_the_server_also_resets_its_failures() -> None:
    async with bench_of(faulty_server("die-in-call", "error")) as bench:
        await bench.refused("crash")
        with pytest.raises(Exception, match="The workbench is locked"):
            await bench.call("refuse")
        assert bench.source.breaker.failures == 0


async def test_a_start_alone_does_not_reset_failures_but_staying_alive_for_a_while_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench_of(faulty_server("die-in-call")) as bench:
        for _ in range(2):
            await bench.refused("crash")
        bench.clock.now += 2.0
        await bench.source.list_tools()
        assert bench.source.breaker.failures == 2
        await bench.refused("crash")
        assert bench.source.breaker.failures == 3
        monkeypatch.setattr(module, "LIVED_S", 0.01)
        bench.clock.now += 4.0
        await bench.source.list_tools()
        await until(lambda: not bench.source.breaker.failures, "it lived for a while")
        assert (await bench.refused("crash")).retry_after_s is None, "a single death again"


async def test_a_server_that_dies_without_a_running_call_counts_as_a_failure(tmp_path: Path) -> None:
    async with bench_of(faulty_server("--log", str(log := tmp_path / "seen.jsonl"))) as bench:
        kill_last(log)
        await until(lambda: bench.source.breaker.failures == 1, "its end is noticed though nobody asks")
        await bench.source.list_tools()
        assert len(events(log, "start")) == 2, "once, it is started again at once"


async def test_a_second_death_is_counted_before_the_next_request_starts_the_server(tmp_path: Path) -> None:
    async with bench_of(faulty_server("--log", str(log := tmp_path / "seen.jsonl"))) as bench:
        kill_last(log)
        told: list[float | None] = []
        while not told or told[-1] is None:
            try:
                await bench.source.list_tools()
            except SourceUnavailable as error:
                told.append(error.retry_after_s)
            else:
                kill_last(log)  # first the first server, and then the second
            assert len(events(log, "start")) <= 2
        assert told[-1] == 2.0


def kill_last(log: Path) -> None:
    """Kill the server that was started last, if it is still running."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(events(log, "start")[-1]["pid"]).kill()


async def test_stopping_an_idle_server_is_not_a_failure() -> None:
    patience = Patience(30, 30, 30, idle_s=0.05)
    async with McpSource("bench", faulty_server(), patience=patience, stops_when_idle=True) as source:
        tools = {tool.name: tool for tool in (await source.list_tools()).tools}
        pids = set[int]()
        for _ in range(3):
            result = await source.call_tool(tools["pid"], {}, CallContext())
            pids.add(pid := result.structured_content["pid"])
            await until(lambda pid=pid: not is_running(pid), "it is stopped when nobody calls")
            assert source.breaker.failures == 0
        assert len(pids) == 3


# -- servers that do not start ----------------------------------------------------------------------------------------


async def test_a_server_that_does_not_start_is_tried_less_and_less_often(tmp_path: Path) -> None:
    program = Program(tmp_path, SICK)
    clock = Clock()
    async with McpSource("bench", program.server, patience=PATIENT, now=clock) as source:

        async def asked() -> SourceUnavailable:
            with pytest.raises(SourceUnavailable) as caught:
                await source.call_tool(Tool("bench", "echo"), {}, CallContext())
            return caught.value

        for tries, wait_s in enumerate((1.0, 2.0, 4.0, 8.0), 1):
            first = await asked()
            assert (first.retryable, first.retry_after_s) == (True, wait_s)
            clock.now += wait_s - 0.5
            for error in [await asked() for _ in range(5)]:
                assert (error.retryable, error.retry_after_s) == (True, 0.5)
                assert "could not start" in error.message
                assert "Toolcrib retries in 0.5 s." in error.message
                assert "the vice is missing" in error.diagnosis
                assert "the vice is missing" not in str(error.to_wire())
            assert program.starts == tries
            clock.now += 0.5


async def test_after_the_wait_one_start_serves_all_waiting_calls(tmp_path: Path) -> None:
    program = Program(tmp_path)
    async with bench_of(program.server) as bench:
        await bench.refused("crash")
        program.becomes(SICK)
        await bench.refused("pid")
        assert program.starts == 2
        refused: list[SourceUnavailable] = []
        pids: list[int] = []

        async def ask() -> None:
            try:
                pids.append((await bench.call("pid")).structured_content["pid"])
            except SourceUnavailable as error:
                refused.append(error)

        bench.clock.now += 2.0
        async with anyio.create_task_group() as calls:
            for _ in range(50):
                calls.start_soon(ask)
        assert program.starts == 3
        assert len(refused) == 50
        assert {error.retry_after_s for error in refused} == {4.0}

        program.becomes(SERVER)
        bench.clock.now += 4.0
        async with anyio.create_task_group() as calls:
            for _ in range(50):
                calls.start_soon(ask)
        assert program.starts == 4
        assert (len(pids), len(set(pids))) == (50, 1)


async def test_after_failures_one_call_at_a_time_is_sent(tmp_path: Path) -> None:
    async with bench_of(faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))) as bench:
        for _ in range(2):
            await bench.refused("crash")
        bench.clock.now += 2.0
        sent = len(received(log, "tools/call"))
        refused: list[SourceUnavailable] = []

        async def crash() -> None:
            refused.append(await bench.refused("crash"))

        async with anyio.create_task_group() as calls:
            for _ in range(20):
                calls.start_soon(crash)
        assert len(received(log, "tools/call")) == sent + 1
        assert [error.retryable for error in refused].count(False) == 1


# -- background listing --------------------------------------------------------------------------------------------


async def test_listing_in_the_background_respects_the_waits_and_its_reason_names_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(intake, "LAST_RETRY_S", 0.01)
    program, clock = Program(tmp_path, SICK), Clock()
    source = Counted("bench", program.server, patience=PATIENT, now=clock)
    crib = Toolcrib()
    crib.add_source(source)
    async with crib:
        assert await crib.ready(30)
        await until(lambda: source.listings >= 2, "it is listed again, after the second that the failure costs")
        entry = crib.view().sources["bench"]
        assert (program.starts, entry.status) == (1, SourceStatus.FAILED), "by the clock no time has passed"
        assert "could not start" in str(entry.reason)
        assert "tried again" not in str(entry.reason)
        program.becomes(SERVER)
        clock.now += 1.0
        await until(lambda: crib.view().sources["bench"].status is SourceStatus.READY, "it is listed once it may be")
        assert program.starts == 2
        assert (await crib.call_tool(crib.expand_tool("bench.echo").handle, {"text": "back"})).text == "back"


async def test_a_rewritten_configuration_is_tried_at_once_and_resets_the_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 3_600.0)
    program = Program(tmp_path, SICK)
    entry = {"command": program.server.command, "args": [*program.server.args]}
    path = write_config(tmp_path / "mcp.json", bench=entry, good=faulty_entry("--log", str(log := tmp_path / "good")))
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config)
        assert await crib.ready(30)
        condition = crib.condition("bench")
        assert condition is not None
        assert condition.failures == 1
        assert condition.retry_after_s is not None
        program.becomes(SERVER)
        replace_config(path, path.read_text() + "\n")
        await until(lambda: "bench.echo" in crib.view().tools, "it is tried without waiting for an hour")
        condition = crib.condition("bench")
        assert condition is not None
        assert condition.failures == 0
        assert len(events(log, "start")) == len(received(log, "tools/list")) == 1, "the other one is left alone"
        assert crib.condition("nothing") is None
        tasks.cancel_scope.cancel()


# -- HTTP 429 ---------------------------------------------------------------------------------------------------------


class _Answers(BaseHTTPRequestHandler):
    """A minimal MCP handler. If the server's `busy` has headers, it answers calls with 429 and these headers."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        assert isinstance(server, _Server)
        server.asked.append(message["method"])
        if "id" not in message:
            self._send(202, b"")
        elif message["method"] == "tools/call" and server.busy:
            self._send(429, b"slow down", **server.busy)
        else:
            answer = {"jsonrpc": "2.0", "id": message["id"], **self._answer(message["method"])}
            self._send(200, json.dumps(answer).encode(), **{"Content-Type": "application/json"})

    def do_GET(self) -> None:
        self._send(405, b"")

    def _answer(self, method: str) -> dict[str, Any]:
        match method:
            case "initialize":
                info = {"name": "busy", "version": "1"}
                return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                return {"result": {"content": [{"type": "text", "text": "done"}]}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.busy: dict[str, str] = {}
        self.asked: list[str] = []


@contextmanager
def busy_server() -> Generator[tuple[_Server, HttpServer]]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server, HttpServer(f"http://127.0.0.1:{server.server_address[1]}/mcp")
        finally:
            server.shutdown()
            thread.join()


async def test_a_server_that_requests_a_pause_gets_no_calls_until_it_ends() -> None:
    with busy_server() as (server, address):
        async with bench_of(address) as bench:
            assert (await bench.call("work")).text == "done"
            server.busy = {"Retry-After": "12"}
            first = await bench.refused("work")
            assert (first.retryable, first.retry_after_s) == (True, 12.0)
            assert "429" in first.message
            server.busy = {}
            for error in [await bench.refused("work") for _ in range(5)]:
                assert (error.retryable, error.retry_after_s) == (True, 12.0)
                assert "Toolcrib retries in 12 s." in error.message
            assert server.asked.count("tools/call") == 2
            bench.clock.now += 12.0
            assert (await bench.call("work")).text == "done"
            assert server.asked.count("initialize") == 1, "nothing was wrong with the connection"


async def test_a_busy_server_that_names_no_pause_may_be_called_again_at_once() -> None:
    with busy_server() as (server, address):
        async with bench_of(address) as bench:
            server.busy = {"X-Reason": "none"}
            error = await bench.refused("work")
            assert (error.retryable, error.retry_after_s) == (True, None)
            server.busy = {}
            assert (await bench.call("work")).text == "done"
