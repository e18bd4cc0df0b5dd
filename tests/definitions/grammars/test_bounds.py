"""Schemas designed to use unlimited time or memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.peers import Matcher

from toolcrib.definitions.grammars import Grammar, arguments_grammar, call_grammar, strict_schema
from toolcrib.definitions.grammars.emitter import MAX_SYMBOLS

LONGEST = 40 * MAX_SYMBOLS
"""In characters: a symbol has about twenty, and literals have more."""


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def within(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": more}}


WIDE = {
    "a megabyte of keys": {
        "type": "object",
        "properties": {f"property{at}": {"type": "string"} for at in range(25_000)},
    },
    "a megabyte of keys with additional properties": {
        "type": "object",
        "properties": {f"property{at}": {"type": "string"} for at in range(5_000)},
        "additionalProperties": True,
    },
    "a megabyte of words": {
        "type": "object",
        "properties": {f"p{at}": {"type": "string", "description": "word " * 200} for at in range(1_000)},
    },
    "a thousand levels": nested(1_000),
    "an enumeration of 100,000 values": within(enum=[f"value {at}" for at in range(100_000)]),
    "a cycle of references through allOf": {
        **within(**{"$ref": "#/$defs/a"}),
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
    },
    "a choice that refers to itself": {
        **within(**{"$ref": "#/$defs/a"}),
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}},
    },
    "patterns with exponential backtracking": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}, "y": {"type": "string", "pattern": "(x+x+)+y"}},
    },
    "combinations of a hundred choices": within(
        allOf=[{"anyOf": [{"minLength": at}, {"maxLength": 2 * at}]} for at in range(100)]
    ),
    "many merged objects with additional properties": {
        "type": "object",
        "allOf": [
            {"properties": {f"p{one}_{two}": {"type": "string"} for two in range(50)}, "additionalProperties": {}}
            for one in range(200)
        ],
    },
    "huge minimum lengths of strings and arrays": {
        "type": "object",
        "properties": {"x": {"type": "string", "minLength": 10**9}, "y": {"type": "array", "minItems": 10**9}},
    },
}


@pytest.mark.parametrize("name", WIDE)
def test_an_oversized_schema_gives_a_grammar_of_limited_size(name: str) -> None:
    grammar = arguments_grammar(WIDE[name])
    assert len(grammar.text) < LONGEST
    read = Read(grammar.text)
    assert not read.left_recursive()
    strict_schema(WIDE[name])


def why(grammar: Grammar) -> list[str]:
    return [each.why for each in (*grammar.degraded, *grammar.unenforced)]


def test_degraded_tools_and_unenforced_keywords_are_reported() -> None:
    for name in ("a megabyte of keys", "a thousand levels", "combinations of a hundred choices"):
        grammar = arguments_grammar(WIDE[name])
        assert len(grammar.degraded) == 1, name
        assert Matcher(grammar.text).accepts('{"a": {"any": ["thing"]}}')
    assert why(arguments_grammar(WIDE["an enumeration of 100,000 values"])) == ["it has more than 2,000 values"]
    assert why(arguments_grammar(WIDE["a megabyte of words"])) == []


def test_an_oversized_schema_does_not_affect_the_grammar_of_other_tools() -> None:
    grammar = call_grammar({"wide": WIDE["a megabyte of keys"], "plain": nested(3)})
    assert [each.tool for each in grammar.degraded] == ["wide"]
    matcher = Matcher(grammar.text)
    assert matcher.accepts('{"name": "plain", "arguments": {"a": {"a": {"a": ""}}}}')
    assert not matcher.accepts('{"name": "plain", "arguments": {"a": {"a": {}}}}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}},
        {"type": "string"},
        {"anyOf": [{"type": "string"}, {"type": "array"}]},
    ],
)
def test_a_schema_without_any_valid_arguments_degrades(schema: Mapping[str, Any]) -> None:
    grammar = arguments_grammar(schema)
    assert why(grammar) == ["no arguments are valid for its schema"]
    assert Matcher(grammar.text).accepts("{}")


def test_branches_that_no_value_satisfies_are_omitted() -> None:
    grammar = arguments_grammar(
        {
            "type": "object",
            "properties": {"a": False, "b": {"anyOf": [{"$ref": "#/$defs/endless"}, {"type": "null"}]}},
            "$defs": {
                "endless": {"type": "object", "properties": {"e": {"$ref": "#/$defs/endless"}}, "required": ["e"]}
            },
        }
    )
    matcher = Matcher(grammar.text)
    assert matcher.accepts('{"b": null}')
    assert not matcher.accepts('{"a": null}')
    assert '"\\"e\\""' not in grammar.text
