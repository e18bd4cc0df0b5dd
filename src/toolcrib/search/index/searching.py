"""Runs a search: scores all tools, and returns one page of the matching ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import NOTHING_KNOWN, Knowledge, highest, rank
from toolcrib.search.index.segment import Impacts, Part
from toolcrib.search.index.signals import Layout, Scores, most
from toolcrib.search.index.weights import Weights


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that matches a query."""

    tool_id: str
    score: float
    """Above 0. Scores are comparable within one ranking only."""
    confidence: float
    """The estimated probability that the tool serves the query. In [0, 1], to 4 digits. Rises with `score`."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """One page of the tools that match a query."""

    hits: tuple[Hit, ...]
    """Best first. Ties are ordered by `tool_id`, ascending."""
    total: int
    """The number of matching tools on all pages."""
    is_weak: bool = False
    """Whether none of the hits fits well, so that only the best few are given."""

    @property
    def fits(self) -> bool:
        """Whether a tool fits the query well."""
        return bool(self.hits) and not self.is_weak


def search(
    query: Query,
    parts: Sequence[Part],
    layout: Layout,
    weights: Weights,
    knowledge: Knowledge | None,
    *,
    limit: int,
    offset: int,
    among: Sequence[Part] | None,
    scope: Collection[str] | Callable[[str], bool] | None,
) -> Ranking:
    """Return `limit` matching tools of `parts` after the first `offset`. See `Index.search`.

    Only tools that are in `among`, which are `parts` with different masks, and in `scope` are returned.
    """
    standing = rank(query, parts, layout, weights, knowledge or NOTHING_KNOWN)
    scores = standing.scores
    if among is not None:
        scores = [part_scores * kept.mask for part_scores, kept in zip(scores, among, strict=True)]
    if scope is not None:
        scores = [_within(scope, part, part_scores) for part, part_scores in zip(parts, scores, strict=True)]
    refused = standing.is_refused(most(scores))
    is_weak = refused and not _is_any(standing.is_known_of, standing.past, parts, scores)
    least = math.inf if is_weak else standing.least_score(weights)
    wanted = min(offset + limit, weights.weak_results) if is_weak else offset + limit

    total, good, best = 0, 0, list[tuple[float, str]]()
    for part, part_scores in zip(parts, scores, strict=True):
        total += int(np.count_nonzero(part_scores > 0))  # ten times as fast as counting floats
        good += int(np.count_nonzero(part_scores > np.float32(least)))
        found = highest(part_scores, wanted)
        best += zip((-part_scores[found]).tolist(), map(part.segment.ids.__getitem__, found.tolist()), strict=True)
    total = min(total, max(good, weights.weak_results))
    page = sorted(best)[offset : min(wanted, total)]
    return Ranking(
        tuple(Hit(tool_id, -score, standing.confidence(-score)) for score, tool_id in page),
        total,
        is_weak and total > 0,
    )


def _is_any(claim: Callable[[str], bool], tool_ids: Iterable[str], parts: Sequence[Part], scores: Scores) -> bool:
    """Whether `claim` is true for any of these tools that has a score."""
    return any(
        part_scores[at] > 0
        for tool_id in tool_ids
        if claim(tool_id)
        for part, part_scores in zip(parts, scores, strict=True)
        if (at := part.segment.positions.get(tool_id)) is not None
    )


def _within(scope: Collection[str] | Callable[[str], bool], part: Part, scores: Impacts) -> Impacts:
    """Return the scores of the tools in `scope`, and 0 for others."""
    ids, positions = part.segment.ids, part.segment.positions
    narrowed = np.zeros_like(scores)
    if callable(scope):
        kept = [at for at in np.flatnonzero(scores).tolist() if scope(ids[at])]
    elif isinstance(scope, Set) and len(scope) > np.count_nonzero(scores):
        kept = [at for at in np.flatnonzero(scores).tolist() if ids[at] in scope]
    else:
        kept = [at for tool_id in scope if (at := positions.get(tool_id)) is not None]
    narrowed[kept] = scores[kept]
    return narrowed
