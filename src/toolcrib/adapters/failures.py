"""Failures of model vendors, in the same words for all of them. Vendor-specific texts are in the vendor's own file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toolcrib.adapters.transport import is_of_transport, retry_after_s
from toolcrib.core.errors import ProviderFailed

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Asked(ABC):
    """The model and vendor of a request, for the messages of failures."""

    model: str
    vendor: str
    """The vendor's name, at the beginning of a sentence."""
    timeout_s: float
    key: str
    """Where the user sets the key."""

    @contextmanager
    def failing(self) -> Generator[None]:
        """Raise what the SDK raises inside the block as `ProviderFailed`."""
        try:
            yield
        except Exception as error:
            if (failed := self.failure_of(error)) is None:
                raise
            raise failed from error

    def failure_of(self, error: Exception) -> ProviderFailed | None:
        """Convert `error`, or return None if the vendor did not cause it.

        Subclasses check the vendor's own errors first.
        """
        if isinstance(error, json.JSONDecodeError):  # an unreadable event in a stream
            return self.unreadable()
        if is_of_transport(error):
            # By name, because the class depends on the HTTP library.
            return self.silent() if "Timeout" in type(error).__name__ else self.lost()
        return None

    @abstractmethod
    def unreadable(self) -> ProviderFailed:
        """Return the failure for an answer that does not have the form of the vendor's API."""

    def lost(self) -> ProviderFailed:
        return ProviderFailed(
            f"{self.vendor} closed the connection before the answer was complete. Retry.", retryable=True
        )

    def silent(self) -> ProviderFailed:
        return ProviderFailed(
            f"{self.vendor} sent nothing for {self.timeout_s:g} s. Retry, or increase `timeout_s`.", retryable=True
        )

    def unreachable(self, error: Exception) -> ProviderFailed:
        why = error.__cause__ or error
        return ProviderFailed(
            f"{self.vendor} cannot be reached ({why}). Check the network and the address.", retryable=True
        )

    def refused(
        self, advice: str, said: str, headers: Mapping[str, str], *, retryable: bool, details: Mapping[str, Any]
    ) -> ProviderFailed:
        """Return the failure for an error that the vendor reports. `advice` precedes `said`, the vendor's own words."""
        return ProviderFailed(
            f"{self.vendor} {advice}. It says: {said.rstrip('.')}.",
            retryable=retryable,
            retry_after_s=retry_after_s(headers) if retryable else None,
            details={key: value for key, value in details.items() if value is not None},
        )

    def advice(self, status: int | None) -> str:
        """Say what happened and what to do about it, by the status. The status is None in the middle of an answer."""
        match status:
            case 401:
                return f"rejected the API key: check {self.key}"
            case 403:
                return f"does not allow {self.model} for this key: use a different model, or ask for access"
            case 404:
                return f"does not know the model {self.model} for this key: check its name and the address"
            case 413:
                return (
                    f"refused the request as too long: shorten it, or use a model with more context than {self.model}"
                )
            case 429:
                return "limits requests: retry later, and less often"
            case None:
                return "could not process the request"
            case _:
                return "could not process the request" if status >= 500 else "refused the request"


def may_pass(status: int, headers: Mapping[str, str] = _NO_HEADERS) -> bool:
    """Whether the same request may work later. The vendor's header decides, if there is one."""
    said = headers.get("x-should-retry")
    return said == "true" if said in ("true", "false") else status in (408, 409, 429) or status >= 500
