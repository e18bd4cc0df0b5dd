"""The ids of traces: fresh ones, and those that a request says it is part of."""

from __future__ import annotations

import random
import re

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


def new_trace_id() -> str:
    """A fresh trace id, 32 hex digits. Source: W3C Trace Context, `trace-id`.

    The first half is zeros, as the recommendation has it for systems of shorter ids: a handle carries the rest, which a
    model has to copy, and which is as long in every one.
    """
    # Nobody is let in for knowing one, and the system's randomness takes longer than a search.
    return f"{1 << 62 | random.getrandbits(62):032x}"


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id in a `traceparent`, 32 hex digits; None where there is none that can be used.

    Source: W3C Trace Context, section 3.2.
    """
    found = _TRACEPARENT.fullmatch((traceparent or "").strip())
    if found is None or (found[0].startswith("00-") and len(found[0]) != 55):
        return None
    return found["trace_id"]
