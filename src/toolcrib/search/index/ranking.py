"""Combines the signals into one score, and estimates the confidence of the best tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolcrib.search.index import signals
from toolcrib.search.index.closeness import blended
from toolcrib.search.index.confidence import Estimate, Evidence, estimates
from toolcrib.search.index.history import Recall
from toolcrib.search.index.meaning import Understood, similarities
from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Impacts, Part
from toolcrib.search.index.weights import Weights


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known about a query in addition to its words."""

    understood: Understood | None = None
    recall: Recall | None = None

    def mark(self, parts: Sequence[Part]) -> str:
        """Return a digest of everything here that affects the visible tools of `parts`. Empty if nothing is known."""
        told: list[str] = []
        if self.understood is not None:
            vectors = self.understood.vectors
            known = [part.segment.keys[part.mask & (vectors.rows_of(part.segment) >= 0)] for part in parts]
            # Summed, so that the result does not depend on the order.
            which = sum(int(keys.sum(dtype=np.uint64)) for keys in known) % 2**64
            told += [vectors.model_id, str(len(self.understood.texts)), str(sum(map(len, known))), f"{which:x}"]
        if self.recall is not None:
            told.append(self.recall.mark(parts))
        return " ".join(told)


NOTHING_KNOWN = Knowledge()

_CLEARLY = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """The score of every tool, and the confidence of the best one."""

    scores: Sequence[Impacts]
    """For each part, (n_tools,), float32: 0 for a tool that does not match or is not visible."""
    best: float
    """The highest score, before the trace raised any. A raised score can be higher."""
    estimates: tuple[Estimate, ...]
    """The last estimate is the one to use."""
    past: Mapping[str, float]
    """How strongly the past supports a tool, in (0, 1], by tool id."""

    def confidence(self, score: float) -> float:
        """Return the estimated probability that a tool with this score serves the query. In [0, 1], to 4 digits."""
        return self.estimates[-1].chance(min(score / self.best, 1.0)) if score > 0 else 0.0

    def score_of(self, confidence: float) -> float:
        """Return the score that has this confidence. It may be above the best. 0 for a confidence of 0."""
        return self.estimates[-1].share_of(confidence) * self.best

    def is_refused(self, score: float) -> bool:
        """Whether even a best result with this score is refused by every estimate. What words alone would show is
        shown."""
        return score <= 0 or all(estimate.refuses(min(score / self.best, 1.0)) for estimate in self.estimates)

    def is_known_of(self, tool_id: str) -> bool:
        """Whether the past supports a tool strongly enough to show it, independent of other signals."""
        return self.past.get(tool_id, 0.0) >= _CLEARLY


def rank(
    query: Query,
    parts: Sequence[Part],
    layout: signals.Layout,
    weights: Weights,
    knowledge: Knowledge = NOTHING_KNOWN,
) -> Standing:
    """Score the visible tools of `parts` for `query`. `layout` is that of their segments.

    Tools that are not visible have no effect on the result.
    """
    words = signals.Words(query, parts, weights)
    scores, by_clause = words.scores()
    earned = signals.most(scores)
    if (of_clauses := signals.clauses(by_clause, weights)) is not None:
        scores = [one + other for one, other in zip(scores, of_clauses, strict=True)]
    if weights.brevity:
        scores = [one * factor for one, factor in zip(scores, layout.brevity, strict=True)]
    if weights.sources:
        lent = signals.sources(scores, parts, layout.origins, weights)
        scores = [one + other for one, other in zip(scores, lent, strict=True)]

    lead, compared, past = None, 0, dict[str, float]()
    by_meaning, found, blend = weights.by_meaning, None, None
    if weights.embedding and knowledge.understood is not None:
        found = similarities(knowledge.understood, parts)
    if weights.meaning and (found is None or 2 * found.known < sum(part.size for part in parts)):
        by_words = _best(parts, scores)
        coverage = words.shares(*by_words)[0] if by_words is not None else 0.0
        blend = blended(scores, parts, query, coverage, weights)
    if blend is not None:
        scores, lead, compared, by_meaning = blend.scores, blend.lead, blend.compared, weights.by_table
    elif found is not None:
        scores = signals.embedding(scores, found, parts, query, weights)
        lead, compared = found.lead, found.known
    if weights.history and knowledge.recall is not None:
        history = knowledge.recall.history
        votes = history.votes(query, weights)
        scores = knowledge.recall.weighed(votes, scores, weights)
        past = {history.tool_ids[place]: vote for place, vote in votes.items()}
    best = _best(parts, scores)
    shares, spoken_for = 0.0, 0.0
    if best is not None:
        part, at = best
        shares, spoken_for = sum(words.shares(part, at)), past.get(part.segment.ids[at], 0.0)
    evidence = Evidence(earned, words.weight, shares, signals.bareness(parts), lead, spoken_for, compared)
    highest = signals.most(scores)
    if weights.trace and knowledge.recall is not None:
        # Last, so that the trace only changes the order: it makes no search surer that something fits, and none weaker.
        scores = knowledge.recall.lifted(scores, parts, weights)
    return Standing(scores, highest, estimates(evidence, weights.by_words, by_meaning), past)


def _best(parts: Sequence[Part], scores: signals.Scores) -> tuple[Part, int] | None:
    """Return the place of the best tool. Among equals, the one with the lowest id. None if nothing matches."""
    found: list[tuple[float, str, Part, int]] = []
    for part, part_scores in zip(parts, scores, strict=True):
        if len(part_scores) and part_scores[at := int(part_scores.argmax())] > 0:
            found.append((-float(part_scores[at]), part.segment.ids[at], part, at))
    if not found:
        return None
    _, _, part, at = min(found, key=lambda each: each[:2])
    return part, at
