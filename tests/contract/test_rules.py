"""The five rules for models, in short and full instructions, for every set of operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from mcp import Client

from toolcrib import Toolcrib
from toolcrib.config import Config
from toolcrib.core.principal import LOCAL
from toolcrib.operations.briefing import Top, instructions
from toolcrib.operations.operation_table import CALLS, SETS
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway

both_forms = pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
every_set = pytest.mark.parametrize("exposed", SETS.values(), ids=SETS)

SEARCHES = {"search_tools", "search_nodes", "search_tool_by_category"}


def rules(exposed: Sequence[str], *, full: bool) -> list[set[str]]:
    """Return the set of words of each rule."""
    text = instructions(exposed, [Top("git")], full=full).partition("\n\n")[0]
    return [set(re.findall("[a-z_]+", rule.lower())) for rule in text.splitlines()]


@pytest.mark.holds("rules.look-first")
@both_forms
@every_set
def test_the_rules_say_to_look_for_tools_instead_of_assuming_them(exposed: Sequence[str], full: bool) -> None:
    looking = {"list", "list_categories"} & {*exposed}

    assert looking
    assert any("assume" in rule and {*looking, "search_tools"} <= rule for rule in rules(exposed, full=full))


@pytest.mark.holds("rules.top-down")
@both_forms
@every_set
def test_the_rules_say_to_browse_from_the_top(exposed: Sequence[str], full: bool) -> None:
    looking = {"list", "list_categories"} & {*exposed}

    assert any({*looking, "top"} <= rule for rule in rules(exposed, full=full))


@pytest.mark.holds("rules.escape-hatch")
@both_forms
@every_set
def test_the_rules_say_to_search_if_browsing_fails(exposed: Sequence[str], full: bool) -> None:
    told = rules(exposed, full=full)

    assert any("search_tools" in rule and rule & {"want", "words"} for rule in told)
    if full:
        assert any({*exposed} & SEARCHES <= rule for rule in told)


@pytest.mark.holds("rules.expand-first")
@both_forms
@every_set
def test_the_rules_say_to_expand_a_tool_before_calling_it(exposed: Sequence[str], full: bool) -> None:
    (rule,) = [rule for rule in rules(exposed, full=full) if {"expand_tool", "handle"} <= rule]

    assert rule & {"before", "never"}
    assert {*exposed} & {*CALLS} <= rule


@pytest.mark.holds("rules.follow-errors")
@both_forms
@every_set
def test_the_rules_say_to_follow_hints_and_next_actions_of_errors(exposed: Sequence[str], full: bool) -> None:
    assert any({"error", "hints", "next_action"} <= rule for rule in rules(exposed, full=full))


@pytest.mark.holds("rules.told")
@pytest.mark.anyio
@pytest.mark.parametrize("name", SETS)
async def test_a_client_gets_the_instructions_for_its_operations(name: str) -> None:
    crib = Toolcrib()
    gateway = Gateway(crib, Config(Path("mcp.json")), principal=LOCAL, exposed=name)
    async with crib, gateway, Client(gateway.server) as client:
        assert client.instructions == instructions(SETS[name], ())
        assert [tool.name for tool in (await client.list_tools()).tools] == [*SETS[name]]
