"""What each signal is for: a catalog where the best tool comes first with it, and not without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.index.strategies import DOCUMENTS, KNOWN, TEXTS, Known, everything, unique

from toolcrib.core.tools import Tool
from toolcrib.search.index import signals
from toolcrib.search.index.fields import Document, document
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.index import Index
from toolcrib.search.index.meaning import Similarities, Understood, Vectors
from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import NOTHING_KNOWN, Knowledge
from toolcrib.search.index.segment import Part, segment
from toolcrib.search.index.signals import Layout, Origins, Words
from toolcrib.search.index.weights import SIGNALS, WEIGHTS, Weights


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


def _used(index: Index) -> Knowledge:
    """Every past trace used one source again, and this one used a tool of `git`."""
    past = History.of(
        Confirmed(Query.parse("go on"), f"{source}.{name}", float(at), ("ada", f"{source} {number}"))
        for number in range(9)
        for source, name, at in (
            ("git", "tag", 0.0),
            ("git", "fetch", 1.0),
            ("mail", "send", 0.0),
            ("mail", "read", 1.0),
        )
    )
    return Knowledge(recall=replace(past.over(index.parts), used=frozenset({"git.tag"})))


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
    "partial_words": Case("delete kube", [tool("s.delete_account"), tool("s.delete_kubernetes")]),
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
    "meaning": Case("is it going to rain tomorrow", [tool("s.going_concern"), tool("s.weather_forecast")]),
    "embedding": Case("how warm will it be", [tool("s.be_warm_will"), tool("s.weather")], _near),
    "history": Case(
        "what changed lately?", [tool("git.log", "What changed"), tool("git.show", "What changed")], _served
    ),
    "trace": Case(
        "search for the word",
        [
            *(tool("git.tag"), tool("git.fetch"), tool("mail.send"), tool("mail.read")),
            *(tool("files.search", "For the word"), tool("git.search", "For the word")),
        ],
        _used,
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
    # The table of word vectors knows much of what the other signals are for.
    assert not case.is_right(WEIGHTS.without(name, "meaning"))
    assert not case.is_right(WEIGHTS.without(*SIGNALS))


@given(st.lists(DOCUMENTS), TEXTS, KNOWN)
def test_where_embedding_history_and_trace_are_off_nothing_that_is_known_counts(
    documents: list[Document], query: str, known: Known | None
) -> None:
    index = Index.build(documents, weights=WEIGHTS.without("embedding", "history", "trace"))

    assert everything(index, query, known) == everything(index, query)


@given(st.lists(DOCUMENTS), TEXTS)
def test_tools_of_one_source_rank_as_if_sources_did_not_count(documents: list[Document], query: str) -> None:
    documents = [replace(each, origin="a") for each in documents]
    index = Index.build(documents)

    assert everything(index, query) == everything(index.weighted(WEIGHTS.without("sources")), query)


def test_a_source_is_one_however_its_tools_lie_among_others() -> None:
    """The ids of `a.b` stand among those of `a`, and more come later."""
    weights = WEIGHTS.without("meaning")
    documents = [tool("a.a_branch"), tool("a.c_commit"), replace(tool("a.b_push"), origin="a.b")]
    index = Index.build(documents, weights=weights)
    index = index.updated([tool("a.d_commit_and_push_branch")])

    scores = {hit.tool_id: hit.score for hit in everything(index, "push branch").hits}
    alone = everything(index.weighted(weights.without("sources")), "push branch").hits

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
    weights = WEIGHTS.refusing_nothing().without("meaning")

    def found(parity: float) -> list[str]:
        hits = everything(index.weighted(replace(weights, clause_parity=parity)), asked).hits
        return [hit.tool_id for hit in hits]

    assert found(weights.clause_parity) == ["s.book_room", "s.send_mail", "s.hotel_room"]
    assert found(0) == ["s.book_room", "s.hotel_room", "s.send_mail"]


# -- figures ----------------------------------------------------------------------------------------------------------


def parts_of(*segments: list[Document]) -> list[Part]:
    return [Part.whole(segment(documents, WEIGHTS)) for documents in segments]


@given(st.lists(st.lists(DOCUMENTS).map(unique), max_size=4))
def test_tools_of_one_origin_have_one_number_across_segments_and_those_of_others_another(
    documents: list[list[Document]],
) -> None:
    segments = [segment(some, WEIGHTS) for some in documents]
    origins = Origins.of(segments)

    numbered = {
        (name, int(number))
        for packed, of_runs in zip(segments, origins.of_runs, strict=True)
        for name, number in zip(
            packed.origin_of_each(), np.repeat(of_runs, np.diff(packed.runs, append=len(packed))), strict=True
        )
    }
    names = {each.origin for some in documents for each in some}
    assert {name for name, _ in numbered} == names
    assert sorted(number for _, number in numbered) == [*range(origins.count)] == [*range(len(names))]


def test_every_signal_gives_single_precision_for_each_tool_of_each_part() -> None:
    """What is sent is found by a synonym, too; the tools of the last part earn nothing."""
    parts = parts_of(
        [tool("a.send_mail"), tool("a.post_letter"), tool("b.read_mail")], [tool("c.send_note")], [tool("d.x")], []
    )
    query = Query.parse("send the mail, post a letter")
    words, layout = Words(query, parts, WEIGHTS), Layout.of([part.segment for part in parts], WEIGHTS)
    scores, by_clause = words.scores()
    ones = [np.ones(len(part.segment), np.float32) for part in parts]
    near = Similarities(ones, ones, 5)

    for figures in (
        scores,
        signals.clauses(by_clause, WEIGHTS),
        layout.brevity,
        signals.sources(scores, parts, layout.origins, WEIGHTS),
        signals.sources([part_scores * 0 for part_scores in scores], parts, layout.origins, WEIGHTS),
        signals.embedding(scores, near, parts, query, WEIGHTS),
    ):
        assert figures is not None
        assert [(each.dtype, len(each)) for each in figures] == [
            (np.float32, 3),
            (np.float32, 1),
            (np.float32, 1),
            (np.float32, 0),
        ]


def test_the_shorter_of_two_tools_counts_more_however_little_both_say() -> None:
    (part,) = parts_of([Document("s.1", category=("storage",)), Document("s.2", parameter_texts=("storage",))])
    shorter, longer = part.segment.lengths
    assert shorter < longer < 1

    of_shorter, of_longer = signals.brevity(part.segment, WEIGHTS)
    assert of_shorter > of_longer > 1


def shares(query: str, document: Document) -> tuple[float, float]:
    """What `document` has of a query, beside a tool of two other words."""
    (part,) = parts_of([document, Document("s.other", ("ostrich", "walnut"))])
    at = part.segment.positions[document.tool_id]
    words = Words(Query.parse(query), [part], WEIGHTS)
    held, said = words.held(part, at)
    return words.weight_of(held) / words.weight, said


def test_how_much_of_a_query_a_tool_holds_and_how_much_of_the_tool_is_asked_for() -> None:
    both = Document("s.both", name=("zebra", "quartz"))

    assert shares("zebra quartz", both) == pytest.approx((1, 1))
    assert shares("zebra", both) == pytest.approx((1, 0.5**0.5)), "a vector of two equal terms, and one of these"
    assert shares("zebra quartz ostrich walnut", both) == pytest.approx((0.5, 1)), "words that are equally rare"
    assert shares("ostrich", both) == (0, 0)
    assert shares("zebra", Document("s.nothing")) == (0, 0)


NAMES = [Document(f"s.{name}", (name,)) for name in ("a", "b", "c", "d")]
HALF = replace(WEIGHTS, embedding=0.5, embedding_by_clause=0, embedding_at_least=0, embedding_without_parameters=0)


def fused(
    scores: list[float], near: list[float], weights: Weights = HALF, documents: list[Document] = NAMES
) -> list[float]:
    """What words and meaning give together; what is not known of a tool is NaN."""
    parts, known = parts_of(documents), len(near) - int(np.isnan(near).sum())
    similarities = Similarities([np.array(near, np.float32)], [np.array(near, np.float32)], known)
    (found,) = signals.embedding([np.array(scores, np.float32)], similarities, parts, Query(("a",)), weights)
    return found.tolist()


NAN = float("nan")


def test_words_and_meaning_are_weighed_each_by_its_best() -> None:
    assert fused([4, 2, 1, 0], [0, 1, 0.5, 1]) == pytest.approx([0.5, 0.75, 0.375, 0.5])


def test_meaning_counts_in_proportion_to_how_many_vectors_are_known() -> None:
    """A tool whose vector is not known is as near as its words say."""
    assert fused([4, 2, 0, 1], [0, 1, NAN, NAN]) == pytest.approx([0.75, 0.625, 0, 0.25])


def test_meaning_counts_for_no_more_than_everything() -> None:
    weights = replace(HALF, embedding=0.8, embedding_without_parameters=0.5)

    assert fused([4, 2, 1, 0], [0, 1, 0.5, 1], weights) == pytest.approx([0, 1, 0.5, 1])


def test_a_tool_without_a_word_of_the_query_matches_from_a_similarity_on_where_half_of_the_vectors_are_known() -> None:
    assert HALF.similar == 0.5

    assert fused([1, 0, 0, 0], [1, 0.5, 0.49, 0]) == pytest.approx([1, 0.25, 0, 0])
    assert fused([1, 0, 0, 0], [NAN, 1, 0, NAN]) == pytest.approx([1, 0.25, 0, 0])
    assert fused([1, 0, 0, 0], [NAN, 1, NAN, NAN]) == pytest.approx([1, 0, 0, 0])


def test_a_tool_with_a_word_of_the_query_matches_however_far_it_is() -> None:
    assert fused([0.5, 0.25, 0, 0], [0, 0, 0, 0]) == pytest.approx([0.5, 0.25, 0, 0])


def test_what_is_most_and_what_is_bare_of_nothing_is_nothing() -> None:
    nothing = np.zeros(0, np.float32)

    assert signals.most([np.array([0.25, 0.5], np.float32), nothing]) == 0.5
    assert signals.most([nothing]) == signals.most([]) == 0
    assert signals.bareness([]) == 0


def test_a_source_lends_its_best_score_to_all_of_its_tools_that_match_however_little() -> None:
    parts = parts_of([tool("a.one"), tool("a.three"), tool("a.two"), tool("b.one")])
    origins = Origins.of([part.segment for part in parts])
    (lent,) = signals.sources([np.array([0.5, 4, 0, 2], np.float32)], parts, origins, WEIGHTS)

    assert lent.tolist() == pytest.approx([WEIGHTS.sources * best for best in (4, 4, 0, 2)])
