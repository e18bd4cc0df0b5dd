"""How well a search finds the tools that requests need: judged queries in; metrics, intervals and comparisons out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.errors import InvalidConfig

DEPTH = 10
"""Results of one query that are looked at."""

METRICS = ("ndcg@10", "recall@1", "recall@5", "recall@10", "mrr")
"""Each in [0, 1] for one query, and then the mean over queries.

- `ndcg@10`: normalised discounted cumulative gain; a tool is relevant or not. Source: Järvelin, Kekäläinen, TOIS 2002.
- `recall@k`: the share of a query's relevant tools among the first k; below 1 where there are more than k of them.
- `mrr`: one over the rank of the first relevant tool, 0 where none is among the first 10.
"""

NDCG = METRICS[0]
"""The one that floors, categories and the order of queries go by, where nobody names another."""

RESAMPLES = 1_000
LEVEL = 0.95
"""Of every interval."""

SEED = 20_020_422
"""Of every bootstrap: the same file gives the same intervals, so that a floor in CI does not flicker."""

MIN_MOVED = 6
"""Queries that two settings must answer differently before anything is called distinguishable from chance.

Of five coins all fall alike in 1 of 16 throws, more often than 1 - `LEVEL`; the percentile bootstrap is blind to that,
since a resample of five gains holds no loss.
"""

BINS = 10
"""Of equal width, over which calibration is compared."""

_BLOCK = 1 << 20
"""Draws that are held in memory at once."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """One request and the tools that serve it."""

    id: str
    query: str
    relevant: frozenset[str]
    """Ids of tools; empty where nothing serves it, and an empty page is the right answer."""
    categories: tuple[str, ...] = ()
    """Under which it is counted apart."""


@dataclass(frozen=True, slots=True)
class Found:
    """One result."""

    tool_id: str
    confidence: float = 1.0
    """In [0, 1]: the estimated chance that the tool serves the query; 1 where an engine tells none."""


Search = Callable[[str, int], Sequence[str | Found]]
"""Takes a query and a limit; returns results, or ids of tools alone, best first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search gave for one query."""

    judged: JudgedQuery
    found: tuple[Found, ...]
    """Best first, at most `DEPTH`, each tool once; empty where it was refused, or nothing matches."""

    @property
    def confidence(self) -> float:
        """Of the first result; 0 where there is none."""
        return self.found[0].confidence if self.found else 0.0

    @property
    def rank(self) -> int | None:
        """Of the first relevant tool, from 1; None where none was found."""
        return next((rank for rank, gain in enumerate(self._gains, 1) if gain), None)

    @property
    def scores(self) -> tuple[float, ...]:
        """The `METRICS`; of a query that a tool serves."""
        gains, wanted = self._gains, len(self.judged.relevant)
        ndcg = _dcg(gains) / _dcg([True] * min(wanted, DEPTH))
        recalls = (sum(gains[:depth]) / wanted for depth in (1, 5, 10))
        return ndcg, *recalls, 1 / self.rank if self.rank is not None else 0.0

    @property
    def _gains(self) -> list[bool]:
        return [each.tool_id in self.judged.relevant for each in self.found]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries, and the interval in which it would lie with other queries of the same kind."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Group:
    """The queries of one category."""

    name: str
    queries: int
    metrics: Mapping[str, Estimate]
    refused: int
    """Of them, how many were answered by an empty page."""

    def to_wire(self) -> dict[str, Any]:
        return {"name": self.name, "queries": self.queries, "refused": self.refused, **_metrics_wire(self.metrics)}


@dataclass(frozen=True)
class Evaluation:
    """A search's answers to a file of queries, and what they come to."""

    answers: tuple[Answer, ...]
    """In the order of the queries; at least one is to a query that a tool serves."""
    tools: int
    """How many tools were searched."""

    @cached_property
    def answerable(self) -> tuple[Answer, ...]:
        """Those to queries that a tool serves."""
        return tuple(answer for answer in self.answers if answer.judged.relevant)

    @cached_property
    def negatives(self) -> tuple[Answer, ...]:
        """Those to queries that nothing serves; no metric counts them."""
        return tuple(answer for answer in self.answers if not answer.judged.relevant)

    @cached_property
    def values(self) -> Values:
        """(queries that a tool serves, `METRICS`)."""
        return np.array([answer.scores for answer in self.answerable], np.float64)

    @cached_property
    def means(self) -> Mapping[str, float]:
        return dict(zip(METRICS, self.values.mean(axis=0).tolist(), strict=True))

    @cached_property
    def metrics(self) -> Mapping[str, Estimate]:
        """The means, with their intervals."""
        return _by_metric(estimates(self.values))

    @property
    def ndcg_at_10(self) -> float:
        return self.means["ndcg@10"]

    @property
    def recall_at_1(self) -> float:
        return self.means["recall@1"]

    @property
    def recall_at_5(self) -> float:
        return self.means["recall@5"]

    @property
    def recall_at_10(self) -> float:
        return self.means["recall@10"]

    @property
    def mrr(self) -> float:
        return self.means["mrr"]

    @property
    def queries(self) -> int:
        """How many a tool serves."""
        return len(self.answerable)

    @property
    def refused(self) -> int:
        """Of those, how many were answered by an empty page."""
        return sum(not answer.found for answer in self.answerable)

    @property
    def rightly_refused(self) -> int:
        """The same of those that nothing serves."""
        return sum(not answer.found for answer in self.negatives)

    @cached_property
    def auroc(self) -> float | None:
        """How well the first result's confidence tells queries that a tool serves from others; None without others."""
        if not self.negatives:
            return None
        return auroc(*([answer.confidence for answer in each] for each in (self.answerable, self.negatives)))

    @cached_property
    def calibration_error(self) -> float | None:
        """Of the first results' confidence; None without queries that nothing serves, or where no page has a result.

        A file of requests that tools serve, and no other, makes every ranker look too humble.
        """
        shown = [answer for answer in self.answers if answer.found]
        if not self.negatives or not shown:
            return None
        return calibration_error([answer.confidence for answer in shown], [answer.rank == 1 for answer in shown])

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """By category, the worst first; a query counts in each of its own."""
        members: dict[str, list[int]] = {}
        for at, answer in enumerate(self.answerable):
            for name in dict.fromkeys(answer.judged.categories):
                members.setdefault(name, []).append(at)
        groups = [
            Group(
                name,
                len(positions),
                _by_metric(estimates(self.values[positions])),
                sum(not self.answerable[at].found for at in positions),
            )
            for name, positions in members.items()
        ]
        return tuple(sorted(groups, key=lambda group: (group.metrics[NDCG].mean, group.name)))

    def worst(self, count: int) -> tuple[Answer, ...]:
        """At most `count` answers that are not perfect, by nDCG@10; of equally bad ones, those that were surest."""
        ranked = sorted(zip(self.values[:, 0].tolist(), self.answerable, strict=True), key=_badness)
        return tuple(answer for ndcg, answer in ranked[:count] if not math.isclose(ndcg, 1))

    def to_wire(self) -> dict[str, Any]:
        """All but the single answers; metrics to four digits, under the names they are known by."""
        wire: dict[str, Any] = {
            **_metrics_wire(self.metrics),
            "queries": self.queries,
            "tools": self.tools,
            "refused": self.refused,
        }
        if self.negatives:
            error = self.calibration_error
            wire["nothing_here"] = {
                "queries": len(self.negatives),
                "refused": self.rightly_refused,
                "auroc": round(cast("float", self.auroc), 4),
                "calibration_error": round(error, 4) if error is not None else None,
            }
        return wire


