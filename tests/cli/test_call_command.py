"""`toolcrib call`: runs one tool from a terminal, and explains failures."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from tests.cli.running import toolcrib
from tests.cli.terminal import typed
from tests.servers.launching import ROOT, faulty_entry, received, write_config

from toolcrib.cli.terminal_output import escape, plain, plain_json


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(
        tmp_path / "mcp.json",
        bench=faulty_entry("odd-tools", "error", "bad-output", "die-in-call"),
        other={"command": "x"},
    )


def test_a_tool_runs_with_arguments_from_the_command_line(config: Path) -> None:
    ended = toolcrib("call", "bench.echo", '{"text": "[red]tea[/] :bug: お茶"}', "-c", config)
    assert (ended.code, ended.out, ended.err) == (0, "[red]tea[/] :bug: お茶\n", "")


def test_arguments_can_come_from_standard_input_and_the_result_can_be_json(config: Path) -> None:
    ended = toolcrib("call", "bench.add", "-", "-c", config, "--json", given='{"a": 1, "b": 2}')
    assert ended.code == 0
    assert ended.json["structuredContent"] == {"sum": 3}


def test_a_tool_without_parameters_runs_without_arguments(config: Path) -> None:
    assert toolcrib("call", "bench.files.read.all", "-c", config).out == "files.read.all\n"


def test_every_content_type_is_shown_or_named(config: Path) -> None:
    ended = toolcrib("call", "bench.image", "-c", config)
    assert ended.code == 0
    assert "one red pixel" in ended.out
    assert "[image image/png, " in ended.out
    assert "palette <toolcrib://bench/memo://palette>" in ended.out
    whole = toolcrib("call", "bench.image", "-c", config, "--json").json
    assert whole["futureField"] == ["kept"]


def test_a_tool_that_requests_input_is_reported_as_failed(tmp_path: Path) -> None:
    fixture = {"command": sys.executable, "args": ["-m", "tests.interop.fixture_server"], "cwd": str(ROOT)}
    config = write_config(tmp_path / "mcp.json", newer=fixture)
    ended = toolcrib("call", "newer.test_input_required_result_request_state", "-c", config)
    assert (ended.code, ended.out) == (1, "")
    assert "TOOL_FAILED" in ended.err
    assert "asks for input" in ended.err


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [("once", 0, "tea"), ("always", 0, "tea"), ("no", 1, "NOT_AUTHORIZED"), ("\x04", 1, "NOT_AUTHORIZED")],
)
def test_the_person_at_the_terminal_is_asked_when_the_policy_requires_approval(
    answer: str, code: int, said: str, tmp_path: Path
) -> None:
    rules = {"policy": {"rules": [{"then": "ask", "tools": ["bench.echo"]}], "otherwise": "allow"}}
    config = write_config(tmp_path / "mcp.json", toolcrib=rules, bench=faulty_entry())
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ("call", "bench.echo", "text=tea", "-c", config)

    ended = typed(
        *words, answers=[("Your answer", answer + "\n" * (answer != "\x04"))], environ=environ, folder=tmp_path
    )
    assert 'Toolcrib asks: run "bench.echo" for "local"?' in ended.out
    assert (ended.code, said in ended.out.partition("Your answer")[2]) == (code, True)

    again = typed(
        *words, answers=[] if answer == "always" else [("Your answer", "no\n")], environ=environ, folder=tmp_path
    )
    assert again.code == (0 if answer == "always" else 1)


def test_without_a_terminal_a_call_that_needs_approval_waits(tmp_path: Path) -> None:
    rules = {"policy": {"rules": [{"then": "ask", "tools": ["bench.echo"]}], "otherwise": "allow"}}
    config = write_config(tmp_path / "mcp.json", toolcrib=rules, bench=faulty_entry())
    ended = toolcrib("call", "bench.echo", "text=tea", "-c", config)
    assert (ended.code, "waits for a person's approval" in ended.err) == (1, True)
    assert "`toolcrib approvals grant " in ended.err


def test_progress_is_printed_to_standard_error(config: Path) -> None:
    ended = toolcrib("call", "bench.slow", '{"steps": 2}', "-c", config)
    assert (ended.code, ended.out) == (0, "done after 2 steps\n")
    assert "1/2 step 1" in ended.err
    assert "2/2 step 2" in ended.err


def test_a_tool_error_exits_with_1_and_prints_the_result(config: Path) -> None:
    ended = toolcrib("call", "bench.fail", "-c", config)
    assert (ended.code, ended.out) == (1, "This tool always fails.\n")
    assert toolcrib("call", "bench.fail", "-c", config, "--json").json["isError"] is True


@pytest.mark.parametrize(
    ("tool", "code", "words"),
    [
        ("bench.refuse", "TOOL_FAILED", "The workbench is locked"),
        ("bench.crash", "SOURCE_UNAVAILABLE", "stopped before it answered"),
        ("bench.hammer", "TOOL_NOT_FOUND", "Tool `bench.hammer` not found"),
        ("other.x", "SOURCE_UNAVAILABLE", "The gateway's owner can run `toolcrib doctor`"),
    ],
)
def test_a_call_without_a_result_exits_with_1_and_the_reason(config: Path, tool: str, code: str, words: str) -> None:
    ended = toolcrib("call", tool, "-c", config)
    assert (ended.code, ended.out) == (1, "")
    assert code in ended.err
    assert words in " ".join(ended.err.split())


def test_a_result_that_violates_its_output_schema_is_shown_with_a_warning(config: Path) -> None:
    ended = toolcrib("call", "bench.mismatch", "-c", config)
    assert (ended.code, ended.out) == (0, "many\n")
    assert "does not match the tool's output schema" in " ".join(ended.err.split())


def test_wrong_arguments_are_explained_and_the_proposed_command_works(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("--log", str(log)))
    ended = toolcrib("call", "bench.echo", """{"txet": "it's tea"}""", "-c", config)
    assert (ended.code, ended.out) == (1, "")
    assert "INVALID_ARGUMENTS" in ended.err
    assert "`text`" in ended.err
    assert received(log, "tools/call") == []
    (line,) = [line for line in ended.err.splitlines() if "Next:" in line]
    _, *words = shlex.split(line.partition("Next:")[2])
    assert toolcrib(*words, "-c", config).out == "it's tea\n"


@pytest.mark.parametrize("text", ["{", "[1]", "tea"])
def test_arguments_that_are_not_a_json_object_are_refused_before_the_server_starts(tmp_path: Path, text: str) -> None:
    log = tmp_path / "seen.jsonl"
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("--log", str(log)))
    ended = toolcrib("call", "bench.echo", text, "-c", config, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (1, "INVALID_ARGUMENTS")
    assert not log.exists()


def test_control_characters_of_servers_are_replaced_for_the_terminal() -> None:
    assert plain("a\x1b[31mred\x9b2J\u202ereversed\r\nnext\ttab") == "a\ufffd[31mred\ufffd2J\ufffdreversed\nnext\ttab"
    assert escape("\x1b[bold]x[/]") == "\ufffd\\[bold]x\\[/]"
    assert plain("a\u061cb\u2028c\u2029d") == "a\ufffdb\ufffdc\ufffdd"
    assert plain("👩\u200d🔬 é العربية\u200c") == "👩\u200d🔬 é العربية\u200c"


def test_terminal_json_escapes_control_characters_and_parses_to_the_same_value() -> None:
    value = {"text": "a\x1b[31m\x9b2J\u202e\u061c\u2028 é 👩\u200d🔬"}
    shown = plain_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert plain(shown) == shown
    assert "é 👩\u200d🔬" in shown


def test_arguments_can_be_given_as_key_value_pairs(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    assert toolcrib("call", "bench.echo", "text=a=b c", "-c", config).out == "a=b c\n"
    assert toolcrib("call", "bench.echo", 'text="quoted"', "-c", config).out == '"quoted"\n'
    assert toolcrib("call", "bench.add", "a=2", "b=3", "-c", config).code == 0
    ended = toolcrib("call", "bench.add", "a=2", "nonsense", "-c", config)
    assert (ended.code, "path=notes.txt" in ended.err) == (1, True)
    assert "path=notes.txt" in toolcrib("call", "bench.add", "a:2", "-c", config).err
