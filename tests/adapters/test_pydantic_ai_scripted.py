"""A script as a Pydantic AI model: complete or streamed, in parallel and resumed conversations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from toolcrib import Toolcrib
from toolcrib.adapters.pydantic_ai import create_pydantic_agent, create_toolset, scripted_model
from toolcrib.core.errors import InvalidConfig, ProviderFailed

pytestmark = pytest.mark.anyio

FEE: dict[str, Any] = {"name": "fee", "arguments": {"days": 3}}

SCRIPT: list[dict[str, Any]] = [
    {
        "thinking": "What does it cost?",
        "text": "Let me see.",
        "calls": [FEE, {"name": "fee", "arguments": '{"days": 2}'}],
    },
    {"text": "4.5 and 3.0."},
    {"text": "You are welcome."},
]


def fee(days: int) -> float:
    return days * 1.5


def playing(script: Any = SCRIPT) -> Agent[None, str]:
    agent = Agent(scripted_model(script), deps_type=type(None))
    agent.tool_plain(fee)
    return agent


def responses(messages: list[ModelMessage]) -> list[ModelResponse]:
    return [message for message in messages if isinstance(message, ModelResponse)]


async def test_a_script_in_a_file_is_played(tmp_path: Path) -> None:
    script = tmp_path / "fee.json"
    script.write_text(json.dumps(SCRIPT))
    done = await playing(script).run("What does it cost?")

    first, second = responses(done.all_messages())
    assert first.model_name == str(script)
    assert first.parts[:2] == [ThinkingPart("What does it cost?"), TextPart("Let me see.")]
    assert [(part.tool_name, part.args_as_dict()) for part in first.tool_calls] == [
        ("fee", {"days": 3}),
        ("fee", {"days": 2}),
    ]
    assert len({part.tool_call_id for part in first.tool_calls}) == 2
    assert (first.finish_reason, second.finish_reason) == ("tool_call", "stop")
    assert done.output == "4.5 and 3.0."


async def test_a_stream_has_pieces_that_form_the_same_answers() -> None:
    pieces: dict[str, list[str]] = {"thinking": [], "text": [], "calls": []}

    async def hear(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=ThinkingPart(content=text))
                    | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
                ):
                    pieces["thinking"].append(text or "")
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    pieces["text"].append(text)
                case PartStartEvent(part=ToolCallPart()) | PartDeltaEvent(delta=ToolCallPartDelta()):
                    pieces["calls"].append("")
                case _:
                    continue

    whole = await playing().run("What does it cost?")
    streamed = await playing().run("What does it cost?", event_stream_handler=hear)

    said, heard = responses(whole.all_messages()), responses(streamed.all_messages())
    assert [each.finish_reason for each in heard] == [each.finish_reason for each in said]
    for one, other in zip(said, heard, strict=True):
        assert [(part.part_kind, getattr(part, "content", None)) for part in one.parts] == [
            (part.part_kind, getattr(part, "content", None)) for part in other.parts
        ]
        assert [call.args_as_dict() for call in one.tool_calls] == [call.args_as_dict() for call in other.tool_calls]
        assert [call.tool_call_id for call in one.tool_calls] == [call.tool_call_id for call in other.tool_calls]
    assert "".join(pieces["thinking"]) == "What does it cost?"
    assert "".join(pieces["text"]) == "Let me see.4.5 and 3.0."
    assert all(len(each) > 2 for each in pieces.values())


async def test_each_conversation_starts_at_the_first_turn_or_continues_its_history() -> None:
    agent = playing()
    first = await agent.run("What does it cost?")
    other = await agent.run("And for me?")
    history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
    second = await playing().run("Thanks.", message_history=history)

    assert first.output == other.output == "4.5 and 3.0."
    assert second.output == "You are welcome."
    ids = [part.tool_call_id for message in responses(first.all_messages()) for part in message.tool_calls]
    assert len({*ids}) == len(ids)


async def test_injected_tools_do_not_count_as_a_turn() -> None:
    script = [
        {"calls": [{"name": "expand_tool", "arguments": {"tool_id": "functions.fee"}}]},
        {"calls": [{"name": "functions__fee", "arguments": {"days": 3}}]},
        {"text": "Done."},
    ]
    crib = Toolcrib()
    crib.add(fee, description="What it costs.")
    async with crib:
        done = await create_pydantic_agent(scripted_model(script), create_toolset(crib.session())).run("Go")

    assert done.output == "Done."
    assert len(responses(done.all_messages())) == len(script)


@pytest.mark.parametrize(
    ("stop", "reason"), [("end", "stop"), ("calls", "tool_call"), ("length", "length"), ("refused", "content_filter")]
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_has_the_stop_reason_of_the_script(stop: str, reason: str, is_streamed: bool) -> None:
    agent = Agent(scripted_model([{"text": "Half an", "stop": stop}]))
    if is_streamed:
        async with agent.run_stream("Go") as stream:
            assert await stream.get_output() == "Half an"
        messages = stream.all_messages()
    else:
        messages = (await agent.run("Go")).all_messages()
    assert [each.finish_reason for each in responses(messages)] == [reason]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_conversation_longer_than_the_script_is_an_error(is_streamed: bool) -> None:
    async def hear(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for _ in events:
            pass

    agent = Agent(scripted_model([{"text": "Hello."}]), deps_type=type(None))
    first = await agent.run("Hello")
    with pytest.raises(ProviderFailed, match=r"has ended: it has no turn 2"):
        await agent.run(
            "Go on", message_history=first.all_messages(), event_stream_handler=hear if is_streamed else None
        )


async def test_an_empty_turn_can_be_streamed() -> None:
    async def hear(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for _ in events:
            pass

    agent = Agent(scripted_model([{}, {"text": "Hello."}]), deps_type=type(None))
    done = await agent.run("Hello", event_stream_handler=hear)
    assert [[*each.parts] for each in responses(done.all_messages())] == [[], [TextPart("Hello.")]]


async def test_an_invalid_script_file_is_refused_at_creation(tmp_path: Path) -> None:
    script = tmp_path / "odd.json"
    script.write_text('[{"say": "Hello."}]')
    with pytest.raises(InvalidConfig, match="is not valid"):
        scripted_model(script)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        scripted_model(tmp_path / "missing.json")
