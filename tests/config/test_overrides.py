"""Tests for the setting `toolcrib.tools` and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.config import Config, parse_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata

FILE = Path("mcp.json")


def parsed(tools: object, **more: object) -> Config:
    servers = {"git": {"command": "git-server"}, "My Tracker": {"command": "tracker"}}
    return parse_config(json.dumps({"mcpServers": servers, "toolcrib": {"tools": tools, **more}}), FILE, {})


def read(tools: object) -> Overrides:
    return parsed(tools).overrides


def test_there_are_no_overrides_by_default() -> None:
    assert parse_config("{}", FILE, {}).overrides is read({}) is NO_OVERRIDES


def test_overrides_are_read_in_file_order() -> None:
    written = {
        "git.*": {"tags": "slow", "optionality": "conditional", "condition": "In a repository."},
        "git.commit": {
            "usage_hint": "After every step.",
            "examples": [{"description": "Record", "input": {"message": "x"}}],
            "requires_permission": True,
            "risk": None,
        },
    }

    assert [(each.tools, each.metadata) for each in read(written).given] == [
        (
            "git.*",
            ToolMetadata(tags=("slow",), optionality=Optionality.CONDITIONAL, condition="In a repository."),
        ),
        (
            "git.commit",
            ToolMetadata(
                usage_hint="After every step.",
                examples=(ToolExample("Record", {"message": "x"}),),
                requires_permission=True,
            ),
        ),
    ]


def test_a_tool_pattern_may_start_with_the_configured_server_label() -> None:
    assert {each.tools for each in read({"My Tracker.*": {"tags": "x"}}).given} == {"My Tracker.*", "My-Tracker.*"}


def test_an_override_creates_the_category_that_it_names() -> None:
    config = parsed({"git.*": {"category": ["vcs", "history"]}}, categories={"code": {"tools": ["git.blame"]}})

    assert [(each.path, each.tools) for each in config.categories.given] == [
        (("code",), ("git.blame",)),
        (("vcs", "history"), ("git.*",)),
    ]


EXAMPLE = "needs `description` (a string), `input` (an object) and optionally `output` (a string)"

WRONG: list[tuple[Any, str]] = [
    ([], "toolcrib.tools: must be an object"),
    ({"git.*": []}, "toolcrib.tools.git.*: must be an object"),
    ({"git.*": None}, "toolcrib.tools.git.*: must be an object"),
    ({" ": {"tags": "x"}}, "toolcrib.tools: a key must be a tool id or a pattern of ids"),
    ({"git.*": {"alias": "x"}}, "toolcrib.tools.git.*: unknown key `alias` (did you mean `aliases`?)"),
    ({"git.*": {"tags": [5]}}, "toolcrib.tools.git.*.tags.0: must be a string"),
    ({"git.*": {"tags": 5}}, "toolcrib.tools.git.*.tags: must be a list of strings"),
    ({"git.*": {"usage_hint": ""}}, "toolcrib.tools.git.*.usage_hint: must be a non-empty string"),
    (
        {"git.*": {"optionality": "x"}},
        "toolcrib.tools.git.*.optionality: must be one of: required, optional, conditional",
    ),
    (
        {"git.*": {"optionality": "conditional"}},
        "toolcrib.tools.git.*.condition: a conditional tool needs a condition: say when",
    ),
    ({"git.*": {"condition": "x"}}, "toolcrib.tools.git.*.condition: only allowed if `optionality` is"),
    ({"git.*": {"requires_permission": 1}}, "toolcrib.tools.git.*.requires_permission: must be true or false"),
    ({"git.*": {"examples": [{}]}}, f"toolcrib.tools.git.*.examples.0: {EXAMPLE}"),
]


@pytest.mark.parametrize(("tools", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_an_invalid_override_is_reported_with_its_path(tools: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        read(tools)

    assert wrong.value.message.startswith(f"mcp.json: {complaint}")


@pytest.mark.parametrize(
    ("text", "setting"), [('{"a.b": {}, "a.b": {}}', "a.b"), ('{"a.b": {"tags": "x", "tags": "y"}}', "a.b.tags")]
)
def test_a_duplicate_override_is_refused(text: str, setting: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        parse_config(f'{{"toolcrib": {{"tools": {text}}}}}', FILE, {})

    assert wrong.value.message == f"mcp.json: toolcrib.tools.{setting}: duplicate key"
