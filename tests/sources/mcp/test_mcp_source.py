"""Servers with every kind of fault behind `McpSource`, over a real pipe: what still works, and what is reported."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests.processes import is_running
from tests.servers import faulty
from tests.servers.launching import events, faulty_server, received
from tests.until import until

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.errors import SourceUnavailable, StaleExpansion, ToolFailed, ToolNotFound
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.base import Listing, Source
from toolcrib.sources.mcp import McpServer, Patience, StdioServer, breaker, watching
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

SERVER = Path(faulty.__file__).read_text(encoding="utf-8")
"""The text of the server program, for servers that are restarted with changes."""

PATIENT = Patience(start_s=30, list_s=30, call_s=30)

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@asynccontextmanager
async def crib_of(
    *, patience: Patience = PATIENT, trusted: bool = False, **servers: McpServer
) -> AsyncGenerator[Toolcrib]:
    """Yield a crib with `servers`, after each server has listed its tools or failed."""
    crib = Toolcrib()
    for name, server in servers.items():
        crib.add_source(McpSource(name, server, patience=patience), trusted=trusted)
    async with crib:
        assert await crib.ready(30)
        yield crib


async def call(crib: Toolcrib, tool_id: str, /, **arguments: Any) -> ToolResult:
    """Expand a tool and call it, as a user of a crib does."""
    return await crib.call_tool(crib.expand_tool(tool_id).handle, arguments)


async def pid_of(crib: Toolcrib, source: str = "bench") -> int:
    return (await call(crib, f"{source}.pid")).structured_content["pid"]


def entry_of(crib: Toolcrib, source: str = "bench") -> SourceEntry:
    return crib.view().sources[source]


def reason(crib: Toolcrib, source: str = "bench") -> str:
    entry = entry_of(crib, source)
    assert entry.status is SourceStatus.FAILED
    assert entry.reason is not None
    return f"{entry.reason} {entry.diagnosis}"


async def test_an_mcp_source_passes_the_source_contract() -> None:
    def make() -> Source:
        return McpSource("bench", faulty_server(), patience=PATIENT)

    await check_source(make, tool="add", arguments={"a": 1, "b": 2}, other_arguments={"a": 3, "b": 4})


@ERAS
async def test_a_working_server_of_either_era_is_listed_with_its_own_description(era: str) -> None:
    async with crib_of(bench=faulty_server("--era", era)) as crib:
        entry = entry_of(crib)
        assert (entry.status, entry.title) == (SourceStatus.READY, "A server with faults")
        assert entry.version == "1.0.0"
        assert entry.summary == "Tools that show what a server may do to its client."
        assert set(crib.view().tools) == {f"bench.{tool['name']}" for tool in faulty.BASE_TOOLS}
        assert (await call(crib, "bench.add", a=2, b=3)).structured_content == {"sum": 5}


async def test_a_missing_program_is_named_in_the_diagnosis_and_other_servers_work() -> None:
    async with crib_of(bench=StdioServer("no-such-program-4b1f"), good=faulty_server()) as crib:
        told, _, diagnosis = reason(crib).partition(" The cause: ")
        assert told == "`bench` could not start or connect."
        assert diagnosis == "the program `no-such-program-4b1f` is not installed or not on the PATH."
        assert entry_of(crib).remedy == "Install `no-such-program-4b1f`, or write its full path as `command`."
        assert (await call(crib, "good.echo", text="hello")).text == "hello"
        with pytest.raises(SourceUnavailable, match="could not start or connect"):
            crib.expand_tool("bench.echo")


async def test_a_missing_working_directory_is_named_in_the_diagnosis(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    server = faulty_server()
    async with crib_of(bench=StdioServer(server.command, server.args, cwd=gone)) as crib:
        assert str(gone) in entry_of(crib).diagnosis
        assert str(gone) not in str(entry_of(crib).reason)
        assert "is not installed" not in reason(crib)


async def test_a_file_that_is_not_executable_is_unavailable_with_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("")
    async with crib_of(bench=StdioServer(str(program))) as crib:
        assert "Permission denied" in reason(crib)


async def test_a_server_that_exits_at_once_is_unavailable_with_its_last_output() -> None:
    async with crib_of(bench=faulty_server("exit-at-start")) as crib:
        assert "it exited" in reason(crib)
        assert "the vice is missing" in reason(crib)


async def test_a_program_that_exits_without_output_is_unavailable_with_its_exit_code() -> None:
    ended = {code: StdioServer(sys.executable, ("-c", f"import os; os._exit({code})")) for code in (0, 3)}
    killed = StdioServer(sys.executable, ("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    async with crib_of(nothing=ended[0], bench=ended[3], killed=killed) as crib:
        assert "it exited with code 3." in reason(crib)
        assert "it exited with code 0." in reason(crib, "nothing")
        assert "exited and did not serve MCP" in entry_of(crib, "nothing").remedy
        assert "it was ended by SIGKILL." in reason(crib, "killed")


async def test_a_program_with_much_output_is_unavailable_with_the_line_that_names_the_cause() -> None:
    noise = [f"npm error at line {number} of the log" for number in range(200)]
    lines = ["npm error 404  'server-thinkin@*' is not in this registry.", *noise]
    words = chr(10).join(noise + lines[:100])
    server = StdioServer(sys.executable, ("-c", f"import sys; sys.exit({words!r})"))
    async with crib_of(bench=server) as crib:
        assert entry_of(crib).diagnosis == "It wrote: 'server-thinkin@*' is not in this registry."
        assert entry_of(crib).remedy == "Check the name in `args`: there is no npm package `server-thinkin`."


async def test_a_server_that_never_answers_times_out_without_delaying_other_servers() -> None:
    crib = Toolcrib()
    crib.add_source(McpSource("mute", faulty_server("silent"), patience=Patience(start_s=3600)))
    crib.add_source(McpSource("hasty", faulty_server("silent"), patience=Patience(start_s=0.2)))
    crib.add_source(McpSource("good", faulty_server(), patience=PATIENT))
    async with crib:
        await until(lambda: entry_of(crib, "good").status is SourceStatus.READY, "the good server lists its tools")
        await until(lambda: entry_of(crib, "hasty").status is SourceStatus.FAILED, "the hasty source gives up")
        assert entry_of(crib, "mute").status is SourceStatus.STARTING
        assert "did not complete the MCP handshake within 0.2 s" in reason(crib, "hasty")
        assert (await call(crib, "good.echo", text="hello")).text == "hello"
        with pytest.raises(SourceUnavailable, match="is still starting"):
            crib.expand_tool("mute.echo")


async def test_a_server_that_never_lists_its_tools_is_unavailable() -> None:
    patience = Patience(start_s=30, list_s=0.2)
    async with crib_of(patience=patience, bench=faulty_server("silent-list")) as crib:
        assert "did not list its tools within 0.2 s" in reason(crib)


async def test_a_call_that_is_never_answered_times_out_and_the_next_call_works(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    source = McpSource("bench", faulty_server("--log", str(log)), patience=Patience(30, 30, call_s=0.3))
    crib = Toolcrib()
    crib.add_source(source)
    async with crib:
        assert await crib.ready(30)
        with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.3 s") as caught:
            await call(crib, "bench.slow", hold=True)
        assert not caught.value.retryable
        assert (await call(crib, "bench.echo", text="still here")).text == "still here"
        await until(lambda: events(log, "cancelled"), "the server hears that nobody waits any more")
        assert len(events(log, "start")) == 1


async def test_the_deadline_of_a_call_applies_if_it_is_shorter_than_the_patience() -> None:
    async with crib_of(bench=faulty_server("silent-call")) as crib:
        handle = crib.expand_tool("bench.echo").handle
        with pytest.raises(SourceUnavailable, match="within the time limit of your request") as caught:
            await crib.call_tool(handle, {"text": "?"}, context=CallContext().within(0.2))
        assert not caught.value.retryable


@ERAS
@pytest.mark.parametrize("torn", [False, True])
async def test_a_call_fails_if_the_server_dies_and_the_next_call_restarts_it(era: str, torn: bool) -> None:
    async with crib_of(bench=faulty_server("die-in-call", "--era", era)) as crib:
        before = await pid_of(crib)
        with pytest.raises(SourceUnavailable, match="stopped before it answered") as caught:
            await call(crib, "bench.crash", torn=torn)
        assert not caught.value.retryable
        assert await pid_of(crib) != before


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_call_is_retryable_after_a_death_only_if_idempotent_and_trusted(trusted: bool) -> None:
    others = psutil.Process().children()
    async with crib_of(trusted=trusted, bench=faulty_server("silent-call")) as crib:
        (server,) = set(psutil.Process().children()).difference(others)
        errors: list[SourceUnavailable] = []

        async def ask(tool_id: str, **arguments: Any) -> None:
            with pytest.raises(SourceUnavailable) as caught:
                await call(crib, tool_id, **arguments)
            errors.append(caught.value)

        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: ask("bench.echo", text="?"))
            calls.start_soon(lambda: ask("bench.count"))
            await anyio.wait_all_tasks_blocked()
            server.kill()
        assert sorted(error.retryable for error in errors) == [False, trusted]  # echo claims to be idempotent


async def test_a_hundred_calls_to_a_dead_server_start_it_once(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with crib_of(bench=faulty_server("die-in-call", "--log", str(log))) as crib:
        with pytest.raises(SourceUnavailable):
            await call(crib, "bench.crash")
        pids: list[int] = []

        async def ask() -> None:
            pids.append(await pid_of(crib))

        async with anyio.create_task_group() as calls:
            for _ in range(100):
                calls.start_soon(ask)
        assert len(set(pids)) == 1
        assert len(events(log, "start")) == 2


async def test_a_server_that_cannot_be_restarted_fails_every_call_with_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    server = faulty_server("die-in-call")
    async with crib_of(bench=StdioServer(server.command, (str(program), *server.args[1:]))) as crib:
        with pytest.raises(SourceUnavailable):
            await call(crib, "bench.crash")
        program.write_text("import sys; sys.exit('the bench was sold')")
        for _ in range(2):
            with pytest.raises(SourceUnavailable, match="could not start") as caught:
                await call(crib, "bench.echo", text="?")
            assert caught.value.retryable
            assert "the bench was sold" in caught.value.diagnosis
            assert "the bench was sold" not in str(caught.value.to_wire())


@pytest.mark.parametrize(
    ("sick", "complaint"),
    [
        ('sys.argv.insert(1, "silent-list")', "did not list its tools within 1 s"),
        ('Server._list_tools = lambda self, request: {"tools": "a burnt list"}', "could not start or connect"),
    ],
    ids=["silent", "broken"],
)
async def test_a_restarted_server_that_cannot_list_is_stopped_and_works_again_once_fixed(
    sick: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_WAIT_S", 0.0)
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    server = faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))
    async with crib_of(
        patience=Patience(30, list_s=1, call_s=30),
        bench=StdioServer(server.command, (str(program), *server.args[1:])),
    ) as crib:
        with pytest.raises(SourceUnavailable):
            await call(crib, "bench.crash")
        program.write_text(SERVER.replace("    options = parse(", f"    {sick}\n    options = parse("))
        with pytest.raises(SourceUnavailable, match=complaint) as caught:
            await call(crib, "bench.pid")
        assert caught.value.retryable
        assert len(events(log, "start")) == 2
        assert not any(is_running(started["pid"]) for started in events(log, "start"))
        program.write_text(SERVER)
        assert await pid_of(crib)
    assert [message["params"]["name"] for message in received(log, "tools/call")] == ["crash", "pid"]


async def test_a_cancelled_caller_does_not_stop_a_start_that_others_wait_for(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    server = faulty_server("slow-start=0.3", "--log", str(log))
    listings: list[Listing] = []
    async with McpSource("bench", server, patience=PATIENT) as source:

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                listings.append(await source.list_tools())

        impatient = anyio.CancelScope()
        async with anyio.create_task_group() as callers:
            callers.start_soon(ask, impatient)
            callers.start_soon(ask, anyio.CancelScope())
            await anyio.wait_all_tasks_blocked()
            impatient.cancel()
    assert impatient.cancelled_caught
    assert [len(listing.tools) for listing in listings] == [len(faulty.BASE_TOOLS)]
    assert len(events(log, "start")) == 1


@pytest.mark.parametrize("fault", ["garbage", "binary-garbage"])
@ERAS
async def test_lines_that_are_not_messages_cause_only_a_warning(fault: str, era: str) -> None:
    async with crib_of(bench=faulty_server(fault, "--era", era)) as crib:
        for text in ("one", "two", "🔧"):
            assert (await call(crib, "bench.echo", text=text)).text == text
        (warning,) = entry_of(crib).warnings
        assert "it writes lines to standard output that are not MCP messages" in warning
        assert ("ready to serve" in warning) if fault == "garbage" else ("not a text" in warning)


async def test_a_server_that_floods_standard_error_is_not_blocked() -> None:
    async with crib_of(bench=faulty_server("flood-stderr")) as crib:
        for _ in range(3):
            assert (await call(crib, "bench.echo", text="through")).text == "through"


async def test_only_the_unusable_tools_are_set_aside_with_their_reasons() -> None:
    async with crib_of(bench=faulty_server("odd-tools")) as crib:
        reasons = {aside.name: aside.reason for aside in entry_of(crib).set_aside}
        usable = {tool.name for tool in crib.view().tools.values()} - {tool["name"] for tool in faulty.BASE_TOOLS}

        assert usable == {
            *("no_description", faulty.LONG_NAME, "files.read.all", "read the file", "files/read", "🔧_repair"),
            *("天気予報", "twin", "getItem", "GetItem", "recursive"),
        }
        for name, complaint in {
            "twin": "an earlier definition has the same name",
            "unknown_type": "has the type 'strin'",
            "remote_ref": "remote references are refused",
            "no_schema": "no input schema",
            "array_schema": "but must have the type `object`",
            "list_for_schema": "a list, not an object",
            "odd_description": "a list, not a string",
        }.items():
            assert complaint in reasons[name]
        nameless = {name: reason for name, reason in reasons.items() if name.startswith("#")}
        assert sorted(nameless.values()) == sorted(
            ["it has no name"] * 3
            + ["its definition is a string, not an object", "its definition is null, not an object"]
        )
        assert len(usable) + len(entry_of(crib).set_aside) == len(faulty.ODD_TOOLS)


async def test_every_usable_tool_name_can_be_called_by_handle_and_by_model_name() -> None:
    async with crib_of(bench=faulty_server("odd-tools")) as crib:
        model_names = crib.view().names
        for name in [
            *("files.read.all", "read the file", "files/read", "🔧_repair", "天気予報", "getItem", "GetItem"),
            *(faulty.LONG_NAME, "no_description"),
        ]:
            expansion = crib.expand_tool(f"bench.{name}")
            assert (await crib.call_tool(expansion.handle)).text == name
            model_name = model_names[expansion.tool_id]
            assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}", model_name)
            digest = expansion.handle.rpartition("@")[2]
            assert (await crib.call_tool(f"{model_name}@{digest}")).text == name


@ERAS
async def test_every_page_of_a_list_is_read(era: str) -> None:
    async with crib_of(bench=faulty_server("pages", "--era", era)) as crib:
        assert len(crib.view().tools) == len(faulty.BASE_TOOLS)
        assert entry_of(crib).warnings == ()


async def test_an_endless_list_is_not_read_forever() -> None:
    async with crib_of(bench=faulty_server("endless-pages")) as crib:
        assert len(crib.view().tools) == len(faulty.BASE_TOOLS)
        assert "its list of tools does not end" in entry_of(crib).warnings[0]


@ERAS
async def test_the_lifetime_of_a_list_is_read_in_seconds_if_the_server_sends_it(era: str) -> None:
    async with McpSource("bench", faulty_server("--ttl-ms", "1500", "--era", era), patience=PATIENT) as source:
        assert (await source.list_tools()).ttl_s == (1.5 if era == "modern" else None)


@ERAS
async def test_an_error_of_the_server_is_a_failed_tool_with_the_original_error(era: str) -> None:
    async with crib_of(bench=faulty_server("error", "--era", era)) as crib:
        with pytest.raises(ToolFailed, match="The workbench is locked") as caught:
            await call(crib, "bench.refuse")
        upstream = caught.value.details["upstream"]
        assert upstream["code"] == faulty.REFUSAL_CODE
        assert upstream["data"] == {"locked_by": "somebody else", "since": "2026-01-01"}
        assert not caught.value.retryable


async def test_a_tool_that_reports_a_failure_gives_an_ordinary_result() -> None:
    async with crib_of(bench=faulty_server()) as crib:
        result = await call(crib, "bench.fail")
        assert result.is_error
        assert result.text == "This tool always fails."


async def test_an_answer_that_violates_its_output_schema_is_passed_on_with_a_warning() -> None:
    async with crib_of(bench=faulty_server("bad-output")) as crib:
        result = await call(crib, "bench.mismatch")
        assert (result.text, result.structured_content) == ("many", {"total": "many"})
        assert "does not match the tool's output schema" in result.warnings[0]


@ERAS
async def test_a_result_is_passed_on_with_all_unknown_fields(era: str) -> None:
    async with crib_of(bench=faulty_server("--era", era)) as crib:
        wire = (await call(crib, "bench.image")).wire
    assert [block["type"] for block in wire["content"]] == ["text", "image", "resource", "resource_link"]
    text, image, resource, link = wire["content"]
    assert text["annotations"] == {"audience": ["user"], "priority": 0.5}
    assert image["futureField"] == {"depth": 8}
    assert resource["resource"]["_meta"] == {"memo": 1}
    assert link["uri"] == "toolcrib://bench/memo://palette"  # the address through the gateway
    assert wire["futureField"] == ["kept"]
    assert wire["_meta"]["example.com/camera"] == "none"
    assert wire["structuredContent"] == {"width": 1, "height": 1}


@ERAS
async def test_an_answer_of_an_unknown_type_is_passed_on(era: str) -> None:
    async with crib_of(bench=faulty_server("odd-output", "list-output", "--era", era)) as crib:
        chart = await call(crib, "bench.chart")
        assert chart.content[0] == {"type": "chart", "bars": [1, None, 3]}
        assert chart.content[1] == {"type": "text"}
        assert (await call(crib, "bench.numbers")).structured_content == [1, None, {"three": None}]


@ERAS
async def test_an_answer_that_is_not_a_tool_result_is_a_failed_tool(era: str) -> None:
    async with crib_of(bench=faulty_server("odd-output", "--era", era)) as crib:
        with pytest.raises(ToolFailed, match="is not a tool result") as caught:
            await call(crib, "bench.chart", broken=True)
        assert "`content`" in caught.value.hints[0]


async def test_null_arguments_and_non_ascii_values_reach_the_server_unchanged(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    sent = {
        "nothing": None,
        "inside": {"deep": [None, {"x": None}]},
        "text": "\u2028 天気 🔧",
        "big": 2**60,
        "half": 0.5,
    }
    async with crib_of(bench=faulty_server("--log", str(log))) as crib:
        await call(crib, "bench.pid", **sent)
    (message,) = received(log, "tools/call")
    assert message["params"]["arguments"] == sent


@ERAS
async def test_progress_is_reported_in_order(era: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with crib_of(bench=faulty_server("--era", era)) as crib:
        handle = crib.expand_tool("bench.slow").handle
        result = await crib.call_tool(handle, {"steps": 3}, progress=hear)
    assert result.text == "done after 3 steps"
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@ERAS
async def test_a_cancelled_call_is_cancelled_at_the_server(era: str, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with crib_of(bench=faulty_server("--era", era, "--log", str(log))) as crib:
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            handle = crib.expand_tool("bench.slow").handle
            await crib.call_tool(handle, {"steps": 1, "hold": True}, progress=cancel)
        assert scope.cancelled_caught
        await until(lambda: events(log, "cancelled"), "the server stops the call")
        assert (await call(crib, "bench.echo", text="still here")).text == "still here"
    assert len(events(log, "start")) == 1


async def test_a_hundred_concurrent_calls_each_get_their_own_answer() -> None:
    async with crib_of(bench=faulty_server("garbage")) as crib:
        answers: dict[int, Any] = {}

        async def add(number: int) -> None:
            answers[number] = (await call(crib, "bench.add", a=number, b=1000)).structured_content

        async with anyio.create_task_group() as calls:
            for number in range(100):
                calls.start_soon(add, number)
    assert answers == {number: {"sum": number + 1000} for number in range(100)}


@ERAS
async def test_an_announced_change_reaches_the_catalog_and_makes_old_handles_stale(era: str, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with crib_of(bench=faulty_server("--era", era, "--log", str(log))) as crib:
        if era == "modern":
            await until(lambda: received(log, "subscriptions/listen"), "the source asks to be told of changes")
        await call(crib, "bench.change", name="vice", description="Hold a piece of work.")
        await until(lambda: "bench.vice" in crib.view().tools, "the new tool is in the catalog")
        assert crib.search_tools("hold a piece of work").results[0].tool_id == "bench.vice"

        stale = crib.expand_tool("bench.vice").handle
        await call(crib, "bench.change", name="vice", description="Hold two pieces of work.")
        await until(
            lambda: crib.view().tools["bench.vice"].description == "Hold two pieces of work.", "the change arrives"
        )
        with pytest.raises(StaleExpansion) as caught:
            await crib.call_tool(stale)
        assert caught.value.next_action is not None
        assert caught.value.next_action.arguments == {"tool_id": "bench.vice"}


async def test_a_tool_that_changed_during_a_restart_is_not_called_with_the_old_schema(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    server = faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))
    async with crib_of(bench=StdioServer(server.command, (str(program), *server.args[1:]))) as crib:
        add, pid = crib.expand_tool("bench.add").handle, crib.expand_tool("bench.pid").handle
        with pytest.raises(SourceUnavailable):
            await call(crib, "bench.crash")
        program.write_text(SERVER.replace("Add two integers.", "Subtract two integers."))
        with pytest.raises(StaleExpansion, match="changed on its server") as caught:
            await crib.call_tool(add, {"a": 1, "b": 2})
        assert caught.value.next_action is not None
        assert caught.value.next_action.operation == "expand_tool"
        await until(lambda: "Subtract" in crib.view().tools["bench.add"].description, "the catalog has the new one")
        assert (await crib.call_tool(pid)).structured_content  # an unchanged tool can still be called
        assert (await call(crib, "bench.add", a=1, b=2)).structured_content == {"sum": 3}
    assert [m["params"]["name"] for m in received(log, "tools/call")] == ["crash", "pid", "add"]


async def test_concurrent_calls_with_an_old_definition_never_run_a_changed_tool(tmp_path: Path) -> None:
    """The source is called directly, because it must refuse for any state of the catalog."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    server = faulty_server("die-in-call", "--log", str(log := tmp_path / "seen.jsonl"))
    stdio = StdioServer(server.command, (str(program), *server.args[1:]))
    async with McpSource("bench", stdio, patience=PATIENT) as source:
        old = {tool.name: tool for tool in (await source.list_tools()).tools}
        with pytest.raises(SourceUnavailable):
            await source.call_tool(old["crash"], {}, CallContext())
        program.write_text(SERVER.replace("Add two integers.", "Subtract two integers."))
        refused: list[StaleExpansion] = []

        async def ask() -> None:
            with pytest.raises(StaleExpansion, match="changed on its server") as caught:
                await source.call_tool(old["add"], {"a": 1, "b": 2}, CallContext())
            refused.append(caught.value)

        async with anyio.create_task_group() as callers:
            for _ in range(20):
                callers.start_soon(ask)
        new = {tool.name: tool for tool in (await source.list_tools()).tools}
        await ask()  # also after the new definition was listed
        assert len(refused) == 21
        assert (await source.call_tool(new["add"], {"a": 1, "b": 2}, CallContext())).structured_content == {"sum": 3}
    assert [m["params"]["name"] for m in received(log, "tools/call")] == ["crash", "add"]
    assert len(events(log, "start")) == 2


