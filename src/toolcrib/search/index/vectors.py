"""An immutable table that maps the keys of documents to the rows of a matrix of vectors."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.properties import cached_property
from toolcrib.search.index.segment import Segment

Keys = NDArray[np.uint64]
Rows = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors at one moment. Two tables are equal only if they are the same object."""

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
