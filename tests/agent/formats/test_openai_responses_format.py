"""Responses API: neutral messages become items, and items of an answer are sent back unchanged and can add tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.formats.conversations import SPECS, TEXTS, conversations

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
from toolcrib.agent.formats import openai_responses_format
from toolcrib.testing.vendors.openai_requests import check_items, items_of, response_tools

Json = dict[str, Any]

OBJECT: Json = {"type": "object", "properties": {}}
READ = ToolSpec("read_section", "Read a section.", OBJECT)
ADD = ToolSpec("add", "Add.", OBJECT)
REASONING: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
SAID: Json = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me ", "annotations": []}, {"type": "output_text", "text": "see."}],
}
CALLED: Json = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a'}
SOUGHT: Json = {
    "type": "tool_search_call",
    "id": "tsc_2",
    "call_id": "call_2",
    "execution": "client",
    "arguments": {"section_key": "a.b"},
}


def response(*output: Json, **more: Any) -> Json:
    return {"status": "completed", "output": list(output), **more}


@given(conversations(), st.booleans())
def test_the_vendor_accepts_every_conversation(told: tuple[Message, ...], searches: bool) -> None:
    given_items = openai_responses_format.items(told, searches=searches)

    check_items(items_of(json.loads(json.dumps(given_items, allow_nan=False))), {}, stored=False)


@given(conversations(), st.booleans(), st.data())
def test_a_longer_conversation_starts_with_the_same_items(
    told: tuple[Message, ...], searches: bool, data: st.DataObject
) -> None:
    shorter = openai_responses_format.items(told[: data.draw(st.integers(0, len(told)))], searches=searches)

    assert openai_responses_format.items(told, searches=searches)[: len(shorter)] == shorter


@given(st.lists(SPECS, unique_by=lambda spec: spec.name), TEXTS, st.booleans())
def test_adding_a_tool_does_not_change_the_other_tools(specs: list[ToolSpec], name: str, searches: bool) -> None:
    listed = openai_responses_format.tools(specs, searches=searches)

    assert json.dumps(listed) == json.dumps(openai_responses_format.tools(specs, searches=searches))
    assert openai_responses_format.tools([*specs, ADD], searches=searches)[:-1] == listed


def test_tools_are_functions_and_with_client_search_read_section_is_the_search_tool() -> None:
    function = {"type": "function", "name": "add", "description": "Add.", "parameters": OBJECT, "strict": False}
    search = {
        "type": "tool_search",
        "execution": "client",
        "description": "`read_section`: Read a section.",
        "parameters": OBJECT,
    }

    listed = openai_responses_format.tools([READ, ADD], searches=True)

    assert listed == [search, function]
    assert response_tools({"model": "gpt-5.6", "tools": listed}) == listed
    assert openai_responses_format.tools([READ]) == [
        function | {"name": "read_section", "description": "Read a section."}
    ]
    held_back = ToolSpec("add", "Add.", OBJECT, is_deferred=True)
    assert openai_responses_format.tools([held_back]) == [function | {"defer_loading": True}]


def test_an_answer_is_sent_back_complete_and_in_order() -> None:
    read = openai_responses_format.read_message(response(REASONING, SAID, SOUGHT, CALLED))

    assert read.text == "Let me see."
    assert read.calls == (
        ToolCall("call_2", "read_section", '{"section_key": "a.b"}'),
        ToolCall("call_1", "add", '{"a'),
    )
    assert openai_responses_format.items([read], searches=True) == [REASONING, SAID, SOUGHT, CALLED]
    assert json.loads(json.dumps(read.native)) == read.native


def test_a_section_that_was_read_adds_its_tools_and_then_its_text() -> None:
    read = openai_responses_format.read_message(response(SOUGHT, CALLED))
    answers = (ToolMessage("call_2", "read_section", "# Part", revealed=(ADD,)), ToolMessage("call_1", "add", "3"))

    function = {"type": "function", "name": "add", "description": "Add.", "parameters": OBJECT, "strict": False}
    assert openai_responses_format.items([read, *answers], searches=True)[2:] == [
        {
            "type": "tool_search_output",
            "call_id": "call_2",
            "execution": "client",
            "status": "completed",
            "tools": [function | {"defer_loading": True}],
        },
        {"role": "developer", "content": "# Part"},
        {"type": "function_call_output", "call_id": "call_1", "output": "3"},
    ]


def test_a_message_of_a_different_vendor_is_written_from_its_text_and_calls() -> None:
    call = ToolCall("toolu_1", "read_section", '{"section_key": "a"}')
    told = (
        UserMessage("Hello"),
        AssistantMessage("Hm.", (call,), {"anthropic": [{"type": "thinking"}]}),
        ToolMessage("toolu_1", "read_section", "# A"),
    )
    said = [{"role": "user", "content": "Hello"}, {"type": "message", "role": "assistant", "content": "Hm."}]

    plain = openai_responses_format.items(told)
    searching = openai_responses_format.items(told, searches=True)

    assert plain[:2] == searching[:2] == said
    assert plain[2:] == [
        {"type": "function_call", "call_id": "toolu_1", "name": "read_section", "arguments": '{"section_key": "a"}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "# A"},
    ]
    assert [item.get("type") for item in searching[2:]] == ["tool_search_call", "tool_search_output", None]
    assert searching[2]["arguments"] == {"section_key": "a"}


def test_a_former_search_is_an_ordinary_call_when_search_is_off() -> None:
    read = openai_responses_format.read_message(response(REASONING, SOUGHT))

    found = openai_responses_format.items([read, ToolMessage("call_2", "read_section", "# A", revealed=(ADD,))])

    assert [item["type"] for item in found] == ["function_call", "function_call_output"]


def test_truncated_reasoning_is_not_sent_back() -> None:
    cut = response(REASONING, status="incomplete", incomplete_details={"reason": "max_output_tokens"})

    turn = openai_responses_format.read_turn(cut)

    assert turn.stop is Stop.LENGTH
    assert openai_responses_format.items([turn.message]) == []
    assert openai_responses_format.items([openai_responses_format.read_message(response(SAID, REASONING))]) == [SAID]


def test_a_search_hosted_by_openai_is_not_a_call() -> None:
    hosted = SOUGHT | {"execution": "server", "call_id": None}

    assert openai_responses_format.read_calls(response(hosted)) == ()


@pytest.mark.parametrize(
    ("answer", "stop"),
    [
        (response(SAID), Stop.END),
        (response(SAID, CALLED), Stop.CALLS),
        (response(SOUGHT), Stop.CALLS),
        (response(SAID | {"content": [{"type": "refusal", "refusal": "No."}]}), Stop.REFUSED),
        (response(CALLED, status="incomplete"), Stop.LENGTH),
        (response(SAID, status="incomplete", incomplete_details={"reason": "content_filter"}), Stop.REFUSED),
    ],
)
def test_the_stop_reason_is_mapped(answer: Json, stop: Stop) -> None:
    assert openai_responses_format.read_turn(answer).stop is stop


def test_usage_is_read_if_present() -> None:
    used = {"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}}

    assert openai_responses_format.read_turn(response(SAID, usage=used)).usage == Usage(9, 3, 5)
    assert openai_responses_format.read_turn(response(SAID, usage=None)).usage == Usage()


def test_tools_added_by_a_call_that_is_not_a_search_follow_its_result() -> None:
    expand = AssistantMessage("", (ToolCall("call_1", "expand_tool", '{"tool_id": "math.add"}'),))
    found = openai_responses_format.items(
        [expand, ToolMessage("call_1", "expand_tool", "{}", revealed=(ADD,))], searches=True
    )
    assert [item["type"] for item in found] == ["function_call", "function_call_output", "additional_tools"]
    assert found[-1]["role"] == "developer"
    assert found[-1]["tools"] == openai_responses_format.tools([ADD])


def test_the_search_tool_mentions_the_name_that_prompts_use() -> None:
    (search,) = openai_responses_format.tools([READ], searches=True)
    assert search["description"] == "`read_section`: Read a section."
