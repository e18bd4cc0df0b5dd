"""What vendors fail at, in the same words for all of them; what only one of them says stands in its own file."""

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
    """Who was asked, for the words of failures."""

    model: str
    vendor: str
    """As a sentence begins with it."""
    timeout_s: float
    key: str
    """Where the key is set."""

    @contextmanager
    def failing(self) -> Generator[None]:
        """Whatever the SDK raises inside is raised as `ProviderFailed`."""
        try:
            yield
        except Exception as error:
            if (failed := self.failure_of(error)) is None:
                raise
            raise failed from error

    def failure_of(self, error: Exception) -> ProviderFailed | None:
        """None where `error` is no failure of the vendor. A vendor's own errors are looked at before."""
        if isinstance(error, json.JSONDecodeError):  # in a stream
            return self.unreadable()
        if is_of_transport(error):
            return self.silent() if "Timeout" in type(error).__name__ else self.lost()
        return None

    @abstractmethod
    def unreadable(self) -> ProviderFailed:
        """It answers in another form than its API."""

    def lost(self) -> ProviderFailed:
        return ProviderFailed(f"{self.vendor} was lost in the middle of its answer; ask again.", retryable=True)

    def silent(self) -> ProviderFailed:
        return ProviderFailed(
            f"{self.vendor} said nothing for {self.timeout_s:g} s; ask again, or raise `timeout_s`.", retryable=True
        )

    def unreachable(self, error: Exception) -> ProviderFailed:
        why = error.__cause__ or error
        return ProviderFailed(
            f"{self.vendor} cannot be reached ({why}); check the network and the address.", retryable=True
        )

    def refused(
        self, advice: str, said: str, headers: Mapping[str, str], *, retryable: bool, details: Mapping[str, Any]
    ) -> ProviderFailed:
        """What the vendor itself reports: `said` in its words, after what happened and what to do about it."""
        return ProviderFailed(
            f"{self.vendor} {advice}. It says: {said.rstrip('.')}.",
            retryable=retryable,
            retry_after_s=retry_after_s(headers) if retryable else None,
            details={key: value for key, value in details.items() if value is not None},
        )

    def advice(self, status: int | None) -> str:
        """What happened, with what to do about it, by the status; None in the middle of an answer."""
        match status:
            case 401:
                return f"does not take the key: check {self.key}"
            case 403:
                return f"does not let this key use {self.model}: take another model, or have the key allowed"
            case 404:
                return f"knows no model {self.model} for this key: check its name, and the address"
            case 413:
                return f"cannot read so much: begin anew with less, or take a model that reads more than {self.model}"
            case 429:
                return "takes no more requests for now: ask later, and less often"
            case None:
                return "failed at this request"
            case _:
                return "failed at this request" if status >= 500 else "refuses this request"


def may_pass(status: int, headers: Mapping[str, str] = _NO_HEADERS) -> bool:
    """Whether the same request may work later: as the vendor says, where it does."""
    said = headers.get("x-should-retry")
    return said == "true" if said in ("true", "false") else status in (408, 409, 429) or status >= 500
