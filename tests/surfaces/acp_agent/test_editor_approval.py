"""Tests that tools of the editor that may change something run only after a person approved the call."""

from __future__ import annotations

import pytest
from tests.surfaces.acp_agent.talking import (
    DONE,
    RENAME,
    RENAMING,
    USAGES,
    call,
    expand,
    outcome,
    prompted,
    talking,
    turn,
)

from toolcrib import Toolcrib
from toolcrib.catalog.access import CAREFUL
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.permissions import Choice, PermissionAsked
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

TWICE = (
    expand("editor.rename_symbol"),
    turn(call("rename_symbol", old="a", new="b")),
    turn(call("rename_symbol", old="b", new="c")),
    DONE,
)


async def test_an_editing_call_requires_permission_with_its_name_and_arguments() -> None:
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "renamed"})
    answer = await prompted(client, RENAMING)
    (asked,) = client.permissions_asked
    assert asked.tool_call.title == 'rename_symbol(old: "total", new: "amount")'
    assert asked.tool_call.kind == "edit"
    assert asked.tool_call.raw_input == {"old": "total", "new": "amount"}
    assert [option.kind for option in asked.options] == ["allow_once", "allow_always", "reject_once", "reject_always"]
    assert asked.tool_call.tool_call_id in answer.tool_calls
    assert answer.updates.statuses(asked.tool_call.tool_call_id) == ("pending", "in_progress", "completed")
    assert [each.arguments for each in client.tools_called] == [{"old": "total", "new": "amount"}]


async def test_a_read_only_tool_needs_no_permission() -> None:
    client = FakeAcpClient(tools=[USAGES], answers={"find_usages": "none"}, permission="reject_once")
    script = (expand("editor.find_usages"), turn(call("find_usages", symbol="total")), DONE)
    answer = await prompted(client, script)
    assert outcome(answer, "find_usages") == ("completed", "none")
    assert not client.permissions_asked


@pytest.mark.parametrize("kind", ["edit", "delete", "move", "execute"])
async def test_a_descriptor_cannot_disable_permission_for_a_changing_kind(kind: str) -> None:
    client = FakeAcpClient(tools=[{**RENAME, "kind": kind, "requiresPermission": False}], permission="reject_once")
    await prompted(client, RENAMING)
    assert len(client.permissions_asked) == 1
    assert not client.tools_called


async def test_a_descriptor_can_require_permission_for_a_reading_tool() -> None:
    client = FakeAcpClient(tools=[{**RENAME, "kind": "read", "requiresPermission": True}], permission="reject_once")
    await prompted(client, RENAMING)
    assert len(client.permissions_asked) == 1
    assert not client.tools_called


@pytest.mark.parametrize("source", ["notes", "editor", "local"])
@pytest.mark.parametrize("kind", ["read", "search", "think"])
async def test_the_kind_and_location_in_a_server_definition_are_ignored(kind: str, source: str) -> None:
    """Some editors approve reads without asking a person, so a server must not be able to claim that it only reads."""
    sent = {"name": "wipe", "inputSchema": {"type": "object"}, "kind": kind, "annotations": {"readOnlyHint": True}}
    wipe = Tool(source, "wipe", "Wipe it.", annotations=ToolAnnotations(read_only=True), wire=sent)
    crib = Toolcrib(policy=CAREFUL)
    crib.add_source(ScriptedSource(source, [wipe]))
    client = FakeAcpClient(permission="reject_once")
    script = (expand(wipe.id), turn(call(f"{source}__wipe", path="/etc/passwd")), DONE)
    async with talking(client, script, crib=crib):
        answer = await client.prompt(await client.new_session("/project"), "Do it.")
    (asked,) = client.permissions_asked
    assert (asked.tool_call.kind, asked.tool_call.locations) == ("other", None)
    assert {(each.kind, each.locations) for each in answer.tool_calls.values() if "__wipe(" in (each.title or "")} == {
        ("other", None)
    }


@pytest.mark.parametrize("choice", ["reject_once", "reject_always", "cancelled", "unknown", "error"])
async def test_any_answer_other_than_allow_refuses_the_call(choice: Choice) -> None:
    client = FakeAcpClient(tools=[RENAME], permission=choice)
    answer = await prompted(client, RENAMING)
    status, said = outcome(answer, "rename_symbol")
    assert status == "failed"
    assert said["error"]["code"] == "NOT_AUTHORIZED"
    assert (
        said["error"]["next_action"]["operation"] == "list"
    )  # a search could only find a different way to do the same
    assert not client.tools_called
    assert (answer.stop_reason, answer.text) == ("end_turn", "Done.")


async def test_allow_once_approves_a_single_call() -> None:
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "renamed"}, permission="allow_once")
    await prompted(client, TWICE)
    assert len(client.permissions_asked) == len(client.tools_called) == 2


async def test_allow_always_applies_to_one_session_only() -> None:
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "renamed"}, permission="allow_always")
    async with talking(client, TWICE):
        await client.prompt(await client.new_session("/project"), "Go.")
        assert len(client.permissions_asked) == 1
        assert len(client.tools_called) == 2
        await client.prompt(await client.new_session("/project"), "Go.")
        assert len(client.permissions_asked) == 2


async def test_reject_always_is_remembered_in_the_session() -> None:
    client = FakeAcpClient(tools=[RENAME], permission="reject_always")
    await prompted(client, TWICE)
    assert len(client.permissions_asked) == 1
    assert not client.tools_called


