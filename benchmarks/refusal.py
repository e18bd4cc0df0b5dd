"""Whether search knows when it has nothing: each set's tools are asked its own queries and those of all others.

Some of the others' queries are served by a tool here all the same, so that no figure can be perfect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rankers import JudgedSet
from toolcrib.search.evaluation import BINS, Answer, Search, calibration_error, evaluate

Json = dict[str, Any]
Hits = list[tuple[float, bool]]
"""The confidence of each result of each page, and whether it serves the query."""


def measured(sets: Sequence[JudgedSet], searches: Mapping[str, Search]) -> Json:
    """How confidences and empty pages tell a set's own queries from those of the others, by set."""
    results: Json = {}
    shown = Hits()
    for judged in sets:
        others = [query for other in sets if other is not judged for query in other.queries]
        unserved = [replace(query, relevant=frozenset[str]()) for query in others]
        found = evaluate(searches[judged.name], [*judged.queries, *unserved], tools=len(judged.rows))
        own = hits(found.answerable)
        shown += own
        results[judged.name] = {
            "auroc": round(found.auroc or 0.0, 4),
            "own refused": round(found.refused / found.queries, 4),
            "others refused": round(found.rightly_refused / len(unserved), 4),
            "calibration error": round(calibration_error(*zip(*own, strict=True)), 4),
        }
    return {"sets": results, "reliability": reliability(shown)}


def hits(answers: Sequence[Answer]) -> Hits:
    return [(hit.confidence, hit.tool_id in answer.judged.relevant) for answer in answers for hit in answer.found]


def reliability(shown: Hits) -> list[Json]:
    """For each bin of confidence that holds any: how many, what was said of them on average, and what came true."""
    said, served = np.array(shown, np.float64).T
    bins = np.minimum((said * BINS).astype(np.intp), BINS - 1)
    return [
        {
            "from": at / BINS,
            "results": int(np.count_nonzero(bins == at)),
            "said": round(float(said[bins == at].mean()), 3),
            "served": round(float(served[bins == at].mean()), 3),
        }
        for at in np.unique(bins).tolist()
    ]
