"""Explains the ranking of a query: where the right tools rank, what ranks above them, and which words they share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolcrib.catalog.view import View, document_of
from toolcrib.search.evaluation import NDCG, Answer
from toolcrib.search.index.searching import Hit
from toolcrib.search.index.tokens import terms
from toolcrib.search.index.weights import WEIGHTS

_WORD = re.compile(r"[^\s,;:!?\"“”()\[\]{}]+")


@dataclass(frozen=True, slots=True)
class RankedTool:
    """The place of one tool in the ranking of a query."""

    tool_id: str
    rank: int | None
    """The rank from 1, or None if the tool is not ranked."""
    confidence: float | None
    """None if the tool is not ranked."""
    words: tuple[str, ...] = ()
    """Words of the query that occur in the tool's definition, category or source, compared by their stems."""
    reason: str | None = None
    """Why the tool is not ranked."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "tool_id": self.tool_id,
            "rank": self.rank,
            "confidence": self.confidence,
            "words": list(self.words),
            **({"reason": self.reason} if self.reason is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class FailedQuery:
    """A query that was not answered perfectly, and the reason."""

    answer: Answer
    relevant: tuple[RankedTool, ...]
    """The right tools with their ranks in the whole catalog, best first. Tools without a rank come last."""
    above: tuple[RankedTool, ...]
    """Other tools on the first page that rank above a right tool."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "id": self.answer.judged.id,
            "query": self.answer.judged.query,
            NDCG: round(self.answer.scores[0], 4),
            "refused": not self.answer.found,
            "relevant": [each.to_wire() for each in self.relevant],
            "above": [each.to_wire() for each in self.above],
        }


def examined(view: View, answer: Answer) -> FailedQuery:
    """Rank the whole catalog for the query of `answer`, and find the ranks of its right tools.

    `view` must rank as `answer` was ranked, but refuse nothing: so an empty page can be explained, too.
    """
    query, wanted = answer.judged.query, answer.judged.relevant
    ranked = view.search(query, limit=len(view.tools)).hits
    hits = {hit.tool_id: (rank, hit) for rank, hit in enumerate(ranked, 1)}
    relevant = sorted(
        (_ranked_tool(view, query, tool_id, hits.get(tool_id)) for tool_id in wanted),
        key=lambda each: (each.rank or len(hits) + 1, each.tool_id),
    )
    last = relevant[-1].rank or len(hits) + 1
    above = [
        _ranked_tool(view, query, found.tool_id, hits.get(found.tool_id))
        for rank, found in enumerate(answer.found, 1)
        if found.tool_id not in wanted and rank < last
    ]
    return FailedQuery(answer, tuple(relevant), tuple(above))


def _ranked_tool(view: View, query: str, tool_id: str, ranked: tuple[int, Hit] | None) -> RankedTool:
    if (tool := view.tools.get(tool_id)) is None:
        return RankedTool(tool_id, None, None, reason="it is not in the catalog")
    document = document_of(view.sources, view.visible.state.categories, tool)
    words = _shared(query, (term for field, _ in WEIGHTS.of_fields(document) for term in field))
    if ranked is not None:
        return RankedTool(tool_id, ranked[0], ranked[1].confidence, words)
    reason = "it is not among the matches" if words else "it has no word of the query"
    return RankedTool(tool_id, None, None, words, reason)


def _shared(query: str, held: Iterable[str]) -> tuple[str, ...]:
    """Return the different words of `query` that have a term in `held`, spelled as in the query.

    For scripts without spaces, return the terms: a whole query may be one word there.
    """
    known = frozenset(held)
    found: list[str] = []
    shown_terms: set[str] = set()
    for word in _WORD.findall(query):
        new = [term for term in dict.fromkeys(terms(word)) if term in known and term not in shown_terms]
        shown_terms.update(new)
        found += [word.strip(".'’")] if new and word.isascii() else new
    return tuple(found)