async def test_a_tool_that_was_removed_during_a_restart_is_not_called(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    server = faulty_server("die-in-call")
    async with crib_of(bench=StdioServer(server.command, (str(program), *server.args[1:]))) as crib:
        add = crib.expand_tool("bench.add").handle
        with pytest.raises(SourceUnavailable):
            await call(crib, "bench.crash")
        program.write_text(SERVER.replace('"name": "add"', '"name": "sum"'))
        with pytest.raises(StaleExpansion, match="no longer exists"):
            await crib.call_tool(add, {"a": 1, "b": 2})
        await until(lambda: "bench.add" not in crib.view().tools, "the catalog lets it go")
        with pytest.raises(ToolNotFound):
            await crib.call_tool(add, {"a": 1, "b": 2})


async def test_a_server_gets_its_own_environment_and_directory_and_none_of_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "key")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    server = faulty_server(env={"SHELF": "top"})
    async with crib_of(bench=StdioServer(server.command, server.args, server.env, cwd=tmp_path)) as crib:
        seen = (await call(crib, "bench.env", name="SHELF")).structured_content
        assert seen["value"] == "top"
        assert await anyio.Path(seen["cwd"]).samefile(tmp_path)
        assert (await call(crib, "bench.env", name="SECRET_OF_OURS")).structured_content["value"] is None
        assert (await call(crib, "bench.env", name="HTTPS_PROXY")).text == "http://proxy.example"


