"""Names of tools in the tool list of a model."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.names import model_names
from toolcrib.core.tools import Tool

ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}")

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=100)  # includes unpaired surrogates
NAME = st.one_of(ANY_TEXT, st.text("aAbB_-é", max_size=4), st.text("x_", min_size=55, max_size=70))
TOOLS = st.lists(st.builds(Tool, st.one_of(ANY_TEXT, st.text("aA_é3", max_size=2)), NAME), max_size=12)


@given(TOOLS)
def test_every_tool_has_a_valid_and_unique_name(tools: list[Tool]) -> None:
    names = model_names(tools)

    assert names.keys() == {tool.id for tool in tools}
    assert all(ACCEPTED.fullmatch(name) for name in names.values())
    assert len({name.casefold() for name in names.values()}) == len(names)


@given(TOOLS)
def test_a_name_does_not_depend_on_the_order_of_tools(tools: list[Tool]) -> None:
    assert model_names(tools) == model_names(reversed(tools))


def test_a_valid_and_unique_name_is_used_unchanged() -> None:
    assert model_names([Tool("git", "commit"), Tool("git", "log-all")]) == {
        "git.commit": "git__commit",
        "git.log-all": "git__log-all",
    }
    longest = Tool("s", "x" * 60)
    assert model_names([longest])[longest.id] == "s__" + "x" * 60


def test_a_valid_name_is_not_changed_because_of_a_similar_invalid_name() -> None:
    kelvin = Tool("s", "\u212a")  # its lower case is the ordinary letter k

    assert model_names([kelvin, Tool("s", "k")])["s.k"] == "s__k"


def test_names_that_differ_only_in_case_both_contain_a_hash() -> None:
    names = model_names([Tool("git", "Log"), Tool("git", "log"), Tool("git", "tag")])

    assert re.fullmatch(r"git__?_[0-9a-f]{6}__?Log", names["git.Log"])
    assert re.fullmatch(r"git__?_[0-9a-f]{6}__?log", names["git.log"])
    assert names["git.tag"] == "git__tag"


def test_a_plain_name_shared_by_two_tools_is_used_for_neither() -> None:
    names = model_names([Tool("a", "b__c"), Tool("a__b", "c")])

    assert "a__b__c" not in names.values()
    assert len(set(names.values())) == 2


def test_a_name_that_imitates_a_hashed_name_cannot_displace_it() -> None:
    odd = Tool("s", "get it")
    copycat = Tool("s", model_names([odd])[odd.id].removeprefix("s__"))

    names = model_names([odd, copycat])

    assert names[copycat.id] == f"s__{copycat.name}"
    assert names[odd.id] != names[copycat.id]


def test_thousands_of_names_with_only_invalid_characters_are_unique() -> None:
    tools = [Tool("s", chr(0x4E00 + number)) for number in range(15_000)]

    assert len(set(model_names(tools).values())) == len(tools)


def test_a_shortened_name_contains_the_beginning_and_the_end() -> None:
    tool = Tool("github", "search_" + "and_" * 20 + "replace")

    name = model_names([tool])[tool.id]

    assert len(name) == 63
    assert name.startswith("github__search_and")
    assert name.endswith("and_replace")
