"""How well a search finds the tools that requests need: judged queries in, metrics out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, cast

from toolcrib.core.errors import InvalidConfig

DEPTH = 10
"""Results of one query that are looked at."""

Search = Callable[[str, int], Sequence[str]]
"""Takes a query and a limit; returns ids of tools, best first."""


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """One request and the tools that serve it."""

    id: str
    query: str
    relevant: frozenset[str]
    """Ids of tools; at least one."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over queries, each in [0, 1]."""

    ndcg_at_10: float
    """Normalised discounted cumulative gain; a tool is relevant or not. Source: Järvelin, Kekäläinen, TOIS 2002."""
    recall_at_1: float
    """The share of a query's relevant tools among the first result; below 1 where a query has more than one."""
    recall_at_5: float
    recall_at_10: float
    mrr: float
    """One over the rank of the first relevant tool, 0 where none is among the first 10."""
    queries: int
    tools: int
    """How many tools were searched."""

    def to_wire(self) -> dict[str, Any]:
        """The metrics to four digits, under the names they are known by."""
        metrics = {
            "ndcg@10": self.ndcg_at_10,
            "recall@1": self.recall_at_1,
            "recall@5": self.recall_at_5,
            "recall@10": self.recall_at_10,
            "mrr": self.mrr,
        }
        return {
            "metrics": {name: round(value, 4) for name, value in metrics.items()},
            "queries": self.queries,
            "tools": self.tools,
        }


def evaluate(search: Search, queries: Sequence[JudgedQuery], *, tools: int) -> Evaluation:
    """Run every query once and average. A relevant tool that is not in the catalog counts as not found.

    Raises:
        ValueError: there are no queries.
    """
    if not queries:
        raise ValueError("there is no query to evaluate")
    found = [_relevance(search(judged.query, DEPTH), judged.relevant) for judged in queries]
    wanted = [len(judged.relevant) for judged in queries]

    def recall(depth: int) -> float:
        return _mean(sum(gains[:depth]) / count for gains, count in zip(found, wanted, strict=True))

    return Evaluation(
        ndcg_at_10=_mean(
            _dcg(gains) / _dcg([True] * min(count, DEPTH)) for gains, count in zip(found, wanted, strict=True)
        ),
        recall_at_1=recall(1),
        recall_at_5=recall(5),
        recall_at_10=recall(10),
        mrr=_mean(next((1 / rank for rank, gain in enumerate(gains, 1) if gain), 0.0) for gains in found),
        queries=len(queries),
        tools=tools,
    )


def read_queries(file: FilePath) -> tuple[JudgedQuery, ...]:
    """Judged queries from a file of JSON lines, each `{"id", "query", "relevant": [tool ids]}`.

    Blank lines and further keys are passed over; an `id` that is missing is the line's number.

    Raises:
        InvalidConfig: the file cannot be read, holds no query, or a line has not this form; file and line are named.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file} cannot be read: {error}") from error
    queries = tuple(
        _judged(line, number, f"{file}, line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    )
    if not queries:
        raise InvalidConfig(f"{file} holds no query")
    return queries


_FORM = '`{"id": "q1", "query": "a request", "relevant": ["source.tool"]}`'


def _judged(line: str, number: int, place: str) -> JudgedQuery:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{place} is not JSON: {error}", hints=[f"A line reads {_FORM}."]) from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{place} is not a JSON object", hints=[f"A line reads {_FORM}."])
    row = cast("dict[str, object]", value)
    query, relevant = row.get("query"), row.get("relevant")
    if not isinstance(query, str) or not query.strip():
        raise InvalidConfig(f"{place}: `query` must be a text that is not empty", hints=[f"A line reads {_FORM}."])
    ids = cast("list[object]", relevant) if isinstance(relevant, list) else []
    if not ids or not all(isinstance(tool_id, str) for tool_id in ids):
        raise InvalidConfig(f"{place}: `relevant` must list one tool id or more", hints=[f"A line reads {_FORM}."])
    return JudgedQuery(str(row.get("id", number)), query, frozenset(cast("list[str]", ids)))


def _relevance(ranked: Sequence[str], relevant: frozenset[str]) -> list[bool]:
    return [tool_id in relevant for tool_id in list(dict.fromkeys(ranked))[:DEPTH]]


def _dcg(gains: Sequence[bool]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
