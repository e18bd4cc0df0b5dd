"""`toolcrib.policy` as people write it: an error in it stops everything, since less must not become more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.config import Config, parse_config
from toolcrib.core.errors import InvalidConfig

FILE = Path("mcp.json")


def config(policy: object, **ours: object) -> Config:
    return parse_config(json.dumps({"mcpServers": {}, "toolcrib": {"policy": policy, **ours}}), FILE, {})


def test_without_a_policy_there_is_none() -> None:
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
def test_every_word_has_its_meaning(word: str, access: int) -> None:
    policy = config({"rules": [{"then": word}], "otherwise": word}).policy

    assert policy == Rules((Rule(Access(access)),), Access(access))


def test_a_path_may_lead_through_a_link() -> None:
    categories = {"code": {"categories": {"lint": {"tools": "ruff.*", "also_under": [["quality"]]}}}}
    rule = {"then": "hide", "paths": [["quality", "lint"], ["quality"]]}
    policy = config({"rules": [rule], "otherwise": "allow"}, categories=categories).policy

    assert policy is not None
    assert policy.rules[0].paths == (("code", "lint"), ("quality",))


WRONG: list[tuple[Any, str]] = [
    (None, "toolcrib.policy: an object is expected here"),
    ({}, "toolcrib.policy: `otherwise` is missing: say what holds where no rule is met"),
    ({"otherwise": None}, "toolcrib.policy.otherwise: one of allow, ask, refuse, hide is expected here"),
    ({"otherwise": "deny"}, "toolcrib.policy.otherwise: one of allow, ask, refuse, hide is expected here"),
    ({"otherwise": ["hide"]}, "toolcrib.policy.otherwise: one of allow, ask, refuse, hide is expected here"),
    ({"otherwise": "hide", "rule": []}, "toolcrib.policy: unknown key `rule`; did you mean `rules`?"),
    ({"otherwise": "hide", "rules": {}}, "toolcrib.policy.rules: a list of objects is expected here"),
    ({"otherwise": "hide", "rules": ["x"]}, "toolcrib.policy.rules.0: an object is expected here"),
    ({"otherwise": "hide", "rules": [{}]}, "toolcrib.policy.rules.0: `then` is missing"),
    ({"otherwise": "hide", "rules": [{"then": "hide"}, {"then": 5}]}, "toolcrib.policy.rules.1.then: one of"),
    ({"otherwise": "hide", "rules": [{"then": "ask", "tool": "x"}]}, "toolcrib.policy.rules.0: unknown key `tool`"),
    ({"otherwise": "hide", "rules": [{"then": "ask", "tags": 5}]}, "toolcrib.policy.rules.0.tags: a list of texts"),
    ({"otherwise": "hide", "rules": [{"then": "allow", "tools": []}]}, "toolcrib.policy.rules.0.tools: it is empty"),
    ({"otherwise": "hide", "rules": [{"then": "allow", "tags": None}]}, "toolcrib.policy.rules.0.tags: it is empty"),
    ({"otherwise": "hide", "rules": [{"then": "allow", "annotations": {}}]}, "toolcrib.policy.rules.0.annotations: it"),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "paths": ["x"]}]},
        "toolcrib.policy.rules.0.paths: a list of paths is expected here",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "annotations": {"readOnly": True}}]},
        "toolcrib.policy.rules.0.annotations: unknown key `readOnly`; did you mean `read_only`?",
    ),
    (
        {"otherwise": "hide", "rules": [{"then": "ask", "annotations": {"read_only": "yes"}}]},
        "toolcrib.policy.rules.0.annotations.read_only: true or false is expected here",
    ),
]


@pytest.mark.parametrize(("policy", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_what_is_written_wrongly_is_named_with_its_place(policy: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        config(policy)

    assert wrong.value.message.startswith(f"mcp.json: {complaint}")
