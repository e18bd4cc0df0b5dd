"""Measures how well a search finds tools: judged queries in; metrics, intervals and comparisons out."""

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
"""The number of results that are judged for each query."""

METRICS = ("ndcg@10", "recall@1", "recall@5", "recall@10", "mrr")
"""The metrics. Each is in [0, 1] for one query, and is then averaged over queries.

- `ndcg@10`: normalised discounted cumulative gain with binary relevance. Source: Järvelin, Kekäläinen, TOIS 2002.
- `recall@k`: the share of a query's relevant tools among the first k. Below 1 if there are more than k of them.
- `mrr`: one over the rank of the first relevant tool. 0 if none is among the first 10.
"""

NDCG = METRICS[0]
"""The default metric: for floors, for categories, and for the order of queries."""

RESAMPLES = 1_000
LEVEL = 0.95
"""The confidence level of every interval."""

SEED = 20_020_422
"""The seed of every bootstrap. The same file gives the same intervals, so that a floor in CI is stable."""

MIN_MOVED = 6
"""How many queries two settings must answer differently before a difference can be distinguishable from chance.

Five coins all show the same side in 1 of 16 throws, which is more often than 1 - `LEVEL`. The percentile bootstrap
cannot see that, because a resample of five gains contains no loss.
"""

BINS = 10
"""The number of bins, of equal width, over which calibration is compared."""

_BLOCK = 1 << 20
"""The number of draws that are held in memory at once."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """One request, and the tools that serve it."""

    id: str
    query: str
    relevant: frozenset[str]
    """Ids of tools. Empty if no tool serves the request: then an empty page is the right answer."""
    categories: tuple[str, ...] = ()
    """The categories in which the query is also counted separately."""


@dataclass(frozen=True, slots=True)
class Found:
    """One result of a search."""

    tool_id: str
    confidence: float = 1.0
    """The estimated chance that the tool serves the query, in [0, 1]. 1 if the engine reports none."""


Search = Callable[[str, int], Sequence[str | Found]]
"""A function that takes a query and a limit, and returns results or tool ids, best first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The results of a search for one query."""

    judged: JudgedQuery
    found: tuple[Found, ...]
    """Best first, at most `DEPTH`, each tool once. Empty if the query was refused or nothing matches."""

    @property
    def confidence(self) -> float:
        """The confidence of the first result. 0 if there is no result."""
        return self.found[0].confidence if self.found else 0.0

    @property
    def rank(self) -> int | None:
        """The rank of the first relevant tool, from 1. None if no relevant tool was found."""
        return next((rank for rank, gain in enumerate(self._gains, 1) if gain), None)

    @property
    def scores(self) -> tuple[float, ...]:
        """The `METRICS` of this query. Only for queries that a tool serves."""
        gains, wanted = self._gains, len(self.judged.relevant)
        ndcg = _dcg(gains) / _dcg([True] * min(wanted, DEPTH))
        recalls = (sum(gains[:depth]) / wanted for depth in (1, 5, 10))
        return ndcg, *recalls, 1 / self.rank if self.rank is not None else 0.0

    @property
    def _gains(self) -> list[bool]:
        return [each.tool_id in self.judged.relevant for each in self.found]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries, and the interval in which it would be for different queries of the same kind."""

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
    """How many of the queries were answered by an empty page."""

    def to_wire(self) -> dict[str, Any]:
        return {"name": self.name, "queries": self.queries, "refused": self.refused, **_metrics_wire(self.metrics)}


