"""The operations in the tool list of a model, which replace the catalog, and how many tokens they cost."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, combinations

import pytest

from toolcrib.core.schema import Schema
from toolcrib.core.tools import ToolAnnotations
from toolcrib.operations.briefing import (
    TOP_NAMES_BYTES,
    OperationTool,
    Top,
    briefing,
    instructions,
    operation_tools,
    top_names,
)
from toolcrib.operations.catalog_operations import MAX_EXPANDED, MAX_LIMIT
from toolcrib.operations.operation_table import (
    LOOKING,
    MAX_LEVELS,
    MAX_NAME_CHARS,
    MAX_TAGS,
    OPERATION_TABLE,
    OPERATIONS,
    SETS,
)

BAR_TOKENS = 1_200

SUMMARIES = {
    "long": "Reads, writes and transforms everything anybody could ask for in this area of work, " * 20,
    "japanese": "ファイルを読み書きし、変換し、検索し、要約し、翻訳し、印刷し、送信し、保管し、整理する" * 20,
    "emoji": "🧰🔧🪛" * 200,
    "quotes": '"\\' * 500,
    "control characters": "\x01\x02" * 500,
    "none": "",
}


def tokens(operations: Sequence[str], tops: list[Top]) -> float:
    """An estimate: a quarter of the UTF-8 bytes of the text for the model, as compact JSON."""
    told = briefing(operations, tops)
    shown = {"instructions": told.instructions, "tools": [tool.to_wire() for tool in told.tools]}
    return len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()) / 4


@pytest.mark.holds("goals.nothing-up-front")
@pytest.mark.parametrize("operations", SETS.values(), ids=SETS)
@pytest.mark.parametrize("count", [0, 1, 24, 10_000])
@pytest.mark.parametrize("summary", SUMMARIES)
@pytest.mark.parametrize(
    "name", ["server-{}", "ファイル管理サーバー-{}", "x" * 300 + "{}"], ids=["plain", "wide", "long"]
)
def test_the_initial_text_for_a_model_is_small_for_any_catalog(
    count: int, summary: str, name: str, operations: Sequence[str]
) -> None:
    tops = [Top(name.format(number), SUMMARIES[summary]) for number in range(count)]

    assert tokens(operations, tops) <= BAR_TOKENS


def test_the_top_of_a_small_catalog_is_listed_completely() -> None:
    tops = [Top("git", "Version control."), Top("files")]

    for operation in operation_tools(["list", "search_tools"], tops):
        assert operation.description.endswith(" Inside: git, files.")
    assert instructions(OPERATIONS, tops).endswith("Inside:\n- git: Version control.\n- files")


def test_the_top_of_a_large_catalog_is_shortened_with_a_count() -> None:
    tops = [Top(f"server-{number:04}") for number in range(1_000)]

    names = top_names(tops)
    shown = names.count("server-")
    assert names.endswith(f" and {1_000 - shown} more")
    assert 10 < shown * len("server-0000, ") <= TOP_NAMES_BYTES
    told = instructions(OPERATIONS, tops)
    assert told.endswith(f"- and {1_000 - told.count('- server-')} more")


def test_an_empty_catalog_is_not_mentioned() -> None:
    assert "Inside" not in instructions(OPERATIONS, ())
    assert all("Inside" not in operation.description for operation in operation_tools(OPERATIONS))
    assert top_names(()) == ""


def test_a_name_that_does_not_fit_is_replaced_by_a_count() -> None:
    assert top_names([Top("x" * 1_000), Top("y")]) == "2 sources"


@pytest.mark.holds("rules.told")
def test_the_rules_only_mention_exposed_operations() -> None:
    choices = chain.from_iterable(combinations(sorted(OPERATIONS), size) for size in range(len(OPERATIONS) + 1))
    for exposed in map(set, choices):
        for full in (False, True):
            words = set(re.findall("[a-z_]+", instructions(exposed, [Top("git")], full=full)))
            assert words & ({*OPERATIONS} - {"list"}) <= exposed
            assert "list" in exposed or "list(" not in words


@pytest.mark.parametrize("operations", SETS.values(), ids=SETS)
def test_the_full_rules_mention_all_exposed_operations(operations: Sequence[str]) -> None:
    text = instructions(operations, (), full=True)

    assert all(name in text for name in operations)
    assert "next_action" in text


def test_the_short_rules_mention_the_operations_of_the_compact_set() -> None:
    text = instructions(SETS["compact"], ())

    assert all(name in text for name in SETS["compact"])
    assert "next_action" in text


@pytest.mark.parametrize("tool", operation_tools(OPERATIONS, [Top("git")]), ids=lambda tool: tool.name)
def test_every_operation_refuses_unknown_keys(tool: OperationTool) -> None:
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["type"] == "object"
    schema = Schema(tool.input_schema)
    assert not schema.is_valid({"zebra": 1})
    assert OPERATION_TABLE[tool.name].arguments.document == tool.input_schema


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("list", {}),
        ("list", {"path": ["git"], "tags": [], "query": "x", "limit": MAX_LIMIT, "cursor": "x"}),
        ("search_tools", {"query": "", "category": [], "limit": 1, "cursor": "x"}),
        ("search_tools", {"query": "x", "tags": ["a"], "detail_level": "full", "include_unavailable": True}),
        ("search_tool_by_category", {"query": "x", "category_path": [], "limit": MAX_LIMIT, "cursor": "x"}),
        ("search_nodes", {"query": "x", "limit": 1}),
        ("list_categories", {}),
        ("list_categories", {"limit": MAX_LIMIT, "cursor": "x"}),
        ("search_tools", {}),
        ("search_tools", {"category": "git"}),
        ("expand_tool", {"tool_id": "git.commit"}),
        ("expand_tool", {"tool_ids": ["x"] * MAX_EXPANDED}),
        ("call_tool", {"tool_id": "git.commit@1", "arguments": {"anything": 1}}),
        ("call_read_only_tool", {"tool_id": "git.log@1"}),
        ("list", {"path": ["x"] * MAX_LEVELS, "tags": ["x"] * MAX_TAGS}),
        ("search_tools", {"query": "x" * 1_000_000, "category": ["x" * MAX_NAME_CHARS]}),
    ],
)
def test_valid_arguments_match_the_schema_of_an_operation(operation: str, arguments: dict[str, object]) -> None:
    assert OPERATION_TABLE[operation].arguments.violations(arguments) == ()


@pytest.mark.holds("messages.strict")
@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("list", {"path": "git"}),
        ("list", {"limit": 0}),
        ("list", {"limit": MAX_LIMIT + 1}),
        ("list", {"limit": 1.5}),
        ("search_tool_by_category", {"query": None, "category_path": []}),
        ("search_tools", {"category": 5}),
        ("search_tools", {"category": "x" * (MAX_NAME_CHARS + 1)}),
        ("list_categories", {"path": ["x"]}),
        ("list_categories", {"limit": 0}),
        ("search_tools", {"query": "x", "detail_level": "everything"}),
        ("search_tools", {"query": "x", "include_unavailable": "yes"}),
        ("search_tool_by_category", {"query": "x"}),
        ("search_nodes", {"query": "x", "cursor": "x"}),
        ("call_read_only_tool", {}),
        ("expand_tool", {"tool_ids": []}),
        ("expand_tool", {"tool_ids": ["x"] * (MAX_EXPANDED + 1)}),
        ("call_tool", {"arguments": {}}),
        ("call_tool", {"tool_id": "x", "arguments": []}),
        ("list", {"path": ["x"] * (MAX_LEVELS + 1)}),
        ("list", {"tags": ["x"] * (MAX_TAGS + 1)}),
        ("list", {"path": ["x" * (MAX_NAME_CHARS + 1)]}),
        ("search_tools", {"query": "x", "tags": ["x" * (MAX_NAME_CHARS + 1)]}),
        ("search_tools", {"query": "x", "category": ["x"] * (MAX_LEVELS + 1)}),
        ("search_tool_by_category", {"query": "x", "category_path": ["x"] * (MAX_LEVELS + 1)}),
        ("expand_tool", {"tool_id": "x" * (MAX_NAME_CHARS + 1)}),
        ("expand_tool", {"tool_ids": ["x" * (MAX_NAME_CHARS + 1)]}),
        ("call_tool", {"tool_id": "x" * (MAX_NAME_CHARS + 1)}),
    ],
)
def test_invalid_arguments_violate_the_schema_of_an_operation(operation: str, arguments: dict[str, object]) -> None:
    assert OPERATION_TABLE[operation].arguments.violations(arguments)


def test_only_call_tool_is_not_marked_as_read_only() -> None:
    annotations = {tool.name: tool.annotations for tool in operation_tools(OPERATIONS)}

    assert annotations.pop("call_tool") == ToolAnnotations()
    assert annotations.pop("call_read_only_tool").open_world
    assert all(looking.read_only and not looking.destructive for looking in annotations.values())
    assert set(annotations) == {*LOOKING}


def test_every_set_can_search_expand_and_call_a_tool() -> None:
    for operations in SETS.values():
        assert {"search_tools", "expand_tool", "call_tool"} <= {*operations} <= {*OPERATIONS}
        assert [tool.name for tool in operation_tools(operations)] == [*operations]
