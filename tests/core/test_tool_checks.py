"""A tool whose metadata contradicts its schema or itself is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.catalogs import tool

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata
from toolcrib.core.tools import check_tool

COMMIT = tool(
    "git.commit", properties={"message": {"type": "string"}, "sign": {"type": "boolean"}}, required=("message",)
)


def complaint(metadata: ToolMetadata) -> str:
    with pytest.raises(InvalidTool) as refused:
        check_tool(replace(COMMIT, metadata=metadata))
    return refused.value.message


def test_consistent_metadata_is_accepted() -> None:
    examples = (ToolExample("Record", {"message": "x"}), ToolExample("", {"message": "x", "sign": True}, "done"))

    check_tool(COMMIT)
    check_tool(replace(COMMIT, metadata=ToolMetadata(examples=examples, tags=("a",), aliases=("b",), intents=("c",))))
    check_tool(
        replace(COMMIT, metadata=ToolMetadata(optionality=Optionality.CONDITIONAL, condition="In a repository."))
    )


@pytest.mark.parametrize(
    ("given", "miss"),
    [
        ({}, "the required key `message` is missing"),
        ({"message": 5}, "`/message` must be string, not integer"),
        ({"message": "x", "sing": True}, "unknown key `sing` (did you mean `sign`?)"),
    ],
)
def test_an_example_that_does_not_match_the_schema_is_reported_with_its_path(
    given: dict[str, object], miss: str
) -> None:
    examples = (ToolExample("Well", {"message": "x"}), ToolExample("Record", given))

    told = complaint(ToolMetadata(examples=examples))
    assert told.startswith(f"`git.commit`: example 2 (Record) does not match its schema: {miss}")


def test_an_example_of_a_tool_with_an_invalid_schema_is_refused() -> None:
    broken = replace(
        tool("git.commit", properties={"message": {"type": "texts"}}),
        metadata=ToolMetadata(examples=(ToolExample("Record", {}),)),
    )

    with pytest.raises(InvalidTool, match=r"^`git\.commit`: its schema is not usable"):
        check_tool(broken)


@pytest.mark.parametrize("condition", [None, "", "  "])
def test_a_conditional_tool_needs_a_condition(condition: str | None) -> None:
    told = complaint(ToolMetadata(optionality=Optionality.CONDITIONAL, condition=condition))
    assert told == "`git.commit`: condition: a conditional tool needs a condition: say when it is required"


@pytest.mark.parametrize("optionality", [Optionality.OPTIONAL, Optionality.REQUIRED])
def test_a_condition_is_refused_for_a_tool_that_is_not_conditional(optionality: Optionality) -> None:
    told = complaint(ToolMetadata(optionality=optionality, condition="Where it rains."))
    assert told == "`git.commit`: condition: only allowed if `optionality` is `conditional`"


@pytest.mark.parametrize("key", ["category", "tags", "requires_capabilities", "aliases", "intents"])
def test_a_list_of_strings_must_not_contain_a_blank_string(key: str) -> None:
    blank: dict[str, Any] = {key: ("x", " ")}
    assert complaint(ToolMetadata(**blank)) == f"`git.commit`: {key}: must not contain a blank string"
