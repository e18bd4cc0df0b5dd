"""Vectors of texts as rows of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.embedders.base import EmbeddingFailed

FloatRows = NDArray[np.float32]


def unit_rows(rows: NDArray[Any]) -> FloatRows:
    """Scale each of the `rows` (n, dim) to length 1. Rows of zeros stay unchanged.

    Raises:
        EmbeddingFailed: a value is not a finite number.
    """
    rows = rows.astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise EmbeddingFailed("the model returned values that are not finite numbers")
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
