"""Chat Completions: neutral messages become the vendor's, and the vendor's answer becomes neutral, without loss."""

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
from toolcrib.agent.formats import openai_chat_format
from toolcrib.core.errors import ProviderFailed
from toolcrib.testing.vendors.openai_requests import chat_tools, check_messages

Json = dict[str, Any]


def completion(message: Json, finish_reason: str = "stop") -> Json:
    return {"choices": [{"message": message, "finish_reason": finish_reason}]}


def called(name: str = "add", arguments: Any = "{}", **more: Any) -> Json:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}} | more


@given(TEXTS, conversations())
def test_the_vendor_accepts_every_conversation(system: str, told: tuple[Message, ...]) -> None:
    check_messages(openai_chat_format.messages(system, told))


@given(TEXTS, conversations(), st.data())
def test_a_longer_conversation_starts_with_the_same_messages(
    system: str, told: tuple[Message, ...], data: st.DataObject
) -> None:
    shorter = openai_chat_format.messages(system, told[: data.draw(st.integers(0, len(told)))])

    assert openai_chat_format.messages(system, told)[: len(shorter)] == shorter


@given(st.lists(SPECS, unique_by=lambda spec: spec.name), SPECS)
def test_adding_a_tool_does_not_change_the_other_tools(specs: list[ToolSpec], more: ToolSpec) -> None:
    listed = openai_chat_format.tools(specs)

    assert json.dumps(listed) == json.dumps(openai_chat_format.tools(specs))
    assert openai_chat_format.tools([*specs, more])[:-1] == listed
    if specs:
        assert chat_tools({"model": "gpt-4.1", "tools": listed}) == [spec.name for spec in specs]


def test_messages_are_written_in_the_vendor_form() -> None:
    calls = (ToolCall("call_1", "add", '{"a": 1}'), ToolCall("call_2", "add", "{"))
    told = (UserMessage("Add."), AssistantMessage("", calls), ToolMessage("call_1", "add", "2"))

    assert openai_chat_format.messages("Be brief.", told) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [called(arguments='{"a": 1}'), called(arguments="{") | {"id": "call_2"}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]


@given(st.lists(st.sampled_from(['{"a": 1}', "{", "[]"]), max_size=3), TEXTS)
def test_an_answer_is_sent_back_unchanged(arguments: list[str], text: str) -> None:
    calls = [called(arguments=written, id=f"call_{at}") for at, written in enumerate(arguments)]
    message: Json = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    message |= {"tool_calls": calls} if calls else {}

    read = openai_chat_format.read_message(message)

    assert read.native is None
    assert openai_chat_format.messages("", [read]) == [{key: message[key] for key in message if key != "refusal"}]


def test_extra_fields_of_a_message_and_its_calls_are_sent_back() -> None:
    signed = called(extra_content={"google": {"thought_signature": "c2ln"}})
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Hm.",
        "tool_calls": [signed],
        "refusal": None,
    }

    read = openai_chat_format.read_message(message)

    assert read.calls == (ToolCall("call_1", "add", "{}"),)
    assert openai_chat_format.messages("", [read]) == [
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [signed]}
    ]


def test_native_content_of_other_vendors_is_ignored() -> None:
    message = AssistantMessage("Hi.", (ToolCall("call_1", "add", "{}"),), {"anthropic": [{"type": "thinking"}]})

    assert openai_chat_format.messages("", [message]) == [
        {"role": "assistant", "content": "Hi.", "tool_calls": [called()]},
    ]


def test_missing_ids_and_object_arguments_of_compatible_servers_are_accepted() -> None:
    message = {
        "tool_calls": [called(arguments={"a": "ä"}, id=""), called(arguments=None, id=None), called(arguments="")]
    }

    assert openai_chat_format.read_calls(message) == (
        ToolCall("call_1", "add", '{"a": "ä"}'),
        ToolCall("call_2", "add", "{}"),
        ToolCall("call_1", "add", "{}"),
    )
    assert openai_chat_format.read_calls({"content": "Hi.", "tool_calls": None}) == ()


@pytest.mark.parametrize(
    ("answer", "stop"),
    [
        (completion({"content": "Hi."}), Stop.END),
        (completion({"tool_calls": [called()]}, "tool_calls"), Stop.CALLS),
        (completion({"tool_calls": [called()]}, "stop"), Stop.CALLS),
        (completion({"tool_calls": [called()]}, "length"), Stop.LENGTH),
        (completion({"content": "Hi."}, "length"), Stop.LENGTH),
        (completion({"content": "Hi."}, "content_filter"), Stop.REFUSED),
        (completion({"refusal": "No."}), Stop.REFUSED),
    ],
)
def test_the_stop_reason_is_mapped(answer: Json, stop: Stop) -> None:
    assert openai_chat_format.read_turn(answer).stop is stop


def test_usage_is_read_if_present() -> None:
    used: Json = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
    answer: Json = completion({"content": "Hi."})
    undetailed: Json = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}

    assert openai_chat_format.read_turn(answer | {"usage": used}).usage == Usage(9, 3, 5)
    assert openai_chat_format.read_turn(answer | {"usage": undetailed}).usage == Usage(9, 3)
    assert openai_chat_format.read_turn(answer | {"usage": None}).usage == Usage()


EMPTY: list[Json] = [{}, {"choices": None}, {"choices": []}, {"choices": [{}]}]


@pytest.mark.parametrize("answer", EMPTY)
def test_an_answer_without_a_message_is_a_retryable_error(answer: Json) -> None:
    with pytest.raises(ProviderFailed) as failed:
        openai_chat_format.read_turn(answer)

    assert failed.value.retryable


def chunk(delta: Json, finish_reason: str | None = None) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def test_stream_chunks_are_joined_by_the_index_of_their_calls() -> None:
    joined = openai_chat_format.joined(
        [
            chunk({"role": "assistant", "content": "", "reasoning_content": "H"}),
            chunk({"reasoning_content": "m."}),
            chunk({"content": "Two"}),
            chunk(
                {"tool_calls": [called(arguments="", index=1, id="call_b"), called(arguments="", index=0, id="call_a")]}
            ),
            chunk({"tool_calls": [{"index": 0, "id": None, "type": "function", "function": {"arguments": '{"a"'}}]}),
            chunk({"tool_calls": [{"index": 1, "function": {"name": "add", "arguments": "{}"}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}, "tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 4}},
        ]
    )

    turn = openai_chat_format.read_turn(joined)
    assert turn.message.text == "Two"
    assert turn.message.calls == (ToolCall("call_b", "add", "{}"), ToolCall("call_a", "add", '{"a": 1}'))
    assert turn.message.native["openai_chat"]["reasoning_content"] == "Hm."
    assert (turn.stop, turn.usage) == (Stop.CALLS, Usage(4))


def test_without_an_index_each_new_id_in_a_stream_starts_a_call() -> None:
    joined = openai_chat_format.joined(
        [
            chunk({"tool_calls": [called(arguments="{")]}),
            chunk({"tool_calls": [{"function": {"arguments": "}"}}]}),
            chunk({"tool_calls": [called(arguments="{}", id="call_2")]}, "stop"),
        ]
    )

    assert openai_chat_format.read_turn(joined).message.calls == (
        ToolCall("call_1", "add", "{}"),
        ToolCall("call_2", "add", "{}"),
    )


def test_an_interrupted_stream_has_no_finish_reason() -> None:
    assert openai_chat_format.joined([chunk({"content": "Hi"})])["choices"][0]["finish_reason"] is None
