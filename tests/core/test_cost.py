"""The cost of validating a value is estimated before validation, and the estimate is an upper bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import ValidationErrorKind

from toolcrib.core.cost import MAX_ENTRIES, MAX_NODES, Cost
from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import MAX_EXPLAINED, MAX_JUDGED, Schema, Violation, pointer, violations_to_wire

Json = dict[str, Any]

KEYS = st.sampled_from("abc")
REFERENCES: st.SearchStrategy[Any] = st.sampled_from(
    [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": "#/properties/a"}, {"$ref": "#c"}]
)
LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": ["array", "object"]},
        {"const": 1},
        {"enum": ["x", {"a": 1}]},
        {"minimum": 2},
        {"maxLength": 0},
        {"maxItems": 0},
        {"pattern": "^y"},
        {"required": ["a", "b", "d"]},
        {"dependentRequired": {"a": ["b", "d", "e"], "b": ["d"]}},
        {"uniqueItems": True},
        False,
    ]
)


def _larger(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    several: st.SearchStrategy[Any] = st.lists(inside, min_size=1, max_size=3)
    by_key: st.SearchStrategy[Any] = st.dictionaries(KEYS, inside, max_size=3)
    forms: list[dict[str, st.SearchStrategy[Any]]] = [
        *({key: several} for key in ("allOf", "anyOf", "oneOf", "prefixItems")),
        *({key: inside} for key in ("not", "items", "contains", "propertyNames")),
        *({key: by_key} for key in ("properties", "dependentSchemas")),
        {"properties": by_key, "additionalProperties": inside},
        {"properties": by_key, "patternProperties": st.fixed_dictionaries({"a|b": inside})},
        {"allOf": several, "unevaluatedProperties": st.just(False)},
        {"if": inside, "then": inside, "else": inside},
    ]
    return st.one_of([st.fixed_dictionaries(form) for form in forms])


SCHEMAS: st.SearchStrategy[Any] = st.recursive(LEAVES | REFERENCES, _larger, max_leaves=8)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    """Schemas with references to parts of themselves."""
    c = {"$anchor": "c", "anyOf": [draw(SCHEMAS)]}
    return {**draw(_larger(SCHEMAS)), "$defs": {"a": draw(SCHEMAS), "b": draw(SCHEMAS), "c": c}}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "yy"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(KEYS, inside, max_size=3),
    max_leaves=8,
)


def errors_in(errors: Iterable[jsonschema_rs.ValidationError]) -> int:
    """The number of errors, including nested errors of alternatives."""
    count = 0
    for error in errors:
        count += 1
        match error.kind:
            case (
                ValidationErrorKind.AnyOf(context=context)
                | ValidationErrorKind.OneOfNotValid(context=context)
                | ValidationErrorKind.OneOfMultipleValid(context=context)
            ):
                count += sum(errors_in(branch) for branch in context)
            case ValidationErrorKind.PropertyNames(error=inside):
                count += errors_in([inside])
            case _:
                pass
    return count


def compiled(document: Json) -> Schema | None:
    try:
        return Schema(document)
    except InvalidTool:
        return None


@settings(max_examples=300)
@given(documents(), VALUES)
def test_the_number_of_errors_never_exceeds_the_estimated_cost(document: Json, value: object) -> None:
    if (schema := compiled(document)) is None:
        return
    cost = schema.cost.of(value, MAX_JUDGED)
    if cost <= MAX_EXPLAINED:
        assert errors_in(jsonschema_rs.validator_for(document).iter_errors(value)) <= cost


@settings(max_examples=300)
@given(documents(), VALUES)
def test_there_are_violations_exactly_if_a_value_is_invalid(document: Json, value: object) -> None:
    if (schema := compiled(document)) is None or schema.cost.of(value, MAX_JUDGED) > MAX_JUDGED:
        return
    is_valid = jsonschema_rs.validator_for(document).is_valid(value)
    assert schema.is_valid(value) == is_valid
    assert (schema.violations(value) == ()) == is_valid
    assert (schema.all_violations(value) == ()) == is_valid
    assert (schema.first_violations(value, "it") == ()) == is_valid


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 4))
def test_a_violation_has_the_path_of_the_invalid_value(steps: list[int], beside: int) -> None:
    schema: Json = {"type": "string"}
    value: object = 1
    for step in reversed(steps):
        if step % 2:
            schema = {"type": "object", "properties": {f"k{step}": schema, f"o{beside}": {"type": "integer"}}}
            value = {f"k{step}": value, f"o{beside}": 1}
        else:
            schema = {"type": "array", "prefixItems": [{"type": "integer"}] * step + [schema]}
            value = [1] * step + [value]
    place = pointer([f"k{step}" if step % 2 else step for step in steps])

    assert [each.place for each in Schema(schema).violations(value)] == [place]
    assert [each.place for each in Schema(schema).first_violations(value, "it")] == [place]


def chained(links: int) -> Json:
    link = {f"l{n}": {"items": {"allOf": 2 * [{"$ref": f"#/$defs/l{n + 1}"}]}} for n in range(links)}
    return {"$ref": "#/$defs/l0", "$defs": {**link, f"l{links}": {"type": "string"}}}


def listed(times: int, inside: object) -> object:
    for _ in range(times):
        inside = [inside]
    return inside


def test_the_cost_of_a_doubling_schema_doubles_with_each_level() -> None:
    costs = [Cost(chained(30)).of(listed(times, 1), math.inf) for times in range(2, 20)]

    assert all(1.5 < after / before < 3 for before, after in pairwise(costs))


def test_a_larger_value_costs_more() -> None:
    cost = Cost({"items": {"anyOf": [{"const": 1}, {"type": "string"}]}})

    assert cost.of([1] * 1_000, math.inf) < 100_000
    assert cost.of([1] * (MAX_NODES + 1), math.inf) == math.inf
    assert cost.of(["x" * 1_000_000], math.inf) > cost.of(["x"], math.inf)


@pytest.mark.parametrize("keyword", ["dependentRequired", "dependencies"])
def test_keys_required_by_other_keys_cost_as_much_as_required_keys(keyword: str) -> None:
    names = [f"q{number}" for number in range(200)]
    required = Cost({"required": names * 200}).of({}, math.inf)

    assert Cost({keyword: {f"k{number}": names for number in range(200)}}).of({}, math.inf) >= required


def test_parts_of_a_value_that_the_schema_ignores_cost_nothing() -> None:
    cost = Cost({"type": "object", "properties": {"a": {"type": "object"}}})
    shallow = cost.of({"a": {}}, math.inf)

    assert cost.of({"a": {"b": listed(100, 1)}}, math.inf) == shallow


@pytest.mark.parametrize(
    ("document", "item"),
    [({"uniqueItems": True}, listed(3, 1)), ({"items": {"multipleOf": 0.0001}}, 1.1)],
    ids=["comparing all with all", "exact division"],
)
def test_an_expensive_keyword_costs_more(document: Json, item: object) -> None:
    assert Cost(document).of([item] * 10, math.inf) < MAX_EXPLAINED
    assert Cost(document).of([item] * 25_000, MAX_JUDGED) == math.inf


@pytest.mark.parametrize(
    "document",
    [
        {"$ref": "elsewhere"},
        {"$ref": "#nowhere"},
        {"$ref": "#/$defs/none"},
        {"allOf": [{"anyOf": [{"const": n} for n in range(MAX_ENTRIES)]}]},
    ],
    ids=["elsewhere", "an unknown anchor", "an unknown path", "too large"],
)
def test_a_schema_that_cannot_be_estimated_has_infinite_cost(document: Json) -> None:
    assert Cost(document).of(1, math.inf) == math.inf


@pytest.mark.parametrize(
    "document",
    [
        {"$defs": {"a": {}}, "allOf": [{"$id": "http://b/", "$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}]},
        {"$id": "/$defs/a", "properties": {"a": {"$ref": "http://x/#/$defs/a"}}, "$defs": {"a": {"type": "string"}}},
        {"$ref": "http://x/#/$defs/a", "$defs": {"a": {"type": "string"}, "b": {"$anchor": "/$defs/a"}}},
    ],
    ids=["a decoy at the root", "a decoy `$id`", "a decoy anchor"],
)
def test_a_reference_that_a_decoy_may_hide_has_infinite_cost(document: Json) -> None:
    assert Cost(document).of({"a": 1}, math.inf) == math.inf


def test_a_recursive_reference_costs_as_much_as_the_root() -> None:
    root = {"type": "object", "required": ["x"] * 100}
    costs = [
        Cost({**root, "properties": {"a": {"$recursiveRef": said}}, "$defs": {"b": {}}}).of({"a": {}}, math.inf)
        for said in ("#", "#/$defs/b")
    ]

    assert costs[0] == costs[1]


def test_a_pattern_with_lookaround_costs_the_square_of_the_length() -> None:
    around = Cost({"pattern": "^(?!x)"})
    straight = Cost({"pattern": "^[^x]"})

    assert straight.of("a" * 10_000, math.inf) < MAX_JUDGED
    assert around.of("a" * 100, math.inf) < MAX_JUDGED
    assert around.of("a" * 10_000, math.inf) > MAX_JUDGED


def test_violations_are_shortened_on_the_wire() -> None:
    long = "x" * 10_000
    many = [Violation(f"/{long}", long, "enum", allowed=(long,) * 50, nearest=long) for _ in range(8)]

    (first, *_) = told = violations_to_wire(many)

    assert 0 < len(str(told)) < 6_000
    assert first["place"].endswith("…")
    assert (first["allowed"], first["allowed_count"]) == ([], 50)
    assert "nearest" not in first
