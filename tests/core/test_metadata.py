"""Metadata as JSON: round trips, and errors that name the path of an invalid value."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import KEYS, NO_METADATA, Optionality, ToolExample, ToolMetadata

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
METADATA = st.builds(
    ToolMetadata,
    category=LISTS,
    tags=LISTS,
    optionality=st.sampled_from(Optionality),
    condition=st.none() | TEXTS,
    usage_hint=st.none() | TEXTS,
    examples=st.lists(
        st.builds(
            ToolExample,
            st.text(st.characters(codec="utf-8")),
            st.dictionaries(TEXTS, JSON, max_size=3),
            st.none() | TEXTS,
        ),
        max_size=2,
    ).map(tuple),
    requires_capabilities=LISTS,
    requires_permission=st.booleans(),
    aliases=LISTS,
    intents=LISTS,
    cost=st.none() | TEXTS,
    risk=st.none() | TEXTS,
)


@given(METADATA)
def test_metadata_survives_a_round_trip_through_json(metadata: ToolMetadata) -> None:
    wire = metadata.to_wire()

    assert ToolMetadata.from_wire(wire) == metadata
    assert ToolMetadata.from_wire(json.loads(json.dumps(wire))) == metadata


@given(METADATA)
def test_only_values_that_differ_from_the_defaults_are_written(metadata: ToolMetadata) -> None:
    written = metadata.to_wire().keys()

    assert written == {key for key in KEYS if getattr(metadata, key) != getattr(NO_METADATA, key)}


def test_every_field_has_a_key_with_an_explanation() -> None:
    assert [field.name for field in fields(ToolMetadata)] == [*KEYS]
    assert all(KEYS.values())


def test_written_metadata_has_the_documented_form() -> None:
    metadata = ToolMetadata(
        category=("vcs", "write"),
        optionality=Optionality.CONDITIONAL,
        condition="In a repository.",
        examples=(ToolExample("Record", {"message": "x"}), ToolExample("Ask", {}, "yes")),
        requires_permission=True,
    )

    assert NO_METADATA.to_wire() == {}
    assert metadata.to_wire() == {
        "category": ["vcs", "write"],
        "optionality": "conditional",
        "condition": "In a repository.",
        "examples": [
            {"description": "Record", "input": {"message": "x"}},
            {"description": "Ask", "input": {}, "output": "yes"},
        ],
        "requires_permission": True,
    }


def test_a_single_string_is_a_list_of_one_and_null_counts_as_missing() -> None:
    read = ToolMetadata.from_wire(
        {"category": "vcs", "tags": "slow", "aliases": None, "optionality": None, "risk": None}
    )

    assert read == ToolMetadata(category=("vcs",), tags=("slow",))


EXAMPLE = "needs `description` (a string), `input` (an object) and optionally `output` (a string)"
SURROGATE = "the string contains half a surrogate pair, which is not valid Unicode"

WRONG: list[tuple[object, str]] = [
    ([], "must be an object"),
    ("x", "must be an object"),
    ({"alias": "x"}, "alias: unknown key (did you mean `aliases`?)"),
    ({"xyzzy": "x"}, f"xyzzy: unknown key; known: {', '.join(KEYS)}"),
    ({"optionality": "always"}, "optionality: must be one of: required, optional, conditional"),
    ({"optionality": ["required"]}, "optionality: must be one of: required, optional, conditional"),
    ({"optionality": True}, "optionality: must be one of: required, optional, conditional"),
    ({"requires_permission": "yes"}, "requires_permission: must be true or false"),
    ({"requires_permission": 1}, "requires_permission: must be true or false"),
    ({"examples": {"input": {}}}, "examples: must be a list of objects"),
    ({"examples": ["x"]}, f"examples.0: {EXAMPLE}"),
    ({"examples": [{"description": "x", "input": {}}, {"description": "x"}]}, f"examples.1: {EXAMPLE}"),
    ({"examples": [{"description": 5, "input": {}}]}, f"examples.0: {EXAMPLE}"),
    ({"examples": [{"description": "x", "input": [1]}]}, f"examples.0: {EXAMPLE}"),
    ({"examples": [{"description": "x", "input": {}, "output": 5}]}, f"examples.0: {EXAMPLE}"),
    ({"examples": [{"description": "x", "input": {}, "out": "x"}]}, f"examples.0: {EXAMPLE}"),
    ({"examples": [{"description": "\ud800", "input": {}}]}, f"examples.0.description: {SURROGATE}"),
    ({"examples": [{"description": "x", "input": {"a": ["\ud800"]}}]}, f"examples.0.input: {SURROGATE}"),
    *(({key: 5}, f"{key}: must be a string") for key in ("condition", "usage_hint", "cost")),
    ({"risk": "  "}, "risk: must be a non-empty string"),
    ({"risk": "\ud800"}, f"risk: {SURROGATE}"),
    *(({key: 5}, f"{key}: must be a list of strings") for key in ("category", "tags", "requires_capabilities")),
    ({"aliases": ["x", 5]}, "aliases.1: must be a string"),
    ({"intents": ["x", " "]}, "intents.1: must be a non-empty string"),
    ({"tags": ["x\udc00"]}, f"tags.0: {SURROGATE}"),
    ({"tags": ""}, "tags: must be a non-empty string"),
]


@pytest.mark.parametrize(("wire", "complaint"), WRONG, ids=[repr(wire)[:60] for wire, _ in WRONG])
def test_an_invalid_value_is_reported_with_its_path(wire: object, complaint: str) -> None:
    with pytest.raises(InvalidTool) as refused:
        ToolMetadata.from_wire(wire)

    assert refused.value.message == complaint
