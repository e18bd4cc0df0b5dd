"""Fits the constants of `Calibration` to all four sets: `python benchmarks/calibration.py [--model FOLDER]`.

Prints one `Calibration` for search by words, one for the table of word vectors, and one for a model if it is there. Put
them into `src/toolcrib/search/index/weights.py`. The thresholds for refusals are not fitted.

A logistic regression with three kinds of rows: the first ten results of a set's own queries, by whether they serve;
the first results of own queries and of the other sets' queries, by whose they are (each set has its own constant, which
is left out of the result); the same for parts of tool names, because the sets have few queries of one to four words.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import catalog
from rankers import MODEL, JudgedSet, Model, standings
from toolcrib.search.evaluation import DEPTH, JudgedQuery
from toolcrib.search.index.confidence import Estimate, Evidence
from toolcrib.search.index.ranking import highest
from toolcrib.search.index.tokens import words
from toolcrib.search.index.weights import WEIGHTS, Calibration, Weights

NAMES = ("bias", "held", "together", "said", "missing", "length", "cosine", "share", "share_by_coverage")
OF_SETS = {"toolbench": 1.0, "bfcl": 1.0, "sealtools": 1.6, "metatool": 1.0}
"""The weight of each set. With equal weights, the estimates for Seal-Tools, whose queries are easy, are too low."""
OF_OWNERS, STEEPNESS = 1.5, 3.0
"""The weight of the rows that say whose a query is, and how much steeper their curve is than that of the results."""
OF_PARTS = 0.15
"""The weight of parts of tool names, relative to queries."""
PARTS_OF_A_SET = 300
QUERIES_OF_A_SET = 1_000
"""The number of queries of each set that are used, chosen at random. All of them would take three times as long."""
RIDGE = 1e-5
STEPS = 20

NOTHING = replace(WEIGHTS.by_words, **dict.fromkeys(NAMES, 0.0))
UNITS = [replace(NOTHING, **{name: 1.0}) for name in NAMES]

Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, help="a folder with an embedding model")
    parser.add_argument("--leave-out", choices=catalog.SETS, help="a set to leave out of the fit")
    asked = parser.parse_args()
    sets = [sampled(JudgedSet.read(name)) for name in catalog.SETS if name != asked.leave_out]
    modes: dict[str, tuple[Weights, Model | None]] = {
        "by_words": (WEIGHTS.without("meaning"), None),
        "by_table": (WEIGHTS, None),
    }
    if asked.model.exists():
        modes["by_meaning"] = WEIGHTS, Model.load(asked.model)
    for name, (weights, model) in modes.items():
        print(f"{name}: {fitted(sets, weights, model)}", flush=True)


def fitted(sets: Sequence[JudgedSet], weights: Weights, model: Model | None) -> Calibration:
    """Return the calibration that fits best to all of `sets`."""
    rows = _Rows(2 * len(sets))
    for at, judged in enumerate(sets):
        rows.add(judged, sets, weights, model, factor=OF_SETS[judged.name], constant=at)
        print(f"{judged.name}: {len(rows.truths):,} rows", file=sys.stderr, flush=True)
    parts = [named(judged) for judged in sets]
    for at, judged in enumerate(parts, len(sets)):
        rows.add(judged, parts, weights, model, factor=OF_PARTS, constant=at)
    found = logistic(np.array(rows.values), np.array(rows.truths, np.float64), np.array(rows.weights))
    return replace(NOTHING, **{name: round(float(value), 3) for name, value in zip(NAMES, found, strict=False)})


class _Rows:
    """The rows of the regression: the value for each of `NAMES` and for each constant of a set."""

    def __init__(self, constants: int) -> None:
        self.constants = constants
        self.values: list[list[float]] = []
        self.truths: list[bool] = []
        self.weights: list[float] = []

    def add(
        self,
        judged: JudgedSet,
        sets: Sequence[JudgedSet],
        weights: Weights,
        model: Model | None,
        *,
        factor: float,
        constant: int,
    ) -> None:
        """Search the tools of `judged` with its own queries, and with those of the other `sets`."""
        none = [0.0] * self.constants
        of_set = [float(at == constant) for at in range(self.constants)]
        others = [query for other in sets if other is not judged for query in other.queries]
        for queries, is_own in ((judged.queries, True), (others, False)):
            found = evidence(judged, queries, weights, model)
            for each, results in found:
                of_best, of_share = _values(each)
                self._row([*(STEEPNESS * of_best), *of_set], is_own, OF_OWNERS * factor / len(found))
                for share, serves in results if is_own else []:
                    self._row([*(of_best + of_share * math.log(share)), *none], serves, factor / len(found))

    def _row(self, values: list[float], is_true: bool, weight: float) -> None:
        self.values.append(values)
        self.truths.append(is_true)
        self.weights.append(weight)


def _values(each: Evidence) -> tuple[Floats, Floats]:
    """For each of `NAMES`: what one unit of it changes in the log-odds of the best tool, and for a share."""
    units = [Estimate.of(each, unit) for unit in UNITS]
    return np.array([unit.odds for unit in units]), np.array([unit.by_share for unit in units])


def logistic(values: Floats, truths: Floats, weights: Floats) -> Floats:
    """Return the constants of a logistic regression, by Newton's method."""
    scales = np.abs(values).mean(0) + 1e-9
    values, weights = values / scales, weights / weights.sum()
    found = np.zeros(values.shape[1])
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-values @ found))
        gradient = values.T @ (weights * (chances - truths)) + RIDGE * found
        curvature = (values.T * (weights * chances * (1 - chances))) @ values + RIDGE * np.eye(len(found))
        found -= np.linalg.solve(curvature, gradient)
    return found / scales


def sampled(judged: JudgedSet) -> JudgedSet:
    """The same tools, with some of the queries."""
    queries = list(judged.queries)
    return replace(judged, queries=random.Random(judged.name).sample(queries, min(QUERIES_OF_A_SET, len(queries))))


def named(judged: JudgedSet) -> JudgedSet:
    """The same tools, with one to four words of tools' names as queries."""
    source = random.Random(judged.name)
    of_tools = {row.tool.id: [*words(row.tool.name)] for row in judged.rows}
    queries: list[JudgedQuery] = []
    for tool_id in source.sample([*of_tools], min(PARTS_OF_A_SET, len(of_tools))):
        count = source.randint(1, 4)
        start = source.randint(0, max(len(of_tools[tool_id]) - count, 0))
        some = of_tools[tool_id][start : start + count]
        serving = [other for other, own in of_tools.items() if {*some} <= {*own}]
        if len(serving) <= 3:
            queries.append(JudgedQuery(tool_id, " ".join(some), frozenset(serving)))
    return replace(judged, queries=queries)


def evidence(
    judged: JudgedSet, queries: Sequence[JudgedQuery], weights: Weights, model: Model | None
) -> list[tuple[Evidence, list[tuple[float, bool]]]]:
    """For each query: the evidence for the best tool; for the first results, their share of its score, and whether they
    serve the query."""
    find = standings(judged, weights, model=model)
    found: list[tuple[Evidence, list[tuple[float, bool]]]] = []
    for query in queries:
        standing, (part,) = find(query.query)
        (scores,) = standing.scores
        best = sorted(highest(scores, DEPTH).tolist(), key=lambda at: -scores[at])
        results = [(float(scores[at]) / standing.best, part.segment.ids[at] in query.relevant) for at in best]
        found.append((standing.evidence, results))
    return found


if __name__ == "__main__":
    main()
