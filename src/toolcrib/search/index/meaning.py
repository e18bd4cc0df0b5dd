"""How near tools are to a query in meaning, where their vectors are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Impacts, Part
from toolcrib.search.index.vectors import Vectors

_LEAST_LEAD = 0.05
"""A lead below which tools are told apart less: else the last digits would rank tools that mean the same.

With all-MiniLM-L6-v2 no query of the four sets has less than .12.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Understood:
    """A query as vectors, beside those of tools."""

    vectors: Vectors
    texts: NDArray[np.float32]
    """(1 + n_clauses, dim), unit rows: the whole query, then its clauses."""


class Meaning(Protocol):
    """Knows vectors of tools and of queries; never waits for one that is being made."""

    def understood(self, query: Query) -> Understood | None:
        """None where nothing is known of it by now."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """How near each tool is."""

    near: Sequence[Impacts]
    """For each part, (n_tools,), float32: 1 for the nearest tool (less where it is hardly nearer than most), 0 for one
    that is no nearer than most, NaN where its vector is not known."""
    lead: float
    """How much nearer the nearest tool is than most, as cosines: models differ in what they give to what is unlike."""
    known: int
    """Of how many tools the vector is known."""


def similarities(understood: Understood, parts: Sequence[Part]) -> Similarities | None:
    """Those of the tools that count in `parts`, and of no others; None where no vector of them is known.

    Of a query with clauses the mean of the whole and of the clause a tool is nearest to, which is worth .06 nDCG@10 on
    Seal-Tools and .02 on ToolBench over the whole alone, where nothing but the embedding ranks.
    """
    cosines = understood.vectors.matrix @ understood.texts.T
    nearest = cosines[:, 0] if cosines.shape[1] == 1 else (cosines[:, 0] + cosines[:, 1:].max(1, initial=-1.0)) / 2
    # A product of matrices may differ in its last digits with the place of a row.
    nearest = np.round(nearest, 5)
    found: list[NDArray[np.float32]] = []
    for part in parts:
        rows = understood.vectors.rows_of(part.segment)
        known = (rows >= 0) & part.mask
        cosine = np.full(len(rows), np.nan, np.float32)
        cosine[known] = nearest[rows[known]]
        found.append(cosine)
    every = np.concatenate(found) if found else np.empty(0, np.float32)
    every = every[~np.isnan(every)]
    if not len(every):
        return None
    middle, best = np.float32(np.median(every)), every.max()  # no mean: it would depend on the order of what is added
    lead = float(best - middle)
    scale = np.float32(max(lead, _LEAST_LEAD))
    return Similarities(
        [(np.maximum(cosine - middle, 0) / scale).astype(np.float32) for cosine in found], lead, len(every)
    )