@dataclass(frozen=True)
class Evaluation:
    """The answers of a search to a file of queries, and the resulting metrics."""

    answers: tuple[Answer, ...]
    """In the order of the queries. At least one query is served by a tool."""
    tools: int
    """The number of tools that were searched."""

    @cached_property
    def answerable(self) -> tuple[Answer, ...]:
        """The answers to queries that a tool serves."""
        return tuple(answer for answer in self.answers if answer.judged.relevant)

    @cached_property
    def negatives(self) -> tuple[Answer, ...]:
        """The answers to queries that no tool serves. They do not count in the metrics."""
        return tuple(answer for answer in self.answers if not answer.judged.relevant)

    @cached_property
    def values(self) -> Values:
        """The scores, with shape (answerable queries, `METRICS`)."""
        return np.array([answer.scores for answer in self.answerable], np.float64)

    @cached_property
    def means(self) -> Mapping[str, float]:
        return dict(zip(METRICS, self.values.mean(axis=0).tolist(), strict=True))

    @cached_property
    def metrics(self) -> Mapping[str, Estimate]:
        """The means of all metrics, with their intervals."""
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
        """The number of queries that a tool serves."""
        return len(self.answerable)

    @property
    def refused(self) -> int:
        """How many queries that a tool serves were answered by an empty page."""
        return sum(not answer.found for answer in self.answerable)

    @property
    def rightly_refused(self) -> int:
        """How many queries that no tool serves were answered by an empty page."""
        return sum(not answer.found for answer in self.negatives)

    @cached_property
    def auroc(self) -> float | None:
        """How well the first result's confidence separates queries that a tool serves from others. None without
        others."""
        if not self.negatives:
            return None
        return auroc(*([answer.confidence for answer in each] for each in (self.answerable, self.negatives)))

    @cached_property
    def calibration_error(self) -> float | None:
        """The calibration error of the first results' confidence. None without negatives, or if no page has a result.

        Without negatives, every ranker would look too cautious.
        """
        shown = [answer for answer in self.answers if answer.found]
        if not self.negatives or not shown:
            return None
        return calibration_error([answer.confidence for answer in shown], [answer.rank == 1 for answer in shown])

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The queries by category, the worst category first. A query counts in each of its categories."""
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
        """Return at most `count` imperfect answers, the lowest nDCG@10 first. Among equals, the most confident
        first."""
        ranked = sorted(zip(self.values[:, 0].tolist(), self.answerable, strict=True), key=_badness)
        return tuple(answer for ndcg, answer in ranked[:count] if not math.isclose(ndcg, 1))

    def to_wire(self) -> dict[str, Any]:
        """Return everything except the single answers, with metrics rounded to four digits."""
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
        ValueError: no query has a relevant tool.
    """
    if not any(judged.relevant for judged in queries):
        raise ValueError("no query has a relevant tool, so there is nothing to evaluate")
    return Evaluation(tuple(Answer(judged, _found(search(judged.query, DEPTH))) for judged in queries), tools)


# -- intervals --------------------------------------------------------------------------------------------------------


def estimates(values: Values) -> tuple[Estimate, ...]:
    """Return the mean of each column of `values`, (n, m), with its percentile bootstrap interval over the rows.

    Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13. With few rows, the interval is too
    narrow (with one row it is a point), because unseen rows are in no resample.
    """
    edges = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    low, high = np.percentile(_resampled_means(values), edges, axis=0).tolist()
    return tuple(Estimate(*each) for each in zip(values.mean(axis=0).tolist(), low, high, strict=True))


