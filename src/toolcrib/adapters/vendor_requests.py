"""What requests to all model vendors have in common: sendable content, the schema of the answer, and failures.

Failures have the same words for all vendors. Vendor-specific texts are in the vendor's own file.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Self

import orjson

from toolcrib.agent.conversation.messages import ModelTurn, Stop
from toolcrib.core.errors import ProviderFailed
from toolcrib.definitions.grammars.strict import StrictSchema, strict_schema

DEFAULT_TIMEOUT_S = 600.0
"""How long a vendor may send nothing, in seconds."""


def is_of_transport(error: Exception) -> bool:
    """Whether the error comes from the HTTP library below an SDK. The SDKs do not wrap such errors during a stream.

    The release of an SDK determines which of the two libraries it uses.
    """
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the delay from `retry-after-ms` or `retry-after`, in seconds.

    The latter is a number of seconds or a date.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        when = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, (when - datetime.now(UTC)).total_seconds()) if when.tzinfo else None


def sendable(request: dict[str, Any]) -> dict[str, Any]:
    """Return `request` with `?` for each lone surrogate, which Python strings can hold but requests cannot."""
    try:
        orjson.dumps(request)
    except TypeError:
        return json.loads(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
    return request


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class VendorFailures(ABC):
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


NAME = "answer"
"""The name of the schema in requests to the vendor."""


@dataclass(frozen=True, slots=True)
class StrictOutput:
    """The schema of a final answer in the form that vendors accept."""

    schema: Mapping[str, Any]
    strict: StrictSchema | None
    """None if strict mode cannot express the whole schema.

    Then the model only reads it, and the vendor enforces nothing.
    """

    @classmethod
    def of(cls, schema: Mapping[str, Any] | None) -> Self | None:
        """Create it for `schema`.

        Returns None without a schema, or if vendors do not accept it because it is not an object.
        """
        if schema is None:
            return None
        strict = strict_schema(schema)
        loses_keys = any(lost.keyword == "properties" for lost in strict.lost)
        if strict.schema is not None and not loses_keys:
            return cls(strict.schema, strict)
        return cls(schema, None) if schema.get("type") == "object" else None

    def to_wire(self) -> dict[str, Any]:
        """Return the parts under OpenAI's keys."""
        return {"name": NAME, "schema": dict(self.schema), "strict": self.strict is not None}

    def restored(self, turn: ModelTurn) -> ModelTurn:
        """Return the turn with text that fits the original schema: nulls that mean an absent key are removed."""
        if self.strict is None or turn.stop is not Stop.END:
            return turn
        try:
            written = json.loads(turn.message.text)
        except (ValueError, RecursionError):
            return turn
        meant = self.strict.arguments(written)
        if meant == written:
            return turn
        return replace(turn, message=replace(turn.message, text=json.dumps(meant, ensure_ascii=False)))
