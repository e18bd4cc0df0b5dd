"""What each signal is for: a catalog where the best tool comes first with it, and not without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.strategies import DOCUMENTS, KNOWN, TEXTS, Known, everything

from toolcrib.core.tools import Tool
from toolcrib.index.fields import Document, document
from toolcrib.index.history import Confirmed, History
from toolcrib.index.index import Index
from toolcrib.index.meaning import Understood
from toolcrib.index.query import Query
from toolcrib.index.ranking import NOTHING_KNOWN, Knowledge
from toolcrib.index.vectors import Vectors
from toolcrib.index.weights import SIGNALS, WEIGHTS, Weights


def tool(tool_id: str, description: str = "") -> Document:
    source, _, name = tool_id.partition(".")
    return document(Tool(source, name, description))


def _nothing(_: Index) -> Knowledge:
    return NOTHING_KNOWN


def _near(index: Index) -> Knowledge:
    """The query means what the last of the tools does."""
    keys = np.concatenate([part.segment.keys for part in index.parts])
    matrix = np.eye(len(keys), dtype=np.float32)
    return Knowledge(Understood(Vectors("m", keys, matrix), matrix[-1:]))


def _served(index: Index) -> Knowledge:
    past = History.of([Confirmed(Query.parse("what changed lately"), "git.show", 0.0)])
    return Knowledge(recall=past.over(index.parts))


@dataclass(frozen=True)
class Case:
    query: str
    tools: list[Document]
    """The last serves better than the one before it, whose id wins every tie."""
    known: Callable[[Index], Knowledge] = _nothing

    def is_right(self, weights: Weights) -> bool:
        index = Index.build(self.tools, weights=weights.refusing_nothing())
        hits = index.search(self.query, limit=10, knowledge=self.known(index)).hits
        places = {hit.tool_id: place for place, hit in enumerate(hits)}
        worse, better = (each.tool_id for each in self.tools[-2:])
        return better in places and places[better] < places.get(worse, len(hits))


CASES = {
    "synonyms": Case("delete the invoice", [tool("s.pay_invoice"), tool("s.remove_invoice")]),
    "clauses": Case(
        "Book a hotel room in the city. Then send an email to the recipient",
        [
            tool("s.book_room", "Book a hotel room in a city"),
            tool("s.room_email_export", "Export a table of rooms"),
            tool("s.send_note", "Email somebody"),
        ],
    ),
    "brevity": Case(
        "send mail",
        [tool("s.mail_send", "Watermark scanned archives or sign contracts on paper by hand"), tool("s.send_mail")],
    ),
    "sources": Case(
        "open a pull request of the repository",
        [tool("github.merge_pull_request_of_repository"), tool("browser.open"), tool("github.open")],
    ),
    "embedding": Case("how warm will it be", [tool("s.be_warm_will"), tool("s.weather")], _near),
    "history": Case(
        "what changed lately?", [tool("git.log", "What changed"), tool("git.show", "What changed")], _served
    ),
}


def test_each_signal_has_its_case() -> None:
    assert set(CASES) == set(SIGNALS)


@pytest.mark.parametrize("name", SIGNALS)
def test_what_each_signal_is_for_is_right_with_it_and_wrong_without(name: str) -> None:
    case = CASES[name]
    others = set(SIGNALS) - {name}

    assert case.is_right(WEIGHTS)
    assert case.is_right(WEIGHTS.without(*others)), "by itself"
    assert not case.is_right(WEIGHTS.without(name))
    assert not case.is_right(WEIGHTS.without(*SIGNALS))


@given(st.lists(DOCUMENTS), TEXTS, KNOWN)
def test_where_embedding_and_history_are_off_nothing_that_is_known_counts(
    documents: list[Document], query: str, known: Known | None
) -> None:
    index = Index.build(documents, weights=WEIGHTS.without("embedding", "history"))

    assert everything(index, query, known) == everything(index, query)


@given(st.lists(DOCUMENTS), TEXTS)
def test_tools_of_one_source_rank_as_if_sources_did_not_count(documents: list[Document], query: str) -> None:
    documents = [replace(each, origin="a") for each in documents]
    index = Index.build(documents)

    assert everything(index, query) == everything(index.weighted(WEIGHTS.without("sources")), query)


def test_a_source_is_one_however_its_tools_lie_among_others() -> None:
    """The ids of `a.b` stand among those of `a`, and more come later."""
    index = Index.build([tool("a.a_branch"), tool("a.c_commit"), replace(tool("a.b_push"), origin="a.b")])
    index = index.updated([tool("a.d_commit_and_push_branch")])

    scores = {hit.tool_id: hit.score for hit in everything(index, "push branch").hits}
    alone = everything(index.weighted(WEIGHTS.without("sources")), "push branch").hits

    best = max(hit.score for hit in alone)
    assert scores == pytest.approx(
        {hit.tool_id: hit.score + WEIGHTS.sources * (hit.score if "b_push" in hit.tool_id else best) for hit in alone}
    )


def test_a_tool_of_a_good_source_that_has_no_word_of_the_query_does_not_match() -> None:
    index = Index.build([tool("git.commit"), tool("git.push"), tool("mail.send")])

    assert [hit.tool_id for hit in everything(index, "commit").hits] == ["git.commit"]


def test_the_part_of_a_request_that_is_said_in_few_words_is_not_pushed_out_by_what_touches_the_other() -> None:
    index = Index.build(
        [
            tool("s.book_room", "Books a double room of a hotel in a city by date"),
            tool("s.hotel_room", "In a city"),
            tool("s.send_mail"),
        ]
    )
    asked = "Book a double room in a hotel in the city for that date, then send the mail"
    weights = WEIGHTS.refusing_nothing()

    def found(parity: float) -> list[str]:
        hits = everything(index.weighted(replace(weights, clause_parity=parity)), asked).hits
        return [hit.tool_id for hit in hits]

    assert found(weights.clause_parity) == ["s.book_room", "s.send_mail", "s.hotel_room"]
    assert found(0) == ["s.book_room", "s.hotel_room", "s.send_mail"]
