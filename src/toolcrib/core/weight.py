"""The size of JSON for a model that reads it: bytes, and how many bytes count as one token."""

from __future__ import annotations

import json

import orjson

BYTES_PER_TOKEN = 4
"""How many UTF-8 bytes of text or compact JSON count as one token. This is the usual estimate."""


def size_of(value: object) -> int:
    """Return the size of `value` as compact JSON, in UTF-8 bytes. Mappings of any kind count as objects."""
    try:
        return len(orjson.dumps(value, default=dict))
    except TypeError:  # an integer beyond 64 bits, or half a surrogate pair
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict).encode(errors="replace"))
