"""One byte string for one JSON value, and its digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import rfc8785


def canonical_bytes(value: Any) -> bytes:
    """`value` as RFC 8785 bytes, so that key order and spacing never matter.

    Numbers that RFC 8785 cannot hold (integers beyond 2**53, as some schemas carry) fall back to Python's JSON with
    sorted keys: still one byte string for one value, only not one that another language would compute. No Unicode
    folding in either: it would hide an attack that swaps one letter for its twin.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError):
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=dict)
        return text.encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical bytes of a JSON value, in hex."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()
