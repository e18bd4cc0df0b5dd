"""A model that is asked over HTTP, as its owner names it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A model that is asked over HTTP."""

    url: str
    """What `/embeddings` is added to."""
    model: str
    api_key: str = field(default="", repr=False)
    dimensions: int | None = None
    """Asked for, where the model can shorten its vectors; None leaves it to the model."""

    @property
    def where(self) -> str:
        """Scheme, host and port: what of the address can be told, since the rest may hold a secret."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port is not None else ''}"
