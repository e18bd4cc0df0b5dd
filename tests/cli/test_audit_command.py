"""`toolcrib audit` over files that a store wrote, and over the audit of a running gateway."""

from __future__ import annotations

import json
import os
import queue
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import anyio
import mcp_types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.audit.auditing import performed, until_written
from tests.cli.running import TOOLCRIB, Ended, toolcrib, toolcrib_process
from tests.cli.terminal import typed
from tests.servers.launching import faulty_entry, write_config
from tests.surfaces.test_pass_through import FIXTURE
from tests.until import DEADLINE_S

from toolcrib.audit.audit_file import AuditFile
from toolcrib.audit.audit_reader import AuditReader
from toolcrib.audit.store import AuditStore

Json = dict[str, Any]

SEARCH = "00000000000000001fb260fe2d21f4fc"
REFUSED = "7c3a0000000000001fb260fe2d21f4fc"
BY_BOB = "7c3b0000000000001fb260fe2d21f4fc"


def record(path: Path, *given: Json) -> None:
    with AuditStore(path, keeps_arguments=True) as store:
        for each in given:
            store.record(performed(**each))
        until_written(store)


@pytest.fixture
def now() -> float:
    return time.time()


@pytest.fixture
def path(tmp_path: Path, now: float) -> Path:
    """An audit of three traces."""
    path = tmp_path / "audit.sqlite"
    search = {"trace_id": SEARCH, "at": now - 7_200, "query": "show the last commits"}
    expand = {"operation": "expand_tool", "query": None, "tool_ids": ("git.git_log",)}
    call = {**expand, "operation": "call_tool"}
    by_ada = {"trace_id": REFUSED, "principal": "ada"}
    record(
        path,
        {**search, "tool_ids": tuple(f"git.{name}" for name in "abcde")},
        {**search, "at": now - 7_199, **expand},
        {**search, "at": now - 7_190, **call, "arguments": {"max_count": 3, "token": "x"}, "duration_s": 2.5},
        {**by_ada, "at": now - 60, **call, "outcome": "NOT_EXPANDED", "answer_bytes": 2_140},
        {**by_ada, "at": now - 50, "operation": "list", "query": None, "path": ("Work", "Files"), "node_count": 0},
        {"trace_id": BY_BOB, "at": now - 5, "principal": "bob", **call, "tool_ids": ("github.find",)},
    )
    return path


def audit(path: Path, *words: object) -> Ended:
    ended = toolcrib("audit", "--path", path, *words)
    assert ended.code == 0, ended.err
    return ended


def lines(path: Path, *words: object) -> list[Json]:
    return [json.loads(line) for line in audit(path, "--json", *words).out.splitlines()]


def traces(path: Path, *words: object) -> list[str]:
    """The shown traces, in order."""
    return [*dict.fromkeys(line["trace_id"] for line in lines(path, *words))]


def test_each_trace_is_a_block_and_the_newest_is_last(path: Path) -> None:
    search, refused, by_bob = blocks(path)
    assert search[0].endswith("local 1fb260fe2d21 3 operations in 12.5 s, ok")
    assert search[1:] == [
        "search_tools 250 ms 100 B show the last commits",
        "→ git.a, git.b, git.c and 2 more",
        "expand_tool 250 ms 100 B git.git_log",
        "call_tool 2.5 s 100 B git.git_log",
    ]
    assert refused[0].endswith("ada 7c3a00000000 2 operations in 10.2 s, ok")
    assert refused[1:] == [
        "call_tool 250 ms 2.1 kB git.git_log NOT_EXPANDED",
        "list 250 ms 100 B Work/Files",
        "→ nothing",
    ]
    assert by_bob[0].endswith("bob 7c3b00000000 1 operation in 250 ms, ok")
    assert by_bob[1:] == ["call_tool 250 ms 100 B github.find"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"operation": "list", "node_count": 6}, "→ 6 categories"),
        ({"operation": "list", "node_count": 1, "tool_ids": ("git.log",)}, "→ 1 category, git.log"),
        ({"operation": "list", "node_count": 0}, "→ nothing"),
        ({"operation": "search_nodes", "query": "files", "node_count": 2}, "→ 2 categories"),
        ({"operation": "search_nodes", "query": "files", "node_count": 0}, "→ nothing"),
        (
            {"operation": "list_categories", "node_count": 2, "tool_ids": ("a", "b", "c", "d")},
            "→ 2 categories, a, b, c and 1 more",
        ),
        ({"operation": "search_tools", "query": "files"}, "→ nothing"),
        ({"operation": "list"}, None),  # written by an earlier version, which did not count nodes
    ],
)
def test_the_results_of_an_operation_are_shown_including_categories(
    given: Json, shown: str | None, tmp_path: Path
) -> None:
    record(path := tmp_path / "a", {"query": None, **given})
    ((_, _, *told),) = blocks(path)
    assert told == ([] if shown is None else [shown])


