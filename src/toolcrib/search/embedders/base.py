"""The interface of embedding models, and its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from toolcrib.search.embedders.rows import FloatRows


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
