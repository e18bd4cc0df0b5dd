"""What vendors' SDKs have in common on the wire: what can be sent, what is lost there, and when to ask again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

DEFAULT_TIMEOUT_S = 600.0
"""Without a byte."""


def is_of_transport(error: Exception) -> bool:
    """Whether it comes from below an SDK: these let out what is raised there in the middle of a stream. Which of the
    two libraries they stand on depends on their release."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """From `retry-after-ms`, or `retry-after`, which is a number of seconds or a date."""
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
    """`request` with `?` for each half of a surrogate pair, which Python's texts can hold and no request can."""
    try:
        orjson.dumps(request)
    except TypeError:
        return json.loads(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
    return request