def test_one_trace_is_shown_in_full_by_the_start_of_its_id(path: Path) -> None:
    whole = audit(path, "1fb2").out
    assert SEARCH in whole
    assert "git.a, git.b, git.c, git.d, git.e" in whole
    assert '{"max_count": 3, "token": "[redacted]"}' in whole
    assert "github.find" not in whole
    assert whole == audit(path, SEARCH).out
    assert {line["trace_id"] for line in lines(path, "7c3")} == {REFUSED, BY_BOB}


def test_filters_select_whole_traces(path: Path, now: float) -> None:
    assert traces(path) == [SEARCH, REFUSED, BY_BOB]
    assert traces(path, "--principal", "ada") == [REFUSED]
    assert traces(path, "--tool", "git.git_log") == [SEARCH, REFUSED]
    assert traces(path, "--tool", "git") == [SEARCH, REFUSED], "a source is no prefix of a name"
    assert traces(path, "--tool", "git.a") == [], "it was only shown"
    assert traces(path, "--since", "1h") == [REFUSED, BY_BOB]
    for ago, found in [(55, [REFUSED, BY_BOB]), (45, [BY_BOB]), (0, [])]:
        assert traces(path, "--since", datetime.fromtimestamp(now - ago).isoformat()) == found  # noqa: DTZ006  local time
    assert traces(path, "--since", "2000-01-01") == [SEARCH, REFUSED, BY_BOB]
    assert traces(path, "--failed") == [REFUSED]
    assert len(lines(path, "--failed")) == 2
    assert traces(path, "--limit", 2) == [REFUSED, BY_BOB]
    assert traces(path, "--limit", 1, "--principal", "local") == [SEARCH]
    assert traces(path, "--failed", "--principal", "bob") == []


def blocks(path: Path, *words: object) -> list[list[str]]:
    """The lines of each block, with single spaces."""
    return [[" ".join(line.split()) for line in block.splitlines()] for block in audit(path, *words).out.split("\n\n")]


def test_two_principals_in_one_trace_have_separate_blocks(tmp_path: Path) -> None:
    shared = {"trace_id": SEARCH}
    record(
        path := tmp_path / "a",
        {**shared, "principal": "ada", "query": "of ada, first"},
        {**shared, "principal": "eve", "query": "of eve", "outcome": "FAULT"},
        {**shared, "principal": "ada", "query": "of ada, last"},
    )
    for words in ((), ("1fb2",), (SEARCH,)):
        eve, ada = blocks(path, *words)
        assert [" eve " in eve[0], " ada " in ada[0]] == [True, True]
        assert [sum("of eve" in line for line in block) for block in (eve, ada)] == [1, 0]
        assert [sum("of ada" in line for line in block) for block in (eve, ada)] == [0, 2]
    for words in (("--principal", "ada"), ("--principal", "ada", "-n", 1), ("1fb2", "--principal", "ada")):
        assert [line["principal"] for line in lines(path, *words)] == ["ada", "ada"]
        assert "eve" not in audit(path, *words).out
    assert [line["principal"] for line in lines(path, "--failed")] == ["eve"]
    assert len(blocks(path, "-n", 1)) == 1


def test_the_approval_of_a_call_is_shown_in_words(tmp_path: Path) -> None:
    told = {
        None: "ok",
        "once": "approved",
        "always": "approved permanently",
        "kept": "approved permanently before",
        "refused": "NOT_AUTHORIZED refused by a person",
        "pending": "APPROVAL_PENDING waits for a person",
        "unasked": "NOT_AUTHORIZED could not ask a person",
        "unanswered": "NOT_AUTHORIZED no answer",
        "[red]new": "[red]new",
    }
    call = {"operation": "call_tool", "query": None, "tool_ids": ("git.push",), "trace_id": "1"}
    path = tmp_path / "a"
    for approval, words in told.items():
        outcome = words.split()[0] if "_" in words else "ok"
        record(path, {**call, "approval": approval, "outcome": outcome})
    assert [line.get("approval") for line in lines(path)] == [*told]
    (block,) = blocks(path)
    ends = [line.partition("git.push")[2].strip() for line in block[1:]]
    assert ends == ["", *list(told.values())[1:]]


