"""Metadata overrides of an owner: which override wins, and where an override takes effect."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.strategies import RULES, tools
from tests.catalogs import registry_of, tool
from tests.core.test_metadata import METADATA

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import NO_OVERRIDES, MetadataOverride, Overrides, with_claims
from toolcrib.catalog.view import View, subject_of
from toolcrib.core.errors import InvalidTool, NotAuthorized, StaleExpansion, ToolNotFound
from toolcrib.core.handles import Handle
from toolcrib.core.metadata import NO_METADATA, Optionality, ToolMetadata
from toolcrib.core.tools import Tool, check_metadata
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.catalog_operations import Operations

COMMIT = tool("git.commit", "Record changes", properties={"message": {"type": "string"}}, required=("message",))

WIRES = METADATA.map(lambda metadata: {**metadata.to_wire(), "condition": None, "optionality": "required"})


def said(tool: Tool, *overrides: MetadataOverride) -> ToolMetadata:
    return Overrides(overrides).applied(tool).metadata


# -- precedence -------------------------------------------------------------------------------------------------------


def test_the_last_matching_override_wins_and_lists_are_combined() -> None:
    own = replace(COMMIT, metadata=ToolMetadata(tags=("own",), usage_hint="Its own.", cost="much"))

    assert said(
        own,
        MetadataOverride.of("git.commit", tags=["one"], usage_hint="First.", aliases="save", requires_permission=True),
        MetadataOverride.of("git.*", tags=["two", "own"], usage_hint="Last.", aliases=["save", "record"]),
        MetadataOverride.of("fs.*", tags=["never"], usage_hint="Never."),
    ) == ToolMetadata(
        tags=("own", "one", "two"),
        usage_hint="Last.",
        cost="much",
        aliases=("save", "record"),
        requires_permission=True,
    )


def test_default_values_override_earlier_values_and_are_included_in_the_output() -> None:
    everything = MetadataOverride.of("*", optionality="required", requires_permission=True, category="code")
    nothing = MetadataOverride.of("git.*", optionality="optional", requires_permission=False, category=[])

    assert said(COMMIT, everything, nothing) == NO_METADATA
    assert nothing.to_wire() == {"optionality": "optional", "requires_permission": False, "category": []}


def test_a_condition_is_dropped_when_the_optionality_changes() -> None:
    conditional = MetadataOverride.of("*", optionality="conditional", condition="In a repository.")
    required = MetadataOverride.of("git.*", optionality="required")
    own = replace(COMMIT, metadata=conditional.metadata)

    for metadata in (said(COMMIT, conditional, required), said(own, required)):
        assert metadata == ToolMetadata(optionality=Optionality.REQUIRED)
        check_metadata(metadata)
    assert said(own, required, conditional) == conditional.metadata


def test_a_tool_without_overrides_does_not_change() -> None:
    overrides = Overrides([MetadataOverride.of("fs.*", tags="x")])

    assert overrides.applied(COMMIT) is COMMIT
    assert overrides.said_of(COMMIT) is None
    assert overrides.problems(COMMIT) == ()
    assert not NO_OVERRIDES


@given(WIRES)
def test_an_override_survives_a_round_trip_through_json(wire: dict[str, Any]) -> None:
    override = MetadataOverride.from_wire("git.*", wire)
    again = MetadataOverride.from_wire("git.*", json.loads(json.dumps(override.to_wire())))

    assert (again.metadata, again.members.keys()) == (override.metadata, override.members.keys())
    assert Overrides([again]).digest == Overrides([override]).digest


def test_different_overrides_have_different_digests() -> None:
    different = [
        [MetadataOverride.of("git.*", tags="x")],
        [MetadataOverride.of("git.?", tags="x")],
        [MetadataOverride.of("git.*", tags="x", requires_permission=False)],
        [MetadataOverride.of("git.*", examples=[{"description": "", "input": {"n": 1}}])],
        [MetadataOverride.of("git.*", examples=[{"description": "", "input": {"n": True}}])],
        [MetadataOverride.of("a", tags="x"), MetadataOverride.of("b", tags="x")],
        [MetadataOverride.of("b", tags="x"), MetadataOverride.of("a", tags="x")],
    ]

    assert len({Overrides(each).digest for each in different}) == len(different)


@pytest.mark.parametrize(
    ("tools", "members", "complaint"),
    [
        (" ", {"tags": "x"}, "must be a tool id or a pattern of tool ids"),
        ("*", {"alias": "x"}, "alias: unknown key"),
        (
            "*",
            {"optionality": "conditional"},
            "condition: a conditional tool needs a condition: say when it is required",
        ),
        ("*", {"condition": "x"}, "condition: only allowed if `optionality` is `conditional`"),
    ],
)
def test_an_invalid_override_is_refused(tools: str, members: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidTool) as refused:
        MetadataOverride.of(tools, **members)

    assert refused.value.message.startswith(complaint)


# -- examples ---------------------------------------------------------------------------------------------------------


def test_an_example_that_does_not_match_the_schema_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    examples = [{"description": "Record", "input": {"message": "x"}}, {"description": "Oops", "input": {"msg": "x"}}]
    registry = registry_of(COMMIT, tool("git.log", properties={"msg": {}}))
    registry.set_overrides(Overrides([MetadataOverride.of("git.*", examples=examples, cost="little")]))

    shown: dict[str, list[str]] = {
        tool.id: [each.description for each in tool.metadata.examples] for tool in registry.list()
    }
    assert shown == {"git.commit": ["Record"], "git.log": ["Oops"]}
    assert {tool.metadata.cost for tool in registry.list()} == {"little"}
    assert "git.commit: example 2 (Oops) does not match its schema: unknown key `msg`" in caplog.text
    assert "git.log: example 1 (Record) does not match its schema" in caplog.text


def test_an_example_for_a_tool_with_an_invalid_schema_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    broken = tool("git.commit", properties={"message": {"type": "texts"}})
    example: dict[str, object] = {"description": "Record", "input": {}}
    override = MetadataOverride.of("git.*", examples=[example], cost="little")

    assert said(broken, override) == ToolMetadata(cost="little")
    assert "git.commit: its schema is not usable" in caplog.text


# -- effects ----------------------------------------------------------------------------------------------------------

REACHING = MetadataOverride.of(
    "functions.*",
    usage_hint="Before zeppelins take off.",
    aliases=["pigeonhole"],
    intents=["my quicksilver spilled"],
    tags=["marmalade"],
    category=["vcs"],
    optionality="required",
    examples=[{"description": "A xylophone example", "input": {"message": "x"}}],
    requires_permission=True,
    cost="two shillings",
    risk="some",
)


def record(message: str) -> str:
    """Record what changed."""
    return message


@pytest.mark.parametrize("word", ["pigeonhole", "quicksilver", "zeppelins", "xylophone", "marmalade", "vcs"])
def test_a_tool_is_found_by_words_that_only_appear_in_an_override(word: str) -> None:
    crib = Toolcrib()
    crib.add(record)
    assert crib.search_tools(word).results == ()

    crib.add_override(REACHING)

    assert [pointer.tool_id for pointer in crib.search_tools(word).results] == ["functions.record"]


def test_a_list_and_an_expansion_show_overridden_values_but_never_intents() -> None:
    crib = Toolcrib()
    crib.add(record)
    crib.add_override(REACHING)

    (pointer,) = crib.list(["functions"]).to_wire()["tools"]
    assert (pointer["optionality"], pointer["usage_hint"]) == ("required", "Before zeppelins take off.")
    assert pointer["tags"] == ["marmalade"]
    assert [each["tool_id"] for each in crib.list(["vcs"]).to_wire()["tools"]] == ["functions.record"]
    expanded = crib.expand_tool("functions.record").to_wire()
    assert expanded["usage_hint"] == "Before zeppelins take off."
    assert expanded["examples"] == [{"description": "A xylophone example", "input": {"message": "x"}}]
    assert (expanded["cost"], expanded["risk"]) == ("two shillings", "some")
    assert (expanded["optionality"], expanded["requires_permission"]) == ("required", True)
    assert "quicksilver" not in json.dumps([pointer, expanded])


@pytest.mark.anyio
async def test_a_handle_is_stale_after_a_visible_value_was_overridden() -> None:
    crib = Toolcrib()
    crib.add(record)
    handle = crib.expand_tool("functions.record").handle

    crib.add_override(MetadataOverride.of("*", intents="keep it", aliases="save", tags="x"))
    before, after = Handle.parse(handle), Handle.parse(crib.expand_tool("functions.record").handle)
    assert before is not None
    assert after is not None
    assert before.digest == after.digest, "metadata that is only searched is not part of the digest"
    crib.add_override(MetadataOverride.of("*", usage_hint="After every step."))

    with pytest.raises(StaleExpansion):
        await crib.call_tool(handle, {"message": "x"})
    assert (await crib.call_tool(crib.expand_tool("functions.record").handle, {"message": "x"})).text == "x"


# -- access -----------------------------------------------------------------------------------------------------------


def test_only_tags_from_overrides_grant_access_to_tools_of_untrusted_sources() -> None:
    """The sources of the registry are untrusted here."""
    registry = registry_of(tool("git.log", tags=("safe",)), tool("git.show"), tool("git.wipe"))
    registry.set_overrides(Overrides([MetadataOverride.of("git.show", tags="safe")]))
    allow = Rules((Rule(Access.CALL, tags=("safe",)),), Access.HIDDEN)

    assert set(View.of(registry.state, policy=allow).tools) == {"git.show"}
    registry.set_overrides(NO_OVERRIDES)
    assert set(View.of(registry.state, policy=allow).tools) == set()


def test_a_category_from_an_override_grants_access() -> None:
    override = MetadataOverride.of("git.show", category="reading")
    registry = registry_of(tool("git.log", category=("reading",)), tool("git.show"))
    registry.set_overrides(Overrides([override]))
    registry.set_categories(Categories(with_claims([], Overrides([override]).claims)))
    allow = Rules((Rule(Access.CALL, paths=(("reading",),)),), Access.HIDDEN)

    assert set(View.of(registry.state, policy=allow).tools) == {"git.show"}


@given(RULES, tools(max_size=3), st.sampled_from([(), ("x",), ("y",), ("x", "y")]))
def test_tags_of_an_untrusted_source_only_restrict_access_under_any_rules_and_overrides(
    rules: Rules, offered: list[Tool], owners: tuple[str, ...]
) -> None:
    overrides = Overrides([MetadataOverride.of("*", tags=[*owners])])
    categories = Categories([Category(("code",), tagged=("x",)), Category(("quality",), tagged=("y",))])

    for each in offered:
        silent = replace(each, metadata=NO_METADATA, own_path=())
        with_its_word, without = (
            rules.decide(subject_of(overrides.applied(one), categories, overrides)) for one in (each, silent)
        )
        assert with_its_word <= without


@pytest.mark.anyio
@pytest.mark.parametrize("policy", [None, Rules((Rule(Access.CALL, tools=("*",)),), Access.CALL)])
async def test_requires_permission_asks_for_approval_under_any_policy(policy: Rules | None) -> None:
    crib = Toolcrib(policy=policy)
    crib.add(record)
    before = crib.expand_tool("functions.record").to_wire()
    crib.add_override(MetadataOverride.of("functions.*", requires_permission=True))

    view = crib.view()
    assert view.access_to(view.tools["functions.record"]) is Access.ASK
    assert "obstacle" not in before
    expansion = crib.expand_tool("functions.record")
    assert "A person must approve" in expansion.to_wire()["obstacle"]
    with pytest.raises(NotAuthorized, match="needs a person's approval"):  # there is no client that could ask a person
        await crib.call_tool(expansion.handle, {"message": "x"})


def test_requires_permission_does_not_show_hidden_tools() -> None:
    registry = registry_of(COMMIT, tool("git.log"))
    registry.set_overrides(Overrides([MetadataOverride.of("*", requires_permission=True)]))
    rules = Rules((Rule(Access.HIDDEN, tools=("git.log",)), Rule(Access.SEE, tools=("*",))), Access.CALL)
    view = View.of(registry.state, policy=rules)

    assert view.access_to(view.tools["git.commit"]) is Access.SEE
    with pytest.raises(ToolNotFound):
        Operations().expand_tool(view, "git.log")
