"""The interface of embedding models, its error, and the settings of a model that is used over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatRows = NDArray[np.float32]


class EmbeddingFailed(Exception):
    """The vectors could not be computed. The message is a sentence for the owner, without secrets.

    - `is_final`: the model cannot be used as configured, so a retry cannot help.
    - `is_refused`: the model refused these texts. Other texts may work.
    - `retry_after_s`: how long the service asked to wait. None if it did not say.
    """

    def __init__(
        self, message: str, *, is_final: bool = False, is_refused: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.is_refused = is_refused
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A model that is used over HTTP."""

    url: str
    """The URL to which `/embeddings` is added."""
    model: str
    api_key: str = field(default="", repr=False)
    dimensions: int | None = None
    """The requested dimensions, for models that can shorten their vectors. None means the default of the model."""

    @property
    def where(self) -> str:
        """Scheme, host and port. The rest of the address may contain a secret, so messages do not show it."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port is not None else ''}"


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors whose dot product measures how close they are in meaning. Thread-safe."""

    @property
    def model_id(self) -> str:
        """Identifies model, weights and settings. Vectors of equal ids are comparable and may be stored."""
        ...

    @property
    def dim(self) -> int: ...

    @property
    def is_local(self) -> bool:
        """Whether the model is fast and free enough to be run for a query while a search waits."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> FloatRows:
        """(len(texts), dim), unit rows in the order of the texts. Zeros if the model knows nothing in a text.

        Raises:
            EmbeddingFailed: the vectors could not be computed.
        """
        ...

    def embed_queries(self, texts: Sequence[str]) -> FloatRows:
        """(len(texts), dim), unit rows in the order of the texts, for queries. Raises like `embed_documents`."""
        ...

    def embed_query(self, text: str) -> FloatRows:
        """(dim,), a unit vector for one query. Raises like `embed_documents`."""
        ...


def well_formed(text: str) -> str:
    """Return `text` without halves of surrogate pairs, which Python allows but UTF-8 does not."""
    return text.encode("utf-8", "replace").decode()


def unit_rows(rows: NDArray[Any]) -> FloatRows:
    """Scale each of the `rows` (n, dim) to length 1. Rows of zeros stay unchanged.

    Raises:
        EmbeddingFailed: a value is not a finite number.
    """
    import numpy as np  # noqa: PLC0415  a program that only reads the settings of a model starts without numpy

    rows = rows.astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise EmbeddingFailed("the model returned values that are not finite numbers")
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
