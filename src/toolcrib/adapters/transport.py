"""What the vendors' SDKs have in common on the wire: sendable requests, lost connections, and retry delays."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

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
