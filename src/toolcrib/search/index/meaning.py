"""Measures how close tools are to a query in meaning, if their vectors are known."""

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
"""The smallest lead that is used as it is. Below it, rounding errors would rank tools with the same meaning.

With all-MiniLM-L6-v2, no query of the four sets has a lead below 0.12.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Understood:
    """The vectors of a query, together with those of tools."""

    vectors: Vectors
    texts: NDArray[np.float32]
    """(1 + n_clauses, dim), unit rows: the whole query, then its clauses."""


class Meaning(Protocol):
    """A provider of vectors of tools and queries. It never waits for a vector that is being computed."""

    def understood(self, query: Query) -> Understood | None:
        """Return the vectors of `query`. None if they are not known yet."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """The closeness of each tool to a query."""

    near: Sequence[Impacts]
    """For each part, (n_tools,), float32: 1 for the nearest tool (less if it is hardly nearer than the median), 0 for a
    tool that is not nearer than the median, NaN if its vector is not known.
    """
    lead: float
    """How much nearer the nearest tool is than the median, as cosines. Models differ in the cosine of unrelated
    texts."""
    known: int
    """The number of tools with a known vector."""


def similarities(understood: Understood, parts: Sequence[Part]) -> Similarities | None:
    """Return the similarities of the visible tools in `parts`. None if none of their vectors is known.

    For a query with clauses, this is the mean of the cosine of the whole query and of the nearest clause. If only the
    embedding ranks, this improves nDCG@10 by 0.06 on Seal-Tools and 0.02 on ToolBench, compared to the whole query
    only.
    """
    cosines = understood.vectors.matrix @ understood.texts.T
    nearest = cosines[:, 0] if cosines.shape[1] == 1 else (cosines[:, 0] + cosines[:, 1:].max(1, initial=-1.0)) / 2
    # The last digits of a matrix product may depend on the position of a row.
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
    middle, best = (
        np.float32(np.median(every)),
        every.max(),
    )  # not the mean: it would depend on the order of tools
    lead = float(best - middle)
    scale = np.float32(max(lead, _LEAST_LEAD))
    return Similarities(
        [(np.maximum(cosine - middle, 0) / scale).astype(np.float32) for cosine in found], lead, len(every)
    )
