"""The table of faults over stdio: the error of each fault, what it does not affect, and the recovery.

`tests/sources/mcp/test_mcp_source.py` covers more faults and tests what the source does after them.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import jsonrpc_dispatcher
from tests.processes import is_running
from tests.servers import faulty
from tests.servers.launching import SCRIPT, events, faulty_server, received
from tests.servers.table import (
    HASTY,
    PATIENT,
    ExpectedError,
    as_params,
    bench,
    call,
    concurrent_call,
    entry_of,
    failed,
    listing_error,
    refused,
    unavailable,
    until_it_works,
)
from tests.until import until

from toolcrib.catalog import intake
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.core.errors import NextAction, StaleExpansion, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.sources.mcp import StdioServer, breaker, connection, listing, stdio_transport
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.stdio_transport import Grace
from toolcrib.sources.mcp.wire_messages import EDGE_BYTES, LineSplitter, Overlong, request_answered

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", as_params([("legacy",), ("modern",)]))

NO_MESSAGE = failed("`bench` answered with something that is not an MCP message.")
TOO_LONG = failed("`bench` answered with more than 32 MiB, which Toolcrib did not read.")
NO_ANSWER = unavailable("`bench` did not answer within 0.5 s.")
GONE = unavailable("`bench` stopped before it answered.")

AT_START = {
    "exits at start": (["exit-at-start"], PATIENT, unavailable("it exited", retryable=True)),
    "never answers initialize": (
        ["silent"],
        replace(PATIENT, start_s=0.5),
        unavailable("did not complete the MCP handshake within 0.5 s", retryable=True),
    ),
    "never lists its tools": (
        ["silent-list"],
        replace(PATIENT, list_s=0.5),
        unavailable("did not list its tools within 0.5 s", retryable=True),
    ),
}
"""Faults that prevent the listing of a server. Timeouts are short only for answers that never arrive."""

IN_A_CALL: dict[str, ExpectedError | str] = {
    "silence": NO_ANSWER,
    "die": GONE,
    "torn": GONE,
    "orphan": GONE,
    "unended": "plain",
    "split": "plain",
    "drip": "plain",
    "twice": "plain",
    "progress-after": "plain",
    "flood": "plain",
    "wrong-version": NO_MESSAGE,
    "no-version": NO_MESSAGE,
    "no-outcome": NO_MESSAGE,
    "result-list": NO_MESSAGE,
    "result-null": NO_MESSAGE,
    "error-text": NO_MESSAGE,
    "both": failed("`bench` refused to run `raw`: Both at once"),
    "null-error": "plain",
    "method-number": NO_ANSWER,
    "array": "plain",
    "empty-array": NO_ANSWER,
    "wrong-id": NO_ANSWER,
    "no-id": NO_ANSWER,
    "null-id": NO_ANSWER,
    "text-id": "plain",
    "float-id": "plain",
    "id-last": "plain",
    "no-json": NO_ANSWER,
    "half": NO_ANSWER,
    "deep": NO_ANSWER,
    "not-utf-8": "pl\ufffdin",
    "half-a-pair": "pl?in",
    "byte-order-mark": "plain",
    "not-a-number": "plain",
    "closed-code": failed("`bench` refused to run `raw`: The bench is closed"),
    "timeout-code": failed("`bench` refused to run `raw`: The bench is slow"),
    "long": TOO_LONG,
    "long-id-last": TOO_LONG,
    "long-garbage": "plain",
    "deep-garbage": "plain",
}
"""Maps an answer of the server to the expected error, or to the text of the result."""

GOOD_TOOLS = len(faulty.BASE_TOOLS)
"""The number of tools of the good server."""

DEADLY = frozenset({"die", "torn", "orphan", "unended"})
"""Faults that end the server. The server is restarted for the next call."""

IN_TURN = [(fault, "legacy" if number % 2 else "modern") for number, fault in enumerate(IN_A_CALL)]
"""Each fault is tested in one version only, because messages are read the same way in both."""


@ERAS
@pytest.mark.parametrize("fault", AT_START)
async def test_a_server_that_fails_to_list_is_reported_and_used_after_recovery(
    fault: str, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(breaker, "FIRST_WAIT_S", 0.05)
    (flag := tmp_path / "sick").touch()
    words, patience, told = AT_START[fault]
    log = tmp_path / "seen.jsonl"
    server = faulty_server(*words, "--era", era, "--while", str(flag), "--log", str(log))
    async with bench(server, patience, ready=False) as crib:
        assert entry_of(crib).status is SourceStatus.FAILED
        told.check(listing_error(crib))
        flag.unlink()
        await until(lambda: "bench.echo" in crib.view().tools, "the server is listed after its recovery")
        assert (await call(crib, "bench.echo", text="well")).text == "well"


@pytest.mark.parametrize(("fault", "era"), as_params(IN_TURN))
async def test_an_invalid_answer_affects_only_its_own_call(
    fault: str, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio_transport, "EXIT_SEEN_S", 0.1)
    expected = IN_A_CALL[fault]
    log = tmp_path / "seen.jsonl"
    server = faulty_server("raw", "--era", era, "--log", str(log))
    patience = HASTY if expected is NO_ANSWER else PATIENT
    async with bench(server, patience) as crib:

        async def release() -> None:
            await call(crib, "bench.raw", how="release")

        if expected is NO_ANSWER:  # so no other call has to wait
            NO_ANSWER.check(await refused(crib, "bench.raw", how=fault))
        else:
            async with concurrent_call(crib, release, ends=fault in DEADLY) as other:
                if isinstance(expected, ExpectedError):
                    expected.check(await refused(crib, "bench.raw", how=fault))
                else:
                    assert (await call(crib, "bench.raw", how=fault)).text == expected
            assert other == ([] if fault in DEADLY else ["done after 1 steps"])
        await until_it_works(crib)
        assert len(events(log, "start")) == (2 if fault in DEADLY else 1)
    assert not any(is_running(child["pid"]) for child in events(log, "child"))


@ERAS
async def test_an_answer_after_the_timeout_is_dropped(era: str) -> None:
    async with bench(faulty_server("raw", "--era", era), HASTY) as crib:
        NO_ANSWER.check(await refused(crib, "bench.raw", how="late-drip"))
        await until_it_works(crib)


@ERAS
async def test_a_late_answer_to_a_cancelled_call_affects_no_other_call(era: str, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with bench(faulty_server("raw", "--era", era, "--log", str(log))) as crib:
        with anyio.CancelScope() as scope:

            async def cancel() -> None:
                await until(lambda: received(log, "tools/call"), "the call is held")
                scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel)
                await call(crib, "bench.raw", how="hold")
        assert scope.cancelled_caught
        await until(lambda: received(log, faulty.CANCELLED), "the server receives the cancellation")
        assert (await call(crib, "bench.raw", how="release")).text == "plain"  # the held call is answered first
        assert (await call(crib, "bench.add", a=1, b=2)).structured_content == {"sum": 3}
        assert len(events(log, "start")) == 1


@ERAS
async def test_calls_to_a_server_that_stops_reading_time_out(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_grace", Grace(closed_s=0.1))
    monkeypatch.setattr(
        jsonrpc_dispatcher, "_ABANDON_WRITE_TIMEOUT", 0.1
    )  # the SDK waits this long to cancel a request
    async with bench(faulty_server("never-reads", "--era", era), HASTY) as crib:
        NO_ANSWER.check(await refused(crib, "bench.echo", text="x" * 200_000))  # more than a pipe takes
        NO_ANSWER.check(await refused(crib, "bench.echo", text="x"))  # waits behind it, and cannot even be written


@ERAS
async def test_ten_thousand_tools_on_a_hundred_pages_are_all_listed(era: str) -> None:
    async with bench(faulty_server("many-tools=10000", "--era", era)) as crib:
        assert len(crib.view().tools) == len(faulty.BASE_TOOLS) + 10_000 + GOOD_TOOLS
        assert entry_of(crib).warnings == ()
        assert (await call(crib, "bench.tool_9999")).text == "tool_9999"


@ERAS
async def test_a_repeated_cursor_ends_the_list_with_a_warning(era: str) -> None:
    async with bench(faulty_server("same-cursor", "--era", era)) as crib:
        assert len(crib.view().tools) == len(faulty.BASE_TOOLS) + GOOD_TOOLS
        (warning,) = entry_of(crib).warnings
        assert "its list of tools does not end" in warning
        assert (await call(crib, "bench.echo", text="through")).text == "through"


async def test_endless_pages_with_tools_stop_at_the_maximum_number_of_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "MAX_DEFINITIONS", 250)
    async with bench(faulty_server("many-tools=1000")) as crib:
        assert len(crib.view().tools) == 250 + GOOD_TOOLS
        assert "its list of tools does not end" in entry_of(crib).warnings[0]


async def test_endless_slow_pages_stop_after_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SLOW_PAGES", 0)  # none at all
    log = tmp_path / "seen.jsonl"
    async with bench(faulty_server("endless-pages", "--log", str(log))) as crib:
        assert len(crib.view().tools) == len(faulty.BASE_TOOLS) + GOOD_TOOLS
        assert "its list of tools does not end" in entry_of(crib).warnings[0]
        assert len(received(log, "tools/list")) == 1


async def test_the_maximum_answer_size_is_configurable() -> None:
    async with McpSource("bench", faulty_server("raw"), max_message_bytes=100_000) as source:
        tools = {tool.name: tool for tool in (await source.list_tools()).tools}
        text = "x" * 49_000  # the answer contains the string twice
        assert (await source.call_tool(tools["echo"], {"text": text}, CallContext())).text == text
        with pytest.raises(ToolFailed, match=r"answered with more than 0\.0953674 MiB"):
            await source.call_tool(tools["echo"], {"text": text + text[:2_000]}, CallContext())


async def test_a_definition_of_5_mb_is_skipped_and_others_are_used() -> None:
    async with bench(faulty_server("big-schema")) as crib:
        assert (await call(crib, "bench.echo", text="fine")).text == "fine"
        (aside,) = crib.view().sources["bench"].set_aside
        assert aside.name == "catalogue"
        assert aside.reason.endswith("bytes as JSON, more than 1,000,000")


@ERAS
async def test_a_list_change_after_every_call_does_not_disturb_calls(era: str, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with bench(faulty_server("change-each-call", "--era", era, "--log", str(log))) as crib:
        if era == "modern":
            await until(lambda: received(log, "subscriptions/listen"), "the source subscribes to changes")
        handle = crib.expand_tool("bench.echo").handle
        for number in range(20):
            assert (await crib.call_tool(handle, {"text": f"{number}"})).text == f"{number}"
        await until(lambda: len(received(log, "tools/list")) >= 2, "the list is read again")
        assert len(received(log, "tools/list")) < 20  # not with every call


@ERAS
async def test_a_tool_that_changes_after_every_call_must_be_expanded_again(era: str, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with bench(faulty_server("new-each-call", "--era", era, "--log", str(log))) as crib:
        if era == "modern":
            await until(lambda: received(log, "subscriptions/listen"), "the source subscribes to changes")
        shown = crib.expand_tool("bench.echo")
        before = crib.view().tools["bench.echo"].handle
        await crib.call_tool(shown.handle, {"text": "once"})
        await until(lambda: crib.view().tools["bench.echo"].handle != before, "the change arrives")
        with pytest.raises(StaleExpansion) as caught:
            await crib.call_tool(shown.handle, {"text": "twice"})
        assert caught.value.next_action == NextAction("expand_tool", {"tool_id": "bench.echo"})
        assert [message["params"]["arguments"] for message in received(log, "tools/call")] == [{"text": "once"}]


async def test_processes_left_in_the_group_of_a_server_are_stopped(tmp_path: Path) -> None:
    """A process that the server's shell started is in the process group of the server."""
    pids = tmp_path / "pids"
    server = StdioServer("sh", ("-c", f"sleep 1000 & echo $! > {pids}; exec {sys.executable} {SCRIPT}"))
    async with bench(server) as crib:
        assert (await call(crib, "bench.echo", text="here")).text == "here"
        left = int(pids.read_text())
        assert is_running(left)
    assert not is_running(left)


