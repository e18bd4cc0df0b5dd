"""Tools are grouped by their distinguishing words, nodes summarize their contents, and input order does not matter."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from toolcrib.catalog.grouping import MAX_GROUPS, MAX_TOOLS, NAME_CHARS, SUMMARY_CHARS, grouped, summaries_of
from toolcrib.core.tools import Tool

VERBS = ("create", "list", "update", "close", "comment on", "search")
NOUNS = ("issue", "pull request", "branch", "release", "workflow", "secret")


def by_id(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {tool.id: tool for tool in tools}


def of_things(nouns: Iterable[str], source: str = "github") -> dict[str, Tool]:
    return by_id(
        Tool(source, f"{verb}_{noun}".replace(" ", "_"), f"{verb.capitalize()} a {noun} of the repository.")
        for noun in nouns
        for verb in VERBS
    )


def test_a_node_of_a_dozen_tools_is_not_grouped() -> None:
    tools = of_things(NOUNS[:2])
    assert len(tools) == MAX_TOOLS
    assert grouped(tools) == ()


def test_tools_are_grouped_by_the_thing_they_are_about() -> None:
    groups = grouped(of_things(NOUNS))
    assert {group.name for group in groups} == {"branch", "issue", "pull request", "release", "secret", "workflow"}
    issues = next(group for group in groups if group.name == "issue")
    assert set(issues.tool_ids) == {*of_things(["issue"])}


def test_the_summary_of_a_group_names_its_tools() -> None:
    group = next(group for group in grouped(of_things(NOUNS)) if group.name == "secret")
    assert "create_secret" in group.summary
    assert "list_secret" in group.summary


def test_grouping_does_not_depend_on_the_order_of_the_tools() -> None:
    tools = list(of_things(NOUNS).values())
    first = grouped(by_id(tools))
    for seed in range(5):
        random.Random(seed).shuffle(tools)
        assert grouped(by_id(tools)) == first


def test_groups_and_summaries_are_cached_until_tools_change_or_the_cache_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools = of_things(NOUNS, "kept")
    again = by_id(replace(tool) for tool in reversed(tools.values()))
    changed = {**tools, **by_id([replace(tools["kept.create_issue"], description="Open one.")])}
    nodes = {"one": [*tools.values()], "two": [*of_things(["secret"]).values()]}

    assert grouped(again) is grouped(tools)
    assert grouped(tools, taken=["Branch"]) is grouped(tools, taken=["branch"]) is not grouped(tools)
    assert grouped(changed) is not grouped(tools)
    assert summaries_of({**nodes, "one": [*again.values()]}) is summaries_of(nodes)
    assert summaries_of({**nodes, "one": [*changed.values()]}) is not summaries_of(nodes)

    monkeypatch.setattr("toolcrib.catalog.grouping.MAX_CACHED", 2)
    kept = grouped(tools)
    for name in ("another", "third"):
        grouped(of_things(NOUNS, name))
    assert grouped(tools) == kept
    assert grouped(tools) is not kept


def test_too_many_tools_are_grouped_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = of_things(NOUNS, "many")
    monkeypatch.setattr("toolcrib.catalog.grouping.MAX_READ", len(tools) - 1)
    groups = grouped(tools)

    assert [tool_id for group in groups for tool_id in group.tool_ids] == sorted(tools)
    assert groups[0].name.startswith("close_branch to ")
    assert summaries_of({"all": [*tools.values()]})["all"].startswith("close_branch, close_issue")


def test_adding_one_tool_does_not_move_other_tools() -> None:
    def places(tools: Mapping[str, Tool]) -> dict[str, str]:
        return {tool_id: group.name for group in grouped(tools) for tool_id in group.tool_ids}

    tools = of_things(NOUNS)
    more = Tool("github", "pin_issue", "Pin an issue of the repository.")
    before, after = places(tools), places({**tools, more.id: more})
    assert after.pop(more.id) == "issue"
    assert after == before


def test_tools_of_one_source_stay_together_in_a_mixed_node() -> None:
    tools = {
        **of_things(["invoice"], "books"),
        **of_things(["playlist"], "radio"),
        **of_things(["garden"], "plants"),
        "radio.ping": Tool("radio", "ping", "Ping the garden."),
    }
    groups = grouped(tools)
    assert any({tool_id for tool_id in tools if tool_id.startswith("radio.")} <= {*g.tool_ids} for g in groups)


def test_a_group_name_never_equals_the_name_of_an_existing_node() -> None:
    names = {group.name for group in grouped(of_things(NOUNS), taken=["Issue", "branch"])}
    assert not names & {"issue", "branch"}
    assert {"issue 2", "branch 2"} <= names


def test_a_single_tool_forms_no_group_and_stays_in_its_node() -> None:
    odd = Tool("github", "weather", "Tell tomorrow's rain.")
    groups = grouped({**of_things(NOUNS), odd.id: odd})
    assert not any(odd.id in group.tool_ids for group in groups)
    assert all(len(group.tool_ids) > 1 for group in groups)


def test_a_small_group_is_dissolved_while_its_tools_fit_in_the_node() -> None:
    weather = by_id(Tool("github", f"weather_{when}", "Tell the rain.") for when in ("today", "tomorrow"))
    groups = grouped({**of_things(NOUNS[:3]), **weather})
    assert not any(set(weather) & {*group.tool_ids} for group in groups)
    assert {group.name for group in groups} == {"issue", "pull request", "branch"}


def test_a_tool_without_a_group_word_joins_tools_with_similar_descriptions() -> None:
    tools = by_id(
        Tool("s", f"{verb}_{noun}", f"{verb} {what}")
        for noun, what in {"issue": "assignee milestone", "branch": "head commit", "secret": "vault key"}.items()
        for verb in ("open", "close", "rename", "lock", "pin", "move")
    )
    triage = Tool("s", "triage", "By milestone, by assignee.")
    groups = grouped({**tools, triage.id: triage})
    assert any({triage.id, "s.open_issue", "s.pin_issue"} <= {*group.tool_ids} for group in groups)


@pytest.mark.parametrize(
    "tools",
    [
        by_id(Tool("s", f"tool_{at:03}") for at in range(200)),
        by_id(Tool(f"s{at:03}", "get", "Get it.") for at in range(200)),
        by_id(Tool("s", chr(at), "") for at in range(0x4E00, 0x4E00 + 60)),
        by_id(Tool("s", letter) for letter in "abcdefghijklmnopqrstuvwxyz"),
    ],
    ids=["numbered", "identical", "single characters", "letters"],
)
def test_tools_without_distinguishing_words_are_grouped_in_order(tools: Mapping[str, Tool]) -> None:
    groups = grouped(tools)
    assert 2 <= len(groups) <= MAX_GROUPS
    assert sorted(tool_id for group in groups for tool_id in group.tool_ids) == sorted(tools)
    assert all(len(group.tool_ids) <= MAX_TOOLS for group in groups)


def test_tools_in_a_different_script_are_grouped_by_their_words() -> None:
    things = {"天気": "weather", "料理": "cooking", "電車": "trains", "映画": "films"}
    tools = by_id(Tool("s", f"{name}_{at}", f"{thing}を調べる") for thing, name in things.items() for at in range(5))
    groups = grouped(tools)
    assert sorted(len(group.tool_ids) for group in groups) == [5, 5, 5, 5]


def test_a_thousand_tools_fit_on_one_page_of_groups() -> None:
    tools = by_id(
        Tool("s", f"{verb}_{noun}_{at}", f"{verb} the {noun} number {at}")
        for at in range(30)
        for verb in VERBS
        for noun in NOUNS
    )
    groups = grouped(tools)
    assert 2 <= len(groups) <= MAX_GROUPS
    assert max(len(group.tool_ids) for group in groups) < len(tools)


def test_a_node_of_few_tools_is_summarized_by_their_names() -> None:
    summary = summaries_of({"secrets": list(of_things(["secret"]).values())})["secrets"]
    assert all(tool.name in summary for tool in of_things(["secret"]).values())


def test_a_node_of_many_tools_is_summarized_by_its_distinguishing_words() -> None:
    nodes = {
        "one": [*of_things(["shop invoice", "shop customer", "shop payment"]).values()],
        "two": [*of_things(["shop playlist", "shop singer", "shop album"]).values()],
        "three": [*of_things(["shop garden", "shop tree", "shop flower"]).values()],
        "four": [*of_things(["shop train", "shop ticket", "shop station"]).values()],
    }
    summaries = summaries_of(nodes)
    assert summaries["one"].removeprefix("Tools about ").split(", ")[0] in {"invoice", "customer", "payment"}
    assert summaries["two"].removeprefix("Tools about ").split(", ")[0] in {"playlist", "singer", "album"}
    assert all(word in summaries["one"] for word in ("invoice", "customer", "payment"))
    assert len(summaries["one"]) <= SUMMARY_CHARS


def test_a_summary_names_few_tools_and_describes_many() -> None:
    few = [Tool("s", f"{verb}_note", f"Notes of the diary: {verb} one.") for verb in ("read", "write")]
    many = [Tool("s", f"sell_{at}", "Sells an apple, a pear or a plum.") for at in range(30)]
    summaries = summaries_of({"few": few, "many": many})
    assert summaries["few"] == "Tools about diary: read_note and write_note."
    assert summaries["many"] == "Tools about sell, plum, pear and apple."


@pytest.mark.parametrize("count", [1, 2, 50])
def test_tools_without_descriptions_and_identical_tools_have_a_summary(count: int) -> None:
    silent = [Tool("s", f"garden_{at}") for at in range(count)]
    alike = [Tool("s", f"t{at}", "Water the garden.") for at in range(count)]
    summaries = summaries_of({"silent": silent, "alike": alike})
    assert all("garden" in summary.casefold() and len(summary) <= SUMMARY_CHARS for summary in summaries.values())


def test_many_tools_in_a_different_script_are_described_by_their_words() -> None:
    tools = [Tool("s", f"погода_{at}", "Прогноз погоды для города") for at in range(20)]
    assert "прогноз" in summaries_of({"": tools})[""].casefold()


def test_a_summary_mentions_small_groups_of_tools_early() -> None:
    many = [Tool("s", f"invoice_{at}", f"Invoice customer payment tax ledger {at}.") for at in range(20)]
    few = [Tool("s", f"garden_{at}", "Water the roses.") for at in range(4)]
    assert "garden" in summaries_of({"": [*many, *few]})[""].removeprefix("Tools about ").split(", ")[:3]


def test_a_summary_leaves_out_generic_words() -> None:
    tools = [
        Tool("s", f"get_{noun}_{at}", f"API endpoint that returns the {noun} data as JSON.")
        for noun in NOUNS
        for at in range(3)
    ]
    told = {*summaries_of({"": tools})[""].split(", ")}
    assert not told & {"get", "api", "endpoint", "returns", "data", "json"}


def test_a_node_without_tools_has_an_empty_summary() -> None:
    assert summaries_of({"empty": []}) == {"empty": ""}


_texts = st.text(max_size=20) | st.sampled_from(
    ["list_issues", "createIssue", "getUser", "天気予報", "погода", "x", ""]
)
_tools = st.builds(Tool, st.sampled_from(["a", "b", "c"]), _texts, _texts)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(_tools, max_size=60).map(by_id), st.integers(4, 20))
def test_any_tools_form_fewer_smaller_and_disjoint_groups(tools: dict[str, Tool], at_most: int) -> None:
    groups = grouped(tools, at_most=at_most)
    ids = [tool_id for group in groups for tool_id in group.tool_ids]
    assert len(ids) == len({*ids})
    assert {*ids} <= {*tools}
    assert len(groups) <= MAX_GROUPS
    assert all(1 < len(group.tool_ids) < len(tools) for group in groups)
    assert len({group.name.casefold() for group in groups}) == len(groups)
    assert all(group.name and len(group.name) <= NAME_CHARS for group in groups)
    assert all(len(group.summary) <= SUMMARY_CHARS for group in groups)
