"""The schema subset for the strict modes of providers, and the keywords that it loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.definitions.grammars.peers import validator

from toolcrib.definitions.grammars import StrictSchema, strict_schema

ACCEPTED_KEYWORDS = frozenset(
    {
        *("type", "title", "description", "properties", "required", "additionalProperties"),
        *("items", "enum", "anyOf", "format", "pattern", "minItems"),
    }
)


def checked(made: StrictSchema) -> Mapping[str, Any]:
    """Return the schema after checking that each object is closed, requires all keys and uses only known keywords."""
    assert made.schema is not None
    for node in nodes(made.schema):
        assert node.keys() <= ACCEPTED_KEYWORDS, node
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert sorted(node["required"]) == sorted(node["properties"])
        assert node.get("minItems", 1) == 1
        assert not any(isinstance(value, dict | list) for value in node.get("enum", ()))
    return made.schema


def nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    below = [
        *node.get("properties", {}).values(),
        *node.get("anyOf", ()),
        *([node["items"]] if "items" in node else []),
    ]
    for inner in below:
        yield from nodes(inner)


def lost(made: StrictSchema) -> set[tuple[str, str]]:
    return {(each.pointer, each.keyword) for each in made.lost}


def test_every_key_is_required_and_an_optional_key_may_be_null() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "depth": {"type": "integer", "title": "How deep"},
            "near": {
                "type": "object",
                "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                "required": ["lat"],
            },
            "mode": {"enum": ["a", "b"]},
        },
        "required": ["path"],
    }
    made = strict_schema(schema)
    strict = checked(made)
    assert not made.lost
    assert strict["properties"]["path"] == {"description": "Where.", "type": "string"}
    assert strict["properties"]["depth"] == {"title": "How deep", "anyOf": [{"type": "integer"}, {"type": "null"}]}
    written = {"path": "x", "depth": None, "near": {"lat": 1, "lon": None}, "mode": "a"}
    assert validator(strict).is_valid(written)
    assert not validator(strict).is_valid({"path": "x"})
    assert made.arguments(written) == {"path": "x", "near": {"lat": 1}, "mode": "a"}
    assert validator(schema).is_valid(made.arguments(written))


def test_a_null_that_the_tool_requires_is_kept() -> None:
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}, "required": ["x"]}
    made = strict_schema(schema)
    assert made.arguments({"x": None}) == {"x": None}
    assert validator(checked(made)).is_valid({"x": None})


def test_keywords_that_strict_modes_refuse_are_removed_and_reported() -> None:
    made = strict_schema(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "default": 3},
                "t": {"type": "string", "maxLength": 9, "format": "uri", "pattern": "(?=a)"},
                "l": {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
                "e": {"enum": ["a", {"b": 1}]},
                "o": {"type": "object"},
                "m": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "not": {"required": ["n"]},
        }
    )
    strict = checked(made)
    assert list(strict["properties"]) == ["n", "t", "l", "e", "m"]
    assert lost(made) == {
        ("/properties/n", "minimum"),
        ("/properties/n", "default"),
        ("/properties/t", "maxLength"),
        ("/properties/t", "format"),
        ("/properties/t", "pattern"),
        ("/properties/l", "minItems"),
        ("/properties/l", "uniqueItems"),
        ("/properties/e", "enum"),
        ("/properties/o", "additionalProperties"),
        ("", "properties"),
        ("", "not"),
    }


def test_references_and_composition_are_inlined_and_recursion_is_dropped() -> None:
    made = strict_schema(
        {
            "type": "object",
            "properties": {
                "tree": {"$ref": "#/$defs/tree"},
                "both": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]},
            },
            "required": ["tree", "both"],
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {
                        "v": {"type": "string"},
                        "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                    },
                    "required": ["v"],
                },
                "a": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                "b": {"properties": {"b": {"type": "string"}}},
            },
        }
    )
    strict = checked(made)
    assert list(strict["properties"]["tree"]["properties"]) == ["v"]
    assert list(strict["properties"]["both"]["properties"]) == ["a", "b"]
    assert ("/$defs/tree", "$ref") in lost(made)


def test_without_a_strict_form_for_a_required_key_there_is_no_strict_schema() -> None:
    for inner in ({"type": "object"}, {"type": "array"}, {"$ref": "#"}, {"enum": [[1]]}):
        made = strict_schema({"type": "object", "properties": {"x": inner}, "required": ["x"]})
        assert made.schema is None, inner
        assert made.lost
    assert strict_schema({"type": "nothing"}).schema is None