@given(st.lists(st.integers(0, 4_000), max_size=6), st.integers(EDGE_BYTES, 3_000), st.integers(1, 5_000))
def test_lines_do_not_depend_on_how_the_input_is_chunked(lengths: list[int], limit_bytes: int, size: int) -> None:
    text = b"\n".join(bytes(32 + at % 91 for at in range(length)) for length in lengths)
    whole, cut = LineSplitter(limit_bytes), LineSplitter(limit_bytes)
    expected = [*whole.feed(text), whole.rest()]
    lines = [line for at in range(0, len(text), size) for line in cut.feed(text[at : at + size])]
    assert [*lines, cut.rest()] == expected
    for line, real in zip(expected, text.split(b"\n"), strict=True):
        if len(real) > limit_bytes:
            assert isinstance(line, Overlong)
            assert line == real[:EDGE_BYTES] + real[-EDGE_BYTES:]
        else:
            assert line == real


def test_an_endless_line_uses_a_limited_amount_of_memory() -> None:
    chunk = b"x" * 65_536
    lines = LineSplitter(limit_bytes=2**20)
    tracemalloc.start()
    try:
        for _ in range(512):
            assert list(lines.feed(chunk)) == []
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()


@given(st.one_of(st.integers(), st.text()), st.dictionaries(st.text(), st.text()), st.permutations(["a", "b", "c"]))
def test_the_request_id_of_an_answer_is_found_for_any_member_order(
    request_id: int | str, result: dict[str, str], order: list[str]
) -> None:
    members = {"a": ("jsonrpc", "2.0"), "b": ("id", request_id), "c": ("result", {"id": "no", "inside": result, "": 1})}
    message = json.dumps(dict(members[name] for name in order), ensure_ascii=False).encode()
    assert request_answered(message) == request_id
