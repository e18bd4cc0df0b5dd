"""Measures how close tools are to a query in meaning, if their vectors are known, and holds these vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.properties import cached_property
from toolcrib.search.index.segment import Impacts, Part, Segment

Keys = NDArray[np.uint64]
Rows = NDArray[np.float32]

_LEAST_LEAD = 0.05
"""The smallest lead that is used as it is. Below it, rounding errors would rank tools with the same meaning.

With all-MiniLM-L6-v2, no query of the four sets has a lead below 0.12.
"""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of documents at one moment. Two tables are equal only if they are the same object."""

    model_id: str
    keys: Keys
    """(n,): the `Document.key` of each row. All differ, and 0 does not occur."""
    matrix: Rows
    """(n, dim), float32, unit rows, or zeros if the model knows nothing in the text."""

    def __post_init__(self) -> None:
        _ = self._sorted  # sort in the thread that creates the table; otherwise the first search would have to

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, wanted: Keys) -> NDArray[np.int32]:
        """Return the row of each key in `wanted`, which may have any shape. -1 for unknown keys."""
        keys, order = self._sorted
        if not len(keys):
            return np.full(wanted.shape, -1, np.int32)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[places] == wanted, order[places], -1).astype(np.int32)

    def rows_of(self, segment: Segment) -> NDArray[np.int32]:
        """(n_tools,): the row of each tool of `segment`. -1 if its vector is missing. The result is cached."""
        if (known := self._of_segments.get(segment)) is None:
            known = self._of_segments[segment] = self.rows(segment.keys)
        return known

    @cached_property
    def _of_segments(self) -> WeakKeyDictionary[Segment, NDArray[np.int32]]:
        return WeakKeyDictionary()

    @cached_property
    def _sorted(self) -> tuple[Keys, NDArray[np.int32]]:
        """The keys in ascending order, and the row of each."""
        order = np.argsort(self.keys, kind="stable").astype(np.int32)
        return self.keys[order], order


@dataclass(frozen=True, slots=True, eq=False)
class Understood:
    """The vectors of a query, together with those of tools."""

    vectors: Vectors
    texts: NDArray[np.float32]
    """(1 + n_clauses, dim), unit rows: the whole query, then its clauses."""


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """The closeness of each tool to a query."""

    near: Sequence[Impacts]
    """For each part, (n_tools,), float32: 1 for the nearest tool (less if it is hardly nearer than the median), 0 for a
    tool that is not nearer than the median, NaN if its vector is not known.
    """
    cosines: Sequence[Impacts]
    """The similarities as cosines."""
    known: int
    """The number of tools with a known vector."""

    def cosine(self, of_part: int, at: int) -> float | None:
        """Return the cosine of the tool at a position of a part. None if its vector is not known."""
        cosine = float(self.cosines[of_part][at])
        return None if math.isnan(cosine) else cosine


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
    middle, best = np.float32(np.median(every)), every.max()  # not the mean: it would depend on the order of tools
    scale = np.float32(max(float(best - middle), _LEAST_LEAD))
    return Similarities(
        [(np.maximum(cosine - middle, 0) / scale).astype(np.float32) for cosine in found], found, len(every)
    )
