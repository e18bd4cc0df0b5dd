"""Third-party editors with the agent: the TypeScript SDK of ACP, and the command line `acpx`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.interop.launching import TOOLCRIB, Json, acpx, fixture_server, on_acp_sdk

pytestmark = pytest.mark.interop

ALL_DENIED = 5
"""The exit code of acpx if permission was requested and never given."""

BEFORE = "def saw():\n    return 'blunt'\n\n\nprint(saw())\n"
AFTER = "def blade():\n    return 'blunt'\n\n\nprint(blade())\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a folder with one code file."""
    (project := (tmp_path / "project").resolve()).mkdir()
    (project / "bench.py").write_text(BEFORE, encoding="utf-8")
    return project


def agent(tmp_path: Path, *turns: Json) -> list[str]:
    """Return the command of the agent, with a model that runs these turns and then says "Done."."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([*turns, {"text": "Done."}]), encoding="utf-8")
    return [TOOLCRIB, "acp", "--model", f"scripted:{script}"]


def expand(*tool_ids: str) -> Json:
    return {"calls": [{"name": "expand_tool", "arguments": {"tool_ids": list(tool_ids)}}]}


def call(name: str, **arguments: object) -> Json:
    return {"calls": [{"name": name, "arguments": arguments}]}


def edited(tmp_path: Path, project: Path, turns: Sequence[Json], *consents: str, **plan: bool) -> Json:
    """Return an editor's report on one prompt per consent, each in its own session, one after the other."""
    command, *words = agent(tmp_path, *turns)
    whole = {"command": command, "args": words, "cwd": str(project), "consents": consents, **plan}
    done = subprocess.run(
        [*on_acp_sdk("acp_editor.mjs"), json.dumps(whole)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["exit"] == 0
    assert [turn["answer"]["stopReason"] for turn in report["turns"]] == ["end_turn"] * len(consents)
    assert [told(turn["updates"]) for turn in report["turns"]] == ["Done."] * len(consents)
    return report


def told(updates: Sequence[Json]) -> str:
    """Return the whole text of the agent."""
    return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == "agent_message_chunk")


def calls_in(updates: Sequence[Json]) -> list[Json]:
    """Return every tool call in its final state."""
    calls: dict[str, Json] = {}
    for update in updates:
        if update["sessionUpdate"] in {"tool_call", "tool_call_update"}:
            calls.setdefault(update["toolCallId"], {}).update(update)
    return list(calls.values())


RENAME = [expand("editor.rename_symbol"), call("rename_symbol", old_name="saw", new_name="blade")]


def test_an_editor_renames_a_symbol_with_its_own_tool_and_is_asked_once(tmp_path: Path, project: Path) -> None:
    (turn,) = edited(tmp_path, project, RENAME, "allow_once", discovers=True)["turns"]

    assert (project / "bench.py").read_text(encoding="utf-8") == AFTER
    assert turn["discovered"] == 1
    (called,) = turn["called"]
    assert (called["name"], called["arguments"]) == ("rename_symbol", {"old_name": "saw", "new_name": "blade"})
    (asked,) = turn["asked"]
    assert asked["toolCall"]["kind"] == "edit"
    assert asked["toolCall"]["rawInput"] == called["arguments"]
    assert "rename_symbol" in asked["toolCall"]["title"]
    kinds = {option["kind"] for option in asked["options"]}
    assert kinds == {"allow_once", "allow_always", "reject_once", "reject_always"}
    ran = calls_in(turn["updates"])[-1]
    assert (ran["kind"], ran["status"]) == ("edit", "completed")
    assert {"type": "diff", "path": str(project / "bench.py"), "oldText": BEFORE, "newText": AFTER} in ran["content"]


def test_an_editor_that_refuses_is_not_changed_and_the_model_is_informed(tmp_path: Path, project: Path) -> None:
    report = edited(tmp_path, project, RENAME, "reject_once", "reject_always", "cancelled", discovers=True)

    assert (project / "bench.py").read_text(encoding="utf-8") == BEFORE
    for turn in report["turns"]:
        assert len(turn["asked"]) == 1
        assert turn["called"] == []
        refused = calls_in(turn["updates"])[-1]
        assert refused["status"] == "failed"
        assert "NOT_AUTHORIZED" in json.dumps(refused["rawOutput"])


def test_files_of_an_editor_without_discovery_are_read_and_written(tmp_path: Path, project: Path) -> None:
    path = str(project / "bench.py")
    turns = [
        expand("editor.read_file", "editor.write_file"),
        call("read_file", path=path),
        call("write_file", path=path, content=AFTER),
    ]
    (turn,) = edited(tmp_path, project, turns, "allow_once", files=True)["turns"]

    assert (project / "bench.py").read_text(encoding="utf-8") == AFTER
    assert path in turn["read"]
    assert turn["written"] == [path]
    assert turn["discovered"] == 0
    (asked,) = turn["asked"]
    assert asked["toolCall"]["kind"] == "edit"
    assert {"type": "diff", "path": path, "oldText": BEFORE, "newText": AFTER} in asked["toolCall"]["content"]
    assert [each["status"] for each in calls_in(turn["updates"])] == ["completed"] * 3


def test_an_editor_serves_mcp_over_the_same_connection(tmp_path: Path, project: Path) -> None:
    turns = [expand("dictionary.look_up"), call("dictionary__look_up", word="kerf")]
    report = edited(tmp_path, project, turns, "reject_once", "allow_once", serves=True)

    assert report["initialized"]["agentCapabilities"]["mcpCapabilities"]["acp"] is True
    refused, allowed = report["turns"]
    assert [len(turn["asked"]) for turn in report["turns"]] == [1, 1]  # a server that an editor provides is not trusted
    assert "tools/call" not in refused["served"]
    assert "tools/call" in allowed["served"]
    answered = calls_in(allowed["updates"])[-1]
    assert answered["status"] == "completed"
    assert "The slit that a saw makes." in json.dumps(answered["rawOutput"])


def on_the_command_line(tmp_path: Path, project: Path, turns: Sequence[Json], *words: str) -> tuple[int, list[Json]]:
    """Return the exit code of acpx after one prompt, and every message that it sent and received."""
    command = shlex.join(agent(tmp_path, *turns))
    done = subprocess.run(
        [*acpx(), "--agent", command, "--cwd", str(project), "--format", "json", *words, "exec", "Go."],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def updates_in(messages: Sequence[Json]) -> list[Json]:
    return [message["params"]["update"] for message in messages if message.get("method") == "session/update"]


def asked_in(messages: Sequence[Json]) -> list[Json]:
    return [message["params"] for message in messages if message.get("method") == "session/request_permission"]


def asked_of_it(messages: Sequence[Json]) -> list[str]:
    """Return the methods of the agent's file and terminal requests, in order."""
    return [message["method"] for message in messages if message.get("method", "").startswith(("fs/", "terminal/"))]


@pytest.mark.parametrize("allowed", [True, False])
def test_acpx_writes_a_file_only_if_it_approves(allowed: bool, tmp_path: Path, project: Path) -> None:
    path = project / "bench.py"
    turns = [expand("editor.write_file"), call("write_file", path=str(path), content=AFTER)]
    code, messages = on_the_command_line(tmp_path, project, turns, "--approve-all" if allowed else "--deny-all")

    assert len(asked_in(messages)) == 1
    wrote = calls_in(updates_in(messages))[-1]
    if allowed:
        assert code == 0
        assert path.read_text(encoding="utf-8") == AFTER
        assert wrote["status"] == "completed"
    else:
        assert code == ALL_DENIED
        assert path.read_text(encoding="utf-8") == BEFORE
        assert "fs/write_text_file" not in asked_of_it(messages)
        assert wrote["status"] == "failed"
        assert "NOT_AUTHORIZED" in json.dumps(wrote["rawOutput"])
    assert told(updates_in(messages)) == "Done."


def test_a_tool_of_an_mcp_server_passed_by_acpx_is_called(tmp_path: Path, project: Path) -> None:
    config = tmp_path / "servers.json"
    server: Json = {"name": "fixture", "type": "stdio", "env": [], **fixture_server()}
    config.write_text(json.dumps({"mcpServers": [server]}), encoding="utf-8")
    turns = [expand("fixture.test_simple_text"), call("fixture__test_simple_text")]
    code, messages = on_the_command_line(tmp_path, project, turns, "--approve-all", "--mcp-config", str(config))

    assert code == 0
    assert len(asked_in(messages)) == 1
    answered = calls_in(updates_in(messages))[-1]
    assert answered["status"] == "completed"
    assert "This is a simple text response for testing." in json.dumps(answered["rawOutput"])


def test_acpx_runs_a_command_in_a_terminal_that_is_released(tmp_path: Path, project: Path) -> None:
    turns = [expand("editor.run_command"), call("run_command", command=sys.executable, args=["bench.py"])]
    code, messages = on_the_command_line(tmp_path, project, turns, "--approve-all")

    assert code == 0
    assert len(asked_in(messages)) == 1
    methods = asked_of_it(messages)
    assert (methods[0], methods[-1]) == ("terminal/create", "terminal/release")
    ran = calls_in(updates_in(messages))[-1]
    assert (ran["kind"], ran["status"]) == ("execute", "completed")
    assert "blunt" in json.dumps(ran["rawOutput"])


def test_acpx_without_capabilities_gets_no_requests(tmp_path: Path, project: Path) -> None:
    path = str(project / "bench.py")
    turns = [expand("local.read_file"), call("read_file", path=path)]
    code, messages = on_the_command_line(tmp_path, project, turns, "--deny-all", "--no-fs", "--no-terminal")

    assert code == 0
    assert asked_in(messages) == []
    assert asked_of_it(messages) == []
    read = calls_in(updates_in(messages))[-1]
    assert (read["kind"], read["status"]) == ("read", "completed")
    assert "def saw" in json.dumps(read["rawOutput"])
