"""Scores are those of the formula, and a query that nothing serves finds nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.index.everyday import SERVED, TOOLS, UNSERVED, only
from tests.search.index.strategies import DOCUMENTS, IDS, KNOWN, TEXTS, WEIGHINGS, Known, everything, unique

from toolcrib.search.index.fields import Document
from toolcrib.search.index.index import Index
from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import Knowledge
from toolcrib.search.index.searching import Ranking
from toolcrib.search.index.synonyms import RELATED
from toolcrib.search.index.vocabulary import SHARES
from toolcrib.search.index.weights import WEIGHTS, Weights


class _Formula:
    """The ranking by words as it is written down, tool by tool and without any index."""

    def __init__(self, documents: Sequence[Document], weights: Weights) -> None:
        self.documents = documents
        self.weights = weights

    def impact(self, document: Document, term: str) -> float:
        weighted = sum(
            field.boost * terms.count(term) / (1 - field.b + field.b * len(terms) / field.pivot)
            for terms, field in self.weights.of_fields(document)
        )
        return weighted * (self.weights.k1 + 1) / (weighted + self.weights.k1)

    def idf(self, term: str) -> float:
        holders = sum(self.impact(other, term) > 0 for other in self.documents)
        holders += self.weights.unseen * SHARES.get(term, 0.0)
        return math.log(1 + (len(self.documents) + self.weights.unseen - holders + 0.5) / (holders + 0.5))

    def term(self, document: Document, term: str) -> float:
        related = (
            self.weights.synonyms * min(self.idf(term), self.idf(other)) * self.impact(document, other)
            for other in RELATED.get(term, ())
        )
        return max(self.idf(term) * self.impact(document, term), *related, 0.0)

    def sum(self, document: Document, terms: Sequence[str]) -> float:
        return sum(self.term(document, term) for term in terms)

    def clauses(self, document: Document, query: Query) -> float:
        tops = [max(self.sum(other, clause) for other in self.documents) for clause in query.clauses]
        return max(
            (
                (max(tops) / top) ** self.weights.clause_parity * self.sum(document, clause)
                for clause, top in zip(query.clauses, tops, strict=True)
                if top
            ),
            default=0.0,
        )

    def own(self, document: Document, query: Query) -> float:
        held = {term for terms, _ in self.weights.of_fields(document) for term in terms}
        length = math.hypot(*(self.impact(document, term) for term in held))
        score = self.sum(document, query.terms) + self.weights.clauses * self.clauses(document, query)
        return score / max(length, 0.1) ** self.weights.brevity

    def scores(self, query: Query) -> dict[str, float]:
        own = {document: self.own(document, query) for document in self.documents}
        best = {
            each.origin: max(own[other] for other in own if other.origin == each.origin) for each in own if own[each]
        }
        lent = self.weights.sources if len(best) > 1 else 0.0
        return {each.tool_id: score + lent * best[each.origin] for each, score in own.items() if score}


@given(st.lists(DOCUMENTS, min_size=1, max_size=12).map(unique), TEXTS, WEIGHINGS)
def test_scores_are_those_of_the_formula(documents: list[Document], query: str, weights: Weights) -> None:
    weights = weights.refusing_nothing().without("partial_words", "meaning")
    expected = _Formula(documents, weights).scores(Query.parse(query))

    found = everything(Index.build(documents, weights=weights), query)

    assert {hit.tool_id: hit.score for hit in found.hits} == pytest.approx(expected, rel=1e-5)


@given(st.lists(DOCUMENTS), TEXTS, KNOWN)
def test_what_is_refused_is_all_or_nothing(documents: list[Document], query: str, known: Known | None) -> None:
    index = Index.build(documents)

    shown = everything(index, query, known)
    every = everything(index.weighted(WEIGHTS.refusing_nothing()), query, known)

    # All that is likely enough, or the few closest tools.
    assert shown.hits == every.hits[: shown.total]
    assert shown.total == every.total or shown.total <= WEIGHTS.weak_results or not shown.is_weak
    assert not shown.is_weak or shown.total <= WEIGHTS.weak_results
    none = everything(index.weighted(replace(WEIGHTS, weak_results=0)), query, known)
    assert (none.hits == ()) == (shown.is_weak or not shown.hits)


@given(st.lists(DOCUMENTS).map(unique), st.sets(IDS), TEXTS, KNOWN.filter(bool))
def test_the_mark_of_what_is_known_tells_of_visible_tools_alone(
    documents: list[Document], hidden: set[str], query: str, known: Known
) -> None:
    left = [each for each in documents if each.tool_id not in hidden]
    grown = Index.build(documents[3:]).updated(documents[:3])
    visible = grown.select(lambda tool_id: tool_id not in hidden)
    afresh = Index.build(left).whole()
    there = known.among(left)

    assert known.over(query, visible).mark(visible.parts) == there.over(query, afresh).mark(afresh.parts)
    others = [each for each in left if each.key in set(there.vectors.keys.tolist())]
    if others:
        less = there.among([each for each in left if each.key != others[0].key])
        assert less.over(query, afresh).mark(afresh.parts) != there.over(query, afresh).mark(afresh.parts)
    assert Knowledge().mark(afresh.parts) == ""


def _more(count: int) -> list[Document]:
    """Tools of another trade."""
    kinds = ("Ore", "Kiln", "Loom", "Anvil", "Press", "Lathe", "Saw")
    return [
        Document(
            f"works.{at}",
            name=(kinds[at % 7].lower(), f"nr{at}"),
            description=("oper", "machin", "hall", f"h{at % 31}"),
            parameter_names=("speed",),
            origin="works",
        )
        for at in range(count)
    ]


_CATALOGS: dict[str, Callable[[str], list[Document]]] = {
    "1": lambda tool_id: only([tool_id]),
    "2": lambda tool_id: only([tool_id, "git.git_log" if tool_id != "git.git_log" else "text.translate"]),
    "14": lambda tool_id: only([tool_id, *islice((each.tool_id for each in TOOLS if each.tool_id != tool_id), 13)]),
    "all": lambda _: TOOLS,
    "thousands": lambda _: [*TOOLS, *_more(3_000)],
}


@pytest.mark.parametrize("size", _CATALOGS)
def test_a_query_that_some_tool_serves_is_not_refused(size: str) -> None:
    missed = {
        query
        for query, tool_id in SERVED.items()
        if tool_id not in {hit.tool_id for hit in everything(Index.build(_CATALOGS[size](tool_id)), query).hits[:3]}
    }

    assert missed == set()


@pytest.mark.parametrize("count", [0, 1, 2, 14, len(TOOLS), 3_000])
@pytest.mark.parametrize("query", UNSERVED)
def test_a_query_that_no_tool_serves_finds_nothing_that_fits(query: str, count: int) -> None:
    index = Index.build([*TOOLS, *_more(3_000)][:count])

    found = everything(index, query)
    assert not found.fits
    assert len(found.hits) <= WEIGHTS.weak_results
    assert everything(index.weighted(WEIGHTS.without("meaning")), query) == Ranking((), 0)


@pytest.mark.parametrize(
    ("query", "count", "nearest"),
    [
        ("prove that there is no greatest prime number", len(TOOLS), "money.convert_currency"),
        ("is a tomato a fruit or does the law list it among vegetables", 1, "git.git_log"),
        ("is a tomato a fruit or does the law list it among vegetables", 2, "git.git_log"),
    ],
)
def test_a_tool_that_shares_but_a_word_with_a_query_does_not_serve_it(query: str, count: int, nearest: str) -> None:
    index = Index.build(TOOLS[:count])

    shown = everything(index, query)
    assert shown.is_weak
    assert len(shown.hits) <= WEIGHTS.weak_results
    by_words = everything(index.weighted(WEIGHTS.without("meaning")), query)
    assert by_words.is_weak
    assert [hit.tool_id for hit in by_words.hits][:1] == [nearest]
    every = WEIGHTS.refusing_nothing().without("meaning")
    assert everything(index.weighted(every), query).hits[0].tool_id == nearest


def test_where_nothing_in_scope_serves_there_is_nothing_though_a_tool_elsewhere_does() -> None:
    index, query = Index.build(TOOLS), "read the file README.md"
    of_databases = index.select(lambda tool_id: tool_id.startswith("db."))

    assert everything(index, query).hits[0].tool_id == "files.read_file"
    weak = index.search(query, limit=10, scope=of_databases)
    assert weak.is_weak
    assert weak.hits[0].confidence < 0.05
    shown = index.weighted(WEIGHTS.refusing_nothing()).search(query, limit=10, scope=[*of_databases])
    assert [hit.tool_id for hit in shown.hits] == ["db.query"]
