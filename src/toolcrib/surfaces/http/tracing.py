"""The trace that a request is part of, as its sender says it."""

from __future__ import annotations

import re

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id in a `traceparent`, 32 hex digits; None where there is none that can be used.

    Source: W3C Trace Context, section 3.2.
    """
    found = _TRACEPARENT.fullmatch((traceparent or "").strip())
    if found is None or (found[0].startswith("00-") and len(found[0]) != 55):
        return None
    return found["trace_id"]
