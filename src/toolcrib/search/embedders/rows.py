"""Vectors of texts as rows of one array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.embedders.base import EmbeddingFailed

FloatRows = NDArray[np.float32]


def unit_rows(rows: NDArray[Any]) -> FloatRows:
    """Each of the `rows` (n, dim) at length 1; one of zeros stays so.

    Raises:
        EmbeddingFailed: there is something in them that is no number.
    """
    rows = rows.astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise EmbeddingFailed("the model gave vectors with something in them that is no number")
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
