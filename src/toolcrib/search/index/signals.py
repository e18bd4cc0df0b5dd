"""The signals of the ranking. Each signal is one function that can be switched off.

The numbers are the nDCG@10 that is lost without the signal, with all others on, as measured by
`benchmarks/retrieval.py`. Constants were chosen on ToolBench, and not tuned on the other sets. Two signals were
rejected because they cost more on some set than they gained on others: the share of a tool's name that a query
covers, and latent semantic analysis (docs/search.md).

A score is one number for each tool of each part. It is 0 for a tool that is not visible or has no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.index.meaning import Similarities
from toolcrib.search.index.partial_words import stand_ins
from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Docs, Impacts, Part, Segment
from toolcrib.search.index.synonyms import RELATED
from toolcrib.search.index.vocabulary import SHARES
from toolcrib.search.index.weights import Weights

Scores: TypeAlias = Sequence[Impacts]
"""An array for each part, (n_tools,), float32."""

Earned: TypeAlias = tuple[Docs, Impacts]
"""Some tools of a part, and the gain of each. A tool that is listed twice gets both gains."""


_MOST = 0.5
"""The share of tools whose vectors must be known before a tool can match by meaning alone."""

_LEAST = 1e-9
"""The smallest score that is used as a divisor."""


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """The origins of the tools of several segments, with common numbers."""

    count: int
    of_runs: tuple[NDArray[np.int64], ...]
    """For each segment, the number of each of its runs."""

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Self:
        # The first segment is by far the largest, and keeps its own numbers.
        first: Mapping[str, int] = segments[0].origins if segments else {}
        more: dict[str, int] = {}
        of_runs: list[NDArray[np.int64]] = []
        for segment in segments:
            numbers = segment.origin_of_run
            if segment is not segments[0]:
                new = [
                    first[name] if name in first else more.setdefault(name, len(first) + len(more))
                    for name in segment.origins
                ]
                numbers = np.array(new, np.int64)[numbers]
            of_runs.append(numbers)
        return cls(len(first) + len(more), tuple(of_runs))


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The data that is the same for every query over some segments, for every principal."""

    origins: Origins
    brevity: tuple[Impacts, ...]
    """For each segment, (n_tools,), float32: see `brevity`."""

    @classmethod
    def of(cls, segments: Sequence[Segment], weights: Weights) -> Self:
        return cls(Origins.of(segments), tuple(brevity(segment, weights) for segment in segments))


class Words:
    """The gain of each tool by each term of one query, over the visible tools of `parts`.

    BM25F, with a term's inverse document frequency among those tools only.
    """

    def __init__(self, query: Query, parts: Sequence[Part], weights: Weights) -> None:
        self._parts = parts
        self._terms = query.terms
        self._size = sum(part.size for part in parts) + weights.unseen
        self._unseen = weights.unseen
        self._idf = dict[str, float]()
        self._held = dict[str, int]()
        self._stand_ins = {
            term: stand_ins(term, parts) for term in query.terms if weights.partial_words and not self._holders(term)
        }
        """For each term that no visible tool has: the terms that stand in for it."""
        self._partial = weights.partial_words
        self.weight = sum(map(self.idf, query.terms))
        """The weight of all terms of the query."""
        self._earned = [
            {term: earned for term in query.terms if (earned := self._of_term(term, part, weights)) is not None}
            for part in parts
        ]

    def idf(self, term: str) -> float:
        if (known := self._idf.get(term)) is None:
            holders = self._holders(term) + self._unseen * SHARES.get(term, 0.0)
            known = self._idf[term] = math.log1p((self._size - holders + 0.5) / (holders + 0.5))
        return known

    def _holders(self, term: str) -> int:
        """Return how many visible tools have `term`."""
        if (known := self._held.get(term)) is None:
            known = self._held[term] = sum(part.holders(term) for part in self._parts)
        return known

    def scores(self, terms: Iterable[str]) -> list[Impacts]:
        """Return the total gain of these terms of the query."""
        # Summed in the order of the query in every part, so that equal tools tie exactly.
        terms = tuple(terms)
        return [_sum(terms, earned, part) for earned, part in zip(self._earned, self._parts, strict=True)]

    def shares(self, part: Part, at: int) -> tuple[float, float]:
        """For the tool at a position, return its share of the query's weight, and the query's share of the tool.

        Both are in [0, 1]. The second is relative to the tool's length as a vector of terms.
        """
        held, said = 0.0, 0.0
        for term in self._terms:
            impact, likeness = part.segment.impact(term, at), 1.0
            for each in self._stand_ins.get(term, ()):
                share = self._partial * each.likeness
                if (other := share * part.segment.impact(each.term, at)) > impact:
                    impact, likeness = other, share
            if impact:
                held += likeness * self.idf(term)
                said += impact * impact
        length = float(part.segment.lengths[at])
        return held / max(self.weight, _LEAST), min(1.0, math.sqrt(said) / max(length, _LEAST))

    def _of_term(self, term: str, part: Part, weights: Weights) -> Earned | None:
        own = part.segment.postings(term)
        earned = None if own is None else (own[0], np.float32(self.idf(term)) * own[1])
        partial = self._stand_ins.get(term, ())
        related = RELATED.get(term, ()) if weights.synonyms else ()
        if not partial and not related:
            return earned
        found = [
            earned,
            *(self._related(term, other, part, weights.synonyms) for other in related),
            *(self._related(term, each.term, part, weights.partial_words * each.likeness) for each in partial),
        ]
        return _best_of([each for each in found if each is not None], len(part.segment))

    def _related(self, term: str, other: str, part: Part, share: float) -> Earned | None:
        """Return the gain by `other`, a synonym of `term`. Even if it is rare, it gains no more than the term itself.

        Gains 0.018 on MetaTool, 0.004 on BFCL and 0.001 on ToolBench, nothing on Seal-Tools. Adding this gain to the
        term's own gain, instead of taking the better of both, costs 0.002 to 0.004 on ToolBench and BFCL.
        """
        found = part.segment.postings(other)
        if found is None:
            return None
        return found[0], np.float32(share * min(self.idf(term), self.idf(other))) * found[1]


