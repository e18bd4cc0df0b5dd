"""Messages to and from a model, written as JSON and read again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.conversation.drawn import MESSAGES, TOOLS

from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    read_message,
    read_tool,
)
from toolcrib.core.errors import InvalidPrompt


@given(MESSAGES)
def test_a_message_written_as_json_is_read_unchanged(message: Message) -> None:
    assert read_message(json.loads(json.dumps(message.to_wire()))) == message


@given(TOOLS)
def test_a_tool_written_as_json_is_read_unchanged(tool: ToolSpec) -> None:
    assert read_tool(json.loads(json.dumps(tool.to_wire()))) == tool


def test_default_values_are_not_written() -> None:
    assert ToolMessage("1", "add", "3").to_wire() == {"role": "tool", "call_id": "1", "name": "add", "content": "3"}
    assert AssistantMessage("Hm.").to_wire() == {"role": "assistant", "text": "Hm.", "calls": []}
    assert ToolSpec("add", "Add.", {}).to_wire() == {"name": "add", "description": "Add.", "input_schema": {}}
    assert UserMessage("Hi.").to_wire() == {"role": "user", "text": "Hi."}
    assert ToolCall("1", "add", "{").to_wire() == {"id": "1", "name": "add", "arguments": "{"}


WRONG: list[object] = [
    1,
    "user",
    {"role": "system", "text": ""},
    {"role": "user"},
    {"role": "assistant", "text": ""},
    {"role": "assistant", "text": "", "calls": [1]},
    {"role": "assistant", "text": "", "calls": [{"id": "1"}]},
    {"role": "tool", "call_id": "1", "name": "add"},
    {"role": "tool", "call_id": "1", "name": "add", "content": "", "revealed": [{}]},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_message_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidPrompt, match="Not a saved"):
        read_message(wrong)


@pytest.mark.parametrize("wrong", ["null", "[]", "{}"])
def test_an_empty_json_value_is_not_a_message(wrong: str) -> None:
    with pytest.raises(InvalidPrompt, match="Not a saved"):
        read_message(json.loads(wrong))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)).map(lambda each: Usage(*each))))
def test_usages_are_added(usages: list[Usage]) -> None:
    total = sum(usages, Usage())
    assert total.to_wire() == {
        "input": sum(each.input for each in usages),
        "output": sum(each.output for each in usages),
        "cached": sum(each.cached for each in usages),
    }
