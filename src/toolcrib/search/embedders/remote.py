"""The settings of a model that is used over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit


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
