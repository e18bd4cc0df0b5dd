"""What speaks for a tool: each signal is one function from what is known to what it earns, and can be switched off.

Figures are nDCG@10 that is lost without the signal, all others on, as `benchmarks/retrieval.py` measures it. Constants
were chosen on ToolBench; the other sets were not tuned on. Left out, for what they cost on some set they did not earn
on others: the share of a tool's name that a query covers, and latent semantic analysis (docs/search.md).

A score is one number for each tool of each part, 0 for a tool that does not count or that nothing speaks for.
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
from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Docs, Impacts, Part, Segment
from toolcrib.search.index.synonyms import RELATED
from toolcrib.search.index.vocabulary import SHARES
from toolcrib.search.index.weights import Weights

Scores: TypeAlias = Sequence[Impacts]
"""An array for each part, (n_tools,), float32."""

Earned: TypeAlias = tuple[Docs, Impacts]
"""Some tools of a part, and what each earns; one that stands there twice earns both."""


_MOST = 0.5
"""The share of tools whose vectors must be known for a tool to match by meaning alone."""

_LEAST = 1e-9
"""A score of nothing that one may divide by."""


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """The origins of some segments' tools, numbered across them."""

    count: int
    of_runs: tuple[NDArray[np.int64], ...]
    """For each segment, the number of each of its runs."""

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Self:
        # The first is the largest by far, and keeps its own numbers.
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
    """What is the same for every query over some segments, whoever asks."""

    origins: Origins
    brevity: tuple[Impacts, ...]
    """For each segment, (n_tools,), float32: see `brevity`."""

    @classmethod
    def of(cls, segments: Sequence[Segment], weights: Weights) -> Self:
        return cls(Origins.of(segments), tuple(brevity(segment, weights) for segment in segments))


class Words:
    """What each term of one query earns each tool, over the tools that count in `parts`.

    BM25F, with a term's inverse document frequency among those tools alone.
    """

    def __init__(self, query: Query, parts: Sequence[Part], weights: Weights) -> None:
        self._parts = parts
        self._terms = query.terms
        self._size = sum(part.size for part in parts) + weights.unseen
        self._unseen = weights.unseen
        self._idf = dict[str, float]()
        self.weight = sum(map(self.idf, query.terms))
        """What all terms of the query weigh."""
        self._earned = [
            {term: earned for term in query.terms if (earned := self._of_term(term, part, weights)) is not None}
            for part in parts
        ]

    def idf(self, term: str) -> float:
        if (known := self._idf.get(term)) is None:
            found = (part.segment.postings(term) for part in self._parts)
            held = (part.count(each[0]) for part, each in zip(self._parts, found, strict=True) if each is not None)
            holders = sum(held) + self._unseen * SHARES.get(term, 0.0)
            known = self._idf[term] = math.log1p((self._size - holders + 0.5) / (holders + 0.5))
        return known

    def scores(self, terms: Iterable[str]) -> list[Impacts]:
        """What these terms of the query earn together."""
        # Added in the query's order whatever the part, so that equal tools tie exactly.
        terms = tuple(terms)
        return [_sum(terms, earned, part) for earned, part in zip(self._earned, self._parts, strict=True)]

    def shares(self, part: Part, at: int) -> tuple[float, float]:
        """Of the tool at a position: what of the query's weight it holds, and what of the tool the query asks for.

        Both in [0, 1]; the second of its length as a vector of terms.
        """
        held, said = 0.0, 0.0
        for term in self._terms:
            impact = part.segment.impact(term, at)
            if impact:
                held += self.idf(term)
                said += impact * impact
        length = float(part.segment.lengths[at])
        return held / max(self.weight, _LEAST), min(1.0, math.sqrt(said) / max(length, _LEAST))

    def _of_term(self, term: str, part: Part, weights: Weights) -> Earned | None:
        own = part.segment.postings(term)
        earned = None if own is None else (own[0], np.float32(self.idf(term)) * own[1])
        if not weights.synonyms or term not in RELATED:
            return earned
        related = (self._related(term, other, part, weights) for other in RELATED[term])
        return _best_of([each for each in (earned, *related) if each is not None], len(part.segment))

    def _related(self, term: str, other: str, part: Part, weights: Weights) -> Earned | None:
        """What `other`, which may stand for `term`, earns: no more than the term asked for would, however rare it is.

        Worth .018 on MetaTool, .004 on BFCL and .001 on ToolBench, nothing on Seal-Tools. Added to the term itself, and
        not the better of both, it costs .002 to .004 on ToolBench and BFCL.
        """
        found = part.segment.postings(other)
        if found is None:
            return None
        return found[0], np.float32(weights.synonyms * min(self.idf(term), self.idf(other))) * found[1]


def clauses(query: Query, words: Words, weights: Weights) -> list[Impacts] | None:
    """What the clause of a query earns a tool that earns it most; None where no clause earns anything.

    The best tool for each clause earns nearly the same (`weights.clause_parity`): of a request for three things, the
    one said in the most and the rarest words does not push out the other two. Worth .033 on Seal-Tools and .027 on
    ToolBench, where requests need several tools; costs .002 on BFCL and MetaTool, where they need one. Without
    parity it is worth half of that.
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
    """What scores are multiplied by: a tool that says much besides matches less than one that says little.

    A mild form of the cosine's division by the length of the document, on top of BM25F's by that of each field. Worth
    .010 on ToolBench and .002 on Seal-Tools; costs .001 on BFCL and MetaTool.
    """
    return np.maximum(segment.lengths, np.float32(0.1)) ** np.float32(-weights.brevity)


def sources(scores: Scores, parts: Sequence[Part], origins: Origins, weights: Weights) -> list[Impacts]:
    """What each tool that matches earns by the best of its source: a request is often all of one.

    Worth .011 on ToolBench; the other sets know no sources.
    """
    best = np.zeros(origins.count, np.float32)
    for part, part_scores, of_run in zip(parts, scores, origins.of_runs, strict=True):
        np.maximum.at(best, of_run, np.maximum.reduceat(part_scores, part.segment.runs))
    if np.count_nonzero(best) < 2:  # then it moves nothing
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
    """Scores by words and by meaning as one: a convex sum, each over its best.

    Long requests, which name what they want, lean on words; tools without parameters, which have few, on meaning. A
    tool whose vector is not there yet counts as if it were as near as its words say; and as long as few vectors are
    there, the nearest of them may be far from the query, and meaning counts in proportion. Not by ranks: reciprocal
    rank fusion of the same two costs .05 to .2.

    With all-MiniLM-L6-v2 worth .12 on MetaTool, .04 on BFCL, .014 on ToolBench and .008 on Seal-Tools.
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
    """The share of tools that have no parameters."""
    size = sum(part.size for part in parts)
    return sum(part.count_where(~part.segment.has_parameters) for part in parts) / size if size else 0.0


def _sum(terms: Sequence[str], earned: Mapping[str, Earned], part: Part) -> Impacts:
    total = np.zeros(len(part.segment), np.float32)
    for term in terms:
        if term in earned:
            docs, impacts = earned[term]
            np.add.at(total, docs, impacts)  # half the time of `total[docs] += impacts`, and counts what stands twice
    if part.size < len(part.segment):
        total *= part.mask
    return total


def _best_of(found: Sequence[Earned], size: int) -> Earned | None:
    """For each tool the most that any of `found` earns it."""
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
    """The best of all; 0 where there is none."""
    return max((float(part_scores.max(initial=0.0)) for part_scores in scores), default=0.0)
