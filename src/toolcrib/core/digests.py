"""Canonical bytes of JSON values, their SHA-256 digests, and their size for a model that reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, cast

import orjson
import rfc8785


class _Written(str):
    """A piece of finished output, in a list whose other items are values that are still to be written."""

    __slots__ = ()


_COMMA, _END_OF_LIST, _END_OF_OBJECT = _Written(","), _Written("]"), _Written("}")


def canonical_bytes(value: Any) -> bytes:
    """Write `value` as RFC 8785 bytes, so that key order and spacing do not matter. The depth is not limited.

    RFC 8785 does not allow integers beyond 2**53 (which some schemas have), half a surrogate pair, or NaN. These are
    written as they are. Equal values still have equal bytes, but a program in a different language would compute
    different ones. Unicode is not normalized, because that would hide an attack that swaps a letter for a look-alike.

    Raises:
        TypeError: a part of `value` is not a JSON value.
    """
    written: list[str] = []
    waiting: list[Any] = [value]  # a stack, next value last; recursion would limit the depth
    while waiting:
        part = waiting.pop()
        if isinstance(part, _Written):
            written.append(part)
        elif isinstance(part, str):
            written.append(encode_basestring(part))
        elif isinstance(part, Mapping):
            written.append("{")
            waiting.append(_END_OF_OBJECT)
            members = cast("Mapping[str, Any]", part)
            for position, key in enumerate(sorted(members, key=_utf16, reverse=True), 1 - len(members)):
                waiting += (members[key], _Written(f"{',' if position else ''}{encode_basestring(key)}:"))
        elif isinstance(part, list | tuple):
            written.append("[")
            waiting.append(_END_OF_LIST)
            elements = cast("Sequence[Any]", part)
            for position, element in enumerate(reversed(elements), 1 - len(elements)):
                waiting += (element, _COMMA) if position else (element,)
        else:
            written.append(_scalar(part))
    return "".join(written).encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    """Return the SHA-256 digest of the canonical bytes of a JSON value, in hex."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _scalar(value: object) -> str:
    if isinstance(value, float):
        try:
            return rfc8785.dumps(value).decode()
        except rfc8785.CanonicalizationError:
            pass
    return json.dumps(value)


BYTES_PER_TOKEN = 4
"""How many UTF-8 bytes of text or compact JSON count as one token. This is the usual estimate."""


def size_of(value: object) -> int:
    """Return the size of `value` as compact JSON, in UTF-8 bytes. Mappings of any kind count as objects."""
    try:
        return len(orjson.dumps(value, default=dict))
    except TypeError:  # an integer beyond 64 bits, or half a surrogate pair
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict).encode(errors="replace"))