def evaluate(search: Search, queries: Sequence[JudgedQuery], *, tools: int) -> Evaluation:
    """Run every query once. A relevant tool that is not in the catalog counts as not found.

    Raises:
        ValueError: there is no query that a tool serves.
    """
    if not any(judged.relevant for judged in queries):
        raise ValueError("there is no query to evaluate")
    return Evaluation(tuple(Answer(judged, _found(search(judged.query, DEPTH))) for judged in queries), tools)


# -- intervals --------------------------------------------------------------------------------------------------------


def estimates(values: Values) -> tuple[Estimate, ...]:
    """The mean of each column of `values`, (n, m), with its percentile bootstrap interval over the rows.

    Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13. Of few rows the interval is too
    narrow (of one it is a point): rows that were never seen are in no resample.
    """
    edges = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    low, high = np.percentile(_resampled_means(values), edges, axis=0).tolist()
    return tuple(Estimate(*each) for each in zip(values.mean(axis=0).tolist(), low, high, strict=True))


def _resampled_means(values: Values) -> Values:
    """(`RESAMPLES`, m): the means of as many rows drawn with replacement; of equally many rows, the same are drawn."""
    rows = len(values)
    random = np.random.default_rng(SEED)
    means: list[Values] = []
    left = RESAMPLES
    while left:
        count = min(left, max(1, _BLOCK // rows))
        draws = random.integers(rows, size=(count, rows)) + rows * np.arange(count)[:, None]
        # How often each row is drawn, times the values: a tenth of the memory of looking up the values of each draw.
        drawn = np.bincount(draws.ravel(), minlength=count * rows).reshape(count, rows)
        means.append(drawn.astype(np.float64) @ values / rows)
        left -= count
    return np.concatenate(means)


# -- confidence -------------------------------------------------------------------------------------------------------


def auroc(served: Sequence[float], others: Sequence[float]) -> float:
    """The chance that one of `served` is above one of `others`, where equal ones count half; neither is empty."""
    below = np.sort(np.asarray(others, np.float64))
    above = np.asarray(served, np.float64)
    wins = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
    return float(wins.mean()) / 2 / len(below)


def calibration_error(confidences: Sequence[float], outcomes: Sequence[bool]) -> float:
    """How far confidences, each in [0, 1], are from the share that came true, as the mean over `BINS` bins.

    The expected calibration error. Source: Naeini, Cooper, Hauskrecht, AAAI 2015. Neither sequence is empty.
    """
    said, came_true = np.asarray(confidences, np.float64), np.asarray(outcomes, np.float64)
    bins = np.minimum((said * BINS).astype(np.intp), BINS - 1)
    gaps = np.bincount(bins, said - came_true, BINS)
    return float(np.abs(gaps).sum()) / len(said)


# -- comparisons ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """What one metric gains on the way from one setting to another."""

    estimate: Estimate
    """Below 0 where it loses; the interval is of the differences of single queries."""
    better: int
    """Queries for which it rose."""
    worse: int

    @property
    def is_distinguishable(self) -> bool:
        """Whether other queries of the same kind would hardly turn it round."""
        excludes_zero = self.estimate.low > 0 or self.estimate.high < 0
        return excludes_zero and self.better + self.worse >= MIN_MOVED


@dataclass(frozen=True, slots=True)
class Change:
    """One query that two settings answer differently."""

    before: Answer
    after: Answer
    gain: float
    """Of nDCG@10."""


@dataclass(frozen=True)
class Comparison:
    """Two settings on the same queries."""

    one: Evaluation
    other: Evaluation

    @cached_property
    def differences(self) -> Mapping[str, Difference]:
        """From `one` to `other`, by metric."""
        gains = self._gains
        better, worse = (gains > 0).sum(axis=0).tolist(), (gains < 0).sum(axis=0).tolist()
        made = map(Difference, estimates(gains), better, worse)
        return dict(zip(METRICS, made, strict=True))

    def most_changed(self, count: int) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        """At most `count` queries that got better by nDCG@10, and as many that got worse; the most changed first."""
        pairs = zip(self.one.answerable, self.other.answerable, self._gains[:, 0].tolist(), strict=True)
        changes = sorted((Change(*pair) for pair in pairs), key=lambda change: -abs(change.gain))
        better, worse = ([each for each in changes if each.gain * sign > 0] for sign in (1, -1))
        return tuple(better[:count]), tuple(worse[:count])

    @cached_property
    def _gains(self) -> Values:
        gains = self.other.values - self.one.values
        # What differs by less comes of sums in another order.
        return np.where(np.abs(gains) < 1e-12, 0.0, gains)

    def to_wire(self) -> dict[str, Any]:
        """The differences, to four digits."""
        return {
            name: {
                "mean": round(difference.estimate.mean, 4),
                "interval": _pair(difference.estimate),
                "distinguishable": difference.is_distinguishable,
                "better": difference.better,
                "worse": difference.worse,
            }
            for name, difference in self.differences.items()
        }


# -- floors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Floor:
    """The least that a metric's mean may be.

    The mean and not the lower end of its interval: that one rises with the number of queries alone, so that whoever
    adds queries could no longer compare with the floor of before.
    """

    metric: str
    least: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `recall@5=0.9`, or from `0.8`, which means nDCG@10.

        Raises:
            ValueError: it has another form, says no such metric, or a number outside [0, 1]; the message says which.
        """
        name, equals, number = text.rpartition("=")
        metric = name.strip().lower() if equals else NDCG
        if metric not in METRICS:
            raise ValueError(f"there is no metric `{name.strip()}`, only {', '.join(METRICS)}")
        try:
            least = float(number)
        except ValueError:
            raise ValueError(f"`{number.strip()}` is no number") from None
        if not 0 <= least <= 1:
            raise ValueError(f"{number.strip()} is not between 0 and 1")
        return cls(metric, least)

    def missed_by(self, evaluation: Evaluation) -> float:
        """How much is missing, to four digits as metrics are shown; 0 where nothing is."""
        return max(0.0, round(self.least - round(evaluation.means[self.metric], 4), 4))


# -- files ------------------------------------------------------------------------------------------------------------


def read_queries(file: FilePath) -> tuple[JudgedQuery, ...]:
    """Judged queries from a file of JSON lines, each `{"id", "query", "relevant": [tool ids], "category"}`.

    `relevant` may be empty, where nothing serves the query. `category` is a text, or the names of a path; it may be
    missing. Blank lines and further keys are passed over; an `id` that is missing is the line's number.

    Raises:
        InvalidConfig: the file cannot be read, holds no query that a tool serves, or a line has not this form; file and
            line are named.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file} cannot be read: {error}") from error
    queries = tuple(
        _judged(line, number, f"{file}, line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    )
    if not queries:
        raise InvalidConfig(f"{file} holds no query", hints=[_HINT])
    if not any(judged.relevant for judged in queries):
        raise InvalidConfig(f"{file}: every `relevant` is empty, so there is nothing to find", hints=[_HINT])
    return queries


_HINT = 'A line reads `{"id": "q1", "query": "a request", "relevant": ["source.tool"]}`.'


def _judged(line: str, number: int, place: str) -> JudgedQuery:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{place} is not JSON: {error}", hints=[_HINT]) from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{place} is not a JSON object", hints=[_HINT])
    row = cast("dict[str, object]", value)
    query, relevant = row.get("query"), _texts(row.get("relevant"))
    if not isinstance(query, str) or not query.strip():
        raise InvalidConfig(f"{place}: `query` must be a text that is not empty", hints=[_HINT])
    if relevant is None:
        message = f"{place}: `relevant` must be a list of tool ids, an empty one where nothing serves the query"
        raise InvalidConfig(message, hints=[_HINT])
    category = row.get("category")
    path = _texts([category] if isinstance(category, str) else [] if category is None else category)
    if path is None:
        raise InvalidConfig(f"{place}: `category` must be a text or a list of texts", hints=[_HINT])
    categories = ("/".join(path),) if path else ()
    return JudgedQuery(str(row.get("id", number)), query, frozenset(relevant), categories)


def _texts(value: object) -> list[str] | None:
    """`value` where it is a list of texts."""
    values = cast("list[object]", value) if isinstance(value, list) else [None]
    return cast("list[str]", values) if all(isinstance(each, str) for each in values) else None


def _found(results: Iterable[str | Found]) -> tuple[Found, ...]:
    different: dict[str, Found] = {}
    for result in results:
        found = Found(result) if isinstance(result, str) else result
        different.setdefault(found.tool_id, found)
    return tuple(different.values())[:DEPTH]


def _badness(scored: tuple[float, Answer]) -> tuple[float, float]:
    ndcg, answer = scored
    return ndcg, -answer.confidence


def _dcg(gains: Sequence[bool]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _by_metric(found: Iterable[Estimate]) -> Mapping[str, Estimate]:
    return dict(zip(METRICS, found, strict=True))


def _metrics_wire(metrics: Mapping[str, Estimate]) -> dict[str, Any]:
    return {
        "metrics": {name: round(estimate.mean, 4) for name, estimate in metrics.items()},
        "intervals": {name: _pair(estimate) for name, estimate in metrics.items()},
    }


def _pair(estimate: Estimate) -> list[float]:
    return [round(estimate.low, 4), round(estimate.high, 4)]
