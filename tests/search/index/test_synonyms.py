"""Laws of the groups of words, and that a synonym counts beside its word, not on top of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.tools import Tool
from toolcrib.search.index.fields import Document, document
from toolcrib.search.index.index import Index
from toolcrib.search.index.query import Query
from toolcrib.search.index.synonyms import GROUPS, RELATED
from toolcrib.search.index.tokens import STOPWORDS, terms
from toolcrib.search.index.weights import WEIGHTS

_pairs = st.sampled_from([(term, other) for term, others in RELATED.items() for other in others])


def test_terms_are_related_to_each_other_and_none_to_itself_or_twice() -> None:
    for term, others in RELATED.items():
        assert term not in others
        assert len(set(others)) == len(others) > 0
        assert all(term in RELATED[other] for other in others)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_of_different_words_of_one_term_each_none_a_stopword(group: str) -> None:
    members = group.split()

    assert len(members) == len(set(members)) > 1
    assert len({terms(word)[0] for word in members}) == len(members)
    for word in members:
        assert len(terms(word)) == 1
        assert word not in STOPWORDS


def _tool(tool_id: str, *name: str) -> Document:
    return Document(tool_id, name=name)


@given(_pairs, st.integers(0, 30), st.integers(0, 30))
def test_a_synonym_earns_less_than_the_word_and_nothing_beside_it(
    pair: tuple[str, str], more_words: int, more_synonyms: int
) -> None:
    word, synonym = pair
    index = Index.build(
        [
            _tool("a.word", word, "x"),
            _tool("b.both", word, synonym),
            _tool("c.synonym", synonym, "x"),
            *(_tool(f"w.{at}", word) for at in range(more_words)),
            *(_tool(f"x.{at}", synonym) for at in range(more_synonyms)),
        ],
        weights=WEIGHTS.without("brevity").refusing_nothing(),
    )

    score = {hit.tool_id: hit.score for hit in index.search(Query((word,)), limit=100).hits}

    assert score["b.both"] == pytest.approx(score["a.word"])
    assert 0 < score["c.synonym"] <= WEIGHTS.synonyms * score["a.word"] * (1 + 1e-6)


def test_a_synonym_that_more_tools_hold_than_the_word_earns_what_it_would_earn_itself() -> None:
    word, synonym = "delet", "remov"
    tools = [
        _tool("a.word", word, "x"),
        _tool("b.synonym", synonym, "x"),
        *(_tool(f"c.{at}", synonym) for at in range(9)),
    ]
    index = Index.build(tools, weights=WEIGHTS.without("brevity").refusing_nothing())

    def scores(term: str) -> dict[str, float]:
        return {hit.tool_id: hit.score for hit in index.search(Query((term,)), limit=100).hits}

    assert scores(word)["b.synonym"] == pytest.approx(WEIGHTS.synonyms * scores(synonym)["b.synonym"])


def test_a_word_that_no_tool_holds_is_found_by_its_synonyms_alone() -> None:
    index = Index.build([document(Tool("s", name)) for name in ("remove_branch", "create_branch", "read_mail")])

    hits = index.search("erase it", limit=10).hits

    assert [hit.tool_id for hit in hits] == ["s.remove_branch"]


def test_of_several_synonyms_the_best_counts_once() -> None:
    held = {"s.one": ("remov", "x"), "s.two": ("remov", "drop"), "s.three": ("x", "drop")}
    index = Index.build([_tool(tool_id, *name) for tool_id, name in held.items()])

    scores = [hit.score for hit in index.weighted(WEIGHTS.without("brevity")).search("delete", limit=10).hits]

    assert scores == [pytest.approx(scores[0])] * 3
