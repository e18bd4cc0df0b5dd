"""Search by meaning with the shipped table: what it finds, and that nothing but the visible tools moves it."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.search.index.strategies import everything

from toolcrib.core.tools import Tool
from toolcrib.search.index import closeness
from toolcrib.search.index.closeness import share_of
from toolcrib.search.index.fields import Document, document
from toolcrib.search.index.index import Index
from toolcrib.search.index.query import Query
from toolcrib.search.index.weights import WEIGHTS
from toolcrib.search.index.word_vectors import DIM

TOOLS = [
    document(Tool("files", "create_directory", "Create a new directory or ensure that it exists.")),
    document(Tool("files", "move_file", "Move or rename files and directories.")),
    document(Tool("time", "get_current_time", "Get the current time in a timezone.")),
    document(Tool("memory", "add_observations", "Add observations to entities in the knowledge graph.")),
    document(Tool("mail", "send_email", "Send an email to recipients.")),
    document(Tool("weather", "get_forecast", "Get the weather forecast of a place.")),
    document(Tool("browser", "take_screenshot", "Capture an image of the current page.")),
    document(Tool("git", "git_log", "Shows the commit logs.")),
]
WITHOUT = WEIGHTS.without("meaning")


@pytest.mark.parametrize(
    ("request_", "tool_id"),
    [
        ("snapshot of the website", "browser.take_screenshot"),
        ("will it rain tomorrow", "weather.get_forecast"),
        ("what's the clock in Tokyo", "time.get_current_time"),
    ],
)
def test_a_request_in_everyday_words_finds_a_tool_that_has_none_of_them(request_: str, tool_id: str) -> None:
    index = Index.build(TOOLS)

    assert index.search(request_, limit=1).hits[0].tool_id == tool_id
    by_words = index.weighted(WITHOUT).search(request_, limit=1).hits
    assert not by_words or by_words[0].tool_id != tool_id


def test_switched_off_it_takes_no_memory_and_changes_no_score() -> None:
    index = Index.build(TOOLS, weights=WITHOUT)

    assert {part.segment.vectors.shape[1] for part in index.parts} == {0}
    assert {part.segment.vectors.shape[1] for part in Index.build(TOOLS).parts} == {DIM}
    asked = "get the current directory"
    assert everything(index, asked) == everything(Index.build(TOOLS).weighted(WITHOUT), asked)


# The second is unlike tools in general, so a vector of zeros would be closer than most.
@pytest.mark.parametrize("asked", ["get the current directory", "git, as if without"])
def test_tools_without_texts_have_no_vectors_and_rank_by_words(asked: str) -> None:
    """The index of categories has such documents."""
    bare = [replace(each, texts=()) for each in TOOLS]
    index = Index.build(bare)

    assert {part.segment.vectors.shape for part in index.parts} == {(len(TOOLS), 0)}
    by_words = everything(index.weighted(WITHOUT), asked)
    assert everything(index, asked) == by_words
    beside = index.updated([document(Tool("hidden", "folder", "Makes a folder."))])
    visible = beside.select(lambda tool_id: tool_id != "hidden.folder")
    assert everything(beside, asked, visible=visible) == by_words


def test_few_visible_tools_of_many_are_compared_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    closest = vars(closeness)["_closest"]

    def counted(tools: NDArray[np.float32], asked: NDArray[np.float32]) -> NDArray[np.float32]:
        compared.append(tools.shape[1])
        return closest(tools, asked)

    tools = _many(1_000, 5)
    seen = {each.tool_id for each in tools[::100]}
    index = Index.build(tools)
    monkeypatch.setattr(closeness, "_closest", counted)

    found = everything(index, "rain", visible=index.select(seen.__contains__))

    assert sum(compared) <= len(seen) + 1  # and the typical tool
    assert found == everything(Index.build([each for each in tools if each.tool_id in seen]), "rain")


def test_the_share_of_meaning_falls_with_the_number_of_terms() -> None:
    requests = ["folder", "folder list", "folder list size", "folder list size owner date time zone " * 2]
    shares = [share_of(Query.parse(each), 0.0, WEIGHTS) for each in requests]

    assert shares == sorted(shares, reverse=True)
    assert shares[0] == WEIGHTS.meaning_at_most
    by_length = WEIGHTS.meaning - WEIGHTS.meaning_by_length * math.log(3)
    assert shares[2] == pytest.approx(min(by_length, WEIGHTS.meaning_at_most))
    assert share_of(Query.parse(" ".join(f"word{at}x" for at in range(100))), 0.0, WEIGHTS) == WEIGHTS.meaning_at_least


def test_meaning_counts_less_if_a_tool_has_all_words_of_the_request() -> None:
    query = Query.parse("folder")
    shares = [share_of(query, coverage, WEIGHTS) for coverage in (0.0, 0.5, 1.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] == pytest.approx(WEIGHTS.meaning_at_most - WEIGHTS.meaning_by_coverage)


_WORDS = (
    *("file", "folder", "image", "photo", "mail", "message", "git", "commit", "branch", "weather"),
    *("rain", "time", "clock", "note", "page", "tab", "song", "film"),
)
_requests = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=5).map(" ".join)


def _many(count: int, seed: int) -> list[Document]:
    random = Random(seed)
    return [
        document(Tool(f"s{at % 7}", f"t{at:04}", " ".join(random.choices(_WORDS, k=random.randint(1, 6)))))
        for at in range(count)
    ]


@pytest.fixture
def _few_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closeness, "_WHOLE", 20)


@pytest.mark.usefixtures("_few_whole")
@pytest.mark.parametrize("seed", range(8))
def test_in_a_large_catalog_the_hidden_leaves_no_trace_and_history_does_not_show(seed: int) -> None:
    random = Random(seed)
    tools = _many(300, seed)
    hidden = {each.tool_id for each in random.sample(tools, 120)}
    left = [each for each in tools if each.tool_id not in hidden]
    asked = " ".join(random.sample(_WORDS, random.randint(1, 5)))

    index = Index.build(tools[:200])
    for at in range(200, 300, 9):
        index = index.updated(tools[at : at + 9])
    visible = index.select(lambda tool_id: tool_id not in hidden)

    assert everything(index, asked) == everything(Index.build(tools), asked)
    assert everything(index, asked, visible=visible) == everything(Index.build(left), asked)


def test_the_first_comparison_in_few_dimensions_loses_few_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.build(_many(400, 3))

    def best() -> list[set[str]]:
        return [{hit.tool_id for hit in index.search(word, limit=10).hits} for word in _WORDS]

    whole = best()
    monkeypatch.setattr(closeness, "_WHOLE", 100)
    kept = [len(one & other) for one, other in zip(best(), whole, strict=True)]
    assert sum(kept) >= 0.9 * 10 * len(_WORDS)


@given(_requests, st.integers(1, 12))
def test_pages_of_a_search_by_meaning_hold_each_tool_once(asked: str, limit: int) -> None:
    index = Index.build(_many(60, 1))
    every = everything(index, asked).hits
    pages = [index.search(asked, limit=limit, offset=offset).hits for offset in range(0, len(every) + 1, limit)]
    assert tuple(hit for page in pages for hit in page) == every
