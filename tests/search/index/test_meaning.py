"""How near tools are in meaning: what is known of them, and what one that has no vector yet counts as."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib.search.index.fields import Document
from toolcrib.search.index.index import Index
from toolcrib.search.index.meaning import Understood, Vectors, similarities
from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import Knowledge
from toolcrib.search.index.searching import Ranking
from toolcrib.search.index.weights import WEIGHTS


def _units(rows: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    found = np.array(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 2)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-9))


def _tools(count: int, *, first: int = 1) -> Index:
    """Tools of the keys from `first` on, in the order of their ids, with a name each and no parameters."""
    return Index.build(Document(f"s.{key:05}", name=(f"n{key}",), key=key) for key in range(first, first + count))


def _understood(tools: Sequence[Sequence[float]], *texts: Sequence[float]) -> Understood:
    return Understood(Vectors("m", np.arange(1, len(tools) + 1, dtype=np.uint64), _units(tools)), _units(texts))


def _near(understood: Understood, index: Index) -> list[float]:
    found = similarities(understood, index.parts)
    assert found is not None
    return np.concatenate(list(found.near)).tolist()


def test_the_nearest_is_1_and_what_is_no_nearer_than_most_is_0() -> None:
    understood = _understood([(1, 0), (3, 4), (0, 1), (0, 1), (-1, 0)], (1, 0))

    assert _near(understood, _tools(5)) == pytest.approx([1, 0.6, 0, 0, 0])


def test_of_a_request_with_clauses_the_nearest_clause_counts_half() -> None:
    tools = [(1, 0, 0), (0, 1, 0), (0, 0, 1), *[(0, 0, -1)] * 4]

    assert _near(_understood(tools, (0, 0, 1)), _tools(7)) == pytest.approx([0.5, 0.5, 1, 0, 0, 0, 0])
    with_clauses = _understood(tools, (0, 0, 1), (1, 0, 0), (0, 1, 0))
    assert _near(with_clauses, _tools(7)) == pytest.approx([1, 1, 1, 0, 0, 0, 0])


def test_a_tool_without_a_vector_is_unknown_and_with_no_vector_at_all_nothing_is_known() -> None:
    understood = _understood([(1, 0), (0, 1), (0, 1)], (1, 0))

    assert np.isnan(_near(understood, _tools(5))).tolist() == [False, False, False, True, True]
    assert similarities(understood, _tools(5, first=7).parts) is None
    assert similarities(understood, Index.EMPTY.parts) is None
    assert similarities(_understood([], (1, 0)), _tools(5).parts) is None


def test_hidden_tools_move_neither_what_is_most_nor_what_is_nearest() -> None:
    understood = _understood([(1, 0), (3, 4), (0, 1), (-1, 0), (-1, 0)], (1, 0))
    index = _tools(5)
    visible = index.select(lambda tool_id: tool_id in {"s.00002", "s.00003", "s.00004"})
    found = similarities(understood, visible.parts)

    assert found is not None
    assert found.near[0][1:4].tolist() == pytest.approx([1, 0, 0])
    assert np.isnan(found.near[0][[0, 4]]).all()
    assert [found.cosine(0, at) for at in range(5)] == [None, pytest.approx(0.6), 0, -1, None]


def _ranking(index: Index, query: str, understood: Understood, *, limit: int = 100) -> Ranking:
    index = index.weighted(WEIGHTS.refusing_nothing())
    return index.search(query, limit=limit, knowledge=Knowledge(understood))


def test_a_tool_is_found_by_what_it_means_where_no_word_of_it_is_in_the_query() -> None:
    understood = _understood([(1, 0), (0, 1), (0, 1), (-1, 0)], (1, 0))

    assert [hit.tool_id for hit in _ranking(_tools(4), "n2 stroke", understood).hits] == ["s.00001", "s.00002"]
    assert [hit.tool_id for hit in _ranking(_tools(4), "nothing of it", understood).hits] == ["s.00001"]


def test_a_tool_whose_vector_is_not_there_yet_neither_sinks_nor_rises_by_that() -> None:
    vectors = [(1, 0), (0, 1), (0, 1), (-1, 0)]
    hits = _ranking(_tools(5), "n5", _understood(vectors, (0.1, 1))).hits

    assert hits[0].tool_id == "s.00005", "its words are the best there are"
    assert hits[0].score == pytest.approx(1)
    assert "s.00006" not in {hit.tool_id for hit in _ranking(_tools(6), "n5", _understood(vectors, (0.1, 1))).hits}


def test_what_is_equally_near_ties_and_falls_to_ids_wherever_its_rows_lie() -> None:
    rng = np.random.default_rng(8)
    others = rng.normal(size=(1_003, 48))
    twins = rng.normal(size=48)
    rows = [(twins if at % 7 == 0 else others[at]).tolist() for at in range(1_003)]
    index = _tools(700).updated(_documents_of(_tools(303, first=701)))
    hits = _ranking(index, "no word of them", _understood(rows, (twins + others[0]).tolist()), limit=1_003).hits

    same = [hit for hit in hits if (int(hit.tool_id[2:]) - 1) % 7 == 0]
    assert len(same) == 144
    assert len({(hit.score, hit.confidence) for hit in same}) == 1
    assert hits[:144] == tuple(sorted(same, key=lambda hit: hit.tool_id))


def _documents_of(index: Index) -> list[Document]:
    return [Document(tool_id, name=(f"n{int(tool_id[2:])}",), key=int(tool_id[2:])) for tool_id in index]


def test_vectors_of_tools_that_do_not_exist_move_nothing_that_shows() -> None:
    """Products of larger matrices may differ in their last digits."""
    rng = np.random.default_rng(3)
    rows, query = rng.normal(size=(3_000, 64)), rng.normal(size=64)
    index = _tools(40)
    few = _ranking(index, "n3 and n9", _understood(rows[:40].tolist(), query.tolist()))
    many = _ranking(index, "n3 and n9", _understood(rows.tolist(), query.tolist()))

    assert [hit.tool_id for hit in few.hits] == [hit.tool_id for hit in many.hits]
    assert [hit.score for hit in few.hits] == pytest.approx([hit.score for hit in many.hits], abs=1e-4)


def test_a_query_that_means_nothing_to_the_model_is_answered_by_its_words() -> None:
    understood = _understood([(1, 0), (0, 1)], (0, 0))

    assert [hit.tool_id for hit in _ranking(_tools(2), "n2", understood).hits] == ["s.00002"]
    assert _ranking(_tools(2), "unheard", understood) == Ranking((), 0)


@pytest.mark.parametrize("is_known", [True, False])
def test_the_only_tool_is_found_by_its_words_whether_or_not_its_vector_is_there(is_known: bool) -> None:
    understood = _understood([(1, 0)], (1, 0))
    index = _tools(1, first=1 if is_known else 2)

    assert [hit.tool_id for hit in _ranking(index, "n1 n2", understood).hits] == [*index]


def test_long_requests_lean_on_words_and_tools_without_parameters_on_meaning() -> None:
    """By words the second tool is the best, by meaning the first."""
    short, long = "n2 one", ". ".join(["n2 one", "two three", "four five", "six seven"])
    assert len(Query.parse(long).clauses) == 4

    def share_of_meaning(query: str, parameters: tuple[str, ...]) -> float:
        documents = [Document(f"s.{key}", (f"n{key}",), parameter_names=parameters, key=key) for key in (1, 2, 3)]
        understood = _understood([(1, 0), (0, 1), (0, 1)], *[(1, 0)] * len(Query.parse(query).texts))
        hits = _ranking(Index.build(documents), query, understood).hits
        return next(hit.score for hit in hits if hit.tool_id == "s.1")

    assert share_of_meaning(long, ("p",)) < share_of_meaning(short, ("p",)) < share_of_meaning(short, ())


def test_tools_whose_vectors_hardly_differ_are_told_apart_by_words() -> None:
    """As those of one text that were made in different batches."""
    understood = _understood([(1, 0), (1, 0.001), (1, 0.001), (1, 0.001)], (1, 0))

    assert [hit.tool_id for hit in _ranking(_tools(4), "n3", understood).hits] == ["s.00003"]
