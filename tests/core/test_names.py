"""Names under which tools stand in a model's own list."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.names import model_names
from toolcrib.core.tools import Tool

ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}")

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=100)  # half surrogate pairs too
NAME = st.one_of(ANY_TEXT, st.text("aAbB_-é", max_size=4), st.text("x_", min_size=55, max_size=70))
TOOLS = st.lists(st.builds(Tool, st.one_of(ANY_TEXT, st.text("aA_é3", max_size=2)), NAME), max_size=12)


@given(TOOLS)
def test_every_tool_has_a_name_that_every_client_takes_and_no_two_have_the_same(tools: list[Tool]) -> None:
    names = model_names(tools)

    assert names.keys() == {tool.id for tool in tools}
    assert all(ACCEPTED.fullmatch(name) for name in names.values())
    assert len({name.casefold() for name in names.values()}) == len(names)


@given(TOOLS)
def test_a_name_does_not_depend_on_the_order_of_tools(tools: list[Tool]) -> None:
    assert model_names(tools) == model_names(reversed(tools))


def test_a_name_that_is_accepted_and_free_stays_plain() -> None:
    assert model_names([Tool("git", "commit"), Tool("git", "log-all")]) == {
        "git.commit": "git__commit",
        "git.log-all": "git__log-all",
    }
    longest = Tool("s", "x" * 60)
    assert model_names([longest])[longest.id] == "s__" + "x" * 60


def test_what_only_an_odd_name_resembles_stays_plain() -> None:
    kelvin = Tool("s", "\u212a")  # its lower case is an ordinary k

    assert model_names([kelvin, Tool("s", "k")])["s.k"] == "s__k"


def test_names_that_differ_only_in_case_both_carry_a_hash() -> None:
    names = model_names([Tool("git", "Log"), Tool("git", "log"), Tool("git", "tag")])

    assert re.fullmatch(r"git__?_[0-9a-f]{6}__?Log", names["git.Log"])
    assert re.fullmatch(r"git__?_[0-9a-f]{6}__?log", names["git.log"])
    assert names["git.tag"] == "git__tag"


def test_one_plain_name_of_two_tools_is_given_to_neither() -> None:
    names = model_names([Tool("a", "b__c"), Tool("a__b", "c")])

    assert "a__b__c" not in names.values()
    assert len(set(names.values())) == 2


def test_a_name_made_to_look_like_another_tools_hashed_one_takes_nothing_from_it() -> None:
    odd = Tool("s", "get it")
    copycat = Tool("s", model_names([odd])[odd.id].removeprefix("s__"))

    names = model_names([odd, copycat])

    assert names[copycat.id] == f"s__{copycat.name}"
    assert names[odd.id] != names[copycat.id]


def test_thousands_of_names_that_differ_only_in_what_is_not_accepted_stay_apart() -> None:
    tools = [Tool("s", chr(0x4E00 + number)) for number in range(15_000)]

    assert len(set(model_names(tools).values())) == len(tools)


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    tool = Tool("github", "search_" + "and_" * 20 + "replace")

    name = model_names([tool])[tool.id]

    assert len(name) == 63
    assert name.startswith("github__search_and")
    assert name.endswith("and_replace")
