"""The laws of the index: history does not show, the hidden leaves no trace, pages hold each tool once."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import pairwise
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.index.strategies import (
    ALL_IDS,
    DOCUMENTS,
    EVERYTHING,
    IDS,
    KNOWN,
    TEXTS,
    WEIGHINGS,
    Known,
    everything,
    unique,
)  # fmt: skip

from toolcrib.core.tools import Tool
from toolcrib.search.index import signals
from toolcrib.search.index.fields import Document, document
from toolcrib.search.index.index import Index
from toolcrib.search.index.meaning import Vectors
from toolcrib.search.index.ranking import Knowledge
from toolcrib.search.index.searching import Hit, Ranking
from toolcrib.search.index.segment import Impacts, Segment
from toolcrib.search.index.weights import WEIGHTS, Weights


def tool(name: str, description: str = "") -> Document:
    return document(Tool("s", name, description))


_documents = st.lists(DOCUMENTS)
_step = st.tuples(st.lists(DOCUMENTS, max_size=3), st.lists(IDS, max_size=3))


@given(st.lists(_step, max_size=25), TEXTS, KNOWN, WEIGHINGS)
def test_an_index_that_grew_and_shrank_answers_exactly_as_one_built_at_once(
    steps: list[tuple[list[Document], list[str]]], query: str, known: Known | None, weights: Weights
) -> None:
    index, held = Index.EMPTY.weighted(weights), dict[str, Document]()
    for added, removed in steps:
        index = index.updated(added, removed)
        for tool_id in removed:
            held.pop(tool_id, None)
        held.update((document.tool_id, document) for document in added)

    built = Index.build(held.values(), weights=weights)

    assert everything(index, query, known) == everything(built, query, known)
    assert len(index) == len(built) == len(held)
    assert set(index) == set(held)
    assert all((tool_id in index) == (tool_id in held) for tool_id in ALL_IDS)


@given(
    documents=_documents,
    removed=st.lists(IDS),
    hidden=st.sets(IDS),
    query=TEXTS,
    known=KNOWN,
    weights=WEIGHINGS,
)
def test_what_is_hidden_leaves_no_trace(
    *,
    documents: list[Document],
    removed: list[str],
    hidden: set[str],
    query: str,
    known: Known | None,
    weights: Weights,
) -> None:
    index = Index.build(documents, weights=weights).updated([], removed)
    left = [each for each in unique(documents) if each.tool_id not in {*hidden, *removed}]
    without = Index.build(left, weights=weights)
    visible = index.select(lambda tool_id: tool_id not in hidden)
    known_there = known and known.among(left)

    assert everything(index, query, known, visible) == everything(without, query, known_there)
    assert (len(visible), set(visible)) == (len(without), set(without))


@given(_documents, _documents, st.sets(IDS), TEXTS, KNOWN)
def test_an_overlay_wins_over_what_is_below_and_answers_as_one_index(
    below: list[Document], above: list[Document], hidden: set[str], query: str, known: Known | None
) -> None:
    def may_see(tool_id: str) -> bool:
        return tool_id not in hidden

    base = Index.build(below)
    combined = base.combined(Index.EMPTY.updated(above[:2]).updated(above[2:]))
    together = Index.build([*below, *above])

    assert everything(combined, query, known) == everything(together, query, known)
    selection = combined.select(may_see, known=base.select(may_see))
    expected = everything(together, query, known, together.select(may_see))
    assert everything(combined, query, known, selection) == expected
    assert everything(combined.updated(below), query, known) == everything(Index.build([*above, *below]), query, known)


@given(st.lists(DOCUMENTS, max_size=40), TEXTS, KNOWN, st.integers(1, 7))
def test_pages_hold_each_match_once_and_in_order(
    documents: list[Document], query: str, known: Known | None, limit: int
) -> None:
    index = Index.build(documents[:20]).updated(documents[20:])
    whole = everything(index, query, known)
    knowledge = known.over(query, index.whole()) if known else Knowledge()

    walked: list[Hit] = []
    while page := index.search(query, limit=limit, offset=len(walked), knowledge=knowledge).hits:
        walked += page

    assert tuple(walked) == whole.hits
    assert whole.total == len(whole.hits) == len({hit.tool_id for hit in whole.hits})
    assert list(whole.hits) == sorted(whole.hits, key=lambda hit: (-hit.score, hit.tool_id))
    assert all(hit.score > 0 and 0 <= hit.confidence <= 1 for hit in whole.hits)
    assert all(first.confidence >= second.confidence for first, second in pairwise(whole.hits))


@given(st.lists(DOCUMENTS, min_size=1), TEXTS, KNOWN, st.sets(IDS))
def test_a_scope_narrows_what_is_returned_and_changes_no_score(
    documents: list[Document], query: str, known: Known | None, scope: set[str]
) -> None:
    index = Index.build(documents, weights=WEIGHTS.refusing_nothing())
    inside = tuple(hit for hit in everything(index, query, known).hits if hit.tool_id in scope)
    knowledge = known.over(query, index.whole()) if known else Knowledge()

    others = [tool_id for tool_id in index if tool_id not in scope]
    of_another = Index.build(documents).select(scope.__contains__)
    selections = (index.select(scope.__contains__), index.whole().without(others), of_another)
    for form in (scope, sorted(scope), scope.__contains__, scope | {f"none.{at}" for at in range(50)}, *selections):
        found = index.search(query, limit=EVERYTHING, scope=form, knowledge=knowledge)
        assert found == Ranking(inside, len(inside))


def test_equal_tools_tie_exactly_and_fall_to_their_ids_wherever_they_are_held() -> None:
    twins = [replace(tool("send_mail", "Send a mail to somebody"), tool_id=f"s.{at:03}") for at in range(300)]
    index = Index.build(twins[200:] + twins[:100])
    for twin in reversed(twins[100:200]):
        index = index.updated([twin])

    page = index.search("please send the mail to somebody", limit=10, offset=95)

    assert [hit.tool_id for hit in page.hits] == [f"s.{at:03}" for at in range(95, 105)]
    assert len({hit.score for hit in page.hits}) == 1
    assert page.total == 300


def test_a_page_is_right_in_a_large_index_of_few_different_tools() -> None:
    names = ["send_mail", "send_mail_draft", "send", "read_mail"]
    index = Index.build(replace(tool(names[at % 4]), tool_id=f"s.{at * 7919 % 10_007:05}") for at in range(10_007))
    whole = index.search("send mail", limit=20_000).hits

    for offset in (0, 7, 2_495, 2_500, 5_001, 9_999):
        assert index.search("send mail", limit=10, offset=offset).hits == whole[offset : offset + 10]


def test_the_best_tool_for_one_half_of_a_request_comes_before_one_that_touches_both() -> None:
    index = Index.build(
        [
            tool("book_room", "Book a hotel room in a city"),
            tool("send_email", "Send an email to a recipient"),
            tool("room_email_export", "Export a table of rooms"),
        ]
    )

    hits = index.search("Book a hotel room in the city. Then send an email to the recipient", limit=3).hits

    assert {hit.tool_id for hit in hits[:2]} == {"s.book_room", "s.send_email"}


def test_confidence_is_a_share_that_falls_with_the_rank() -> None:
    index = Index.build([tool("create_issue", "Create an issue"), tool("close_issue"), tool("list_branches")])

    hits = index.search("create issue", limit=10).hits

    assert [hit.tool_id for hit in hits] == ["s.create_issue", "s.close_issue"]
    assert 1 >= hits[0].confidence > hits[1].confidence >= 0
    assert all(hit.confidence == round(hit.confidence, 4) for hit in hits)


def test_a_query_of_stopwords_alone_is_looked_up_in_names() -> None:
    index = Index.build([tool("who_is", "Look up a domain"), tool("delete", "Delete what is there")])

    assert [hit.tool_id for hit in index.search("who is?", limit=5).hits] == ["s.who_is"]


ODD_QUERIES = ["", " ", "\x00", "\ud800", "🔥", "unheard of", "x" * 100_000, "word " * 20_000, "𝒳" * 100_000]


@pytest.mark.parametrize("query", ODD_QUERIES)
def test_a_query_that_meets_nothing_matches_nothing(query: str) -> None:
    index = Index.build([tool("create_issue")], weights=WEIGHTS.refusing_nothing())

    assert everything(index, query) == Ranking((), 0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("x", "s.x"),
        ("東京", "s.tokyo"),
        ("東京の天気を教えて", "s.tokyo"),
        ("погода в Москве", "s.moscow"),
        ("ขอดูพยากรณ์อากาศ", "s.bangkok"),
        ("for at in range(10): print(create_issue(at))", "s.create_issue"),
        ('{"tool": "createIssue", "arguments": {"title": null}}', "s.create_issue"),
        ("🔥 create \ud800 issue 🔥", "s.create_issue"),
        ("create issue " + "and so on, " * 10_000, "s.create_issue"),
        ("\n".join(["create issue"] * 10_000), "s.create_issue"),
    ],
)
def test_a_query_of_one_letter_of_code_or_of_any_script_finds_what_it_names(query: str, expected: str) -> None:
    index = Index.build(
        [
            tool("create_issue"),
            tool("x"),
            tool("y"),
            tool("tokyo", "東京の天気"),
            tool("moscow", "Погода в Москве сегодня"),
            tool("bangkok", "พยากรณ์อากาศ"),
        ]
    )

    assert [hit.tool_id for hit in everything(index, query).hits] == [expected]


def test_tools_without_a_description_and_with_a_huge_one_are_found_by_what_they_say() -> None:
    huge = tool("huge", "Rotates an image. " + "lorem ipsum dolor " * 6_000)
    index = Index.build([tool("rotate_image"), huge, document(Tool("s", ""))])

    found = everything(index, "rotate an image")

    assert found.hits[0].tool_id == "s.rotate_image"
    assert len(index) == 3
    assert everything(index, "ipsum").hits[0].tool_id == "s.huge"


def test_thousands_of_tools_that_say_the_same_all_match_alike() -> None:
    index = Index.build(replace(tool("send_mail", "Sends a mail"), tool_id=f"s.{at:04}") for at in range(5_000))

    found = index.search("send a mail", limit=3, offset=4_998)

    assert [hit.tool_id for hit in found.hits] == ["s.4998", "s.4999"]
    assert found.total == 5_000
    assert found.hits[0].confidence == index.search("send a mail", limit=1).hits[0].confidence


@pytest.mark.slow
def test_two_hundred_thousand_tools_are_searched_as_few_are() -> None:
    def numbered(at: int) -> Document:
        return Document(f"s.{at:06}", (f"w{at % 997}", f"v{at % 1_009}"), ("common",), origin=f"o{at % 50:02}")

    index = Index.build(map(numbered, range(200_000)))
    index = index.updated([numbered(200_000)], ["s.000000"])

    found = index.search("w5 v5", limit=3)

    assert found.hits[0].tool_id == "s.000005"
    assert {hit.tool_id for hit in found.hits[1:]} <= {
        f"s.{at:06}" for at in range(200_001) if 5 in (at % 997, at % 1_009)
    }
    assert everything(index, "common").total == 200_000


def test_an_empty_index_answers() -> None:
    assert everything(Index.EMPTY, "anything") == Ranking((), 0)
    assert Index.build([tool("gone")]).updated([], ["s.gone", "s.never"]).parts == ()


def test_an_older_value_stays_as_it_was() -> None:
    before = Index.build([tool("create_issue"), tool("close_issue")])
    answer = everything(before, "issue")

    before.updated([tool("reopen_issue")], ["s.close_issue"])
    before.combined(Index.build([tool("create_issue", "another issue")]))

    assert everything(before, "issue") == answer
    with pytest.raises(ValueError, match="read-only"):
        before.parts[0].segment.impacts[0] = 1


def test_many_single_additions_leave_few_segments() -> None:
    index = Index.build(replace(tool("first"), tool_id=f"s.{at}") for at in range(500))
    for at in range(300):
        index = index.updated([tool(f"added{chr(97 + at % 26)}_{at}")])

    sizes = [part.size for part in index.parts]
    assert sum(sizes) == 800
    assert all(larger >= 4 * smaller for larger, smaller in pairwise(sizes))


def test_an_index_from_which_most_was_removed_keeps_no_postings_of_it() -> None:
    index = Index.build(replace(tool(f"word{chr(97 + at)}"), tool_id=f"s.{at}") for at in range(26))

    index = index.updated([], [f"s.{at}" for at in range(20)])

    assert len(index.parts[0].segment) == 6


def test_a_predicate_is_asked_only_of_what_a_known_selection_does_not_cover() -> None:
    asked: list[str] = []

    def may_see(tool_id: str) -> bool:
        asked.append(tool_id)
        return True

    index = Index.build(replace(tool("send_mail"), tool_id=f"s.{at}") for at in range(8))
    known = index.select(may_see)
    asked.clear()

    grown = index.updated([replace(tool("read_mail"), tool_id="s.new")], ["s.3"])
    selection = grown.select(may_see, known=known)

    assert asked == ["s.new"]
    assert set(selection) == set(grown)


def test_a_selection_serves_only_the_index_it_was_made_of() -> None:
    index = Index.build([tool("create_issue")])
    selection = index.select(lambda _: True)

    with pytest.raises(ValueError, match="different index"):
        index.updated([tool("more")]).search("issue", limit=1, visible=selection)


@pytest.mark.parametrize(("limit", "offset"), [(-1, 0), (1, -1)])
def test_negative_limits_and_offsets_are_refused(limit: int, offset: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        Index.EMPTY.search("x", limit=limit, offset=offset)


def test_a_page_of_no_hits_still_counts_the_matches() -> None:
    assert Index.build([tool("create_issue")]).search("issue", limit=0) == Ranking((), 1)


def test_the_place_of_each_key_is_known_before_the_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: object, **more: object) -> None:
        raise AssertionError("a search does not wait for this")

    keys = np.array([7, 3, 5], np.uint64)
    vectors = Vectors("m", keys, np.ones((3, 2), np.float32))
    monkeypatch.setattr(np, "argsort", slow)

    assert vectors.rows(np.array([3, 4, 7], np.uint64)).tolist() == [1, -1, 0]


def test_what_is_the_same_for_every_query_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Segment] = []
    brevity = signals.brevity

    def counted(segment: Segment, weights: Weights) -> Impacts:
        computed.append(segment)
        return brevity(segment, weights)

    monkeypatch.setattr(signals, "brevity", counted)
    index = Index.build([tool("create_issue"), tool("create_pull_request", "Of a repository")])
    for query in ("create", "issue"):
        assert index.search(query, limit=1, visible=index.select(lambda _: True)).hits
    assert computed == [part.segment for part in index.parts]
    plain = index.weighted(index.weights.without("brevity"))
    assert plain.search("create", limit=2) != index.search("create", limit=2), "of its own weights"


def test_tools_that_come_and_go_a_thousand_times_leave_nothing_behind() -> None:
    kept = [replace(tool(f"kept_{'abcdefghijklmnop'[at % 16]}", "Sends a mail"), tool_id=f"k.{at}") for at in range(50)]
    index = Index.build(kept)
    vectors = Vectors("m", np.arange(1, 60, dtype=np.uint64), np.ones((59, 2), np.float32))
    old, sizes, counts = list[ref[Segment]](), list[int](), list[int]()

    for turn in range(1_000):
        came = [replace(tool(f"comes_{turn}", f"Word{turn} of a mail"), tool_id=f"{turn % 7}.c", origin=f"o{turn}")]
        index = index.updated(came)
        everything(index, "send mail")
        for segment in [part.segment for part in index.parts]:
            vectors.rows_of(segment)
            old.append(ref(segment))
            del segment
        index = index.updated((), [came[0].tool_id])
        sizes.append(sum(part.segment.nbytes for part in index.parts))
        counts.append(len(index.parts))

    assert everything(index, "send mail") == everything(Index.build(kept), "send mail")
    assert max(counts) <= 3
    assert max(sizes[500:]) <= 2 * max(sizes[:100])
    gc.collect()
    assert {each() for each in old} - {None, *(part.segment for part in index.parts)} == set()
