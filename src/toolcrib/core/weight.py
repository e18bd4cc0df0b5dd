"""What JSON weighs for a model that reads it: bytes, and the tokens they are estimated to make."""

from __future__ import annotations

import json

import orjson

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of text or of compact JSON that count as one token, the usual estimate."""


def size_of(value: object) -> int:
    """UTF-8 bytes of `value` as compact JSON; mappings of any kind count as objects."""
    try:
        return len(orjson.dumps(value, default=dict))
    except TypeError:  # an integer beyond 64 bits, or half a surrogate pair
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict).encode(errors="replace"))