def _resampled_means(values: Values) -> Values:
    """(`RESAMPLES`, m): the means of rows drawn with replacement. For the same number of rows, the draws are the
    same."""
    rows = len(values)
    random = np.random.default_rng(SEED)
    means: list[Values] = []
    left = RESAMPLES
    while left:
        count = min(left, max(1, _BLOCK // rows))
        draws = random.integers(rows, size=(count, rows)) + rows * np.arange(count)[:, None]
        # How often each row is drawn, times the values. This takes a tenth of the memory of looking up each drawn row.
        drawn = np.bincount(draws.ravel(), minlength=count * rows).reshape(count, rows)
        means.append(drawn.astype(np.float64) @ values / rows)
        left -= count
    return np.concatenate(means)


# -- confidence -------------------------------------------------------------------------------------------------------


def auroc(served: Sequence[float], others: Sequence[float]) -> float:
    """The chance that one of `served` is above one of `others`. Equal values count half. Neither may be empty."""
    below = np.sort(np.asarray(others, np.float64))
    above = np.asarray(served, np.float64)
    wins = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
    return float(wins.mean()) / 2 / len(below)


def calibration_error(confidences: Sequence[float], outcomes: Sequence[bool]) -> float:
    """The mean distance of confidences, each in [0, 1], from the share that came true, over `BINS` bins.

    The expected calibration error. Source: Naeini, Cooper, Hauskrecht, AAAI 2015. Neither sequence may be empty.
    """
    said, came_true = np.asarray(confidences, np.float64), np.asarray(outcomes, np.float64)
    bins = np.minimum((said * BINS).astype(np.intp), BINS - 1)
    gaps = np.bincount(bins, said - came_true, BINS)
    return float(np.abs(gaps).sum()) / len(said)


# -- comparisons ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Difference:
    """The change of one metric from one setting to a different one."""

    estimate: Estimate
    """The mean change. Below 0 if the metric falls. The interval is over the changes of single queries."""
    better: int
    """The number of queries for which the metric rose."""
    worse: int

    @property
    def is_distinguishable(self) -> bool:
        """Whether the sign would most likely be the same for different queries of the same kind."""
        excludes_zero = self.estimate.low > 0 or self.estimate.high < 0
        return excludes_zero and self.better + self.worse >= MIN_MOVED


@dataclass(frozen=True, slots=True)
class Change:
    """One query that two settings answer differently."""

    before: Answer
    after: Answer
    gain: float
    """The change of nDCG@10."""


@dataclass(frozen=True)
class Comparison:
    """Two settings, evaluated with the same queries."""

    one: Evaluation
    other: Evaluation

    @cached_property
    def differences(self) -> Mapping[str, _Difference]:
        """The differences from `one` to `other`, by metric."""
        gains = self._gains
        better, worse = (gains > 0).sum(axis=0).tolist(), (gains < 0).sum(axis=0).tolist()
        made = map(_Difference, estimates(gains), better, worse)
        return dict(zip(METRICS, made, strict=True))

    def most_changed(self, count: int) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        """Return at most `count` queries that improved in nDCG@10, and as many that got worse. The largest changes
        first."""
        pairs = zip(self.one.answerable, self.other.answerable, self._gains[:, 0].tolist(), strict=True)
        changes = sorted((Change(*pair) for pair in pairs), key=lambda change: -abs(change.gain))
        better, worse = ([each for each in changes if each.gain * sign > 0] for sign in (1, -1))
        return tuple(better[:count]), tuple(worse[:count])

    @cached_property
    def _gains(self) -> Values:
        gains = self.other.values - self.one.values
        # Smaller differences are caused by a different order of summation.
        return np.where(np.abs(gains) < 1e-12, 0.0, gains)

    def to_wire(self) -> dict[str, Any]:
        """The differences, rounded to four digits."""
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


# -- interleaving -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interleaved:
    """How often each of two settings contributed more of the called tools to a list that both drafted."""

    one: int
    other: int
    ties: int

    def to_wire(self) -> dict[str, int]:
        return {"this": self.one, "other": self.other, "ties": self.ties}


def interleaved(comparison: Comparison) -> Interleaved:
    """Let both settings draft one list for each query, and count which one contributed more of the relevant tools.

    Source: Radlinski, Kurup, Joachims, "How does clickthrough data reflect retrieval quality?", CIKM 2008 (team draft).
    """
    random = np.random.default_rng(SEED)
    wins = [0, 0, 0]
    for one, other in zip(comparison.one.answerable, comparison.other.answerable, strict=True):
        teams = _drafted(one, other, random)
        gains = [len(team & one.judged.relevant) for team in teams]
        wins[2 if gains[0] == gains[1] else int(gains[1] > gains[0])] += 1
    return Interleaved(*wins)


def _drafted(one: Answer, other: Answer, random: np.random.Generator) -> tuple[set[str], set[str]]:
    """Return the tools that each of two answers contributes. They take turns, and a coin decides who begins a round."""
    left = [[each.tool_id for each in answer.found] for answer in (one, other)]
    teams = (set[str](), set[str]())
    while len(teams[0]) + len(teams[1]) < DEPTH:
        sizes = len(teams[0]), len(teams[1])
        turn = int(random.integers(2)) if sizes[0] == sizes[1] else int(sizes[1] < sizes[0])
        taken = teams[0] | teams[1]
        # A setting with no further tool leaves its turn to the other, because a short or empty page is its answer.
        drafted = next(
            ((team, tool_id) for team in (turn, 1 - turn) for tool_id in left[team] if tool_id not in taken), None
        )
        if drafted is None:
            break
        teams[drafted[0]].add(drafted[1])
    return teams


# -- floors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Floor:
    """The minimum for the mean of a metric.

    The floor uses the mean and not the lower end of the interval. The lower end also rises with the number of queries,
    so an older floor would not be comparable after adding queries.
    """

    metric: str
    least: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `recall@5=0.9`, or `0.8`, which means nDCG@10.

        Raises:
            ValueError: the text has a different form, an unknown metric, or a number outside [0, 1]. The message says
            which.
        """
        name, equals, number = text.rpartition("=")
        metric = name.strip().lower() if equals else NDCG
        if metric not in METRICS:
            raise ValueError(f"unknown metric `{name.strip()}`. Use one of: {', '.join(METRICS)}")
        try:
            least = float(number)
        except ValueError:
            raise ValueError(f"`{number.strip()}` is not a number") from None
        if not 0 <= least <= 1:
            raise ValueError(f"{number.strip()} is not between 0 and 1")
        return cls(metric, least)

    def missed_by(self, evaluation: Evaluation) -> float:
        """How much is missing, to the four digits that metrics are shown with. 0 if nothing is missing."""
        return max(0.0, round(self.least - round(evaluation.means[self.metric], 4), 4))


# -- files ------------------------------------------------------------------------------------------------------------


def read_queries(file: FilePath) -> tuple[JudgedQuery, ...]:
    """Read judged queries from a file of JSON lines: `{"id", "query", "relevant": [tool ids], "category"}`.

    `relevant` may be empty if no tool serves the query. `category` is a string or a list of names, and is optional.
    Blank lines and unknown keys are ignored. Without `id`, the line number is used.

    Raises:
        InvalidConfig: the file cannot be read, has no query that a tool serves, or has a malformed line. The message
            names file and line.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"could not read {file}: {error}") from error
    queries = tuple(
        _judged(line, number, f"{file}, line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    )
    if not queries:
        raise InvalidConfig(f"{file} contains no queries", hints=[_HINT])
    if not any(judged.relevant for judged in queries):
        raise InvalidConfig(f"{file}: every `relevant` is empty, so there is nothing to find", hints=[_HINT])
    return queries


_HINT = 'Example of a line: `{"id": "q1", "query": "a request", "relevant": ["source.tool"]}`'


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
        raise InvalidConfig(f"{place}: `query` must be a string that is not empty", hints=[_HINT])
    if relevant is None:
        message = f"{place}: `relevant` must be a list of tool ids, empty if no tool serves the query"
        raise InvalidConfig(message, hints=[_HINT])
    category = row.get("category")
    path = _texts([category] if isinstance(category, str) else [] if category is None else category)
    if path is None:
        raise InvalidConfig(f"{place}: `category` must be a string or a list of strings", hints=[_HINT])
    categories = ("/".join(path),) if path else ()
    return JudgedQuery(str(row.get("id", number)), query, frozenset(relevant), categories)


def _texts(value: object) -> list[str] | None:
    """Return `value` if it is a list of strings, else None."""
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
