"""`toolcrib acp` as an editor starts it: in its own process, over its standard streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcrib.testing.acp.fake_client import FakeAcpClient

pytestmark = pytest.mark.anyio

COMMAND = (sys.executable, "-m", "toolcrib", "acp")

DONE = {"text": "Done."}


def script(folder: Path, *turns: dict[str, Any]) -> str:
    """Name a model that replays `turns`."""
    path = folder / "script.json"
    path.write_text(json.dumps(turns))
    return f"scripted:{path}"


def expand_step(*tool_ids: str) -> dict[str, Any]:
    return {"calls": [{"name": "expand_tool", "arguments": {"tool_ids": [*tool_ids]}}]}


def call_step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def private_environ(folder: Path) -> dict[str, str]:
    """Return environment variables that keep state and caches in `folder`."""
    return {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}


async def test_files_change_only_after_the_person_in_the_editor_approves(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    model = script(
        tmp_path, expand_step("editor.write_file"), call_step("write_file", path="a.txt", content="two\n"), DONE
    )
    client = FakeAcpClient(read_text_file=True, write_text_file=True, files=project)
    async with client.started([*COMMAND, "--model", model], env=private_environ(tmp_path)):
        await client.initialize()
        answer = await client.prompt(await client.new_session(project), "Write two.")
    assert (answer.stop_reason, answer.text) == ("end_turn", "Done.")
    assert (project / "a.txt").read_text() == "two\n"
    assert len(client.permissions_asked) == 1
    assert client.exit_code == 0
    assert client.stderr == ""


async def test_configured_servers_are_available_through_the_same_operations(tmp_path: Path) -> None:
    server = Path(__file__).parents[1] / "servers" / "peculiar.py"
    assert server.exists()
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"odd": {"command": sys.executable, "args": [str(server)]}}}))
    model = script(tmp_path, call_step("list"), DONE)
    client = FakeAcpClient(terminal=True)
    async with client.started([*COMMAND, "--model", model, str(config)], env=private_environ(tmp_path)):
        await client.initialize()
        answer = await client.prompt(await client.new_session(tmp_path), "What is there?")
    (listed,) = answer.tool_calls.values()
    page: Any = listed.raw_output
    assert {node["name"] for node in page["nodes"]} == {"odd", "editor"}


async def test_a_session_can_be_loaded_after_the_program_restarts(tmp_path: Path) -> None:
    model = script(tmp_path, DONE, {"text": "As I said."})
    client = FakeAcpClient()
    async with client.started([*COMMAND, "--model", model], env=private_environ(tmp_path)):
        await client.initialize()
        session = await client.new_session(tmp_path)
        await client.prompt(session, "Hello.")
    async with client.started([*COMMAND, "--model", model], env=private_environ(tmp_path)):
        await client.initialize()
        await client.load_session(session, tmp_path)
        assert (await client.prompt(session, "And?")).text == "As I said."


async def test_no_sessions_disables_loading_and_stores_nothing(tmp_path: Path) -> None:
    client = FakeAcpClient()
    command = [*COMMAND, "--model", script(tmp_path, DONE), "--no-sessions"]
    async with client.started(command, env=private_environ(tmp_path)):
        response = await client.initialize()
        await client.prompt(await client.new_session(tmp_path), "Hello.")
    assert response.agent_capabilities is not None
    assert not response.agent_capabilities.load_session
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_with_exit_code_0(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--model", script(tmp_path, DONE), "--no-sessions"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        program.stdin.write(json.dumps(request).encode() + b"\n")
        program.stdin.flush()
        assert json.loads(program.stdout.readline())["id"] == 1
        program.send_signal(number)
        _, said = program.communicate(timeout=30)
    assert program.returncode == 0
    assert said == b""


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("scripted:/nowhere/script.json", "cannot be read"),
        ("nobody:model", "cannot use the model `nobody:model`"),
        ("openai:gpt-5", "cannot use the model `openai:gpt-5`"),
    ],
)
@pytest.mark.slow
def test_an_unusable_model_is_reported_at_startup(model: str, says: str) -> None:
    env = {"PATH": "/usr/bin:/bin"}  # without an API key
    ended = subprocess.run(
        [*COMMAND, "--model", model], capture_output=True, text=True, timeout=60, env=env, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    said = " ".join(ended.stderr.split())
    assert says in said
    assert "Traceback" not in said


def test_an_invalid_model_name_is_answered_with_the_expected_format() -> None:
    ended = subprocess.run([*COMMAND, "--model", "nonsense"], capture_output=True, text=True, timeout=60, check=False)
    assert "PROVIDER:MODEL" in ended.stderr
    assert "scripted:FILE" in ended.stderr


@pytest.mark.parametrize(
    ("named", "code", "says"),
    [
        ((), 2, "needs a CONFIG"),
        (("mcp.json",), 1, "Bundle `few` not found."),
    ],
)
def test_an_unknown_bundle_ends_the_program_at_startup(
    named: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    ended = subprocess.run(
        [*COMMAND, "--model", script(tmp_path, DONE), "--bundle", "few", *named],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, **private_environ(tmp_path)},
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert says in ended.stderr
