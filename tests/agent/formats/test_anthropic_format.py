"""Anthropic's Messages API: neutral messages become content blocks, and blocks of an answer are sent back unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.formats.conversations import NAMES, SPECS, conversations

from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    Message,
    Stop,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from toolcrib.agent.formats import anthropic_format
from toolcrib.testing.vendors.anthropic_requests import check_request

Json = dict[str, Any]

OBJECT: Json = {"type": "object", "properties": {}}
READ = ToolSpec("read_section", "Read a section.", OBJECT)
ADD = ToolSpec("add", "Add.", OBJECT)
DEFERRED_ADD = ToolSpec("add", "Add.", OBJECT, is_deferred=True)
THOUGHT: Json = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
CALLED: Json = {"type": "tool_use", "id": "toolu_1", "name": "read_section", "input": {"section_key": "ä"}}
HELLO = UserMessage("Hello")

KNOWN = [ToolSpec(name, name, OBJECT, is_deferred=name == "add") for name in ("add", "read_section", "search_tools")]
TOOLS = st.lists(st.sampled_from(KNOWN), unique_by=lambda spec: spec.name)


def said(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def answer(*content: Json, stop: str = "end_turn", **more: Any) -> Json:
    return {"content": list(content), "stop_reason": stop, **more}


def check_taken(messages: list[Json], tools: list[Json]) -> None:
    """Raise the error of the API if it would refuse these messages and tools, followed by a question."""
    body = {"model": "claude-opus-4-8", "max_tokens": 10, "tools": tools}
    asked = {"role": "user", "content": said("And now?")}
    headers = {"x-api-key": "any", "anthropic-version": "2026-10-21"}
    check_request(json.loads(json.dumps(body | {"messages": [*messages, asked]}, allow_nan=False)), headers)


@given(conversations())
def test_the_vendor_accepts_every_conversation(told: tuple[Message, ...]) -> None:
    check_taken(anthropic_format.messages((HELLO, *told), KNOWN), anthropic_format.tools(KNOWN))


@given(conversations(), TOOLS, st.data())
def test_a_longer_conversation_starts_with_the_same_messages(
    told: tuple[Message, ...], tools: list[ToolSpec], data: st.DataObject
) -> None:
    ends = [at for at, message in enumerate(told) if not isinstance(message, ToolMessage)] + [len(told)]
    shorter = json.dumps(anthropic_format.messages(told[: data.draw(st.sampled_from(ends))], tools))

    assert json.dumps(anthropic_format.messages(told, tools)).startswith(shorter[:-1])


@given(st.lists(SPECS, unique_by=lambda spec: spec.name), NAMES.map(str.upper))
def test_adding_a_tool_does_not_change_the_other_tools(specs: list[ToolSpec], name: str) -> None:
    listed = anthropic_format.tools(specs)

    assert json.dumps(listed) == json.dumps(anthropic_format.tools(specs))
    assert anthropic_format.tools([*specs, ToolSpec(name, "", OBJECT)])[:-1] == listed


def test_tools_are_written_in_the_vendor_form_with_deferred_tools_marked() -> None:
    written = {"name": "add", "description": "Add.", "input_schema": OBJECT}

    assert anthropic_format.tools([ADD, ToolSpec("sub", "", OBJECT)]) == [
        written,
        {"name": "sub", "input_schema": OBJECT},
    ]
    assert anthropic_format.tools([DEFERRED_ADD]) == [written | {"defer_loading": True}]


@pytest.mark.parametrize(
    ("schema", "taken"),
    [
        ({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, {"properties": {"a": {}}, "type": "object"}),
        ({"type": "object", "properties": {"$top": {}, "a.b-c": {}}}, {"type": "object", "properties": {"a.b-c": {}}}),
    ],
)
def test_a_schema_that_the_api_refuses_is_reduced_and_described_in_text(schema: Json, taken: Json) -> None:
    (tool,) = anthropic_format.tools([ToolSpec("add", "Add.", schema)])

    assert tool["input_schema"] == taken
    assert tool["description"] == f"Add.\n\nThe whole schema of its input: {json.dumps(schema)}"
    check_taken([], [tool])


def test_all_results_of_a_turn_are_in_one_message() -> None:
    calls = (ToolCall("1", "add", '{"a": 1}'), ToolCall("2", "add", ""))
    told = (HELLO, AssistantMessage("Two.", calls), ToolMessage("1", "add", "3"), ToolMessage("2", "add", "No.", True))

    assert anthropic_format.messages(told) == [
        {"role": "user", "content": said("Hello")},
        {
            "role": "assistant",
            "content": [
                *said("Two."),
                {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "2", "name": "add", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": said("3")},
                {"type": "tool_result", "tool_use_id": "2", "content": said("No."), "is_error": True},
            ],
        },
    ]


def test_a_revealed_tool_is_referenced_and_the_text_follows_all_results() -> None:
    calls = (ToolCall("1", "read_section", "{}"), ToolCall("2", "read_section", "{}"), ToolCall("3", "add", "{}"))
    told = (
        AssistantMessage("", calls),
        ToolMessage("1", "read_section", "# A", revealed=(ADD,)),
        ToolMessage("2", "read_section", "# B"),
        ToolMessage("3", "add", "Failed.", True, (ADD,)),
    )

    assert anthropic_format.messages(told, [READ, DEFERRED_ADD])[1]["content"] == [
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "tool_reference", "tool_name": "add"}]},
        {"type": "tool_result", "tool_use_id": "2", "content": said("# B")},
        {"type": "tool_result", "tool_use_id": "3", "content": said("Failed."), "is_error": True},
        *said("# A"),
    ]


@pytest.mark.parametrize("listed", [[READ], [READ, ADD]])
def test_a_tool_that_is_not_deferred_now_is_not_referenced(listed: list[ToolSpec]) -> None:
    told = (
        AssistantMessage("", (ToolCall("1", "read_section", "{}"),)),
        ToolMessage("1", "read_section", "# A", revealed=(DEFERRED_ADD,)),
    )

    assert anthropic_format.messages(told, listed)[1]["content"] == [
        {"type": "tool_result", "tool_use_id": "1", "content": said("# A")}
    ]


def test_blank_texts_are_omitted_except_in_error_results() -> None:
    calls = (ToolCall("1", "add", "{}"), ToolCall("2", "add", "{}"))
    told = (
        *(UserMessage(" "), HELLO, AssistantMessage("\n", calls)),
        *(ToolMessage("1", "add", ""), ToolMessage("2", "add", " ", True), AssistantMessage("")),
    )

    asked, called, answered = anthropic_format.messages(told)

    assert asked == {"role": "user", "content": said("Hello")}
    assert [block["type"] for block in called["content"]] == ["tool_use", "tool_use"]
    assert answered["content"] == [
        {"type": "tool_result", "tool_use_id": "1"},
        {"type": "tool_result", "tool_use_id": "2", "content": said("It failed."), "is_error": True},
    ]


def test_an_answer_is_sent_back_complete_and_in_order() -> None:
    blocks = [THOUGHT, *said("Let me "), *said("see."), {"type": "redacted_thinking", "data": "sealed"}, CALLED]

    read = anthropic_format.read_message(blocks)

    assert read.text == "Let me see."
    assert read.calls == (ToolCall("toolu_1", "read_section", '{"section_key": "ä"}'),)
    assert anthropic_format.messages([read]) == [{"role": "assistant", "content": blocks}]
    assert json.loads(json.dumps(read.native)) == read.native
    assert anthropic_format.thoughts(read) == [THOUGHT, {"type": "redacted_thinking", "data": "sealed"}]


def test_truncated_thinking_is_not_sent_back() -> None:
    turn = anthropic_format.read_turn(answer(*said(" "), THOUGHT, stop="max_tokens"))

    assert turn.stop is Stop.LENGTH
    assert anthropic_format.messages([turn.message]) == []
    assert anthropic_format.messages([anthropic_format.read_message([*said("So."), THOUGHT])])[0]["content"] == said(
        "So."
    )


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000])
def test_invalid_arguments_are_preserved_and_sent_back_wrapped_in_an_object(arguments: str) -> None:
    (call,) = anthropic_format.read_calls([CALLED | {"input": arguments}])
    own = anthropic_format.read_message([CALLED | {"input": arguments}])
    of_another = AssistantMessage("", (call,), {"openai_responses": [{"type": "reasoning"}]})

    assert call.arguments == arguments
    for message in (own, of_another):
        (block,) = anthropic_format.messages([message])[0]["content"]
        assert block == CALLED | {"input": {"malformed": arguments}}


def test_names_and_ids_of_other_vendors_become_valid_for_the_api() -> None:
    def turn(*ids: str) -> tuple[Message, ...]:
        calls = tuple(ToolCall(each, "functions.add" * 20, "{}") for each in ids)
        return HELLO, AssistantMessage("", calls), *(ToolMessage(each, "add", each) for each in ids)

    told = (*turn("call:1", "call_2"), *turn("call:1", "call_2"), *turn("", "call_5"))
    written = anthropic_format.messages(told)

    check_taken(written, anthropic_format.tools([ADD]))
    results = [block for message in written for block in message["content"] if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in results[:2]] == ["call_0", "call_2"]


def test_an_id_of_a_different_vendor_does_not_collide_with_an_existing_id() -> None:
    told = (
        *(HELLO, anthropic_format.read_message([CALLED]), ToolMessage("toolu_1", "read_section", "# A")),
        *(AssistantMessage("", (ToolCall("toolu_1", "add", "{}"),)), ToolMessage("toolu_1", "add", "3")),
    )

    check_taken(anthropic_format.messages(told), anthropic_format.tools([ADD]))


@pytest.mark.parametrize(
    ("told", "stop"),
    [
        (answer(*said("Done.")), Stop.END),
        (answer(*said("Done."), stop="stop_sequence"), Stop.END),
        (answer(CALLED, stop="tool_use"), Stop.CALLS),
        (answer(CALLED, stop="max_tokens"), Stop.LENGTH),
        (answer(*said("Half"), stop="model_context_window_exceeded"), Stop.LENGTH),
        (answer(stop="refusal"), Stop.REFUSED),
    ],
)
def test_the_stop_reason_is_mapped(told: Json, stop: Stop) -> None:
    assert anthropic_format.read_turn(told).stop is stop


def test_partial_content_of_a_refused_answer_is_dropped() -> None:
    refused = anthropic_format.read_turn(
        answer(THOUGHT, CALLED, stop="refusal", stop_details={"explanation": "It is unsafe."})
    )

    assert refused.message == AssistantMessage("It is unsafe.")


def test_all_input_tokens_including_cached_ones_are_counted() -> None:
    told = {
        "input_tokens": 10,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
        "output_tokens": 20,
    }

    assert anthropic_format.read_turn(answer(usage=told)).usage == Usage(100, 20, 60)
    assert anthropic_format.read_turn(
        answer(usage={"output_tokens": 2, "cache_read_input_tokens": None})
    ).usage == Usage(0, 2)
    assert anthropic_format.read_turn(answer()).usage == Usage()


def test_stream_events_are_joined_to_the_complete_message() -> None:
    def piece(index: int, kind: str, **delta: str) -> Json:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}

    def begun(index: int, block: Json) -> Json:
        return {"type": "content_block_start", "index": index, "content_block": block}

    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        *(begun(0, THOUGHT | {"thinking": "", "signature": ""}), piece(0, "thinking_delta", thinking="H")),
        *(piece(0, "thinking_delta", thinking="m."), piece(0, "signature_delta", signature="signed")),
        *(begun(1, *said("")), piece(1, "text_delta", text="Let me "), piece(1, "text_delta", text="see.")),
        *(piece(1, "later_delta", what="?"), {"type": "content_block_stop", "index": 1}, {"type": "later"}),
        *(begun(2, CALLED | {"input": {}}), piece(2, "input_json_delta", partial_json="")),
        *(piece(2, "input_json_delta", partial_json='{"sec'), begun(3, CALLED | {"id": "toolu_2", "input": {}})),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 7, "input_tokens": None},
        },
    ]

    assert anthropic_format.joined(events) == {
        "content": [
            THOUGHT,
            *said("Let me see."),
            CALLED | {"input": '{"sec'},
            CALLED | {"id": "toolu_2", "input": ""},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 7},
    }
    assert "".join(map(anthropic_format.text_of, events)) == "Let me see."
    assert anthropic_format.joined(events[:-1])["stop_reason"] is None
    assert [call.arguments for call in anthropic_format.read_turn(anthropic_format.joined(events)).message.calls] == [
        '{"sec',
        "",
    ]
