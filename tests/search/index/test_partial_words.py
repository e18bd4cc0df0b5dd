"""Words of a request that no visible tool has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.tools import Tool
from toolcrib.search.index.fields import Document, document
from toolcrib.search.index.index import Index, Selection
from toolcrib.search.index.partial_words import ABBREVIATIONS, distance
from toolcrib.search.index.weights import WEIGHTS


def _tool(tool_id: str, description: str = "") -> Document:
    source, _, name = tool_id.partition(".")
    return document(Tool(source, name, description, {"type": "object"}))


TOOLS = [
    _tool("iam.authenticate", "Authenticates an account."),
    _tool("app.set_configuration", "Changes the configuration."),
    _tool("cluster.kubectl_apply", "Applies a manifest."),
    _tool("store.create_database", "Creates a database."),
    _tool("media.resize_image", "Resizes an image."),
    _tool("shell.environment", "Lists the environment of a process."),
    _tool("ops.kubernetes_scale", "Scales a deployment of kubernetes."),
    _tool("browser.take_screenshot", "Takes a screenshot of a page."),
    _tool("chat.telegram_send", "Sends a note."),
    _tool("day.calendar", "Shows the calendar."),
]
WORDS = WEIGHTS.without("meaning")
"""The table of word vectors knows many abbreviations and misspelled words too."""

INDEX = Index.build(TOOLS, weights=WORDS)


def found(query: str, visible: Selection | None = None) -> list[str]:
    return [hit.tool_id for hit in INDEX.search(query, limit=10, visible=visible).hits]


@pytest.mark.parametrize(
    ("query", "tool_id"),
    [
        ("auth", "iam.authenticate"),
        ("config", "app.set_configuration"),
        ("kube", "ops.kubernetes_scale"),
        ("kube", "cluster.kubectl_apply"),
        ("db", "store.create_database"),
        ("img", "media.resize_image"),
        ("env", "shell.environment"),
        ("k8s", "ops.kubernetes_scale"),
        ("gram", "chat.telegram_send"),
        ("screenshoot", "browser.take_screenshot"),
        ("databsae", "store.create_database"),
        ("enviroment", "shell.environment"),
        ("kubrenetes", "ops.kubernetes_scale"),
        ("calnedar", "day.calendar"),
    ],
)
def test_partial_and_misspelled_words_find_the_tool(query: str, tool_id: str) -> None:
    assert tool_id in found(query)
    assert INDEX.weighted(WORDS.without("partial_words")).search(query, limit=10).total == 0


@pytest.mark.parametrize("query", ["xyzzy", "ima", "cal", "2024", "databasesque_nonsense", "scrn", "日本", "q" * 64])
def test_words_without_any_relation_find_nothing(query: str) -> None:
    assert "media.resize_image" not in found(query)
    assert "day.calendar" not in found(query)


def test_numbers_are_not_misspelled_numbers() -> None:
    index = Index.build([_tool("a.report_20231", "The report of 20231."), *TOOLS], weights=WORDS)
    assert index.search("20232", limit=10).total == 0


def test_a_word_that_a_visible_tool_has_gets_no_stand_ins() -> None:
    index = Index.build([*TOOLS, _tool("x.auth", "Opens the auth page.")], weights=WORDS)
    assert [hit.tool_id for hit in index.search("auth", limit=10).hits] == ["x.auth"]


def test_the_word_itself_counts_more_than_what_stands_in() -> None:
    index = Index.build([_tool("a.scale_kubernetes"), _tool("b.scale_kube")], weights=WORDS)
    exact, partial = (index.search("scale kubernetes", limit=2).hits[at].tool_id for at in (0, 1))
    assert (exact, partial) == ("a.scale_kubernetes", "b.scale_kube")


def test_words_of_hidden_tools_never_stand_in() -> None:
    visible = INDEX.select(lambda tool_id: tool_id != "store.create_database")
    assert found("db", visible) == []
    assert found("databsae", visible) == []


@given(
    st.lists(st.sampled_from(["auth", "db", "kubrenetes", "config", "page", "take", "gram"]), min_size=1, max_size=4),
    st.sets(st.sampled_from([each.tool_id for each in TOOLS])),
)
def test_answers_with_hidden_tools_are_those_without_them(words: list[str], hidden: set[str]) -> None:
    query = " ".join(words)
    visible = INDEX.select(lambda tool_id: tool_id not in hidden)
    fresh = Index.build((each for each in TOOLS if each.tool_id not in hidden), weights=WORDS)
    assert INDEX.search(query, limit=10, visible=visible) == fresh.search(query, limit=10)


MANY = [_tool(f"hidden.auth{one}{other}") for one in "abcdefgh" for other in "klmnopqr"]
"""More tools than stand-ins are given, whose words come before those of the visible ones in each order."""


@pytest.mark.parametrize(
    ("query", "visible"),
    [
        ("auth", [_tool("iam.authzzzzzz")]),
        ("hakl", [_tool("x.zzauthaklzzzz")]),
        ("authakm", [_tool("iam.authzkm")]),
        ("authak", [_tool("iam.authzk")]),
    ],
)
def test_many_hidden_words_crowd_out_no_visible_one(query: str, visible: list[Document]) -> None:
    index = Index.build([*MANY, *visible])
    shown = index.select(lambda tool_id: not tool_id.startswith("hidden."))

    fresh = Index.build(visible).search(query, limit=10)

    assert [hit.tool_id for hit in fresh.hits] == [visible[0].tool_id]
    assert index.search(query, limit=10, visible=shown) == fresh


@pytest.mark.parametrize("query", ["authakx", "auth", "thak"])
def test_stand_ins_do_not_depend_on_how_an_index_grew(query: str) -> None:
    tools = [*MANY, _tool("iam.authakxy"), _tool("iam.bauthakx"), _tool("iam.authaks")]
    once = Index.build(tools, weights=WORDS)
    grown = Index.build(tools[:-1], weights=WORDS).updated(tools[-1:])

    assert len(grown.parts) == 2
    assert grown.search(query, limit=50) == once.search(query, limit=50)


@given(st.permutations(TOOLS), st.integers(0, len(TOOLS)))
def test_an_index_that_grew_answers_like_one_built_at_once(tools: list[Document], at: int) -> None:
    grown = Index.build(tools[:at], weights=WORDS).updated(tools[at:])
    for query in ("auth db", "kubrenetes config", "take a screenshoot"):
        assert grown.search(query, limit=10) == INDEX.search(query, limit=10)


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_distances_are_symmetric_and_bounded(one: str, other: str) -> None:
    exact = distance(one, other, 8)
    assert exact == distance(other, one, 8)
    assert distance(one, other, 1) == min(exact, 2)
    assert (exact == 0) == (one == other)


def test_abbreviations_are_words_in_lower_case() -> None:
    assert all(short == short.lower() and long == long.lower() and long for short, long in ABBREVIATIONS.items())
