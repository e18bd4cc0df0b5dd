"""Grammars compared with third-party programs: llguidance says what may be written, jsonschema-rs what is valid."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.instances import Maker, changed
from tests.definitions.grammars.peers import Matcher, meant, spelled, validator
from tests.examples import examples

from toolcrib.definitions.grammars import arguments_grammar

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "plain": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "depth": {"type": "integer", "minimum": 0, "maximum": 12},
            "ratio": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 3},
            "mode": {"enum": ["fast", "slow", None]},
            "on": {"type": "boolean"},
        },
        "required": ["path"],
    },
    "nullable, as Pydantic writes it": {
        "type": "object",
        "properties": {
            "limit": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
            "where": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        },
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}, "name": {"type": "string"}},
                "required": ["lat"],
            }
        },
    },
    "recursive": {
        "type": "object",
        "properties": {"all": {"$ref": "#/$defs/filter"}, "raw": {"type": "object"}},
        "required": ["all"],
        "$defs": {
            "filter": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "op": {"const": "and"},
                            "of": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
                        },
                        "required": ["op", "of"],
                    },
                    {
                        "type": "object",
                        "properties": {"op": {"enum": ["eq", "ne"]}, "value": {"type": ["string", "number", "null"]}},
                        "required": ["op", "value"],
                    },
                ]
            }
        },
    },
    "open and composed": {
        "type": "object",
        "allOf": [
            {"properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]},
            {
                "properties": {
                    "at": {"type": "string", "format": "date-time"},
                    "on": {"type": "string", "format": "date"},
                }
            },
        ],
        "properties": {
            "extra": {"type": "object", "properties": {"k": {"type": "integer"}}, "additionalProperties": True}
        },
    },
    "tuples and counts": {
        "type": "object",
        "properties": {
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
            },
            "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d{1,4}(?:/[^/\\s]+)?$"},
            "some": {
                "type": "array",
                "items": {"type": "integer", "exclusiveMaximum": 0},
                "minItems": 1,
                "maxItems": 2,
            },
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["pair", "map"],
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_grammar_accepts_exactly_the_valid_values(name: str, seed: int) -> None:
    schema, source = SCHEMAS[name], random.Random(seed)
    grammar = arguments_grammar(schema)
    assert not grammar.unenforced
    matcher, fits, fits_as_meant = Matcher(grammar.text), validator(schema), validator(meant(schema))
    value = Maker(schema, source).value()
    for each in (value, *changed(value, source)):
        if matcher.accepts(spelled(each)):
            assert fits.is_valid(each), each
        else:
            assert not fits_as_meant.is_valid(each), each


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_text_of_a_grammar_parses_and_validates(name: str, seed: int) -> None:
    grammar = arguments_grammar(SCHEMAS[name])
    text = Read(grammar.text).walk(random.Random(seed))
    assert validator(SCHEMAS[name]).is_valid(json.loads(text)), text
    assert Matcher(grammar.text).accepts(text), text


_LEAVES: list[Any] = [
    {"type": "string"},
    {"type": "string", "minLength": 1, "maxLength": 4},
    {"type": "integer", "minimum": -7, "maximum": 115},
    {"type": "number", "minimum": 0},
    {"type": "boolean"},
    {"type": "null"},
    {"const": 'a"b'},
    {"enum": ["x", 1, None, [1, {}]]},
    {"type": ["string", "null"]},
    {"type": "string", "format": "date"},
    {},
    False,
]


@st.composite
def _composed(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    names = st.sampled_from(["a", "ab", "b", 'q"', "漢", "\n"])

    def an_object() -> dict[str, Any]:
        return {
            "type": "object",
            "properties": draw(st.dictionaries(names, inner, min_size=1, max_size=4)),
            "required": draw(st.lists(names, max_size=3, unique=True)),
            **draw(st.sampled_from(MORE)),
        }

    match draw(st.sampled_from(["object", "array", "choice", "both"])):
        case "object":
            return an_object()
        case "array":
            least = draw(st.integers(0, 2))
            return {
                "type": "array",
                "items": draw(inner),
                "minItems": least,
                "maxItems": least + draw(st.integers(0, 2)),
            }
        case "choice":
            return {"anyOf": draw(st.lists(inner, min_size=1, max_size=3))}
        case _:
            return {"allOf": [an_object(), an_object()]}


MORE: tuple[dict[str, Any], ...] = ({}, {"additionalProperties": False}, {"additionalProperties": True})


@settings(max_examples=examples(150), deadline=None)
@given(st.recursive(st.sampled_from(_LEAVES), _composed, max_leaves=8), st.integers(0, 2**32))
def test_every_text_of_any_grammar_validates_unless_a_limitation_was_reported(inner: Any, seed: int) -> None:
    schema = {"type": "object", "properties": {"x": inner}, "required": ["x"]}
    grammar = arguments_grammar(schema)
    read = Read(grammar.text)
    assert not read.left_recursive()
    matcher = Matcher(grammar.text)
    for turn in range(3):
        text = read.walk(random.Random(seed + turn), most=120)
        value = json.loads(text)
        assert isinstance(value, dict)
        assert grammar.degraded or grammar.unenforced or validator(schema).is_valid(value), text
        assert matcher.accepts(text), text
