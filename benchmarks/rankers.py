"""The search engines that are compared, each over the tools of one public set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

import catalog
import search
from toolcrib.search.embedders import Embedder, ModelFolder, open_embedder
from toolcrib.search.evaluation import DEPTH, Found, JudgedQuery, Search, read_queries
from toolcrib.search.index.fields import Document, document, embedded_text
from toolcrib.search.index.history import History
from toolcrib.search.index.index import Index
from toolcrib.search.index.meaning import Understood, Vectors
from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import Knowledge, Standing, rank
from toolcrib.search.index.segment import Part
from toolcrib.search.index.signals import Layout
from toolcrib.search.index.weights import SIGNALS, WEIGHTS, Weights
from toolcrib.search.vector_store import VectorStore

MODEL = Path(__file__).parents[1] / ".cache" / "MiniLM"

EVERYDAY = Path(__file__).with_name("everyday.jsonl")

LEXICAL = [signal for signal in SIGNALS if signal not in {"embedding", "history", "trace"}]
"""The signals that need nothing besides the tools."""

FUSED = 100
"""Results of either engine that reciprocal rank fusion looks at."""


@dataclass(frozen=True)
class JudgedSet:
    """Tools, and queries with the tools that serve them."""

    name: str
    rows: Sequence[catalog.Row]
    queries: Sequence[JudgedQuery]

    @classmethod
    def read(cls, name: str) -> Self:
        queries = read_queries(catalog.SHARED / "bench" / name / "queries.jsonl")
        return cls(name, list(catalog.set_rows(name)), queries)

    @classmethod
    def everyday(cls) -> Self:
        """Everyday requests, over the tools of published servers. They were written before the table was trained."""
        return cls("everyday", list(catalog.published_rows()), read_queries(EVERYDAY))

    @cached_property
    def documents(self) -> list[Document]:
        return [document(row.tool, category=row.category, source_text=row.server) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Model:
    """An embedding model whose vectors are kept in a file beside it, so that a second run is quick."""

    name: str
    embedder: Embedder
    store: VectorStore

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(folder.name, open_embedder(ModelFolder(folder)), VectorStore(folder / "vectors.db"))

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(len(texts), dim), unit rows."""
        return self._rows(texts, self.embedder.model_id, self.embedder.embed_documents)

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Likewise, of what somebody asks."""
        embed = self.embedder.embed_query
        return self._rows(texts, f"{self.embedder.model_id} query", lambda new: np.stack([*map(embed, new)]))

    def _rows(
        self, texts: Sequence[str], model_id: str, embed: Callable[[Sequence[str]], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        digests = [blake2b(text.encode(), digest_size=16).digest() for text in texts]
        positions, kept = self.store.get_many(model_id, digests, self.embedder.dim)
        rows = np.zeros((len(texts), self.embedder.dim), np.float32)
        rows[positions] = kept
        if new := sorted({*range(len(texts))} - {*positions}):
            rows[new] = embed([texts[at] for at in new])
            self.store.put_many(model_id, [digests[at] for at in new], rows[new])
        return rows


def rankers(judged: JudgedSet, model: Model | None) -> Iterator[tuple[str, Search]]:
    """Each with its name in the table; made when it is asked for, so that one is gone before the next is there."""
    yield "Toolcrib", toolcrib(judged)
    for signal in LEXICAL:
        yield f"without {signal}", toolcrib(judged, WEIGHTS.without(signal))
    yield "BM25F alone", toolcrib(judged, WEIGHTS.without(*LEXICAL))
    for name, make in PEERS.items():
        yield name, _by_position(judged, make(judged.rows, DEPTH))
    if model is not None:
        near = nearest(judged, model)
        yield model.name, _by_position(judged, near)
        words = search.fts5_search(judged.rows, FUSED)
        yield f"RRF of FTS5 and {model.name}", _by_position(judged, lambda query: fused(words(query), near(query)))
        yield f"Toolcrib with {model.name}", toolcrib(judged, model=model)


def nearest(judged: JudgedSet, model: Model) -> Callable[[str], Sequence[int]]:
    """The positions of the tools whose name and description are nearest to a query, by cosine."""
    tools = model.documents([row.text for row in judged.rows])
    asked = [query.query for query in judged.queries]
    similarity = dict(zip(asked, model.queries(asked) @ tools.T, strict=True))
    return lambda query: np.argsort(-similarity[query], kind="stable")[:FUSED].tolist()


def toolcrib(
    judged: JudgedSet, weights: Weights = WEIGHTS, *, model: Model | None = None, history: History | None = None
) -> Search:
    """The project's own; `history` is what was asked before."""
    index = Index.build(judged.documents, weights=weights)
    known = _knowledge(judged, index, model, history)

    def find(text: str, limit: int) -> list[Found]:
        query = Query.parse(text)
        ranking = index.search(query, limit=limit, knowledge=known(query))
        return [Found(hit.tool_id, hit.confidence) for hit in ranking.hits]

    return find


def standings(
    judged: JudgedSet, weights: Weights, *, model: Model | None
) -> Callable[[str], tuple[Standing, Sequence[Part]]]:
    """The scores of all tools, and the evidence for the best, instead of a page of results."""
    index = Index.build(judged.documents, weights=weights)
    known = _knowledge(judged, index, model, None)
    layout = Layout.of([part.segment for part in index.parts], weights)

    def find(text: str) -> tuple[Standing, Sequence[Part]]:
        query = Query.parse(text)
        return rank(query, index.parts, layout, weights, known(query)), index.parts

    return find


def _knowledge(
    judged: JudgedSet, index: Index, model: Model | None, history: History | None
) -> Callable[[Query], Knowledge]:
    recall = None if history is None else history.over(index.parts)
    if model is None:
        return lambda _: Knowledge(recall=recall)
    vectors = _vectors(judged, model)
    model.queries([text for asked in judged.queries for text in Query.parse(asked.query).texts])  # written as one
    return lambda query: Knowledge(Understood(vectors, model.queries(query.texts)), recall)


def _vectors(judged: JudgedSet, model: Model) -> Vectors:
    texts = [embedded_text(row.tool, category=row.category, source_text=row.server) for row in judged.rows]
    of_key = {each.key: text for each, text in zip(judged.documents, texts, strict=True)}
    keys = np.array(list(of_key), np.uint64)
    return Vectors(model.embedder.model_id, keys, model.documents(list(of_key.values())))


def fused(one: Sequence[int], other: Sequence[int], k: int = 60) -> list[int]:
    """Reciprocal rank fusion. Source: Cormack, Clarke, Büttcher, SIGIR 2009."""
    scores: dict[int, float] = {}
    for ranked in (one, other):
        for place, at in enumerate(ranked, 1):
            scores[at] = scores.get(at, 0.0) + 1 / (k + place)
    return sorted(scores, key=lambda at: -scores[at])


def _by_position(judged: JudgedSet, find: Callable[[str], Sequence[int]]) -> Search:
    """An engine that answers with positions, as one that answers with ids."""
    return lambda query, limit: [judged.rows[at].tool.id for at in find(query)[:limit]]


PEERS: dict[str, search.Peer] = {
    "bm25s + stemming": search.bm25s_search,
    "SQLite FTS5, porter": search.fts5_search,
    "tantivy, en_stem": search.tantivy_search,
}
