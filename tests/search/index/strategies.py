"""What the laws of the index are checked on: small catalogs of few words, and what may be known of a query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolcrib.search.index.fields import Document
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.index import Index, Selection
from toolcrib.search.index.meaning import Understood, Vectors
from toolcrib.search.index.query import MAX_CLAUSES, Query
from toolcrib.search.index.ranking import Knowledge
from toolcrib.search.index.searching import Ranking
from toolcrib.search.index.tokens import terms
from toolcrib.search.index.weights import SIGNALS, WEIGHTS

EVERYTHING = 1_000
"""More tools than any catalog of these laws has."""

WORDS = ("file", "document", "send", "post", "submit", "mail", "email", "git", "commit", "branch")
"""Some of which may stand for others."""

ALL_IDS = tuple(f"{source}.{letter}" for source in "ab" for letter in "cdefghij")

_terms = st.lists(st.sampled_from([term for word in WORDS for term in terms(word)]), max_size=4).map(tuple)
IDS = st.sampled_from(ALL_IDS)
_texts = st.lists(st.sampled_from([*WORDS, "unheard", "文件"]), max_size=3).map(lambda words: (" ".join(words), ""))
# Origins that the id does not always tell, so that tools of one stand apart. Some tools have no vector, and some share
# one.
DOCUMENTS = st.builds(
    Document,
    *(IDS, _terms, _terms, _terms, _terms, _terms, _terms),
    st.sampled_from(["a", "a-b", "b"]),
    st.integers(0, 9),
    st.just(()) | _texts,
)
TEXTS = st.lists(st.sampled_from([*WORDS, "unheard", "and", "the", ". "]), min_size=1, max_size=8).map(" ".join)
WEIGHINGS = st.sampled_from([WEIGHTS, WEIGHTS.refusing_nothing(), *(WEIGHTS.without(name) for name in SIGNALS)])

# Their products are exact in whatever order they are added up: laws hold to the last digit.
_unit = st.sampled_from([*np.eye(4).tolist(), *map(list, product((-0.5, 0.5), repeat=4)), [0.0] * 4])


def unique(documents: Iterable[Document]) -> list[Document]:
    """Of those with one id the last."""
    return list({document.tool_id: document for document in documents}.values())


@dataclass(frozen=True, slots=True)
class Known:
    """What is known besides the words of tools and queries, of whatever index."""

    vectors: Vectors
    texts: NDArray[np.float32]
    past: Sequence[Confirmed]
    used: frozenset[str]

    def among(self, documents: Collection[Document]) -> Known:
        """What would be known if these were the only tools there ever were."""
        ids, keys = ({getattr(each, name) for each in documents} for name in ("tool_id", "key"))
        kept = np.array([key in keys for key in self.vectors.keys.tolist()], np.bool_)
        vectors = Vectors(self.vectors.model_id, self.vectors.keys[kept], self.vectors.matrix[kept])
        return Known(vectors, self.texts, [each for each in self.past if each.tool_id in ids], self.used & ids)

    def over(self, query: str, selection: Selection) -> Knowledge:
        texts = self.texts[: len(Query.parse(query).texts)]
        recall = replace(History.of(self.past).over(selection.parts), used=self.used)
        return Knowledge(Understood(self.vectors, texts), recall)


def _known(
    rows: Sequence[tuple[int, list[float]]],
    texts: Sequence[list[float]],
    past: Sequence[Confirmed],
    used: frozenset[str],
) -> Known:
    keys, vectors = [key for key, _ in rows], [vector for _, vector in rows]
    matrix = np.array(vectors, np.float32).reshape(-1, 4)
    return Known(Vectors("m", np.array(keys, np.uint64), matrix), np.array(texts, np.float32), past, used)


TRACES = st.sampled_from([("ada", "1"), ("ada", "2"), ("bob", "1")])

KNOWN = st.none() | st.builds(
    _known,
    st.lists(st.tuples(st.integers(1, 9), _unit), unique_by=lambda row: row[0]),
    st.lists(_unit, min_size=1 + MAX_CLAUSES, max_size=1 + MAX_CLAUSES),
    st.lists(
        st.builds(
            Confirmed, TEXTS.map(Query.parse), IDS, st.just(0.0), st.none() | TRACES, st.frozensets(IDS, max_size=2)
        ),
        max_size=9,
    ),
    st.frozensets(IDS, max_size=3),
)


def everything(index: Index, query: str, known: Known | None = None, visible: Selection | None = None) -> Ranking:
    """All that matches `query`, with what is known laid over the index as a catalog does it."""
    knowledge = Knowledge() if known is None else known.over(query, index.whole() if visible is None else visible)
    return index.search(query, limit=EVERYTHING, visible=visible, knowledge=knowledge)
