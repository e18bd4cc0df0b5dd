"""Diffs and locations in an answer: how they are written, and how they are read from any source."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.results import ToolResult
from toolcrib.sources.acp.diffs import (
    MAX_DIFF_CHARS,
    MAX_FILES,
    Diff,
    Location,
    diffs_of,
    locations_of,
    with_files,
)

ANSWER = ToolResult.of({"done": True}, text="done")


def said(**members: Any) -> ToolResult:
    return ToolResult({"content": [], "_meta": {"toolcrib": members}})


def test_diffs_and_locations_are_read_back_and_the_answer_is_unchanged() -> None:
    diffs = (Diff("/a", "new", "old"), Diff("/b", "new"))
    locations = (Location("/a", 3), Location("/b"))
    told = with_files(ANSWER, diffs=diffs, locations=locations)
    assert (diffs_of(told), locations_of(told)) == (diffs, locations)
    assert (told.content, told.structured_content) == (ANSWER.content, ANSWER.structured_content)
    assert told.wire["_meta"] == {
        "toolcrib": {
            "diffs": [
                {"path": "/a", "oldText": "old", "newText": "new"},
                {"path": "/b", "oldText": None, "newText": "new"},
            ],
            "locations": [{"path": "/a", "line": 3}, {"path": "/b"}],
        }
    }


MALFORMED: list[dict[str, Any]] = [
    {},
    {"_meta": None},
    {"_meta": []},
    {"_meta": {"toolcrib": "x"}},
    {"_meta": {"toolcrib": {"diffs": {}, "locations": "x"}}},
    {"_meta": {"toolcrib": {"diffs": [1, {}, {"path": "/a"}, {"path": "", "newText": ""}], "locations": [{}, 2]}}},
    {"_meta": {"toolcrib": {"diffs": [{"path": "/a", "newText": "a", "oldText": 3}]}}},
]


@pytest.mark.parametrize("wire", MALFORMED)
def test_malformed_diffs_and_locations_are_ignored(wire: dict[str, Any]) -> None:
    assert diffs_of(ToolResult(wire)) == ()
    assert locations_of(ToolResult(wire)) == ()


@pytest.mark.parametrize("line", [0, -1, True, "3", 1.5, None])
def test_an_invalid_line_number_is_dropped_from_its_location(line: object) -> None:
    assert locations_of(said(locations=[{"path": "/a", "line": line}])) == (Location("/a"),)


def test_a_diff_that_is_too_large_is_neither_written_nor_read() -> None:
    large = Diff("/a", "x" * (MAX_DIFF_CHARS + 1))
    assert diffs_of(with_files(ANSWER, diffs=[large, Diff("/b", "")])) == (Diff("/b", ""),)
    assert diffs_of(said(diffs=[large.to_wire()])) == ()


def test_only_a_limited_number_of_locations_is_read() -> None:
    many = [Location("/a").to_wire() for _ in range(MAX_FILES + 1)]
    assert len(locations_of(said(locations=many))) == MAX_FILES
