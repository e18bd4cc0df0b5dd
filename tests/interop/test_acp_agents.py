"""Third-party agents with the fake editor: its reading of the protocol agrees with that of others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.interop.launching import fast_agent, on_acp_sdk

from toolcrib.testing.acp.fake_client import FakeAcpClient, PromptTurn
from toolcrib.testing.acp.mcp_server import McpTool

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


def call(tool: str, **arguments: object) -> str:
    """Return a prompt that makes the agent's model call a tool and report the result."""
    return f"***CALL_TOOL {tool} {json.dumps(arguments)}"


def ended(turn: PromptTurn) -> tuple[str | None, str | None]:
    """Return the title and the last status of a turn's only tool call."""
    (told,) = turn.tool_calls.values()
    return told.title, told.status


async def test_a_published_agent_asks_reads_writes_and_runs_through_the_fake_editor(tmp_path: Path) -> None:
    (project := (tmp_path / "project").resolve()).mkdir()
    (note := project / "note.txt").write_text("The saw is blunt.\nThe plane is not.\n", encoding="utf-8")
    editor = FakeAcpClient(read_text_file=True, write_text_file=True, terminal=True, files=project)
    command = [*fast_agent(), "--shell", "--home", str(tmp_path / "home")]
    async with editor.started(command, env={"HOME": str(tmp_path)}, cwd=project):
        initialized = await editor.initialize()
        assert initialized.agent_info is not None
        assert initialized.agent_info.name == "fast-agent-acp"
        session = await editor.new_session(project)

        said = await editor.prompt(session, "Is the saw sharp?")
        assert (said.stop_reason, said.text) == ("end_turn", "Is the saw sharp?")
        assert editor.permissions_asked == []

        read = await editor.prompt(session, call("read_text_file", path=str(note), line=2, limit=1))
        assert ended(read) == ("read_text_file", "completed")
        assert read.text.strip() == "The plane is not."
        assert [asked.tool_call.title for asked in editor.permissions_asked] == ["read_text_file"]
        assert editor.permissions_asked[0].kinds == {"allow_once", "allow_always", "reject_once", "reject_always"}

        write = call("write_text_file", path=str(note), content="The saw is sharp.\n")
        for refusal in ("cancelled", "unknown", "reject_once"):
            editor.permission = refusal
            refused = await editor.prompt(session, write)
            assert ended(refused) == ("write_text_file", "failed"), refusal
            assert note.read_text(encoding="utf-8").startswith("The saw is blunt."), refusal
        editor.permission = "allow_once"
        assert ended(await editor.prompt(session, write)) == ("write_text_file", "completed")
        assert note.read_text(encoding="utf-8") == "The saw is sharp.\n"

        run = await editor.prompt(session, call("execute", command="echo $((6 * 7)) && exit 3"))
        assert "42" in run.text
        assert "3" in run.text
        assert [frame.method for frame in editor.wire].count("terminal/create") == 1
        assert editor.open_terminals == ()
        listed = await editor.request("session/list", {"cwd": os.fspath(project)})
        assert session in [known["sessionId"] for known in listed["sessions"]]
    assert editor.exit_code == 0, editor.stderr


async def test_an_agent_on_the_typescript_sdk_reads_every_answer_of_the_fake_editor(tmp_path: Path) -> None:
    project = tmp_path
    (note := project / "note.txt").write_text("The saw is blunt.\nThe plane is not.\n", encoding="utf-8")
    hone = {"name": "hone", "kind": "edit", "description": "Make sharp.", "parameters": {"type": "object"}}
    editor = FakeAcpClient(
        read_text_file=True,
        write_text_file=True,
        terminal=True,
        files=project,
        tools=[hone],
        answers={"hone": {"edges": 2}},
        mcp_servers={"dictionary": {"look_up": McpTool("The slit that a saw makes.", "Say what a word means.")}},
        mcp_form="requests",
    )

    async def ask(*steps: tuple[str, dict[str, Any]]) -> list[Any]:
        return json.loads((await editor.prompt(session, json.dumps(steps))).text)

    async with editor.started(on_acp_sdk("acp_agent.mjs")):
        heard = (await editor.initialize()).field_meta
        assert heard is not None
        assert heard["heard"]["_meta"] == {"toolcrib": {"discoverTools": True}}
        session = await editor.new_session(project)

        path = str(note)
        assert await ask(
            ("fs/read_text_file", {"path": path, "line": 2}),
            ("fs/write_text_file", {"path": path, "content": "The saw is sharp.\n"}),
        ) == [{"content": "The plane is not.\n"}, {}]
        assert note.read_text(encoding="utf-8") == "The saw is sharp.\n"
        (missing,) = await ask(("fs/read_text_file", {"path": str(project / "nothing")}))
        assert missing["code"] < 0

        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
        question = ("session/request_permission", {"toolCall": {"toolCallId": "1"}, "options": options})
        for permission in ("allow_once", "reject_once"):
            editor.permission = permission
            assert await ask(question) == [{"outcome": {"outcome": "selected", "optionId": permission}}]
        editor.permission = "cancelled"
        assert await ask(question) == [{"outcome": {"outcome": "cancelled"}}]

        (created,) = await ask(("terminal/create", {"command": "sh", "args": ["-c", "echo sawdust; exit 3"]}))
        assert await ask(
            ("terminal/wait_for_exit", created), ("terminal/output", created), ("terminal/release", created)
        ) == [
            {"exitCode": 3},
            {"output": "sawdust\n", "truncated": False, "exitStatus": {"exitCode": 3}},
            {},
        ]
        assert editor.open_terminals == ()

        discovered, called = await ask(
            ("_toolcrib/discover_tools", {}), ("_toolcrib/call_tool", {"name": "hone", "arguments": {"on": "both"}})
        )
        assert discovered == {"tools": [hone]}
        assert called["structuredContent"] == {"edges": 2}
        assert [(tool.name, tool.arguments) for tool in editor.tools_called] == [("hone", {"on": "both"})]

        listed, looked_up, unknown = await ask(
            ("mcp", {"server": "dictionary", "method": "tools/list"}),
            ("mcp", {"server": "dictionary", "method": "tools/call", "params": {"name": "look_up", "arguments": {}}}),
            ("mcp", {"server": "dictionary", "method": "tools/sharpen"}),
        )
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["look_up"]
        assert looked_up["result"]["content"] == [{"type": "text", "text": "The slit that a saw makes."}]
        assert unknown["error"]["code"] == -32601
    assert editor.exit_code == 0, editor.stderr
