"""The id, summary, digests and handle of a tool, and its pointer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolExample, ToolMetadata
from toolcrib.core.tools import (
    DIGEST_CHARS,
    SUMMARY_CHARS,
    Tool,
    ToolAnnotations,
    ToolPointer,
    summarize,
)

COMMIT = Tool(
    "git",
    "commit",
    "Record changes. Then push them.",
    {"type": "object", "properties": {"message": {"type": "string"}}},
    wire={"name": "commit", "icons": []},
)


def test_a_tool_id_is_the_source_and_the_name_joined_by_a_dot() -> None:
    assert COMMIT.id == "git.commit"
    assert Tool("git", "log.v2 ☂").id == "git.log.v2 ☂"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("Record changes. Then push them.", "Record changes."),
        ("Lists files, e.g. the hidden ones. More.", "Lists files, e.g. the hidden ones."),
        ("Get the price\nof a share.\n\nArgs:\n    symbol: which", "Get the price of a share."),
        ("Get the price\n    Args: symbol", "Get the price"),
        ("気温を調べる。都市名が必要です。", "気温を調べる。"),
        (" \n" * 2_000 + "Deep down. There.", "Deep down."),
        ("", ""),
        (" \t\n", ""),
    ],
)
def test_a_summary_is_the_first_sentence_on_one_line(text: str, summary: str) -> None:
    assert summarize(text) == summary


def test_a_long_sentence_is_shortened_at_a_word() -> None:
    assert summarize("one two three four", limit=12) == "one two…"
    assert summarize("x" * 20, limit=12) == "x" * 11 + "…"


@given(st.text(), st.one_of(st.none(), st.text()), st.text(min_size=1))
def test_a_summary_is_always_one_line_of_bounded_length(description: str, title: str | None, name: str) -> None:
    summary = Tool("s", name, description * 40, title=title).summary

    assert len(summary) <= SUMMARY_CHARS
    assert summary == " ".join(summary.split())


def test_the_title_or_the_name_replaces_a_missing_description() -> None:
    assert Tool("git", "commit", title="Commit\n" + "x" * 999).summary.startswith("Commit xxx")
    assert Tool("git", "commit").summary == "commit"


def test_an_unknown_field_changes_only_the_wire_digest() -> None:
    before, after = COMMIT.digests, replace(COMMIT, wire={**COMMIT.wire, "icons": ["x"]}).digests

    assert (before.wire != after.wire, before.contract, before.text) == (True, after.contract, after.text)


@pytest.mark.parametrize(
    "changed", [{"input_schema": {"type": "object"}}, {"output_schema": {"type": "object"}}], ids=str
)
def test_a_schema_changes_the_contract_digest_and_not_the_text_digest(changed: dict[str, object]) -> None:
    before, after = COMMIT.digests, replace(COMMIT, **changed).digests  # pyright: ignore[reportArgumentType]

    assert (before.wire, before.contract != after.contract, before.text) == (after.wire, True, after.text)


@pytest.mark.parametrize(
    "changed",
    [
        {"description": "Record"},
        {"title": "Commit"},
        {"name": "Commit"},
        {"metadata": ToolMetadata(usage_hint="after add")},
        {"metadata": ToolMetadata(examples=(ToolExample("first", {"message": "x"}),))},
    ],
    ids=str,
)
def test_words_change_the_text_digest_and_not_the_contract_digest(changed: dict[str, object]) -> None:
    before, after = COMMIT.digests, replace(COMMIT, **changed).digests  # pyright: ignore[reportArgumentType]

    assert (before.wire, before.contract, before.text != after.text) == (after.wire, after.contract, True)


def test_a_local_tool_has_a_wire_digest_of_its_definition() -> None:
    local = replace(COMMIT, wire={})

    assert local.digests.wire != replace(local, annotations=ToolAnnotations(read_only=True)).digests.wire
    assert local.digests.wire == replace(local, metadata=ToolMetadata(tags=("vcs",))).digests.wire


def test_a_handle_contains_the_id_and_a_digest_of_the_definition() -> None:
    name, _, mark = COMMIT.handle.rpartition("@")

    assert (name, len(mark)) == ("git.commit", DIGEST_CHARS)
    assert replace(COMMIT, wire={}).handle == COMMIT.handle
    for changed in (
        replace(COMMIT, description="Delete changes"),
        replace(COMMIT, input_schema={"type": "object"}),
        replace(COMMIT, output_schema={}),
        replace(COMMIT, annotations=ToolAnnotations(destructive=False)),
    ):
        assert changed.handle != COMMIT.handle


def test_a_similar_looking_letter_changes_the_handle() -> None:
    assert replace(COMMIT, description="pаy").handle != replace(COMMIT, description="pay").handle
    assert replace(COMMIT, description="é").handle != replace(COMMIT, description="e\u0301").handle


def test_a_tool_with_unpaired_surrogates_has_an_id_a_handle_and_a_fingerprint() -> None:
    odd = Tool("s", "\ud800", "\udfff", {"type": "object", "description": "\ud800"})

    assert odd.handle.startswith("s.\ud800@")
    assert odd.fingerprint != Tool("s", "\ud801").fingerprint


def test_hints_that_are_not_booleans_count_as_missing() -> None:
    claims = {"readOnlyHint": "true", "destructiveHint": 0, "idempotentHint": True, "openWorldHint": None, "title": 5}

    annotations = ToolAnnotations.from_wire(claims)

    assert annotations == ToolAnnotations(idempotent=True)
    assert ToolAnnotations.from_wire(["readOnlyHint"]) == ToolAnnotations()
    assert ToolAnnotations().to_wire() == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }


def test_a_pointer_only_contains_known_values() -> None:
    assert ToolPointer("git.commit", ("git",), "Record.").to_wire() == {
        "tool_id": "git.commit",
        "path": ["git"],
        "summary": "Record.",
    }
    assert ToolPointer("a.b", ("a",), "", ("x",), 0.0).to_wire()["confidence"] == 0.0


def test_an_invalid_schema_is_reported_when_it_is_used() -> None:
    tool = Tool("s", "t", input_schema={"type": "nothing"})

    with pytest.raises(InvalidTool):
        _ = tool.arguments


@pytest.mark.parametrize("name", ["push", "x" * 300])
def test_the_repr_of_a_tool_is_one_short_line(name: str) -> None:
    shown = repr(Tool("git", name, "Send commits. " + "Then more. " * 300, {"type": "object", "properties": {"a": {}}}))
    assert shown.startswith(f"Tool('git.{name}'"[:100])
    assert len(shown) <= 120
    assert "\n" not in shown
