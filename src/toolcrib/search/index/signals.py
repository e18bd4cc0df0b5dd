"""The signals of the ranking. Each signal is one function that can be switched off.

The numbers are the nDCG@10 that is lost without the signal, with all others on, as measured by
`benchmarks/retrieval.py`. Constants were chosen on ToolBench, and not tuned on the other sets. Two signals were
rejected because they cost more on some set than they gained on others: the share of a tool's name that a query
covers, and latent semantic analysis (docs/search.md).

A score is one number for each tool of each part. It is 0 for a tool that is not visible or has no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.properties import cached_property
from toolcrib.search.index.meaning import Similarities
from toolcrib.search.index.partial_words import stand_ins
from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Impacts, Part, Segment
from toolcrib.search.index.synonyms import RELATED
from toolcrib.search.index.vocabulary import SHARES
from toolcrib.search.index.weights import Weights

Scores: TypeAlias = Sequence[Impacts]
"""An array for each part, (n_tools,), float32."""


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
    lengths: tuple[NDArray[np.int64], ...]
    """For each segment, the number of tools of each of its runs."""

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
        lengths = tuple(np.diff(segment.runs, append=len(segment)) for segment in segments)
        return cls(len(first) + len(more), tuple(of_runs), lengths)


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

    BM25F, with a term's inverse document frequency among those tools only. The postings of all terms are read at once,
    because in a small catalog the number of calls to numpy decides how long a search takes.
    """

    def __init__(self, query: Query, parts: Sequence[Part], weights: Weights) -> None:
        self._parts = parts
        self._query = query
        self._size = sum(part.size for part in parts) + weights.unseen
        self._unseen = weights.unseen
        self._partial = weights.partial_words
        self._idf = dict[str, float]()
        related = {term: RELATED.get(term, ()) if weights.synonyms else () for term in query.terms}
        self._held = _holders({*query.terms}.union(*related.values()), parts)
        """How many visible tools have each term. Terms that no tool has are left out."""
        self._stand_ins = {
            term: found
            for term in query.terms
            if weights.partial_words and term not in self._held and (found := stand_ins(term, parts))
        }
        """For each term that no visible tool has: the terms that stand in for it."""
        self._held |= _holders({each.term for found in self._stand_ins.values() for each in found}, parts)
        self.weight = sum(map(self.idf, query.terms))
        """The weight of all terms of the query."""
        self._counted = [
            [(term, self.idf(term))]
            + [(other, self._capped(term, other, weights.synonyms)) for other in related[term] if other in self._held]
            + [
                (each.term, self._capped(term, each.term, weights.partial_words * each.likeness))
                for each in self._stand_ins.get(term, ())
            ]
            for term in query.terms
        ]
        """For each term of the query: the terms that count for it, itself first, and the factor for their impacts."""

    @cached_property
    def _gains(self) -> Sequence[_Gains]:
        return [_Gains.of(self._counted, part.segment) for part in self._parts]

    def idf(self, term: str) -> float:
        if (known := self._idf.get(term)) is None:
            holders = self._held.get(term, 0) + self._unseen * SHARES.get(term, 0.0)
            known = self._idf[term] = math.log1p((self._size - holders + 0.5) / (holders + 0.5))
        return known

    def _capped(self, term: str, other: str, share: float) -> float:
        """Return the factor for the impacts of `other`, a synonym of `term` or a term that stands in for it.

        Even if `other` is rare, it gains no more than the term itself. Synonyms gain 0.018 on MetaTool, 0.004 on BFCL
        and 0.001 on ToolBench, nothing on Seal-Tools. Adding this gain to the term's own gain, instead of taking the
        better of both, costs 0.002 to 0.004 on ToolBench and BFCL.
        """
        return share * min(self.idf(term), self.idf(other))

    def scores(self) -> tuple[list[Impacts], list[NDArray[np.float32]]]:
        """Return the total gain of the query's terms, and (n_clauses, n_tools) for each part: that of each clause."""
        places = {term: at for at, term in enumerate(self._query.terms)}
        clauses = [[places[term] for term in clause] for clause in self._query.clauses]
        totals = [each.totals(clauses, part) for each, part in zip(self._gains, self._parts, strict=True)]
        return [each[0] for each in totals], [each[1:] for each in totals]

    def held(self, part: Part, at: int) -> tuple[list[float], float]:
        """For the tool at a position, return how much of each term it has, and the query's share of the tool.

        All are in [0, 1]. A term that a similar one stands in for counts in part. The share of the tool is relative to
        its length as a vector of terms.
        """
        found, said = list[float](), 0.0
        own = self._gains[self._parts.index(part)].impacts_of(at)
        for term in self._query.terms:
            impact = own.get(term, 0.0)
            likeness = 1.0 if impact else 0.0
            for each in self._stand_ins.get(term, ()):
                share = self._partial * each.likeness
                if (other := share * own.get(each.term, 0.0)) > impact:
                    impact, likeness = other, share
            found.append(likeness)
            said += impact * impact
        length = float(part.segment.lengths[at])
        return found, min(1.0, math.sqrt(said) / max(length, _LEAST))

    def weight_of(self, held: Iterable[float]) -> float:
        """Return the weight of the terms of the query, each as far as it is `held`."""
        return sum(share * self.idf(term) for share, term in zip(held, self._query.terms, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Gains:
    """The gains of the tools of one part by all terms that count for a query."""

    counted: Sequence[str]
    """The terms that count. Those for one term of the query follow each other."""
    ends: Sequence[int]
    """(n_counted + 1,): the postings of `counted[at]` are `ends[at]:ends[at + 1]`."""
    bounds: Sequence[int]
    """(n_terms + 1,): the postings for term `at` of the query are `bounds[at]:bounds[at + 1]`."""
    docs: NDArray[np.intp]
    impacts: Impacts
    gains: Impacts
    """The gains of one tool for one term of the query add up to the largest of them, in the order of `counted`."""

    @classmethod
    def of(cls, counted: Sequence[Sequence[tuple[str, float]]], segment: Segment) -> Self:
        names = [name for each in counted for name, _ in each]
        factors = np.array([factor for each in counted for _, factor in each], np.float32)
        docs, impacts, lengths = segment.gathered(names)
        gains = impacts * np.repeat(factors, lengths)
        ends = [*accumulate(lengths, initial=0)]
        bounds, best, at = [0], None, 0
        for each in counted:
            first, at = at, at + len(each)
            bounds.append(ends[at])
            filled = [(start, end) for start, end in pairwise(ends[first : at + 1]) if start < end]
            if len(filled) > 1:
                if best is None:
                    best = np.empty(len(segment), np.float32)
                best.fill(0)
                for start, end in filled:
                    where, gain = docs[start:end], gains[start:end]
                    before = best.take(where)
                    np.maximum(before, gain, out=gain)
                    best[where] = gain
                    gain -= before
        return cls(names, ends, bounds, docs, impacts, gains)

    def totals(self, clauses: Sequence[Sequence[int]], part: Part) -> NDArray[np.float32]:
        """(1 + n_clauses, n_tools): the total gain of all terms, then of the terms of each clause.

        `clauses` are positions of terms in the query.
        """
        size = len(part.segment)
        found = np.zeros((1 + len(clauses), size), np.float32)
        flat = found.reshape(-1)
        # Added in the order of the query in every part, so that equal tools tie exactly.
        np.add.at(flat, self.docs, self.gains)
        spans = [
            (size * row, slice(self.bounds[first], self.bounds[last + 1]))
            for row, clause in enumerate(clauses, 1)
            for first, last in _runs(clause)
        ]
        if spans:
            where = np.concatenate([self.docs[span] for _, span in spans])
            where += np.repeat([start for start, _ in spans], [span.stop - span.start for _, span in spans])
            np.add.at(flat, where, np.concatenate([self.gains[span] for _, span in spans]))
        if part.size < size:
            found *= part.mask
        return found

    def impacts_of(self, at: int) -> dict[str, float]:
        """Return the impacts of the counted terms on the tool at a position."""
        places = np.flatnonzero(self.docs == at)
        which: list[int] = (np.searchsorted(self.ends, places, "right") - 1).tolist()
        impacts: list[float] = self.impacts[places].tolist()
        return {self.counted[each]: impact for each, impact in zip(which, impacts, strict=True)}


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of numbers that follow each other."""
    first = last = places[0]
    for place in places[1:]:
        if place != last + 1:
            yield first, last
            first = place
        last = place
    yield first, last


def _holders(terms: Iterable[str], parts: Sequence[Part]) -> dict[str, int]:
    """Return how many visible tools have each of `terms`. Terms that no visible tool has are left out."""
    held: dict[str, int] = {}
    for part in parts:
        for term, count in part.holders_of(terms).items():
            held[term] = held.get(term, 0) + count
    return held


def clauses(scores: Sequence[NDArray[np.float32]], weights: Weights) -> list[Impacts] | None:
    """Return the gain of each tool by its best clause. None if no clause matches anything.

    `scores` are, for each part, (n_clauses, n_tools): the gain by each clause. They are overwritten.

    The best tool of each clause gains nearly the same (`weights.clause_parity`). In a request for three things, the one
    with the most and the rarest words does not push out the other two. Gains 0.033 on Seal-Tools and 0.027 on
    ToolBench, where requests need several tools. Costs 0.002 on BFCL and MetaTool, where they need one. Without parity,
    it gains half of that.
    """
    tops: list[float] = np.max([each.max(1, initial=0.0) for each in scores], 0).tolist() if scores else []
    best = max(tops, default=0.0)
    if not best or not weights.clauses:
        return None
    factors = [weights.clauses * (best / top) ** weights.clause_parity if top else 0.0 for top in tops]
    by_clause = np.array(factors, np.float32)[:, None]
    return [np.multiply(each, by_clause, out=each).max(0) for each in scores]


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
    return [
        np.repeat(best[of_run], lengths) * (part_scores > 0)
        for part_scores, of_run, lengths in zip(scores, origins.of_runs, origins.lengths, strict=True)
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


def most(scores: Scores) -> float:
    """Return the highest score of all. 0 if there is no score."""
    return max((float(part_scores.max(initial=0.0)) for part_scores in scores), default=0.0)
