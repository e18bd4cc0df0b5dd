"""Reading MCP tool definitions, valid and invalid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import InvalidTool
from toolcrib.sources.base import SetAside
from toolcrib.sources.tool_definitions import (
    MAX_BYTES,
    MAX_NAME_CHARS,
    MAX_TAG_CHARS,
    read_definition,
    read_definitions,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_a_definition_keeps_everything_that_was_sent() -> None:
    wire = {
        "name": "add table/v2.0 ✓",
        "title": "Add table",
        "description": "Adds a table.",
        "inputSchema": {"type": "object", "properties": {"rows": {"type": "integer"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "title": "Another title"},
        "execution": {"taskSupport": "forbidden"},
    }
    tool = read_definition("word", wire)
    assert (tool.id, tool.title, tool.description) == ("word.add table/v2.0 ✓", "Add table", "Adds a table.")
    assert tool.annotations.read_only
    assert tool.wire == wire
    assert tool.output_schema == {"type": "object"}


def test_tags_sent_by_a_fastmcp_server_become_the_tags_of_the_tool() -> None:
    def tags(meta: Any) -> tuple[str, ...]:
        return read_definition("s", {"name": "t", "inputSchema": {}, "_meta": meta}).metadata.tags

    assert tags({"fastmcp": {"tags": ["vcs", "read"]}}) == ("vcs", "read")
    assert tags({"fastmcp": {"tags": ["vcs", 1, None]}}) == ("vcs",)
    for odd in (None, {}, {"fastmcp": None}, {"fastmcp": {"tags": "vcs"}}, [1]):
        assert tags(odd) == ()


@pytest.mark.parametrize(
    "schema", [True, {}, {"properties": {"a": {}}}, {"type": ["object", "null"]}, {"anyOf": [{"required": ["a"]}]}]
)
def test_an_input_schema_without_a_strict_type_still_requires_an_object(schema: Any) -> None:
    tool = read_definition("s", {"name": "t", "inputSchema": schema})
    assert tool.arguments.is_valid({"a": 1})
    assert not tool.arguments.is_valid([])


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ([], "its definition is a list, not an object"),
        ({"inputSchema": {}}, "it has no name"),
        ({"name": " ", "inputSchema": {}}, "it has no name"),
        ({"name": 3, "inputSchema": {}}, "its name is a number"),
        ({"name": "t"}, "it has no input schema"),
        ({"name": "t", "inputSchema": None}, "it has no input schema"),
        ({"name": "t", "inputSchema": "{}"}, "its input schema is a string, not an object"),
        ({"name": "t", "inputSchema": False}, "its input schema is a boolean, not an object"),
        ({"name": "t", "inputSchema": {"type": "array"}}, "its input schema has the type 'array'"),
        ({"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"type": "int"}}}}, "not usable"),
        ({"name": "t", "inputSchema": {"$ref": "https://example.com/schema"}}, "remote references are refused"),
        ({"name": "t", "inputSchema": {}, "description": 3}, "its description is a number, not a string"),
        ({"name": "t", "inputSchema": {}, "outputSchema": []}, "its output schema is a list, not an object"),
        ({"name": "t\ud800", "inputSchema": {}}, "half a surrogate pair"),
    ],
)
def test_an_unusable_definition_is_refused_with_the_reason(wire: Any, reason: str) -> None:
    with pytest.raises(InvalidTool) as refused:
        read_definition("s", wire)
    assert reason in refused.value.message


@pytest.mark.parametrize("side", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize("levels", [100, 5_000])
def test_only_the_definition_with_a_too_deeply_nested_schema_is_set_aside(side: str, levels: int) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    good: dict[str, Any] = {"name": "good", "inputSchema": {}}
    tools, set_aside = read_definitions("s", [good, {**good, "name": "deep", side: schema}])
    assert [tool.name for tool in tools] == ["good"]
    assert set_aside == (SetAside("deep", "its schema is nested too deeply"),)


def test_only_the_bad_definitions_are_set_aside() -> None:
    good: dict[str, Any] = {"name": "good", "inputSchema": {}, "description": None}
    tools, set_aside = read_definitions("s", [good, {"name": "bad"}, None, {**good, "description": "again"}])
    assert [(tool.name, tool.description) for tool in tools] == [("good", "")]
    assert set_aside == (
        SetAside("bad", "it has no input schema"),
        SetAside("#3", "its definition is null, not an object"),
        SetAside("good", "an earlier definition has the same name"),
    )


def test_names_that_differ_only_in_case_are_two_tools() -> None:
    tools, set_aside = read_definitions("s", [{"name": "Get", "inputSchema": {}}, {"name": "get", "inputSchema": {}}])
    assert [tool.name for tool in tools] == ["Get", "get"]
    assert not set_aside


@given(st.lists(json_values | st.fixed_dictionaries({"name": json_values, "inputSchema": json_values}), max_size=4))
def test_every_definition_is_either_accepted_or_set_aside(wires: list[Any]) -> None:
    tools, set_aside = read_definitions("s", wires)
    assert len(tools) + len(set_aside) == len(wires)
    assert len({tool.id for tool in tools}) == len(tools)


def test_a_definition_with_a_too_long_name_is_set_aside_and_long_tags_are_cut() -> None:
    meta = {"fastmcp": {"tags": ["t" * 100_000, "short"]}}
    wires: list[dict[str, Any]] = [
        {"name": "n" * 100_000, "inputSchema": {}},
        {"name": "m" * MAX_NAME_CHARS, "inputSchema": {}, "_meta": meta},
    ]
    (tool,), (aside,) = read_definitions("s", wires)
    assert tool.name == "m" * MAX_NAME_CHARS
    assert [len(tag) for tag in tool.metadata.tags] == [MAX_TAG_CHARS, 5]
    assert "100000 characters" in aside.reason
    assert len(aside.name) <= MAX_NAME_CHARS


TOO_MUCH: list[dict[str, Any]] = [
    {"description": "x" * MAX_BYTES},
    {"inputSchema": {"type": "object", "properties": {f"p{number}": {} for number in range(MAX_BYTES // 8)}}},
    {"outputSchema": {"type": "object", "description": "x" * MAX_BYTES}},
    {"_meta": {"more": ["x" * 1_000] * (MAX_BYTES // 1_000), "odd": 1 << 70}},
]


@pytest.mark.parametrize("much", TOO_MUCH)
def test_only_the_definition_that_is_too_long_is_set_aside(much: dict[str, Any]) -> None:
    good = {"name": "good", "inputSchema": {"type": "object"}}
    tools, set_aside = read_definitions("bench", [{**good, "name": "long", **much}, good])
    assert [tool.name for tool in tools] == ["good"]
    assert [aside.name for aside in set_aside] == ["long"]
    assert set_aside[0].reason.endswith("bytes as JSON, more than 1,000,000")


def test_a_long_definition_within_the_limit_is_accepted() -> None:
    wire = {"name": "long", "description": "x" * (MAX_BYTES - 200), "inputSchema": {"type": "object"}}
    assert [tool.name for tool in read_definitions("bench", [wire])[0]] == ["long"]
