"""Compares a query with tools by the table of word vectors, and adds the result to the scores by words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Impacts, Mask, Part
from toolcrib.search.index.signals import most
from toolcrib.search.index.weights import Weights
from toolcrib.search.index.word_vectors import QUERY_SCALE, SCALE, shipped

_WHOLE = 400
"""The number of tools that are compared in all dimensions: the best ones after a comparison in few dimensions."""

_HALVINGS = 8

_LEAST_LEAD = 0.05
"""The smallest lead that is used as it is. Below it, all tools are about equally close."""

_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Blend:
    """The scores by words and by meaning together."""

    scores: Sequence[Impacts]
    near: Sequence[NDArray[np.float32]]
    """For each part, (n_tools,): the cosine of each tool, times both scales. Coarse for tools far from the best."""

    def cosine(self, of_part: int, at: int) -> float:
        """Return how close the tool at a position of a part is to the query, as a cosine."""
        return float(self.near[of_part][at]) / (SCALE * QUERY_SCALE)


def blended(
    scores: Sequence[Impacts], parts: Sequence[Part], query: Query, coverage: float, weights: Weights
) -> Blend | None:
    """Add the closeness in meaning to `scores`. None if the table knows nothing of the query, or of all visible tools.

    `coverage` is the share of the query's weight in the best tool by words. The sum is convex, and both summands are
    relative to their best. All products of vectors are exact (see `word_vectors.QUERY_SCALE`), so the result does not
    depend on how the tools are divided into parts.
    """
    size = sum(part.size for part in parts)
    table = shipped()
    if table is None or not size or not query.texts or not any(part.segment.vectors.shape[1] for part in parts):
        return None
    asked = table.of_queries(query.texts)
    if not asked[0].any():
        return None
    is_small = size <= _WHOLE
    near = [_near(part, asked, is_small=is_small) for part in parts]
    # As the words do, this assumes some more tools. So in a catalog of one tool, that tool can be close to a request.
    typical = float(_closest(table.typical[:, None], asked)[0])
    total = sum(map(_visible_sum, near, parts)) + weights.unseen * typical
    middle = np.float32(total / (size + weights.unseen))
    for each, part in zip(near, parts, strict=True):
        if part.size < len(part.segment):
            each[~part.mask] = -np.inf
    if _highest(near) == 0 and not any(each[part.mask].any() for each, part in zip(near, parts, strict=True)):
        return None
    share = np.float32(share_of(query, coverage, weights))
    top = np.float32(max(most(scores), _LEAST))
    by_words = [each * ((1 - share) / top) for each in scores]
    if not is_small:
        for each, part, kept in zip(near, parts, _chosen(near, by_words, middle, share), strict=True):
            if part.segment.vectors.shape[1]:
                at = np.flatnonzero(kept)
                each[at] = _closest_at(part, at, asked)
    lead = _lead(near, middle)
    if lead <= 0:
        return None
    alone = np.float32(max(weights.similar, weights.meaning_alone * SCALE * QUERY_SCALE / lead))
    fused: list[Impacts] = []
    for one, other in zip(by_words, near, strict=True):
        by_meaning = _relative(other, middle, lead)
        matches = (one > 0) | (by_meaning >= alone)
        by_meaning *= share
        by_meaning += one
        by_meaning *= matches
        fused.append(by_meaning)
    return Blend(fused, near)


def _chosen(
    near: Sequence[NDArray[np.float32]],
    by_words: Sequence[Impacts],
    middle: np.float32,
    share: np.float32,
) -> list[Mask]:
    """Choose the tools that are compared in all dimensions: at most `_WHOLE`, the best ones by what is known so far."""
    lead = _lead(near, middle)
    first: list[Impacts] = []
    for one, other in zip(by_words, near, strict=True):
        score = _relative(other, middle, lead)
        score *= share
        score += one
        first.append(score)
    # Halving the interval of scores is faster than sorting. It is exact, so equal tools are all chosen, or none.
    low, high = np.float32(0), np.float32(1)
    for _ in range(_HALVINGS):
        between = (low + high) / 2
        if sum(int(np.count_nonzero(score >= between)) for score in first) > _WHOLE:
            low = between
        else:
            high = between
    return [score >= high for score in first]


def share_of(query: Query, coverage: float, weights: Weights) -> float:
    """Return the share of the score that comes from meaning. `coverage` is as in `blended`."""
    share = weights.meaning - weights.meaning_by_length * math.log(max(len(query.terms), 1))
    most = weights.meaning_at_most - weights.meaning_by_coverage * coverage
    return min(max(share, weights.meaning_at_least), most)


def _near(part: Part, asked: NDArray[np.float32], *, is_small: bool) -> NDArray[np.float32]:
    """(n_tools,): the closeness of each visible tool, in all dimensions if `is_small`. 0 for a tool without a vector.

    The values of other tools mean nothing.
    """
    if not part.segment.vectors.shape[1]:
        return np.zeros(len(part.segment), np.float32)
    if not is_small:
        return _closest(part.segment.coarse, asked)
    near = np.zeros(len(part.segment), np.float32)
    at = np.flatnonzero(part.mask)  # often few of a hundred thousand tools
    near[at] = _closest_at(part, at, asked)
    return near


def _closest_at(part: Part, at: NDArray[np.intp], asked: NDArray[np.float32]) -> NDArray[np.float32]:
    """(len(at),): the closeness in all dimensions of the tools at some positions."""
    return _closest(part.segment.vectors[at].T.astype(np.float32), asked)


def _closest(tools: NDArray[np.float32], asked: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n_tools,): the mean of the closeness to the whole query and to the closest clause.

    `asked` is (1 + n_clauses, DIM). `tools` is (dim, n_tools), with the first dimensions or with all.
    """
    products = asked[:, : len(tools)] @ tools
    return products[0] if len(asked) == 1 else (products[0] + products[1:].max(0)) / 2


def _visible_sum(near: NDArray[np.float32], part: Part) -> float:
    """Return the sum over the visible tools. Sums of whole numbers in 64 bits are exact, so they have no order."""
    total = float(near.sum(dtype=np.float64))
    return total if part.size == len(near) else total - float(near[~part.mask].sum(dtype=np.float64))


def _lead(near: Sequence[NDArray[np.float32]], middle: np.float32) -> float:
    return _highest(near) - float(middle)


def _highest(near: Sequence[NDArray[np.float32]]) -> float:
    return max(float(each.max(initial=-np.inf)) for each in near)


def _relative(near: NDArray[np.float32], middle: np.float32, lead: float) -> Impacts:
    """Return 1 for the closest tool (less if it is hardly closer than the mean), 0 for tools not closer than that."""
    found = near - middle
    np.maximum(found, 0, out=found)
    found /= np.float32(max(lead, _LEAST_LEAD * SCALE * QUERY_SCALE))
    return found
