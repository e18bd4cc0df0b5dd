"""Which tools an editor's agent has: each rung, and what happens where one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.acp_agent.talking import (
    DONE,
    RENAME,
    RENAMING,
    USAGES,
    Written,
    call,
    expand,
    outcome,
    talking,
    told,
    turn,
)

from toolcrib import ToolBundle, Toolcrib
from toolcrib.agent.conversation_store import ConversationStore
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.faults import Fault, Hang, Instead, Refuse
from toolcrib.testing.acp.mcp_server import McpForm, McpTool

pytestmark = pytest.mark.anyio

LOOK = (turn(call("find_tools", category=["editor"], limit=50)), DONE)
"""Lists what the editor offers."""

LOOK_LOCALLY = (turn(call("find_tools", category=["local"], limit=50)), DONE)


async def seen(client: FakeAcpClient, script: Written = LOOK, cwd: str = "/project", **setup: Any) -> str:
    """What the model read when it looked."""
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


async def test_an_editor_that_lists_its_tools_is_taken_at_its_word() -> None:
    client = FakeAcpClient(read_text_file=True, write_text_file=True, terminal=True, tools=[RENAME, USAGES])
    assert names(await seen(client)) == {"rename_symbol", "find_usages"}


async def test_what_the_flags_deny_is_not_there_although_it_is_listed() -> None:
    read, write = ({**RENAME, "name": name} for name in ("read_file", "write_file"))
    client = FakeAcpClient(read_text_file=True, tools=[read, write, USAGES])
    assert names(await seen(client)) == {"read_file", "find_usages"}


async def test_an_editor_that_lists_nothing_has_what_its_flags_say() -> None:
    client = FakeAcpClient(discovery=True, read_text_file=True)
    assert names(await seen(client)) == {"read_file"}


@pytest.mark.parametrize(
    ("reads", "writes", "runs", "expected"),
    [
        (True, True, False, FILES),
        (False, False, True, TERMINALS),
        (True, True, True, FILES | TERMINALS),
    ],
)
async def test_without_discovery_the_flags_alone_count(
    reads: bool, writes: bool, runs: bool, expected: set[str]
) -> None:
    client = FakeAcpClient(read_text_file=reads, write_text_file=writes, terminal=runs)
    assert names(await seen(client)) == expected
    assert "_toolcrib/discover_tools" not in client.asked


async def test_an_editor_that_offers_nothing_is_never_called(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("total = 1\n")
    client = FakeAcpClient()
    script = (turn(call("expand_tool", tool_ids=["local.search_text"])), turn(call("search_text", query="total")), DONE)
    async with talking(client, script):
        answer = await client.prompt(await client.new_session(tmp_path), "Look.")
    assert "a.py" in str(outcome(answer, "search_text")[1])
    assert client.asked == []
    assert names(await seen(FakeAcpClient(), LOOK_LOCALLY, str(tmp_path))) == {"read_file", "find_files", "search_text"}


@pytest.mark.parametrize("fault", [Refuse(), Refuse(-32603, "broken"), Hang(), Instead([]), Instead({"tools": 1})])
async def test_a_listing_that_fails_shows_nothing_of_the_editor_and_says_so(fault: Fault) -> None:
    client = FakeAcpClient(
        read_text_file=True, terminal=True, tools=[RENAME], faults={"_toolcrib/discover_tools": fault}
    )
    text = await seen(client, (turn(call("list")), DONE), discovery_s=0.2)
    assert not names(text)
    assert "editor" in text
    assert "unavailable" in text


async def test_a_listing_that_failed_is_asked_for_again_with_the_next_prompt() -> None:
    client = FakeAcpClient(tools=[USAGES], faults={"_toolcrib/discover_tools": Refuse(-32603, "starting up")})
    async with talking(client, (turn(call("list")), DONE, *LOOK)):
        session = await client.new_session("/project")
        await client.prompt(session, "What is there?")
        client.faults.clear()
        answer = await client.prompt(session, "And now?")
    assert names(str(outcome(answer, "find_tools")[1])) == {"find_usages"}


async def test_one_malformed_descriptor_costs_itself_alone() -> None:
    odd = [{"name": "", "kind": "read"}, "no descriptor", {**RENAME, "name": "odd", "parameters": ["no", "schema"]}]
    client = FakeAcpClient(tools=[*odd, USAGES])
    text = await seen(client)
    assert names(text) == {"find_usages"}
    assert "odd" not in text


async def test_of_two_tools_of_one_name_the_first_is_there() -> None:
    client = FakeAcpClient(tools=[USAGES, {**USAGES, "description": "Delete everything."}])
    text = await seen(client)
    assert names(text) == {"find_usages"}
    assert "Delete everything" not in text


async def test_tools_that_change_between_two_turns_are_others_in_the_next() -> None:
    client = FakeAcpClient(tools=[RENAME])
    async with talking(client, (*LOOK, *LOOK)):
        session = await client.new_session("/project")
        first = await client.prompt(session, "What is there?")
        await client.change_tools([USAGES])
        second = await client.prompt(session, "And now?")
    assert names(str(outcome(first, "find_tools")[1])) == {"rename_symbol"}
    assert names(str(outcome(second, "find_tools")[1])) == {"find_usages"}
    assert client.asked.count("_toolcrib/discover_tools") == 2


async def test_tools_are_listed_once_for_a_session_that_does_not_change() -> None:
    client = FakeAcpClient(tools=[RENAME])
    async with talking(client, (DONE, DONE)):
        session = await client.new_session("/project")
        assert client.asked == []
        await client.prompt(session, "One.")
        await client.prompt(session, "Two.")
    assert client.asked == ["_toolcrib/discover_tools"]


async def test_a_tool_that_changed_under_the_model_is_not_called() -> None:
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
async def test_servers_in_the_editor_itself_stand_beside_its_tools(form: McpForm) -> None:
    client = FakeAcpClient(
        tools=[USAGES],
        mcp_servers={"inspections": {"count_warnings": McpTool({"warnings": 3})}},
        mcp_form=form,
    )
    script = (expand("inspections.count_warnings"), turn(call("inspections__count_warnings")), DONE)
    async with talking(client, script):
        answer = await client.prompt(await client.new_session("/project"), "Look.")
    assert outcome(answer, "inspections__count_warnings") == ("completed", {"warnings": 3})
    # Nobody vouches for what it says of itself.
    assert [asked.tool_call.title for asked in client.permissions_asked] == ["inspections__count_warnings"]


async def test_a_bundle_is_of_the_catalog_and_keeps_nothing_of_the_editor_out() -> None:
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


async def test_what_is_set_aside_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await seen(FakeAcpClient(tools=[{"name": "odd", "kind": "read"}, USAGES]))
    assert "the editor's tool `odd` is ignored" in caplog.text


async def test_half_a_surrogate_pair_costs_the_descriptor_that_has_it_and_no_prompt_and_no_answer(
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


async def test_the_log_names_the_first_of_many_descriptors_that_cannot_be_used_and_counts_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FakeAcpClient(tools=[*({"name": f"odd{number}"} for number in range(8)), USAGES])
    assert names(await seen(client)) == {"find_usages"}
    lines = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert [f"`odd{number}`" in line for number, line in enumerate(lines)] == [True] * 6
    assert lines[-1].startswith("3 more")


@pytest.mark.parametrize("answer", ["Done.", {"ok": True}], ids=["no object", "no content"])
async def test_an_answer_that_is_no_result_leaves_open_whether_the_tool_ran(answer: Any) -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"_toolcrib/call_tool": Instead(answer)})
    status, error = outcome(await told(client, RENAMING), "rename_symbol")
    assert status == "failed"
    assert "`rename_symbol` may or may not have run" in str(error)


async def test_a_list_that_is_no_object_is_told_of_as_what_it_is() -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"_toolcrib/discover_tools": Instead(["rename_symbol"])})
    answer = await told(client, (expand("editor.rename_symbol"), DONE))
    assert "the catalog is a list" in str(outcome(answer, "expand_tool")[1])
