"""Where the vector of a tool lies: an immutable table from the keys of documents to the rows of a matrix."""

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
    """The vectors that there are at one moment. Two are the same only if they are one object."""

    model_id: str
    keys: Keys
    """(n,): the `Document.key` of each row; none stands there twice, and none is 0."""
    matrix: Rows
    """(n, dim), float32, unit rows, or zeros where a text says nothing to the model."""

    def __post_init__(self) -> None:
        _ = self._sorted  # by whoever makes it, in a thread: all others would wait for the search that did

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, wanted: Keys) -> NDArray[np.int32]:
        """The row of each of the keys `wanted`, of any shape; -1 where there is none."""
        keys, order = self._sorted
        if not len(keys):
            return np.full(wanted.shape, -1, np.int32)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[places] == wanted, order[places], -1).astype(np.int32)

    def rows_of(self, segment: Segment) -> NDArray[np.int32]:
        """(n_tools,): the row of each tool of `segment`; -1 where its vector is not there. Looked up once."""
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
