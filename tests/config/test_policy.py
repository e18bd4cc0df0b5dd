"""Tests for the setting `toolcrib.policy`. Every error is fatal, so that a mistake never allows more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.config import Config, parse_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import LOCAL
from toolcrib.crib.top_level import top_level

FILE = Path("mcp.json")


def config(policy: object, **ours: object) -> Config:
    return parse_config(json.dumps({"mcpServers": {}, "toolcrib": {"policy": policy, **ours}}), FILE, {})


def test_there_is_no_policy_by_default() -> None:
    assert parse_config("{}", FILE, {}).policy is None
    assert config({"otherwise": "hide"}).policy == Rules((), Access.HIDDEN)


def test_every_condition_is_read() -> None:
    rule = {
        "then": "ask",
        "principals": ["ada", "team-*"],
        "scopes": "write",
        "paths": [["code"], ["vcs", "write"]],
        "tags": ["x"],
        "sources": ["git*"],
        "tools": ["git.push*"],
        "annotations": {"destructive": True, "read_only": False},
    }
    policy = config({"rules": [rule, {"then": "hide"}], "otherwise": "refuse"}).policy

    assert policy == Rules(
        (
            Rule(
                Access.ASK,
                principals=("ada", "team-*"),
                scopes=("write",),
                paths=(("code",), ("vcs", "write")),
                tags=("x",),
                sources=("git*",),
                tools=("git.push*",),
                annotations={"destructive": True, "read_only": False},
            ),
            Rule(Access.HIDDEN),
        ),
        Access.SEE,
    )


@pytest.mark.parametrize(("word", "access"), [("allow", 3), ("ask", 2), ("refuse", 1), ("hide", 0)])
def test_every_access_word_is_read(word: str, access: int) -> None:
    policy = config({"rules": [{"then": word}], "otherwise": word}).policy

    assert policy == Rules((Rule(Access(access)),), Access(access))


def test_a_rule_path_may_use_an_additional_parent_category() -> None:
    categories = {"code": {"categories": {"lint": {"tools": "ruff.*", "also_under": [["quality"]]}}}}
    rule = {"then": "hide", "paths": [["quality", "lint"], ["quality"]]}
    policy = config({"rules": [rule], "otherwise": "allow"}, categories=categories).policy

    assert policy is not None
    assert policy.rules[0].paths == (("code", "lint"), ("quality",))


WRONG: list[tuple[Any, str]] = [
    (None, "toolcrib.policy: must be an object"),
    ({}, "toolcrib.policy: `otherwise` is required: it decides what happens when no rule matches"),
    ({"otherwise": None}, "toolcrib.policy.otherwise: must be one of: allow, ask, refuse, hide"),
    ({"otherwise": "deny"}, "toolcrib.policy.otherwise: must be one of: allow, ask, refuse, hide"),
    ({"otherwise": ["hide"]}, "toolcrib.policy.otherwise: must be one of: allow, ask, refuse, hide"),
    ({"otherwise": "hide", "rule": []}, "toolcrib.policy: unknown key `rule` (did you mean `rules`?)"),
    ({"otherwise": "hide", "rules": {}}, "toolcrib.policy.rules: must be a list of objects"),
    ({"otherwise": "hide", "rules": ["x"]}, "toolcrib.policy.rules.0: must be an object"),
    ({"otherwise": "hide", "rules": [{}]}, "toolcrib.policy.rules.0: `then` is required"),
    ({"otherwise": "hide", "rules": [{"then": "hide"}, {"then": 5}]}, "toolcrib.policy.rules.1.then: must be one of"),
    ({"otherwise": "hide", "rules": [{"then": "ask", "tool": "x"}]}, "toolcrib.policy.rules.0: unknown key `tool`"),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "tags": 5}]},
        "toolcrib.policy.rules.0.tags: must be a list of strings",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "allow", "tools": []}]},
        "toolcrib.policy.rules.0.tools: must not be empty",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "allow", "tags": None}]},
        "toolcrib.policy.rules.0.tags: must not be empty",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "allow", "annotations": {}}]},
        "toolcrib.policy.rules.0.annotations: must not be empty",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "paths": ["x"]}]},
        "toolcrib.policy.rules.0.paths: must be a list of paths",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "annotations": {"readOnly": True}}]},
        "toolcrib.policy.rules.0.annotations: unknown key `readOnly` (did you mean `read_only`?)",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "annotations": {"read_only": "yes"}}]},
        "toolcrib.policy.rules.0.annotations.read_only: must be true or false",
    ),
]


@pytest.mark.parametrize(("policy", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_an_invalid_policy_is_reported_with_its_path(policy: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        config(policy)

    assert wrong.value.message.startswith(f"mcp.json: {complaint}")


@pytest.mark.parametrize("key", ["Toolcrib", "tool-crib", "tool_crib", "TOOLCRIB"])
def test_a_misspelled_toolcrib_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(f"unknown key `{key}` (did you mean `toolcrib`?)")):
        parse_config(json.dumps({key: {"policy": {"otherwise": "hide"}}}), FILE, {})


@pytest.mark.parametrize("key", ["policy", "auth"])
def test_a_misplaced_policy_or_auth_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"move `{key}` under the key `toolcrib`"):
        parse_config(json.dumps({key: {}, "mcpServers": {}}), FILE, {})


@pytest.mark.parametrize("key", ["isolation", "principals"])
def test_a_misplaced_isolation_key_disables_the_server(key: str) -> None:
    (server,) = parse_config(
        json.dumps({"mcpServers": {"git": {"command": "git", key: "principal"}}}), FILE, {}
    ).servers
    assert server.server is None
    assert server.problem == f"mcpServers.git.{key}: move this key under `toolcrib.sources.git`"


TOPS = {
    "mcpServers": {"git": {"command": "g"}, "time": {"command": "t"}},
    "toolcrib": {
        "categories": {
            "Danger": {"summary": "Wipes it all", "tools": ["git.git_reset"]},
            "Work": {"categories": {"History": {"tools": ["git.git_l*"]}}},
            "Marked": {"tagged": ["odd"]},
            "Empty": {"summary": "Nothing claimed"},
        }
    },
}


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ([], ["Danger", "Work", "Marked", "git", "time"]),
        ([{"then": "hide", "tools": ["git.git_reset"]}], ["Work", "Marked", "git", "time"]),
        ([{"then": "hide", "tools": ["time.*"]}], ["Danger", "Work", "Marked", "git"]),
        ([{"then": "hide", "tools": ["git.git_log"]}], ["Danger", "Work", "Marked", "git", "time"]),
        ([{"then": "hide", "tools": ["git.git_l*"]}], ["Danger", "Marked", "git", "time"]),
        ([{"then": "hide", "paths": [["Work"]]}], ["Danger", "Marked", "git", "time"]),
        ([{"then": "hide", "tags": ["odd"]}], ["Danger", "Work", "git", "time"]),
        ([{"then": "hide", "sources": ["git"]}], ["Marked", "time"]),
        ([{"then": "refuse", "sources": ["git"]}, {"then": "hide", "sources": ["*"]}], ["Danger", "Work", "git"]),
    ],
)
def test_the_top_level_omits_nodes_without_visible_tools(rules: list[object], named: list[str]) -> None:
    ours = {**TOPS["toolcrib"], "policy": {"rules": rules, "otherwise": "allow"}}
    read = parse_config(json.dumps({**TOPS, "toolcrib": ours}), FILE, {})
    assert read.policy is not None
    assert [top.name for top in top_level(read, read.policy.permissions(LOCAL))] == named


def test_a_rule_may_name_a_server_by_its_label() -> None:
    document = {
        "mcpServers": {"pay.prod": {"command": "p"}, "My Server": {"command": "m"}},
        "toolcrib": {
            "categories": {"Money": {"tools": ["pay.prod.*"]}},
            "policy": {
                "rules": [
                    {"then": "hide", "sources": ["pay.prod"]},
                    {"then": "hide", "tools": ["pay.prod.*"]},
                    {"then": "hide", "paths": [["My Server"], ["money"]]},
                ],
                "otherwise": "allow",
            },
        },
    }
    read = parse_config(json.dumps(document), FILE, {})
    assert read.policy is not None
    by_source, by_id, by_path = read.policy.rules
    assert by_source.sources == ("pay.prod", "pay-prod")
    assert by_id.tools == ("pay.prod.*", "pay-prod.*")
    assert by_path.paths == (("My-Server",), ("Money",))
    assert read.categories.given[0].tools == ("pay.prod.*", "pay-prod.*")
