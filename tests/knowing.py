"""Knowledge about queries that a test provides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolcrib.catalog.view import View
from toolcrib.core.principal import Principal
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.meaning import Understood, Vectors
from toolcrib.search.index.query import Query

MEANT = (0.5, 0.5, 0.5, 0.5)
"""The vector of every query. All vectors have few digits, so that no product of them is rounded."""

NEAR, NEARER, FAR = (1.0, 0.0, 0.0, 0.0), MEANT, (-0.5, -0.5, 0.5, 0.5)


@dataclass
class Knowing:
    """Knowledge that a test may change at any time."""

    vectors: Vectors | None = None
    history: History | None = None

    def understood(self, query: Query) -> Understood | None:
        if self.vectors is None or not query.texts:
            return None
        return Understood(self.vectors, np.array([MEANT] * len(query.texts), np.float32))

    def history_for(self, principal: Principal) -> History | None:
        return self.history


def vectors_of(view: View, vectors: Mapping[str, Sequence[float]]) -> Vectors:
    """Return the vectors, given by tool id, of the tools in the state of `view`, whether visible or not."""
    keys = {
        tool_id: int(key)
        for part in view.visible.state.index.parts
        for tool_id, key in zip(part.segment.ids, part.segment.keys.tolist(), strict=True)
    }
    there = [tool_id for tool_id in vectors if tool_id in keys]
    return Vectors(
        "model",
        np.array([keys[tool_id] for tool_id in there], np.uint64),
        np.array([vectors[tool_id] for tool_id in there], np.float32).reshape(-1, len(MEANT)),
    )


def past_of_traces(*traces: str, query: str = "go on") -> History:
    """Return a history of traces, each of which called some tools in order, for the same query."""
    return History.of(
        Confirmed(Query.parse(query), tool_id, float(at), ("ada", str(number)))
        for number, trace in enumerate(traces)
        for at, tool_id in enumerate(trace.split())
    )


def past_of(calls: Iterable[tuple[str, str]]) -> History:
    """Return a history of queries, each with the tool that was called for it."""
    return History.of(Confirmed(Query.parse(query), tool_id, float(at)) for at, (query, tool_id) in enumerate(calls))
