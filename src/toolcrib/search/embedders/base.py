"""What turns texts into vectors, and how it says that it could not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from toolcrib.search.embedders.rows import FloatRows


class EmbeddingFailed(Exception):
    """There are no vectors; the message is a sentence for the owner, without secrets.

    `is_final`: the model cannot be used as it is configured, so that trying again is of no use.
    `is_refused`: it was these texts that were refused; others may well be embedded.
    `retry_after_s`: how long it asked to be left alone; None where it did not say.
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
    """Turns texts into vectors whose dot product says how near they are in meaning. Any thread may use it."""

    @property
    def model_id(self) -> str:
        """Names model, weights and settings: vectors of equal ids are comparable and may be kept."""
        ...

    @property
    def dim(self) -> int: ...

    @property
    def is_local(self) -> bool:
        """Whether it is quick and free enough to be asked for a query while somebody waits."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> FloatRows:
        """(len(texts), dim), unit rows in the texts' order; zeros where a text holds nothing that the model knows.

        Raises:
            EmbeddingFailed: there are none.
        """
        ...

    def embed_queries(self, texts: Sequence[str]) -> FloatRows:
        """(len(texts), dim), likewise, of what somebody asks."""
        ...

    def embed_query(self, text: str) -> FloatRows:
        """(dim,), likewise, of one."""
        ...


def well_formed(text: str) -> str:
    """`text` without halves of surrogate pairs, which Python holds and UTF-8 does not."""
    return text.encode("utf-8", "replace").decode()
