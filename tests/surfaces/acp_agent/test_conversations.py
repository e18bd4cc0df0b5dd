"""Tests for prompts, stop reasons, and stored conversations."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from acp import RequestError, text_block
from acp.helpers import embedded_text_resource, image_block, resource_block, resource_link_block
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from tests.surfaces.acp_agent.talking import DONE, RENAME, RENAMING, USAGES, call, expand, outcome, talking, turn
from tests.surfaces.acp_agent.test_faults import cancelled_at

from toolcrib import Toolcrib
from toolcrib.agent.conversation_store import MAX_UNSPOKEN, ConversationStore, StoredConversation
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.digests import size_of
from toolcrib.sources.functions import FunctionSource
from toolcrib.surfaces.acp_agent.agent import Setup
from toolcrib.surfaces.acp_agent.content import prompt_content
from toolcrib.surfaces.acp_agent.serving import serve_streams
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.faults import Hang
from toolcrib.testing.acp.mcp_server import McpTool

pytestmark = pytest.mark.anyio


async def test_initialize_returns_the_capabilities_of_the_agent() -> None:
    async with talking(FakeAcpClient(), (DONE,), introduces=False) as client:
        response = await client.initialize(protocol_version=99)
    assert response.protocol_version == 1
    assert response.agent_info is not None
    assert response.agent_info.name == "toolcrib"
    wire = response.model_dump(by_alias=True)["agentCapabilities"]
    assert wire["mcpCapabilities"]["acp"] is True
    assert wire["promptCapabilities"]["embeddedContext"] is True
    assert wire["loadSession"] is False  # sessions are not stored
    assert wire["sessionCapabilities"]["additionalDirectories"] is not None


async def test_text_thoughts_and_plans_are_streamed_to_the_editor() -> None:
    steps = [{"content": "find it", "status": "completed"}, {"content": "rename it"}]
    script = ({"thinking": "Let me see.", **turn(call("update_plan", steps=steps), text="Looking.")}, DONE)
    async with talking(FakeAcpClient(tools=[USAGES]), script) as client:
        answer = await client.prompt(await client.new_session("/project"), "Go.")
    assert answer.text == "Looking.Done."
    assert answer.updates.thoughts == "Let me see."
    ((first, second),) = answer.updates.plans
    assert (first.content, first.status, second.status) == ("find it", "completed", "pending")
    assert not answer.tool_calls  # a plan is not shown as a tool call
    assert len([each for each in answer.updates if each.session_update == "agent_message_chunk"]) > 2


@pytest.mark.parametrize(("stop", "reason"), [("end", "end_turn"), ("length", "max_tokens"), ("refused", "refusal")])
async def test_the_finish_reason_of_a_model_maps_to_an_acp_stop_reason(stop: str, reason: str) -> None:
    async with talking(FakeAcpClient(), ({"text": "…", "stop": stop},)) as client:
        answer = await client.prompt(await client.new_session("/project"), "Go.")
    assert answer.stop_reason == reason


async def test_a_prompt_with_too_many_model_requests_is_stopped() -> None:
    script = tuple(turn(call("list")) for _ in range(101))
    async with talking(FakeAcpClient(), script) as client:
        answer = await client.prompt(await client.new_session("/project"), "Go.")
    assert answer.stop_reason == "max_turn_requests"


async def test_a_prompt_response_includes_token_usage() -> None:
    async with talking(FakeAcpClient(), (DONE,)) as client:
        usage = (await client.prompt(await client.new_session("/project"), "Go.")).response.usage
    assert usage is not None
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0


def test_every_content_block_of_a_prompt_reaches_the_model() -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    blocks = [
        text_block("See these."),
        resource_link_block("a.py", "file:///p/a.py", description="the start"),
        resource_block(embedded_text_resource("file:///p/b.py", "total = 1")),
        image_block(data, "image/png"),
        image_block("no base64!", "image/png"),
    ]
    first, link, embedded, image, broken = prompt_content(blocks)
    assert first == "See these."
    assert link == "[a.py](file:///p/a.py) (the start)"
    assert "file:///p/b.py" in str(embedded)
    assert "total = 1" in str(embedded)
    assert isinstance(image, BinaryContent)
    assert (image.data, image.media_type) == (b"\x89PNG", "image/png")
    assert "not valid base64" in str(broken)


async def test_the_instructions_name_folders_and_sources_and_stay_the_same(tmp_path: Path) -> None:
    told: list[str] = []

    async def answer(_: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str]:
        told.append(info.instructions or "")
        names = [tool.name for tool in info.function_tools]
        assert names == ["list", "find_tools", "expand_tool", "call_tool", "update_plan"]
        yield "Done."

    client = FakeAcpClient(tools=[RENAME])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with Toolcrib() as crib:
            await serve_streams(Setup(crib, FunctionModel(stream_function=answer)), reader, writer)

    async with client.connected_to(serve):
        await client.initialize()
        session = await client.new_session(tmp_path, additional_directories=["/elsewhere"])
        await client.prompt(session, "One.")
        await client.change_tools([USAGES])
        await client.prompt(session, "Two.")
    first, second = told
    assert first == second
    assert str(tmp_path) in first
    assert "/elsewhere" in first
    assert "editor" in first
    assert "search_tools" not in first


async def test_instructions_stay_small_with_hundreds_of_sources() -> None:
    sizes: list[int] = []

    async def answer(_: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str]:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters_json_schema}
            for tool in info.function_tools
        ]
        sizes.append(size_of([info.instructions, *tools]))
        yield "Done."

    client = FakeAcpClient(terminal=True)
    crib = Toolcrib()
    for number in range(300):
        source = FunctionSource(f"a-source-with-a-long-name-{number}")
        source.add(lambda: None, name="act", description="Acts on things in a way that takes words to tell. " * 5)
        entry = SourceEntry(source, SourceStatus.READY, summary="Things that are hard to sum up in few words. " * 5)
        crib.registry.register_source(entry, (await source.list_tools()).tools)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with crib:
            await serve_streams(Setup(crib, FunctionModel(stream_function=answer)), reader, writer)

    async with client.connected_to(serve):
        await client.initialize()
        await client.prompt(await client.new_session("/project"), "Go.")
    assert sizes[0] <= 4_800


async def test_an_expanded_tool_stays_available_in_the_next_prompt() -> None:
    client = FakeAcpClient(tools=[USAGES], answers={"find_usages": "none"})
    script = (expand("editor.find_usages"), DONE, turn(call("find_usages", symbol="total")), DONE)
    async with talking(client, script):
        session = await client.new_session("/project")
        await client.prompt(session, "Open it.")
        answer = await client.prompt(session, "Use it.")
    assert outcome(answer, "find_usages")[0] == "completed"


async def test_a_new_agent_loads_a_stored_session_and_replays_it(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "kept" / "conversations.sqlite")
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "renamed"})
    script = (*RENAMING, turn(text="You said so before."))
    async with talking(client, script, store=store):
        session = await client.new_session("/project")
        await client.set_mode(session, "ask")
        await client.prompt(session, "Rename total to amount.")
    assert (tmp_path / "kept" / "conversations.sqlite").stat().st_mode & 0o077 == 0

    later = FakeAcpClient(tools=[RENAME])
    async with talking(later, script, store=store):
        assert later.response is not None
        assert later.response.agent_capabilities is not None
        assert later.response.agent_capabilities.load_session
        await later.load_session(session, "/project")
        told = later.updates[session]
        assert told.user_text == "Rename total to amount."
        assert told.text == "Done."
        renamed = [each for each in told.tool_calls.values() if (each.title or "").startswith("rename_symbol")]
        assert [each.status for each in renamed] == ["completed"]
        answer = await later.prompt(session, "And now?")
    assert answer.text == "You said so before."
    assert not later.permissions_asked


async def test_a_resumed_session_is_not_replayed(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    async with talking(FakeAcpClient(), (DONE, turn(text="Again.")), store=store) as client:
        session = await client.new_session("/project")
        unspoken = await client.new_session("/project")
        await client.set_mode(session, "read_only")
        await client.prompt(session, "One.")
    async with talking(FakeAcpClient(), (DONE, turn(text="Again.")), store=store) as client:
        modes = (await client.resume_session(session, "/project")).modes
        assert modes is not None
        assert modes.current_mode_id == "read_only"
        assert not client.updates.get(session)
        assert (await client.prompt(session, "Two.")).text == "Again."
        await client.resume_session(unspoken, "/project")
        assert (await client.prompt(unspoken, "One.")).text == "Done."


async def test_sessions_are_listed_with_their_titles(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    async with talking(FakeAcpClient(), (DONE,), store=store) as client:
        for folder, prompt in (("/one", "Rename total.\nPlease."), ("/two", "Fix the build.")):
            answer = await client.prompt(await client.new_session(folder), prompt)
            assert [each.title for each in answer.updates if each.session_update == "session_info_update"] == [
                " ".join(prompt.split())
            ]
        await client.new_session("/three")  # a session without a prompt
        listed = (await client.request("session/list", {}))["sessions"]
        assert [(each["cwd"], each["title"]) for each in listed] == [
            ("/two", "Fix the build."),
            ("/one", "Rename total. Please."),
        ]
        (one,) = (await client.request("session/list", {"cwd": "/one"}))["sessions"]
        assert one["title"] == "Rename total. Please."
        with pytest.raises(RequestError, match="Invalid params"):
            await client.request("session/list", {"cursor": "made up"})
        with pytest.raises(RequestError, match="Invalid params"):
            await client.request("session/list", {"cursor": "9" * 40})


async def test_a_prompt_to_a_closed_session_is_refused() -> None:
    async with talking(FakeAcpClient(), (DONE,)) as client:
        session = await client.new_session("/project")
        await client.close_session(session)
        with pytest.raises(RequestError, match="Invalid params"):
            await client.prompt(session, "Are you there?")
        await client.cancel(session)  # there is nothing to cancel, and no error


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"cwd": "relative", "mcpServers": []}),
        ("session/load", {"cwd": "/project", "sessionId": "unknown", "mcpServers": []}),
        ("session/prompt", {"sessionId": "unknown", "prompt": []}),
        ("session/set_mode", {"sessionId": "unknown", "modeId": "ask"}),
        ("session/close", {"sessionId": "unknown"}),
        ("session/fork", {"sessionId": "unknown", "cwd": "/project", "mcpServers": []}),
        ("authenticate", {"methodId": "password"}),
        ("$/unknown", {}),
        ("_unknown/extension", {}),
    ],
)
async def test_an_invalid_request_is_refused_and_the_connection_stays_open(method: str, params: object) -> None:
    async with talking(FakeAcpClient(), (DONE,)) as client:
        with pytest.raises(RequestError):
            await client.request(method, params)
        assert (await client.prompt(await client.new_session("/project"), "Go.")).stop_reason == "end_turn"


async def test_an_unknown_mode_is_refused_with_a_list_of_modes() -> None:
    async with talking(FakeAcpClient(), (DONE,)) as client:
        session = await client.new_session("/project")
        with pytest.raises(RequestError) as refused:
            await client.set_mode(session, "yolo")
    assert "ask, read_only" in str(refused.value.data)


async def test_a_replay_shows_cancelled_calls_as_failed_and_restores_plans(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    steps = [{"content": "rename it", "status": "in_progress"}]
    script = (turn(call("update_plan", steps=steps)), *RENAMING)
    client = FakeAcpClient(tools=[RENAME], permission="silent")
    async with talking(client, script, store=store):
        session = await client.new_session("/project")
        await cancelled_at(client, session, "session/request_permission")
    later = FakeAcpClient(tools=[RENAME])
    async with talking(later, (*script, DONE), store=store):
        await later.load_session(session, "/project")
        told = later.updates[session]
        assert [(each.title or "").split("(")[0] for each in told.tool_calls.values()] == [
            "expand_tool",
            "rename_symbol",
        ]
        assert [each.status for each in told.tool_calls.values()] == ["completed", "failed"]
        ((step,),) = told.plans
        assert (step.content, step.status) == ("rename it", "in_progress")
        assert (await later.prompt(session, "Go on.")).stop_reason == "end_turn"


async def test_a_replayed_session_includes_the_images_of_its_prompts(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    data = base64.b64encode(b"\x89PNG").decode()
    async with talking(FakeAcpClient(), (DONE,), store=store) as client:
        session = await client.new_session("/project")
        await client.prompt(session, [text_block("See."), image_block(data, "image/png")])
        await client.load_session(session, "/project")
        again = [each for each in client.updates[session] if each.session_update == "user_message_chunk"]
    text, image = (each.content.model_dump() for each in again)
    assert text["text"] == "See."
    assert (image["data"], image["mime_type"]) == (data, "image/png")


async def test_a_prompt_cancelled_before_the_model_request_is_stored(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    client = FakeAcpClient(tools=[USAGES], faults={"_toolcrib/discover_tools": Hang()})
    async with talking(client, (DONE,), store=store):
        session = await client.new_session("/project")
        await cancelled_at(client, session, "_toolcrib/discover_tools")
        client.faults.clear()
        await client.load_session(session, "/project")
        assert client.updates[session].user_text == "Go."


async def test_a_resumed_session_waits_for_its_mcp_servers(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    script = (expand("bench.add"), DONE, turn(call("bench__add", a=1)), DONE)
    servers = {"bench": {"add": McpTool(lambda given: str(given["a"]))}}
    async with talking(FakeAcpClient(mcp_servers=servers), script, store=store) as client:
        session = await client.new_session("/project")
        await client.prompt(session, "Open it.")
    later = FakeAcpClient(mcp_servers=servers, permission="allow_once")
    async with talking(later, script, store=store):
        await later.resume_session(session, "/project")
        answer = await later.prompt(session, "Use it.")
    assert outcome(answer, "bench__add")[0] == "completed"


async def test_sessions_without_prompts_do_not_displace_other_sessions(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "conversations.sqlite")
    await store.keep(StoredConversation("old", "/project", (), "Fix the build.", "ask", 1.0, b"[]"))
    for number in range(MAX_UNSPOKEN + 1):
        await store.keep(StoredConversation(f"begun-{number}", "/project", (), "", "ask", 2.0 + number, b"[]"))
    assert await store.get("old")
    assert await store.get("begun-0") is None
    assert await store.get(f"begun-{MAX_UNSPOKEN}")


async def test_a_new_conversation_is_stored_when_the_clock_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.agent.conversation_store.MAX_KEPT", 3)
    store = ConversationStore(tmp_path / "conversations.sqlite")
    for number in range(3):
        await store.keep(StoredConversation(f"at-{number}", "/project", (), "Fix it.", "ask", 1e9 + number, b"[]"))
    await store.keep(StoredConversation("in-1970", "/project", (), "Fix it.", "ask", 1.0, b"[]"))
    assert await store.get("in-1970")
    assert await store.get("at-0") is None


async def test_calls_with_a_repeated_id_get_distinct_ids_in_the_editor(tmp_path: Path) -> None:
    """Some model servers restart the numbering of call ids with every response."""

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> AsyncGenerator[str | DeltaToolCalls]:
        turns = sum(isinstance(message, ModelResponse) for message in messages)
        if turns == 0:
            yield {0: DeltaToolCall("expand_tool", '{"tool_id": "editor.rename_symbol"}', tool_call_id="call_0")}
        elif turns in {1, 2}:
            yield {0: DeltaToolCall("rename_symbol", '{"old": "a", "new": "b"}', tool_call_id="call_0")}
        else:
            yield "Done."

    store = ConversationStore(tmp_path / "conversations.sqlite")
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "renamed"})

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with Toolcrib() as crib:
            await serve_streams(Setup(crib, FunctionModel(stream_function=answer), store=store), reader, writer)

    async with client.connected_to(serve):
        await client.initialize()
        session = await client.new_session("/project")
        turn = await client.prompt(session, "Go.")
        shown = {call_id: each.status for call_id, each in turn.tool_calls.items()}
        assert shown == dict.fromkeys(("call_0", "call_0-2", "call_0-3"), "completed")
        assert [asked.tool_call.tool_call_id for asked in client.permissions_asked] == ["call_0-2", "call_0-3"]
        assert [called.tool_call_id for called in client.tools_called] == ["call_0-2", "call_0-3"]
    later = FakeAcpClient(tools=[RENAME])
    async with later.connected_to(serve):
        await later.initialize()
        await later.load_session(session, "/project")
        assert {call_id: each.status for call_id, each in later.updates[session].tool_calls.items()} == shown