def test_a_trace_shows_its_bundles_and_is_found_by_bundle(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for trace_id, bundles in [("1", ("night", "night")), ("2", (None,)), ("3", ("night", None, "[red]day"))]:
        record(path, *({"trace_id": trace_id, "bundle": bundle} for bundle in bundles))
    assert [block[0].split("local ")[1].split(" operation")[0] for block in blocks(path)] == [
        "1 in night 2",
        "2 1",
        "3 in night, [red]day 3",
    ]
    assert traces(path, "--bundle", "night") == ["1", "3"]
    assert traces(path, "--bundle", "[red]day") == ["3"]
    assert traces(path, "--bundle", "nigh") == []
    assert [line.get("bundle") for line in lines(path, "3")] == ["night", None, "[red]day"]


def test_a_requested_prompt_or_resource_is_named(tmp_path: Path) -> None:
    fetch = {"query": None, "trace_id": "1"}
    record(
        path := tmp_path / "a",
        {**fetch, "operation": "prompts/get", "item": "desk__plan", "arguments": {"day": "1"}},
        {
            **fetch,
            "operation": "resources/read",
            "item": "[red]://x",
            "outcome": "NOT_AUTHORIZED",
            "approval": "refused",
        },
    )
    assert [line.partition("100 B ")[2] for line in blocks(path)[0][1:]] == [
        "desk__plan",
        "[red]://x NOT_AUTHORIZED refused by a person",
    ]
    assert '{"day": "1"}' in audit(path, "1").out
    assert [line["item"] for line in lines(path)] == ["desk__plan", "[red]://x"]


def test_an_operation_without_a_tool_shows_no_tool(tmp_path: Path) -> None:
    nothing = {"query": None, "outcome": "INVALID_ARGUMENTS", "trace_id": "1"}
    operations = ("expand_tool", "call_tool", "search_tools", "search_nodes", "list")
    record(path := tmp_path / "a", *({**nothing, "operation": operation} for operation in operations))
    (block,) = blocks(path)
    assert [line.partition("100 B ")[2] for line in block[1:]] == [
        *["INVALID_ARGUMENTS"] * 4,
        "the top INVALID_ARGUMENTS",
    ]


def test_a_long_trace_is_shortened_in_the_middle_unless_it_is_selected(tmp_path: Path) -> None:
    some = [{"trace_id": "1", "number": number} for number in range(300)]
    record(path := tmp_path / "a", *some[:100], {**some[100], "outcome": "FAULT"}, *some[101:])
    (cut,) = blocks(path)
    assert "300 operations in" in cut[0]
    shown = [line.partition("100 B ")[2] for line in cut if "query" in line]
    assert shown == [f"query {number}" for number in (*range(4), *range(292, 300))]
    assert [line for line in cut if "between" in line] == ["… 288 operations between, 1 of them failed"]
    whole = audit(path, "1").out
    assert whole.count("query") == 300
    assert "between" not in whole


def test_a_short_trace_is_not_shortened(tmp_path: Path) -> None:
    record(path := tmp_path / "a", *({"trace_id": "1", "number": number} for number in range(23)))
    assert audit(path).out.count("query") == 23


def test_json_output_has_one_operation_per_line_in_order_of_time(path: Path) -> None:
    found = lines(path)
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    third = found[2]
    assert third.pop("at").endswith("Z")
    assert third == {
        "trace_id": SEARCH,
        "principal": "local",
        "operation": "call_tool",
        "outcome": "ok",
        "duration_s": 2.5,
        "answer_bytes": 100,
        "tool_ids": ["git.git_log"],
        "arguments": {"max_count": 3, "token": "[redacted]"},
    }
    assert found[4]["path"] == ["Work", "Files"]


def test_json_output_has_all_operations_and_text_output_the_newest(tmp_path: Path) -> None:
    record(path := tmp_path / "a", *({"number": number} for number in range(30)))
    assert len(lines(path)) == 30
    shown = audit(path).out
    assert "query 9\n" not in shown.replace(" \n", "\n")
    assert "query 10" in shown
    assert shown.count("search_tools") == 20


def test_the_number_of_missing_operations_is_shown_at_their_position(path: Path, now: float) -> None:
    with AuditStore(path, capacity=0) as store:
        for ago in (100, 90, 80):
            store.record(performed(at=now - ago))
        until_written(store)
    shown = [" ".join(line.split()) for line in audit(path).out.splitlines()]
    (gap,) = [line for line in shown if "missing" in line]
    assert gap.startswith("3 operations are missing, ")
    assert shown.index(gap) < next(at for at, line in enumerate(shown) if " ada " in line)
    (as_json,) = [line for line in lines(path) if "lost" in line]
    assert (as_json["lost"], as_json["since"] < as_json["until"]) == (3, True)


def test_operations_missing_before_the_oldest_trace_are_shown_with_that_trace(tmp_path: Path, now: float) -> None:
    path = tmp_path / "audit.sqlite"
    with AuditStore(path, capacity=0) as store:
        store.record(performed(at=now - 900))
        until_written(store)
    record(path, *({"trace_id": f"{number + 1:032x}", "at": now - 800 + number} for number in range(25)))
    assert "missing" not in audit(path).out
    assert "missing" not in audit(path, "-n", 24).out
    assert "missing" not in audit(path, "-n", 30, "--since", "14m").out
    assert audit(path, "-n", 30).out.startswith("1 operation is missing, ")
    assert sum("lost" in line for line in lines(path)) == 1


def test_control_characters_and_markup_in_records_have_no_effect(tmp_path: Path) -> None:
    evil = "a\x1b[2J\rb\u202ec\x9b [red]d[/] [/nope]\nnext"
    record(
        path := tmp_path / "a",
        {"query": evil, "principal": evil, "trace_id": evil, "outcome": evil, "tool_ids": (evil,), "path": (evil,)},
        {"operation": evil, "query": None, "tool_ids": (evil,), "arguments": {evil: evil}, "trace_id": "0x"},
    )
    for shown in (audit(path).out, audit(path, "x").out, audit(path, "a").out):
        assert not any(character in shown for character in "\x1b\r\u202e\x9b")
        assert "[red]d[/] [/nope]" in shown
    assert lines(path)[0]["query"] == evil


def test_ids_are_not_cut_at_eighty_columns(path: Path, tmp_path: Path) -> None:
    record(path, {"operation": "call_tool", "query": None, "tool_ids": ("source." + "long_name_" * 12,)})
    ended = typed("audit", "--path", path, answers=[], environ={**os.environ}, folder=tmp_path)
    assert ended.code == 0
    assert "source." + "long_name_" * 12 in "".join(ended.out.split())
    assert max(map(len, ended.out.splitlines())) <= 80


# -- the file and empty results ---------------------------------------------------------------------------------------


def test_the_audit_file_is_found_through_the_configuration(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    unsaid = toolcrib("audit")
    assert (unsaid.code, unsaid.out) == (0, "")
    assert str(tmp_path / "state" / "toolcrib" / "audit.sqlite") in unsaid.err
    config = write_config(tmp_path / "mcp.json", toolcrib={"audit": {"path": "audit.sqlite"}})
    for words in ((), ("-c", config)):
        assert "github.find" in toolcrib("audit", *words).out
    off = toolcrib("audit", "-c", write_config(config, toolcrib={"audit": False}))
    assert (off.code, off.out) == (2, "")
    assert "turned off" in off.err
    assert "github.find" in toolcrib("audit", "-c", config, "--path", path).out


def test_an_empty_or_unmatched_audit_is_reported(path: Path, tmp_path: Path) -> None:
    nothing = audit(tmp_path / "absent")
    assert nothing.out == ""
    assert "has no traces yet" in nothing.err
    assert (audit(path, "--tool", "x").out, audit(path, "--tool", "x").err.strip()) == (
        "",
        "The audit has no matching traces.",
    )
    unknown = toolcrib("audit", "--path", path, "abc")
    assert (unknown.code, unknown.out) == (1, "")
    assert "begins with `abc`" in unknown.err
    as_json = toolcrib("audit", "--path", path, "abc", "--json")
    assert as_json.json["error"]["code"] == "NOT_FOUND"


@pytest.mark.parametrize("when", ["yesterday", "2 hours", "-1h", "2026-13-01", ""])
def test_an_invalid_time_is_refused_with_examples(when: str, path: Path) -> None:
    refused = toolcrib("audit", "--path", path, "--since", when)
    assert refused.code == 2
    assert "2h" in refused.err


def test_a_file_that_is_not_an_audit_is_refused_without_a_traceback(path: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all" * 100)
    (tmp_path / "half").write_bytes(path.read_bytes()[:5_000])
    (tmp_path / "empty").write_bytes(b"")
    for name, code in [("text", 2), ("half", 2), ("empty", 0)]:
        refused = toolcrib_process("audit", "--path", tmp_path / name)
        assert (refused.code, refused.out) == (code, ""), name
        assert str(tmp_path / name) in refused.err.replace("\n", "")
    for words in ((), ("--follow",)):
        assert (
            toolcrib_process("audit", "--path", tmp_path / "text", "--json", *words).json["error"]["code"]
            == "INVALID_CONFIG"
        )


def test_a_pipe_closed_early_ends_the_command_without_an_error(tmp_path: Path) -> None:
    record(path := tmp_path / "a", *({"number": number, "query": "x" * 400} for number in range(500)))
    with subprocess.Popen(
        [TOOLCRIB, "audit", "--path", path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        assert process.stderr.read() == ""


# -- following --------------------------------------------------------------------------------------------------------


class Followed:
    """The lines that a following command prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out = self._lines(process.stdout)
        self.err = self._lines(process.stderr)

    def query(self) -> str:
        """Return the query of the next operation."""
        return json.loads(self.out.get(timeout=DEADLINE_S))["query"]

    def _lines(self, stream: IO[str]) -> queue.Queue[str]:
        found: queue.Queue[str] = queue.Queue()

        def read() -> None:
            for line in stream:
                found.put(line)

        threading.Thread(target=read, daemon=True).start()
        return found


@contextmanager
def following(path: Path, *words: str) -> Generator[Followed]:
    # A shell that runs the tests in the background makes them ignore this signal, and their children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [TOOLCRIB, "audit", "--path", str(path), "--follow", *words]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield Followed(process)
        finally:
            process.kill()


def test_follow_works_before_the_file_exists_and_after_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state" / "audit.sqlite"
    with following(path, "--json") as followed:
        assert "Waiting for" in followed.err.get(timeout=DEADLINE_S)
        with AuditStore(path, retry_s=0.01) as store:
            for number in range(3):
                store.record(performed(number))
                assert followed.query() == f"query {number}"
            for number in range(3, 9, 3):
                # The last operation in the old file and the first in the new one.
                store.record(performed(number))
                until_written(store)
                for file in path.parent.glob("audit.sqlite*"):
                    file.rename(path.parent / f"{number}-{file.name}")
                store.record(performed(number + 1))
                assert (followed.query(), followed.query()) == (f"query {number}", f"query {number + 1}")
        followed.process.send_signal(signal.SIGINT)
        assert followed.process.wait(DEADLINE_S) == 130
        assert followed.err.empty()


def test_follow_waits_while_the_path_is_not_a_readable_audit(tmp_path: Path) -> None:
    path, aside = tmp_path / "state" / "audit.sqlite", tmp_path / "aside"
    record(path, {"number": 1})
    with following(path, "--json") as followed:
        assert followed.query() == "query 1"
        for number in (2, 3):
            path.parent.rename(aside)
            path.mkdir(parents=True)
            assert followed.err.get(timeout=DEADLINE_S) == f"Waiting: {path} cannot be read: it is a folder.\n"
            path.rmdir()
            path.parent.rmdir()
            aside.rename(path.parent)
            record(path, {"number": number})
            assert followed.query() == f"query {number}", "and nothing twice"
        path.parent.rename(aside)
        path.parent.mkdir()
        path.write_bytes(b"no audit yet" * 100)
        assert "not a database" in followed.err.get(timeout=DEADLINE_S)
        path.unlink()
        record(path, {"number": 4})
        assert followed.query() == "query 4"
        path.write_bytes(b"an audit no more" * 1_000)
        assert "cannot be read" in followed.err.get(timeout=DEADLINE_S)
        path.unlink()
        record(path, {"number": 5})
        assert followed.query() == "query 5"


def test_follow_shows_existing_traces_first_and_then_only_matching_operations(path: Path) -> None:
    with following(path, "--json", "--principal", "ada", "--limit", "1") as followed:
        assert [followed.out.get(timeout=DEADLINE_S).count(REFUSED) for _ in range(2)] == [1, 1]
        record(path, {"number": 1}, {"number": 2, "principal": "ada"}, {"number": 3}, {"number": 4, "principal": "ada"})
        assert (followed.query(), followed.query()) == ("query 2", "query 4")


def test_a_followed_trace_repeats_its_heading_only_after_a_different_trace(tmp_path: Path) -> None:
    record(path := tmp_path / "a", {"trace_id": "a", "query": "one"})
    with following(path) as followed:
        shown = [followed.out.get(timeout=DEADLINE_S) for _ in range(3)]
        assert [" a  1 operation in" in shown[0], "one" in shown[1]] == [True, True]
        for trace_id, principal, query, heading in [
            ("a", "local", "two", False),
            ("b", "local", "three", True),
            ("a", "local", "four", True),
            ("a", "eve", "five", True),
        ]:
            record(path, {"trace_id": trace_id, "principal": principal, "query": query})
            block = [followed.out.get(timeout=DEADLINE_S) for _ in range(4 if heading else 2)]
            assert [line.endswith(f"  {principal}  {trace_id}\n") for line in block].count(True) == heading
            assert query in block[-2]


# -- a running gateway ------------------------------------------------------------------------------------------------


async def used(config: Path, *words: str) -> None:
    """Search, expand and call a tool as a model does, through a separate gateway."""
    command = StdioServerParameters(command=TOOLCRIB, args=["serve", str(config), "--no-cache", *words])
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(command, errlog=nowhere)) as client:
            await client.call_tool("search_tools", {"query": "give back a text"})
            await client.call_tool("call_tool", {"tool_id": "bench.echo", "arguments": {"text": "plain"}})
            expanded = await client.call_tool("expand_tool", {"tool_id": "bench.echo"})
            assert expanded.structured_content is not None
            called = {"tool_id": expanded.structured_content["handle"], "arguments": {"text": "my words"}}
            await client.call_tool("call_tool", called)


@pytest.mark.holds("goals.trace")
def test_the_operations_of_one_gateway_session_form_one_trace(tmp_path: Path) -> None:
    ours: Json = {"audit": {"path": "audit.sqlite"}}
    config = write_config(tmp_path / "mcp.json", toolcrib=ours, bench=faulty_entry())
    anyio.run(used, config)
    found = [json.loads(line) for line in toolcrib("audit", "-c", config, "--json").out.splitlines()]
    assert [(line["operation"], line["outcome"], line["principal"]) for line in found] == [
        ("search_tools", "ok", "local"),
        ("call_tool", "NOT_EXPANDED", "local"),
        ("expand_tool", "ok", "local"),
        ("call_tool", "ok", "local"),
    ]
    assert found[0]["query"] == "give back a text"
    assert "bench.echo" in found[0]["tool_ids"]
    assert [line["tool_ids"] for line in found[1:]] == [["bench.echo"]] * 3
    assert len({line["trace_id"] for line in found}) == 1
    assert b"my words" not in (tmp_path / "audit.sqlite").read_bytes()


async def fetched(config: Path) -> None:
    """Get a prompt and resources through a gateway with one bundle."""
    command = StdioServerParameters(command=TOOLCRIB, args=["serve", str(config), "--no-cache", "--bundle", "few"])
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(command, errlog=nowhere)) as client:
            await client.get_prompt("desk__test_prompt_with_arguments", {"arg1": "my words", "arg2": "b"})
            await client.read_resource("toolcrib://desk/test://static-text")
            await client.read_resource("toolcrib://desk/test://template/my-words/data")
            with pytest.raises(MCPError):
                await client.get_prompt("desk__test_simple_prompt")


def test_requested_prompts_and_resources_are_in_the_audit_with_their_bundle(tmp_path: Path) -> None:
    few = {"optional": ["desk.test_prompt_with_arguments", "desk.test://*"]}
    ours: Json = {"audit": {"path": "audit.sqlite"}, "bundles": {"few": few}}
    config = write_config(tmp_path / "mcp.json", toolcrib=ours, desk=FIXTURE)
    anyio.run(fetched, config)
    found = [json.loads(line) for line in toolcrib("audit", "-c", config, "--json").out.splitlines()]
    assert [(line["operation"], line.get("item"), line["outcome"]) for line in found] == [
        ("prompts/get", "desk__test_prompt_with_arguments", "ok"),
        ("resources/read", "toolcrib://desk/test://static-text", "ok"),
        ("resources/read", "toolcrib://desk/test://template/{id}/data", "ok"),
        ("prompts/get", "desk__test_simple_prompt", "NOT_FOUND"),
    ]
    assert {line["bundle"] for line in found} == {"few"}
    written = (tmp_path / "audit.sqlite").read_bytes()
    assert b"my words" not in written
    assert b"my-words" not in written


async def approved(config: Path, state: Path, *answers: str) -> None:
    """Make calls that a person answers with the next of `answers`, and then one call without a person."""
    given = iter(answers)

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"answer": next(given)})

    environ = {**os.environ, "XDG_STATE_HOME": str(state)}
    command = StdioServerParameters(command=TOOLCRIB, args=["serve", str(config), "--no-cache"], env=environ)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(command, errlog=nowhere), elicitation_callback=answer) as client:
            for tool_id in ("bench.echo", "bench.echo", "bench.echo", "bench.add"):
                expanded = await client.call_tool("expand_tool", {"tool_id": tool_id})
                assert expanded.structured_content is not None
                arguments: Json = {"text": "x"} if tool_id == "bench.echo" else {"a": 1, "b": 2}
                called = {"tool_id": expanded.structured_content["handle"], "arguments": arguments}
                await client.call_tool("call_tool", called)
        async with Client(stdio_client(command, errlog=nowhere)) as client:
            await client.call_tool("call_tool", called)


def test_the_audit_of_a_gateway_shows_how_each_call_was_approved(tmp_path: Path) -> None:
    ours: Json = {"audit": {"path": "audit.sqlite"}, "policy": {"rules": [], "otherwise": "ask"}}
    config = write_config(tmp_path / "mcp.json", toolcrib=ours, bench=faulty_entry())
    anyio.run(approved, config, tmp_path / "state", "once", "always", "no")
    calls = [line for line in lines(tmp_path / "audit.sqlite") if line["operation"] == "call_tool"]
    assert [(line["tool_ids"], line["approval"], line["outcome"]) for line in calls] == [
        (["bench.echo"], "once", "ok"),
        (["bench.echo"], "always", "ok"),
        (["bench.echo"], "kept", "ok"),
        (["bench.add"], "refused", "NOT_AUTHORIZED"),
        (["bench.add"], "pending", "APPROVAL_PENDING"),
    ]


def test_arguments_are_recorded_if_configured_and_nothing_is_recorded_with_no_audit(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.sqlite"
    ours: Json = {"audit": {"path": str(file), "arguments": True, "redact": ["tex"]}}
    config = write_config(tmp_path / "mcp.json", toolcrib=ours, bench=faulty_entry())
    anyio.run(used, config, "--no-audit")
    assert not file.exists()
    anyio.run(used, config)
    assert [line["arguments"] for line in lines(file) if "arguments" in line] == [{"text": "[redacted]"}] * 2


# -- deleting ---------------------------------------------------------------------------------------------------------

CANARY = "xylophone"


def bytes_of(path: Path) -> bytes:
    """Return all bytes of the file and of the database files next to it."""
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))


def test_deleted_operations_are_erased_from_the_file_while_another_process_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.sqlite"
    with AuditStore(path) as store, following(path, "--json") as followed:
        for number in range(300):
            store.record(performed(number, query=f"{CANARY} {number}" if number % 3 else f"query {number}"))
        until_written(store)
        while followed.query() != f"{CANARY} 299":
            pass
        assert bytes_of(path).count(CANARY.encode()) >= 200
        ended = toolcrib_process("audit", "forget", "--path", path, "--query", CANARY.upper(), "--yes")
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == "Deleted 200 traces with 200 operations.\n"
        assert CANARY.encode() not in bytes_of(path)
        store.record(performed(query="written on"))
        until_written(store)
        assert followed.query() == "written on"
    assert [line["query"] for line in lines(path)] == [*(f"query {n}" for n in range(0, 300, 3)), "written on"]


@pytest.mark.slow
def test_deleted_data_in_an_open_snapshot_of_a_reader_is_reported(path: Path) -> None:
    with AuditReader(path) as reader, reader.snapshot():
        assert reader.last_id()
        record(path, {"query": CANARY})
        ended = toolcrib_process("audit", "forget", "--path", path, "--query", CANARY, "--yes")
        assert ended.code == 1
        assert "Deleted 1 trace with 1 operation." in ended.err
        assert f"{path.name}-wal" in ended.err.replace("\n", "")
    assert toolcrib("audit", "forget", "--path", path, "--query", CANARY, "--yes").code == 0
    assert CANARY.encode() not in bytes_of(path)


def test_data_that_another_program_left_in_free_space_is_erased_too(path: Path) -> None:
    record(path, {"query": f"{CANARY} " * 40})
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("DELETE FROM events WHERE query LIKE ?", (f"{CANARY}%",))
    connection.close()
    assert CANARY.encode() in bytes_of(path)
    assert toolcrib("audit", "forget", "--path", path, "--principal", "nobody", "--yes").code == 0
    assert CANARY.encode() not in bytes_of(path)
    assert len(traces(path)) == 3


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("--principal", "ada"), [SEARCH, BY_BOB]),
        (("--tool", "git.git_log"), [BY_BOB]),
        (("--tool", "git.a"), [REFUSED, BY_BOB]),
        (("--tool", "git"), [BY_BOB]),
        (("--tool", "git.git"), [SEARCH, REFUSED, BY_BOB]),
        (("--query", "the last COMMIT"), [REFUSED, BY_BOB]),
        (("--before", "1h"), [REFUSED, BY_BOB]),
        (("--before", "1m", "--principal", "ada"), [SEARCH, REFUSED, BY_BOB]),
        (("--tool", "git", "--principal", "ada"), [SEARCH, BY_BOB]),
        (("--all",), []),
    ],
)
def test_traces_that_match_all_conditions_are_deleted_completely(
    path: Path, words: tuple[str, ...], left: list[str]
) -> None:
    before = len(lines(path))
    ended = toolcrib("audit", "forget", "--path", path, *words, "--yes", "--json")
    assert ended.code == 0
    assert traces(path) == left
    assert ended.json == {"traces": 3 - len(left), "operations": before - len(lines(path))}


def test_truncated_principal_and_tool_names_are_deleted_by_their_full_names(path: Path) -> None:
    long = "https://issuer.example/realm|" + "a" * 300
    for words in (("--principal", long), ("--tool", f"git.{long}")):
        record(path, {"principal": long, "tool_ids": (f"git.{long}",), "query": CANARY})
        assert toolcrib("audit", "forget", "--path", path, *words, "--yes", "--json").json["traces"] == 1
    assert len(traces(path)) == 3


def test_deletions_are_reported_even_if_the_file_cannot_be_rewritten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: AuditFile) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(AuditFile, "scrub", full)
    ended = toolcrib("audit", "forget", "--path", path, "--all", "--yes")
    assert (ended.code, traces(path)) == (1, [])
    told = ended.err.replace("\n", " ")
    assert told.startswith("Deleted 3 traces with 6 operations.")
    assert "database or disk is full" in told


def test_nothing_is_deleted_without_confirmation(path: Path) -> None:
    ended = toolcrib("audit", "forget", "--path", path, "--all")
    assert ended.code == 1
    assert "--yes" in ended.err
    question = "Delete 3 traces with 6 operations permanently?"
    for answer, code, left in (("n\n", 1, 3), ("y\n", 0, 0)):
        ended = typed(
            *("audit", "forget", "--path", path, "--all"),
            answers=[(question, answer)],
            environ={**os.environ},
            folder=path.parent,
        )
        assert (ended.code, len(traces(path))) == (code, left)


def test_deleting_requires_a_condition_and_never_creates_a_file(path: Path, tmp_path: Path) -> None:
    for words in ((), ("--query", ""), ("--all", "--principal", "ada")):
        assert toolcrib("audit", "forget", "--path", path, *words, "--yes").code == 2
    assert len(traces(path)) == 3
    assert toolcrib("audit", "forget", "--path", tmp_path / "none", "--all", "--yes").code == 0
    assert not (tmp_path / "none").exists()
    (tmp_path / "other").write_text("no audit at all")
    assert toolcrib("audit", "forget", "--path", tmp_path / "other", "--all", "--yes").code == 2
    assert (tmp_path / "other").read_text() == "no audit at all"
