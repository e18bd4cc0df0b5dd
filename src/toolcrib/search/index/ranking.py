"""Combines the signals into one score, and estimates the confidence of the best tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.index import signals
from toolcrib.search.index.closeness import Blend, blended
from toolcrib.search.index.confidence import Estimate, Evidence, estimates
from toolcrib.search.index.history import Recall
from toolcrib.search.index.meaning import Similarities, Understood, similarities
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

_TOGETHER = 3
"""The number of the best tools whose words are counted together."""

_BLOCK = 128
"""The number of scores in one block while the highest ones are searched."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """The score of every tool, and the confidence of the best one."""

    scores: Sequence[Impacts]
    """For each part, (n_tools,), float32: 0 for a tool that does not match or is not visible."""
    best: float
    """The highest score, before the trace raised any. A raised score can be higher."""
    evidence: Evidence
    estimates: tuple[Estimate, ...]
    """The last estimate is the one to use."""
    past: Mapping[str, float]
    """How strongly the past supports a tool, in (0, 1], by tool id."""

    def confidence(self, score: float) -> float:
        """Return the estimated probability that a tool with this score serves the query. In [0, 1], to 4 digits."""
        return self.estimates[-1].chance(min(score / self.best, 1.0)) if score > 0 else 0.0

    def least_score(self, weights: Weights) -> float:
        """Return the score above which a result fills a page: likely enough, or nearly as good as the best."""
        return min(self.estimates[-1].share_of(weights.least_confidence), weights.least_share) * self.best

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
    if (of_clauses := signals.clauses(by_clause, weights)) is not None:
        scores = [one + other for one, other in zip(scores, of_clauses, strict=True)]
    if weights.brevity:
        scores = [one * factor for one, factor in zip(scores, layout.brevity, strict=True)]
    if weights.sources:
        lent = signals.sources(scores, parts, layout.origins, weights)
        scores = [one + other for one, other in zip(scores, lent, strict=True)]

    by_meaning, close = weights.by_meaning, None
    if weights.embedding and knowledge.understood is not None:
        close = similarities(knowledge.understood, parts)
    if weights.meaning and (close is None or 2 * close.known < sum(part.size for part in parts)):
        blend = blended(scores, parts, query, _coverage(words, parts, scores), weights)
        if blend is not None:
            scores, close, by_meaning = blend.scores, blend, weights.by_table
    if isinstance(close, Similarities):
        scores = signals.embedding(scores, close, parts, query, weights)
    past = dict[str, float]()
    if weights.history and knowledge.recall is not None:
        history = knowledge.recall.history
        votes = history.votes(query, weights)
        scores = knowledge.recall.weighed(votes, scores, weights)
        past = {history.tool_ids[place]: vote for place, vote in votes.items()}
    evidence = _evidence(words, _best(parts, scores, _TOGETHER), parts, close, past)
    top = signals.most(scores)
    if weights.trace and knowledge.recall is not None:
        # Last, so that the trace only changes the order: it makes no search surer that something fits, and none weaker.
        scores = knowledge.recall.lifted(scores, parts, weights)
    return Standing(scores, top, evidence, estimates(evidence, weights.by_words, by_meaning), past)


def _evidence(
    words: signals.Words,
    best: Sequence[_Place],
    parts: Sequence[Part],
    close: Blend | Similarities | None,
    past: Mapping[str, float],
) -> Evidence:
    """Return the evidence for the first of the `best` tools."""
    if not best:
        return Evidence(0, words.weight, held=0.0, together=0.0, said=0.0)
    (held, said), *others = (words.held(parts[of_part], at) for of_part, at in best)
    of_part, at = best[0]
    return Evidence(
        len(held),
        words.weight,
        held=words.weight_of(held),
        together=words.weight_of(map(max, zip(held, *(other for other, _ in others), strict=True))),
        said=said,
        cosine=None if close is None else close.cosine(of_part, at),
        past=past.get(parts[of_part].segment.ids[at], 0.0),
    )


def _coverage(words: signals.Words, parts: Sequence[Part], scores: signals.Scores) -> float:
    """Return the share of the query's weight that the best tool has."""
    best = _best(parts, scores, 1)
    return words.weight_of(words.held(parts[best[0][0]], best[0][1])[0]) / words.weight if best else 0.0


_Place = tuple[int, int]
"""The number of a part, and the position of a tool in it."""


def _best(parts: Sequence[Part], scores: signals.Scores, count: int) -> list[_Place]:
    """Return the places of the best `count` matching tools, best first. Equal tools are ordered by id."""
    found: list[tuple[float, str, int, int]] = [
        (-float(part_scores[at]), part.segment.ids[at], of_part, at)
        for of_part, (part, part_scores) in enumerate(zip(parts, scores, strict=True))
        for at in highest(part_scores, count).tolist()
    ]
    return [(of_part, at) for _, _, of_part, at in sorted(found)[:count]]


def highest(scores: Impacts, count: int) -> NDArray[np.intp]:
    """Return the positions of the `count` highest positive scores, in any order. Among equals, the earliest."""
    if count == 0:
        return np.empty(0, np.intp)
    # The count-th highest of the blocks' maxima is a lower bound of the count-th highest score, so only few scores are
    # above it. Partitioning all scores is 10 times slower if most are equal, as after a query of one word.
    bound = np.float32(0)
    if (width := min(_BLOCK, len(scores) // count)) > 1:
        maxima = np.maximum.reduceat(scores, np.arange(0, len(scores), width))
        bound = np.sort(maxima)[-count]
    above = np.flatnonzero(scores > bound)
    if len(above) > count:
        values = scores[above]
        bound = np.sort(values)[-count]
        equal = above[values == bound]
        above = above[values > bound]
    else:
        equal = np.flatnonzero(scores == bound) if bound > 0 else above[:0]
    return np.concatenate([above, equal[: count - len(above)]])
