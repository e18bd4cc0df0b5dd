"""Trace ids: makes new ones, and reads them from `traceparent` headers."""

from __future__ import annotations

import random
import re

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


def new_trace_id() -> str:
    """Return a new trace id of 32 hex digits. Source: W3C Trace Context, `trace-id`.

    The first 16 digits are zeros, as the recommendation says for systems with shorter ids. A handle contains only the
    rest, which a model has to copy. The rest has the same length in every id.
    """
    # A trace id grants no access, so it need not be unpredictable. The system's randomness takes longer than a search.
    return f"{1 << 62 | random.getrandbits(62):032x}"


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace id of a `traceparent` header (32 hex digits), or None if it has no valid trace id.

    Source: W3C Trace Context, section 3.2.
    """
    found = _TRACEPARENT.fullmatch((traceparent or "").strip())
    if found is None or (found[0].startswith("00-") and len(found[0]) != 55):
        return None
    return found["trace_id"]
