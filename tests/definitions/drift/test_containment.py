"""Whether one schema accepts every value that a different schema accepts. A validator checks the claims."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.definitions.drift.schemas import SCHEMAS, VALUES, Json
from tests.examples import examples

from toolcrib.core.schema import Schema
from toolcrib.definitions.drift.containment import closed, covers


@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=5, max_size=20))
@settings(max_examples=examples(200))
def test_a_value_of_a_covered_schema_is_accepted_by_the_covering_schema(
    one: Json, other: Json, values: list[Any]
) -> None:
    for wider, narrower in ((one, other), ({"anyOf": [one, other]}, one), (one, {"allOf": [one, other]})):
        if covers(wider, narrower):
            accepts, accepted = Schema(wider).is_valid, Schema(narrower).is_valid
            assert [value for value in values if accepted(value) and not accepts(value)] == []


@given(SCHEMAS)
def test_a_schema_covers_itself(schema: Json) -> None:
    assert covers(schema, schema)
    assert covers(closed(schema), closed(schema))


@given(SCHEMAS, SCHEMAS, SCHEMAS)
@settings(max_examples=examples(200))
def test_covering_is_transitive_for_wider_schemas(one: Json, two: Json, three: Json) -> None:
    wide, middle, narrow = {"anyOf": [one, two, three]}, {"anyOf": [one, two]}, one
    if covers(wide, middle) and covers(middle, narrow):
        assert covers(wide, narrow)


@given(SCHEMAS, st.lists(VALUES, min_size=5, max_size=20))
@settings(max_examples=examples(200))
def test_closing_a_schema_never_accepts_additional_values(schema: Json, values: list[Any]) -> None:
    assume("oneOf" not in json.dumps(schema))  # `oneOf` can refuse a value because two branches accept it
    accepts, accepted = Schema(schema).is_valid, Schema(dict(closed(schema, with_root=True))).is_valid

    assert [value for value in values if accepted(value) and not accepts(value)] == []


TEXT = {"type": "string"}
POINT = {"type": "object", "properties": {"x": TEXT}}


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        (POINT, {"x": "1"}, {"x": "1", "y": "2"}),
        ({**POINT, "additionalProperties": True}, {"y": 2}, {"x": 1}),
        ({**POINT, "required": ["y"]}, {"y": 1}, {"x": "1", "y": 1, "z": 1}),
        ({**POINT, "patternProperties": {"^_": TEXT}}, {"_a": "1"}, {"a": "1"}),
        ({"type": "object", "properties": {"in": {"type": "object"}}}, {"in": {"any": 1}}, {"other": 1}),
        ({"type": "object", "properties": {"in": POINT}}, {"in": {"x": "1"}}, {"in": {"y": 1}}),
        ({"type": "array", "items": POINT}, [{"x": "1"}], [{"y": 1}]),
        ({"anyOf": [POINT, {"type": "null"}]}, None, {"y": 1}),
        ({"allOf": [POINT, {"properties": {"y": TEXT}}]}, {"x": "1", "y": "2"}, {"z": 1}),
        ({**POINT, "anyOf": [{"properties": {"y": TEXT}}]}, {"x": "1", "y": "2"}, {"z": 1}),
        ({**POINT, "if": {"required": ["x"]}, "then": {"properties": {"y": TEXT}}}, {"x": "1", "y": "2"}, {"z": 1}),
        ({**POINT, "dependentSchemas": {"x": {"properties": {"y": TEXT}}}}, {"x": "1", "y": "2"}, {"z": 1}),
        ({"properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": POINT}}, {"p": {"x": "1"}}, {"p": {"y": 1}}),
        (
            {"properties": {"p": {"allOf": [{"$ref": "#/$defs/P"}], "properties": {"y": TEXT}}}, "$defs": {"P": POINT}},
            {"p": {"x": "1", "y": "2"}},
            {"p": {"z": 1}},
        ),
        (
            {"allOf": [{"$ref": "#/$defs/P"}], "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": POINT}},
            {"x": "1", "p": {"x": "2"}},
            {"p": {"z": 1}},
        ),
    ],
    ids=range(15),
)
def test_a_closed_object_accepts_only_declared_properties(schema: Json, accepted: Any, refused: Any) -> None:
    validator = Schema(dict(closed(schema)))

    assert validator.is_valid(accepted)
    assert not validator.is_valid(refused)


def test_a_closed_tool_schema_without_parameters_accepts_no_arguments() -> None:
    assert not Schema(dict(closed({"type": "object"}, with_root=True))).is_valid({"x": 1})
    assert Schema(dict(closed({"type": "object"}))).is_valid({"x": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 7, "required": "x"},
        {"anyOf": 1, "dependentSchemas": [], "patternProperties": None, "$defs": []},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"allOf": [{"$ref": "#"}]}}},
        {"type": "txet"},
        {"$schema": "https://example.com/unknown"},
        {"pattern": "("},
        {"enum": [float("nan"), "\ud800"]},
    ],
    ids=range(10),
)
def test_an_invalid_schema_neither_covers_nor_is_covered(schema: Json) -> None:
    assert not covers(dict(closed(schema)), {"type": "integer"})
    assert not covers(TEXT, dict(closed(schema)))
