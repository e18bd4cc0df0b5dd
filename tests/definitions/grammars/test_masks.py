"""Token masks that are made directly from schemas."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.definitions.grammars.peers import TOKENIZER

from toolcrib.definitions.grammars import STYLES
from toolcrib.definitions.grammars.masks import MasksUnavailable, call_matcher

TOOLS: dict[str, dict[str, Any]] = {
    "say": {
        "type": "object",
        "properties": {"text": {"$ref": "#/$defs/t"}},
        "required": ["text"],
        "$defs": {"t": {"type": "string", "pattern": "^[a-z]+$"}},
        "if": {"required": ["other"]},
    },
    'q"': {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "integer"}}},
}


def accepts(text: str, style: str = "plain") -> bool:
    matcher = call_matcher(TOKENIZER, TOOLS, STYLES[style])
    tokens = list(text.encode())
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


def test_a_matcher_accepts_calls_of_each_tool_by_its_own_schema() -> None:
    assert accepts('{"name": "say", "arguments": {"text": "hello"}}')
    assert accepts('{"name": "q\\"", "arguments": {"t": 3}}')
    assert not accepts('{"name": "say", "arguments": {"text": "Hello"}}')
    assert not accepts('{"name": "say", "arguments": {"t": 3}}')
    assert accepts('<tool_call>\n{"name": "q\\"", "arguments": {"t": 3}}\n</tool_call>', "hermes")


def test_without_llguidance_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MasksUnavailable, match=r"toolcrib\[grammars\]"):
        call_matcher(TOKENIZER, TOOLS)


def test_a_schema_that_llguidance_refuses_gives_a_readable_error() -> None:
    with pytest.raises(MasksUnavailable, match="refuses"):
        call_matcher(TOKENIZER, {"x": {"$ref": "https://example.org/none.json"}})
    with pytest.raises(ValueError, match="at least one tool"):
        call_matcher(TOKENIZER, {})
