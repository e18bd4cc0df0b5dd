"""Hypothesis strategies for schemas and for values to test them with."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

_NAMES = st.sampled_from(["a", "b", "description", "$ref"])
_LEAVES: st.SearchStrategy[Json] = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 1, "title": "One"},
        {"type": "integer", "minimum": 1},
        {"type": "number", "multipleOf": 0.5},
        {"enum": ["x", 1, None]},
        {"const": 1.0},
        {"type": ["null", "boolean"]},
        {"not": {"type": "string"}},
        {},
    ]
)
_EXTRAS: st.SearchStrategy[Json] = st.sampled_from(
    [{}, {}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}, {"description": "x"}]
)


def _object(properties: Json, required: list[str], extra: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required, **extra}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _choice(keyword: str, choices: list[Json]) -> Json:
    return {keyword: choices}


def _mixed(first: Json, second: Json) -> Json:
    return {**_object({"a": first}, [], {}), "anyOf": [second, {"required": ["a"]}]}


def _together(part: Json) -> Json:
    return _object({"b": {"allOf": [part, {"properties": {"c": {}}}]}}, [], {})


def _larger(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    required = st.lists(_NAMES, unique=True, max_size=2)
    return st.one_of(
        st.builds(_object, st.dictionaries(_NAMES, inner, max_size=3), required, _EXTRAS),
        st.builds(_array, inner),
        st.builds(_choice, st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1, max_size=3)),
        st.builds(_mixed, inner, inner),
        st.builds(_together, inner),
    )


def _holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=3)


SCHEMAS: st.SearchStrategy[Json] = st.recursive(_LEAVES, _larger, max_leaves=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["", "x", "xx", 1, 1.0, 1.5, 0, None, True]), _holding, max_leaves=6
)