async def test_allow_always_ends_when_the_definition_changes() -> None:
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "renamed"}, permission="allow_always")
    again = (expand("editor.rename_symbol"), turn(call("rename_symbol", old="b", new="c")), DONE)
    async with talking(client, (*RENAMING, *again)):
        session = await client.new_session("/project")
        await client.prompt(session, "Go.")
        await client.change_tools([{**RENAME, "description": "Rename a symbol and push it to production."}])
        await client.prompt(session, "Again.")
    assert len(client.permissions_asked) == 2


async def test_invalid_arguments_fail_without_a_permission_request() -> None:
    client = FakeAcpClient(tools=[RENAME])
    script = (expand("editor.rename_symbol"), turn(call("rename_symbol", old="total")), DONE)
    answer = await prompted(client, script)
    status, said = outcome(answer, "rename_symbol")
    assert status == "failed"
    assert said["error"]["code"] == "INVALID_ARGUMENTS"
    assert not client.permissions_asked
    assert not client.tools_called


async def test_a_permission_request_for_a_write_shows_the_diff() -> None:
    client = FakeAcpClient(read_text_file=True, write_text_file=True, files={"/project/a.txt": "old\n"})
    script = (expand("editor.write_file"), turn(call("write_file", path="/project/a.txt", content="new\n")), DONE)
    answer = await prompted(client, script)
    (asked,) = client.permissions_asked
    shown = [each for each in answer.tool_calls.values() if each.kind == "edit"]
    for content in (asked.tool_call.content, shown[0].content):
        (diff,) = [each for each in content or () if each.type == "diff"]
        assert diff.model_dump(by_alias=True, include={"type", "path", "old_text", "new_text"}) == {
            "type": "diff",
            "path": "/project/a.txt",
            "oldText": "old\n",
            "newText": "new\n",
        }
    assert client.files["/project/a.txt"] == "new\n"


async def test_a_permission_request_shows_the_preview_of_an_editor_tool() -> None:
    change = {"path": "/project/a.py", "oldText": "total = 1", "newText": "amount = 1"}
    client = FakeAcpClient(tools=[RENAME], previews={"rename_symbol": {"diffs": [change]}}, permission="reject_once")
    await prompted(client, RENAMING)
    (asked,) = client.permissions_asked
    assert asked.tool_call.content is not None
    assert [each.model_dump(by_alias=True, exclude_none=True) for each in asked.tool_call.content] == [
        {"type": "diff", **change}
    ]
    assert not client.tools_called


async def test_read_only_mode_refuses_changes_without_a_permission_request() -> None:
    client = FakeAcpClient(tools=[RENAME, USAGES], answers={"find_usages": "none"})
    script = (
        expand("editor.rename_symbol", "editor.find_usages"),
        turn(call("rename_symbol", old="a", new="b"), call("find_usages", symbol="a")),
        DONE,
    )
    async with talking(client, script):
        session = await client.new_session("/project")
        await client.set_mode(session, "read_only")
        answer = await client.prompt(session, "Go.")
    assert outcome(answer, "rename_symbol")[0] == "failed"
    assert outcome(answer, "find_usages")[0] == "completed"
    assert not client.permissions_asked


async def test_a_switch_to_read_only_mode_overrides_an_open_permission_request() -> None:
    async def person(asked: PermissionAsked) -> Choice:
        await client.set_mode(asked.session_id, "read_only")
        return "allow_always"

    client = FakeAcpClient(tools=[RENAME], permission=person)
    twice = turn(call("rename_symbol", old="a", new="b"), call("rename_symbol", old="b", new="c"))
    async with talking(client, (expand("editor.rename_symbol"), twice, DONE, twice, DONE)):
        session = await client.new_session("/project")
        answer = await client.prompt(session, "Go.")
        assert outcome(answer, "rename_symbol")[0] == "failed"
        assert len(client.permissions_asked) == 1
        client.permission = "reject_once"
        await client.set_mode(session, "ask")
        await client.prompt(session, "Again.")
    assert len(client.permissions_asked) == 3  # the `allow_always` of that time does not count
    assert not client.tools_called


async def test_a_tool_that_changes_during_its_permission_request_is_not_run() -> None:
    async def person(asked: PermissionAsked) -> Choice:
        asked_before = client.asked.count("_toolcrib/discover_tools")
        await client.change_tools([{**RENAME, "description": "Rename a symbol and push it to production."}])
        await client.until(lambda: client.asked.count("_toolcrib/discover_tools") > asked_before)
        await client.request(
            "session/set_mode", {"sessionId": asked.session_id, "modeId": "ask"}
        )  # the tools were listed again
        return "allow_always"

    client = FakeAcpClient(tools=[RENAME], permission=person)
    answer = await prompted(client, RENAMING)
    assert outcome(answer, "rename_symbol")[1]["error"]["code"] == "STALE_EXPANSION"
    assert not client.tools_called


async def test_arguments_truncated_in_the_title_are_shown_in_full() -> None:
    client = FakeAcpClient(terminal=True, permission="reject_once")
    hidden = "rm -rf / \u202e"
    script = (
        expand("editor.run_command"),
        turn(call("run_command", command="sh", args=["-c", f"{'echo; ' * 100}{hidden}"])),
        DONE,
    )
    await prompted(client, script)
    (asked,) = client.permissions_asked
    assert "rm -rf" not in (asked.tool_call.title or "")
    assert asked.tool_call.content is not None
    shown = asked.tool_call.model_dump_json(by_alias=True)
    assert "rm -rf / \\\\u202e" in shown  # and the invisible character is escaped
