"""Tests for the setting `toolcrib.categories` and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.catalog.categories import NO_CATEGORIES, Categories, Category
from toolcrib.config import parse_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.crib.top_level import top_level

FILE = Path("mcp.json")


def read(categories: object) -> Categories:
    return parse_config(json.dumps({"mcpServers": {}, "toolcrib": {"categories": categories}}), FILE, {}).categories


def test_there_are_no_categories_by_default() -> None:
    assert parse_config("{}", FILE, {}).categories is read({}) is NO_CATEGORIES


def test_nested_categories_are_read_with_outer_categories_first() -> None:
    written = {
        "Code": {
            "title": "Coding",
            "summary": "All about code.",
            "tags": ["dev", "code"],
            "categories": {
                "Lint": {
                    "tools": ["ruff.*", "git.blame"],
                    "tagged": "lint",
                    "also_under": [["Quality"], ["Team", "Day"]],
                    "group": True,
                },
            },
        },
        "ファイル/🧰": {},
    }
    assert read(written).given == (
        Category(("Code",), "Coding", "All about code.", ("dev", "code")),
        Category(("ファイル/🧰",)),
        Category(
            ("Code", "Lint"),
            tools=("ruff.*", "git.blame"),
            tagged=("lint",),
            also_under=(("Quality",), ("Team", "Day")),
            group=True,
        ),
    )


WRONG: list[tuple[Any, str]] = [
    ([], "toolcrib.categories: must be an object"),
    ({"A": "x"}, "toolcrib.categories.A: must be an object"),
    ({"A": {"tool": ["x"]}}, "toolcrib.categories.A: unknown key `tool` (did you mean `tools`?)"),
    ({"A": {"categories": {"B": 5}}}, "toolcrib.categories.A.categories.B: must be an object"),
    ({"A": {"categories": {"B": {"tools": 5}}}}, "toolcrib.categories.A.categories.B.tools: must be a list of strings"),
    ({"A": {"tools": ["x", 5]}}, "toolcrib.categories.A.tools.1: must be a string"),
    ({"A": {"group": "yes"}}, "toolcrib.categories.A.group: must be true or false"),
    ({"A": {"summary": ["x"]}}, "toolcrib.categories.A.summary: must be a string"),
    ({"A": {"also_under": ["B"]}}, "toolcrib.categories.A.also_under: must be a list of paths"),
    ({"A": {"also_under": [[]]}}, "toolcrib.categories.A.also_under: must be a list of paths"),
    ({"A": {"also_under": [["B", 5]]}}, "toolcrib.categories.A.also_under.0.1: must be a string"),
    ({"": {}}, "toolcrib.categories: a category must have a name"),
    (
        {"A": {"also_under": [["B"]]}, "B": {"also_under": [["A"]]}},
        "toolcrib.categories: a category cannot be below itself: A > B > A",
    ),
]


@pytest.mark.parametrize(("categories", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_an_invalid_category_is_reported_with_its_path(categories: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        read(categories)

    assert wrong.value.message.startswith(f"mcp.json: {complaint}")


def test_a_duplicate_category_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"toolcrib\.categories\.A: duplicate key"):
        parse_config('{"toolcrib": {"categories": {"A": {}, "A": {}}}}', FILE, {})


def test_deeply_nested_categories_are_read_up_to_a_limit() -> None:
    def nested(depth: int) -> str:
        return '{"n": {"categories": ' * depth + "{}" + "}}" * depth

    def deep(depth: int) -> str:
        return f'{{"toolcrib": {{"categories": {nested(depth)}}}}}'

    assert len(parse_config(deep(100), FILE, {}).categories.given) == 100
    with pytest.raises(InvalidConfig, match="nested too deeply"):
        parse_config(deep(100_000), FILE, {})


@pytest.mark.parametrize(
    ("categories", "named"),
    [
        ({"Coding": {"tools": ["git.*"]}}, ["Coding", "files"]),
        ({"Coding": {"tools": ["g?t*"]}}, ["Coding", "files"]),
        ({"Everything": {"tools": ["*"]}}, ["Everything"]),
        ({"Coding": {"tools": ["git.log", "git.commit*"]}}, ["Coding", "git", "files"]),
        (
            {"Coding": {"tools": ["git.*"]}, "git": {"categories": {"More": {"tools": ["x.y"]}}}},
            ["Coding", "git", "files"],
        ),
    ],
)
def test_sources_whose_tools_are_all_in_categories_are_not_listed(categories: Any, named: list[str]) -> None:
    servers = {"git": {"command": "git-server"}, "files": {"command": "files-server"}}
    ours = {"categories": categories, "plugins": False}
    config = parse_config(json.dumps({"mcpServers": servers, "toolcrib": ours}), FILE, {})

    assert [top.name for top in top_level(config)] == named


def test_a_declared_source_with_all_tools_in_categories_is_not_listed() -> None:
    declared = {"ops": {"tools": {name: {"description": "Do it.", "command": ["true"]} for name in ("a", "b")}}}

    def named(*claimed: str) -> list[str]:
        ours = {"declared": declared, "categories": {"Made": {"tools": claimed}}, "plugins": False}
        return [top.name for top in top_level(parse_config(json.dumps({"toolcrib": ours}), FILE, {}))]

    assert "ops" not in named("ops.a", "ops.b")
    assert "ops" in named("ops.a")