def clauses(query: Query, words: Words, weights: Weights) -> list[Impacts] | None:
    """Return the gain of each tool by its best clause. None if no clause matches anything.

    The best tool of each clause gains nearly the same (`weights.clause_parity`). In a request for three things, the one
    with the most and the rarest words does not push out the other two. Gains 0.033 on Seal-Tools and 0.027 on
    ToolBench, where requests need several tools. Costs 0.002 on BFCL and MetaTool, where they need one. Without parity,
    it gains half of that.
    """
    if not weights.clauses:
        return None
    each = [(scores, top) for scores in map(words.scores, query.clauses) if (top := most(scores))]
    if not each:
        return None
    best = max(top for _, top in each)
    lifted: list[list[Impacts]] = []
    for scores, top in each:
        factor = np.float32(weights.clauses * (best / top) ** weights.clause_parity)
        lifted.append([factor * part_scores for part_scores in scores])
    return [reduce(np.maximum, of_part) for of_part in zip(*lifted, strict=True)]


def brevity(segment: Segment, weights: Weights) -> Impacts:
    """Return the factor for the score of each tool. A long tool gets a lower factor than a short one.

    This is a weak form of the cosine's division by document length, in addition to BM25F's division by the length of
    each field. Gains 0.010 on ToolBench and 0.002 on Seal-Tools. Costs 0.001 on BFCL and MetaTool.
    """
    return np.maximum(segment.lengths, np.float32(0.1)) ** np.float32(-weights.brevity)


def sources(scores: Scores, parts: Sequence[Part], origins: Origins, weights: Weights) -> list[Impacts]:
    """Return the gain of each matching tool by the best tool of its source, because a request often needs one source.

    Gains 0.011 on ToolBench. The other sets have no sources.
    """
    best = np.zeros(origins.count, np.float32)
    for part, part_scores, of_run in zip(parts, scores, origins.of_runs, strict=True):
        np.maximum.at(best, of_run, np.maximum.reduceat(part_scores, part.segment.runs))
    if np.count_nonzero(best) < 2:  # with fewer than two, the signal cannot change the order
        return [np.zeros_like(part_scores) for part_scores in scores]
    best *= np.float32(weights.sources)
    lent = zip(parts, scores, origins.of_runs, strict=True)
    return [
        np.repeat(best[of_run], np.diff(part.segment.runs, append=len(part_scores))) * (part_scores > 0)
        for part, part_scores, of_run in lent
    ]


def embedding(
    scores: Scores, similarities: Similarities, parts: Sequence[Part], query: Query, weights: Weights
) -> list[Impacts]:
    """Combine the scores by words and by meaning into one: a convex sum, each relative to its best.

    Long requests, which name what they want, rely more on words. Tools without parameters have few words, and rely more
    on meaning. A tool without a vector counts as if its meaning agreed with its words. While few vectors are known, the
    nearest one may be far from the query, so the weight of meaning is proportional to their number. Ranks are not used:
    reciprocal rank fusion of the same two costs 0.05 to 0.2. With all-MiniLM-L6-v2, this gains 0.12 on MetaTool, 0.04
    on BFCL, 0.014 on ToolBench and 0.008 on Seal-Tools.
    """
    size = sum(part.size for part in parts)
    of_all = similarities.known / size
    by_length = weights.embedding - weights.embedding_by_clause * len(query.clauses)
    share = max(by_length, min(weights.embedding, weights.embedding_at_least))
    share = np.float32(min(1.0, share + weights.embedding_without_parameters * bareness(parts)) * of_all)
    top = max(most(scores), _LEAST)
    fused: list[Impacts] = []
    for part_scores, near in zip(scores, similarities.near, strict=True):
        by_words = part_scores / np.float32(top)
        by_meaning = np.where(np.isnan(near), by_words, near)
        matches = part_scores > 0
        if of_all >= _MOST:
            matches |= by_meaning >= np.float32(weights.similar)
        fused.append(((1 - share) * by_words + share * by_meaning) * matches)
    return fused


def bareness(parts: Sequence[Part]) -> float:
    """Return the share of tools that have no parameters."""
    size = sum(part.size for part in parts)
    return sum(part.count_where(~part.segment.has_parameters) for part in parts) / size if size else 0.0


def _sum(terms: Sequence[str], earned: Mapping[str, Earned], part: Part) -> Impacts:
    total = np.zeros(len(part.segment), np.float32)
    for term in terms:
        if term in earned:
            docs, impacts = earned[term]
            np.add.at(total, docs, impacts)  # twice as fast as `total[docs] += impacts`, and adds both gains of a tool
    if part.size < len(part.segment):
        total *= part.mask
    return total


def _best_of(found: Sequence[Earned], size: int) -> Earned | None:
    """Return, for each tool, the largest gain in any of `found`."""
    if len(found) < 2:
        return found[0] if found else None
    best = np.zeros(size, np.float32)
    docs: list[Docs] = []
    gains: list[NDArray[np.float32]] = []
    for at, earned in found:
        before = best[at]
        np.maximum(before, earned, out=earned)
        best[at] = earned
        docs.append(at)
        gains.append(earned - before)
    return np.concatenate(docs), np.concatenate(gains)


def most(scores: Scores) -> float:
    """Return the highest score of all. 0 if there is no score."""
    return max((float(part_scores.max(initial=0.0)) for part_scores in scores), default=0.0)
