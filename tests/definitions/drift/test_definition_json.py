"""Stored definitions: a definition that is written and read back is equal, including its digests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.metadata import ToolExample, ToolMetadata
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.definitions.drift import drift_between
from toolcrib.definitions.drift.definition_json import read, written

_texts = st.text(max_size=8)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_objects = st.dictionaries(_texts, _json, max_size=4)
_words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
_tools = st.builds(
    Tool,
    st.just("git"),
    st.text(min_size=1),
    _texts,
    _objects,
    st.none() | _objects,
    title=st.none() | _texts,
    annotations=st.builds(ToolAnnotations, st.none() | _texts, st.booleans(), st.booleans(), st.booleans()),
    metadata=st.builds(
        ToolMetadata,
        tags=st.lists(_words, max_size=2).map(tuple),
        usage_hint=st.none() | _words,
        examples=st.lists(st.builds(ToolExample, _words, st.just({"a": 1}), st.none() | _words), max_size=1).map(tuple),
        requires_permission=st.booleans(),
    ),
    own_path=st.lists(_words, max_size=2).map(tuple),
    wire=_objects,
)


@given(_tools)
def test_a_definition_that_is_written_is_read_back_unchanged(tool: Tool) -> None:
    kept = read("git", written(tool))

    assert kept == tool
    assert (kept.digests, kept.handle) == (tool.digests, tool.handle)
    assert drift_between(tool, kept).grades == frozenset()


def test_a_definition_gets_the_current_name_of_its_source() -> None:
    assert read("vcs", written(Tool("git", "commit"))).id == "vcs.commit"


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b"{}", b'{"name": "a"}', b"[" * 100_000, b"\xff"])
def test_an_invalid_definition_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        read("git", body)


def test_lone_surrogates_and_large_numbers_survive() -> None:
    tool = Tool("git", "commit", "\ud800", {"type": "object", "maximum": 2**80})
    assert read("git", written(tool)) == tool
    assert json.loads(written(tool))["description"] == "\ud800"
