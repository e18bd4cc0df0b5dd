"""One byte string for one JSON value, and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, cast

import rfc8785


class _Written(str):
    """A piece of the bytes, among values that are still to be written."""

    __slots__ = ()


_COMMA, _END_OF_LIST, _END_OF_OBJECT = _Written(","), _Written("]"), _Written("}")


def canonical_bytes(value: Any) -> bytes:
    """`value` as RFC 8785 bytes, so that key order and spacing never matter, however deep it is.

    What RFC 8785 cannot hold (integers beyond 2**53, as some schemas carry, half a surrogate pair, NaN) is written as
    it is: still one byte string for one value, only not one that another language would compute. No Unicode folding:
    it would hide an attack that swaps one letter for its twin.

    Raises:
        TypeError: something in it is no JSON value.
    """
    written: list[str] = []
    waiting: list[Any] = [value]  # the next one last; a call for each level would bound the depth
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
    """SHA-256 of the canonical bytes of a JSON value, in hex."""
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