async def test_a_lost_stream_of_changes_is_opened_again_and_the_tools_are_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FIRST_WAIT_S", 0.01)
    log = tmp_path / "seen.jsonl"
    async with crib_of(bench=faulty_server("short-streams", "--era", "modern", "--log", str(log))):
        await until(lambda: len(received(log, "subscriptions/listen")) >= 3, "the stream is asked for again")
        await until(lambda: len(received(log, "tools/list")) >= 2, "what nobody told of is looked for")
    assert len(events(log, "start")) == 1


async def test_invalid_headers_in_a_schema_do_not_matter_without_http() -> None:
    async with crib_of(bench=faulty_server("odd-header", "--era", "modern")) as crib:
        assert entry_of(crib).set_aside == ()
        assert (await call(crib, "bench.torch", shelf="top")).text == "torch"


@pytest.mark.parametrize("words", [(), ("ignore-stdin-close",)])
async def test_closing_a_source_ends_its_process(words: tuple[str, ...]) -> None:
    async with crib_of(bench=faulty_server(*words)) as crib:
        process = psutil.Process(await pid_of(crib))
    assert not process.is_running()


async def test_a_source_that_was_not_entered_refuses_requests() -> None:
    with pytest.raises(SourceUnavailable, match="is not running"):
        await McpSource("bench", faulty_server()).list_tools()
