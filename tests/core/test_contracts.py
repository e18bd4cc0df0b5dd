"""Contracts: the part of a schema that constrains calls, without its descriptions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from toolcrib.core.contracts import WORDS, contract_of, without, words_of

Json = dict[str, Any]

ADDRESS: Json = {"type": "object", "title": "Address", "properties": {"street": {"type": "string"}}}
SCHEMA: Json = {
    "type": "object",
    "description": "Where to.",
    "properties": {"to": {"$ref": "#/$defs/Address"}, "title": {"type": "string", "title": "Title"}},
    "$defs": {"Address": ADDRESS, "Box": {"type": "object", "properties": {"number": {"type": "integer"}}}},
}


def changed(**parts: Any) -> Json:
    return {**copy.deepcopy(SCHEMA), **parts}


def test_words_are_removed_from_schemas_but_not_from_values() -> None:
    schema = changed(examples=[{}], required=["title"], default={"title": "x"})

    assert without(schema, WORDS) == {
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/Address"}, "title": {"type": "string"}},
        "$defs": {
            "Address": {"type": "object", "properties": {"street": {"type": "string"}}},
            "Box": {"type": "object", "properties": {"number": {"type": "integer"}}},
        },
        "required": ["title"],
        "default": {"title": "x"},
    }
    assert list(words_of(SCHEMA)) == [
        ("/description", "Where to."),
        ("/$defs/Address/title", "Address"),
        ("/properties/title/title", "Title"),
    ]


@pytest.mark.parametrize(
    "alike",
    [
        changed(description="There.", title="T"),
        dict(reversed(SCHEMA.items())),
        changed(**{"$defs": {"Address": ADDRESS}}),
        changed(
            properties={**SCHEMA["properties"], "to": {"$ref": "#/definitions/A"}},
            **{"$defs": {}, "definitions": {"A": ADDRESS}},
        ),
        changed(**{"$schema": "http://json-schema.org/draft-07/schema#"}),
        changed(**{"$schema": "https://json-schema.org/draft/2020-12/schema"}),
    ],
    ids=["words", "key order", "without an unused definition", "target renamed", "draft 7", "2020-12"],
)
def test_equivalent_schemas_have_equal_contracts(alike: Json) -> None:
    assert contract_of(alike) == contract_of(SCHEMA)


@pytest.mark.parametrize(
    "other",
    [
        changed(properties={**SCHEMA["properties"], "to": {"$ref": "#/$defs/Box"}}),
        changed(**{"$defs": {"Address": SCHEMA["$defs"]["Box"]}}),
        changed(**{"$defs": {"Address": {**ADDRESS, "properties": {"street": {"type": "string", "minLength": 1}}}}}),
        changed(properties={**SCHEMA["properties"], "description": {"type": "string"}}),
        changed(default={}),
        changed(**{"$schema": "http://json-schema.org/draft-04/schema#"}),
        changed(**{"$id": "https://example.com/s"}),
    ],
    ids=["target swapped", "target replaced", "target changed", "a property", "a default", "draft 4", "an id"],
)
def test_schemas_that_may_accept_different_values_have_different_contracts(other: Json) -> None:
    assert contract_of(other) != contract_of(SCHEMA)


def test_a_cyclic_reference_is_followed_once() -> None:
    def tree(leaf: str) -> Json:
        node = {"type": "object", "properties": {"below": {"$ref": "#/$defs/Node"}, "leaf": {"type": leaf}}}
        return {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    assert contract_of(tree("string")) != contract_of(tree("integer"))
    assert contract_of(tree("string")) == [
        {"$ref": 1},
        {"type": "object", "properties": {"below": {"$ref": 1}, "leaf": {"type": "string"}}},
    ]


@pytest.mark.parametrize(
    "words",
    [{"examples": [{"type": "string"}]}, {"x-note": {"description": "x"}}],
    ids=["a word that is a target", "an unknown keyword"],
)
def test_words_that_may_constrain_values_are_not_removed(words: Json) -> None:
    schema = {"properties": {"a": {"$ref": "#/examples/0"}} if "examples" in words else {}, **words}

    assert without(schema, WORDS) == schema


def test_a_schema_that_is_too_deep_is_its_own_contract() -> None:
    deep: Json = {"type": "string", "title": "Deep"}
    for _ in range(1_000):
        deep = {"properties": {"a": deep}}

    assert contract_of(deep) is deep
    assert list(words_of(deep)) == []


def test_many_spellings_of_one_reference_are_not_followed_endlessly() -> None:
    large: Json = {f"p{number}": {"type": "string"} for number in range(2_000)}
    refers = [
        {
            "$ref": "#/$defs/"
            + "".join(letter if at & 1 << k else f"%{ord(letter):x}" for k, letter in enumerate("longname"))
        }
        for at in range(256)
    ]
    schema: Json = {"anyOf": refers, "$defs": {"longname": {"properties": large}}}

    assert contract_of(schema) == schema
