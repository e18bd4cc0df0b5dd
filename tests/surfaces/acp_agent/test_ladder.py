"""Tests for the tools that an editor offers by discovery, capability flags or MCP servers, and for failures of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.acp_agent.talking import (
    DONE,
    RENAME,
    RENAMING,
    USAGES,
    Script,
    call,
    expand,
    outcome,
    prompted,
    talking,
    turn,
)

from toolcrib import ToolBundle, Toolcrib
from toolcrib.agent.conversation_store import ConversationStore
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.faults import Fault, Hang, Instead, Refuse
from toolcrib.testing.acp.mcp_server import McpForm, McpTool

pytestmark = pytest.mark.anyio

LOOK = (turn(call("find_tools", category=["editor"], limit=50)), DONE)
"""The script of a model that lists the tools of the editor."""

LOOK_LOCALLY = (turn(call("find_tools", category=["local"], limit=50)), DONE)


async def listed_tools(client: FakeAcpClient, script: Script = LOOK, cwd: str = "/project", **setup: Any) -> str:
    """Returns the tool list that the model received."""
    async with talking(client, script, **setup):
        answer = await client.prompt(await client.new_session(cwd), "What is there?")
    assert answer.stop_reason == "end_turn"
    (looked,) = [each for each in answer.tool_calls.values() if (each.title or "").startswith(("list", "find_tools"))]
    return str(looked.raw_output)


def names(text: str) -> set[str]:
    return {name for name in KNOWN if f".{name}" in text}


FILES = {"read_file", "write_file"}
TERMINALS = {"run_command", "get_terminal_output", "wait_for_terminal_exit", "kill_terminal", "release_terminal"}
KNOWN = FILES | TERMINALS | {"rename_symbol", "find_usages", "find_files", "search_text"}


async def test_an_editor_with_discovery_offers_exactly_the_tools_it_lists() -> None:
    client = FakeAcpClient(read_text_file=True, write_text_file=True, terminal=True, tools=[RENAME, USAGES])
    assert names(await listed_tools(client)) == {"rename_symbol", "find_usages"}


async def test_a_listed_tool_that_the_capability_flags_deny_is_hidden() -> None:
    read, write = ({**RENAME, "name": name} for name in ("read_file", "write_file"))
    client = FakeAcpClient(read_text_file=True, tools=[read, write, USAGES])
    assert names(await listed_tools(client)) == {"read_file", "find_usages"}


async def test_an_empty_tool_list_falls_back_to_the_capability_flags() -> None:
    client = FakeAcpClient(discovery=True, read_text_file=True)
    assert names(await listed_tools(client)) == {"read_file"}


@pytest.mark.parametrize(
    ("reads", "writes", "runs", "expected"),
    [
        (True, True, False, FILES),
        (False, False, True, TERMINALS),
        (True, True, True, FILES | TERMINALS),
    ],
)
async def test_without_discovery_the_capability_flags_decide_the_tools(
    reads: bool, writes: bool, runs: bool, expected: set[str]
) -> None:
    client = FakeAcpClient(read_text_file=reads, write_text_file=writes, terminal=runs)
    assert names(await listed_tools(client)) == expected
    assert "_toolcrib/discover_tools" not in client.asked


async def test_an_editor_without_capabilities_is_never_called(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("total = 1\n")
    client = FakeAcpClient()
    script = (turn(call("expand_tool", tool_ids=["local.search_text"])), turn(call("search_text", query="total")), DONE)
    async with talking(client, script):
        answer = await client.prompt(await client.new_session(tmp_path), "Look.")
    assert "a.py" in str(outcome(answer, "search_text")[1])
    assert client.asked == []
    assert names(await listed_tools(FakeAcpClient(), LOOK_LOCALLY, str(tmp_path))) == {
        "read_file",
        "find_files",
        "search_text",
    }


@pytest.mark.parametrize("fault", [Refuse(), Refuse(-32603, "broken"), Hang(), Instead([]), Instead({"tools": 1})])
async def test_a_failed_listing_marks_the_editor_unavailable_and_hides_its_tools(fault: Fault) -> None:
    client = FakeAcpClient(
        read_text_file=True, terminal=True, tools=[RENAME], faults={"_toolcrib/discover_tools": fault}
    )
    text = await listed_tools(client, (turn(call("list")), DONE), discovery_s=0.2)
    assert not names(text)
    assert "editor" in text
    assert "unavailable" in text


async def test_a_failed_listing_is_retried_with_the_next_prompt() -> None:
    client = FakeAcpClient(tools=[USAGES], faults={"_toolcrib/discover_tools": Refuse(-32603, "starting up")})
    async with talking(client, (turn(call("list")), DONE, *LOOK)):
        session = await client.new_session("/project")
        await client.prompt(session, "What is there?")
        client.faults.clear()
        answer = await client.prompt(session, "And now?")
    assert names(str(outcome(answer, "find_tools")[1])) == {"find_usages"}


async def test_malformed_descriptors_do_not_affect_valid_ones() -> None:
    odd = [{"name": "", "kind": "read"}, "no descriptor", {**RENAME, "name": "odd", "parameters": ["no", "schema"]}]
    client = FakeAcpClient(tools=[*odd, USAGES])
    text = await listed_tools(client)
    assert names(text) == {"find_usages"}
    assert "odd" not in text


async def test_the_first_of_two_tools_with_the_same_name_is_used() -> None:
    client = FakeAcpClient(tools=[USAGES, {**USAGES, "description": "Delete everything."}])
    text = await listed_tools(client)
    assert names(text) == {"find_usages"}
    assert "Delete everything" not in text


async def test_a_changed_tool_list_is_visible_in_the_next_turn() -> None:
    client = FakeAcpClient(tools=[RENAME])
    async with talking(client, (*LOOK, *LOOK)):
        session = await client.new_session("/project")
        first = await client.prompt(session, "What is there?")
        await client.change_tools([USAGES])
        second = await client.prompt(session, "And now?")
    assert names(str(outcome(first, "find_tools")[1])) == {"rename_symbol"}
    assert names(str(outcome(second, "find_tools")[1])) == {"find_usages"}
    assert client.asked.count("_toolcrib/discover_tools") == 2


async def test_unchanged_tools_are_listed_once_per_session() -> None:
    client = FakeAcpClient(tools=[RENAME])
    async with talking(client, (DONE, DONE)):
        session = await client.new_session("/project")
        assert client.asked == []
        await client.prompt(session, "One.")
        await client.prompt(session, "Two.")
    assert client.asked == ["_toolcrib/discover_tools"]


async def test_an_expanded_tool_that_was_removed_is_not_called() -> None:
    script = (
        turn(call("expand_tool", tool_id="editor.find_usages")),
        turn(call("find_usages", symbol="total")),
        DONE,
        turn(call("find_usages", symbol="total")),
        DONE,
    )
    client = FakeAcpClient(tools=[USAGES], answers={"find_usages": "none"})
    async with talking(client, script):
        session = await client.new_session("/project")
        await client.prompt(session, "Look.")
        await client.change_tools([])
        await client.prompt(session, "Again.")
    assert len(client.tools_called) == 1


@pytest.mark.parametrize("form", ["connections", "requests"])
async def test_mcp_servers_of_the_editor_are_offered_next_to_its_tools(form: McpForm) -> None:
    client = FakeAcpClient(
        tools=[USAGES],
        mcp_servers={"inspections": {"count_warnings": McpTool({"warnings": 3})}},
        mcp_form=form,
    )
    script = (expand("inspections.count_warnings"), turn(call("inspections__count_warnings")), DONE)
    async with talking(client, script):
        answer = await client.prompt(await client.new_session("/project"), "Look.")
    assert outcome(answer, "inspections__count_warnings") == ("completed", {"warnings": 3})
    # The annotations of this server are not trusted.
    assert [asked.tool_call.title for asked in client.permissions_asked] == ["inspections__count_warnings"]


async def test_a_bundle_does_not_hide_the_tools_of_the_editor() -> None:
    def wanted() -> None: ...
    def unwanted() -> None: ...

    crib = Toolcrib()
    crib.add(wanted)
    crib.add(unwanted)
    crib.add_bundle(ToolBundle("few", required=("functions.wanted",)))
    client = FakeAcpClient(tools=[USAGES], mcp_servers={"inspections": {"count_warnings": McpTool({})}})
    async with talking(client, (turn(call("find_tools", limit=50)), DONE), crib=crib, bundle="few"):
        answer = await client.prompt(await client.new_session("/project"), "What is there?")
    page = outcome(answer, "find_tools")[1]
    assert {found["tool_id"] for found in page["results"]} == {
        "editor.find_usages",
        "functions.wanted",
        "inspections.count_warnings",
    }


async def test_an_ignored_editor_tool_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await listed_tools(FakeAcpClient(tools=[{"name": "odd", "kind": "read"}, USAGES]))
    assert "the editor's tool `odd` is ignored" in caplog.text


async def test_a_lone_surrogate_drops_only_its_descriptor(
    tmp_path: Path,
) -> None:
    client = FakeAcpClient(
        tools=[{**RENAME, "description": "Cut \ud83d"}, USAGES], answers={"find_usages": "Cut \ud83d"}
    )
    script = (*LOOK[:-1], expand("editor.find_usages"), turn(call("find_usages", symbol="total")), DONE)
    store = ConversationStore(tmp_path / "conversations.sqlite")
    async with talking(client, script, store=store):
        session = await client.new_session("/project")
        answer = await client.prompt(session, "Look \ud83d")
    later = FakeAcpClient()
    async with talking(later, script, store=store):
        await later.load_session(session, "/project")
    assert later.updates[session].user_text == "Look ?"
    assert names(str(outcome(answer, "find_tools")[1])) == {"find_usages"}
    assert outcome(answer, "find_usages") == ("completed", "Cut ?")


async def test_the_log_names_the_first_invalid_descriptors_and_counts_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FakeAcpClient(tools=[*({"name": f"odd{number}"} for number in range(8)), USAGES])
    assert names(await listed_tools(client)) == {"find_usages"}
    lines = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert [f"`odd{number}`" in line for number, line in enumerate(lines)] == [True] * 6
    assert lines[-1].startswith("3 more")


@pytest.mark.parametrize("answer", ["Done.", {"ok": True}], ids=["not an object", "without content"])
async def test_after_an_invalid_result_the_error_says_the_tool_may_have_run(answer: Any) -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"_toolcrib/call_tool": Instead(answer)})
    status, error = outcome(await prompted(client, RENAMING), "rename_symbol")
    assert status == "failed"
    assert "`rename_symbol` may or may not have run" in str(error)


async def test_the_error_for_an_invalid_catalog_names_its_type() -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"_toolcrib/discover_tools": Instead(["rename_symbol"])})
    answer = await prompted(client, (expand("editor.rename_symbol"), DONE))
    assert "the catalog is a list" in str(outcome(answer, "expand_tool")[1])
