"""Sets of characters, and the spelling of one character of a set inside a JSON string."""

from __future__ import annotations

import json
from collections.abc import Iterable

from toolcrib.definitions.grammars.gbnf import Chars, Literal, Ref, Rule, Sequence

Ranges = tuple[tuple[int, int], ...]
"""Code point ranges in ascending order. Both ends are included, and no two ranges touch or overlap."""

LAST = 0x10FFFF
SURROGATES: Ranges = ((0xD800, 0xDFFF),)

_SHORT = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}
_LONG = tuple(point for point in range(0x20) if point not in _SHORT)
_ESCAPED: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))

ESCAPED = "json-escaped"
CONTROL = "json-control"
CHAR = "json-char"

CHAR_RULES: dict[str, Rule] = {
    CHAR: ((Chars(_ESCAPED, negated=True),), (Literal("\\"), Ref(ESCAPED))),
    ESCAPED: ((Chars(tuple((ord(c), ord(c)) for c in '"\\bfnrt')),), (Literal("u00"), Ref(CONTROL))),
    CONTROL: (
        (Literal("0"), Chars(((0x30, 0x37), (0x62, 0x62), (0x65, 0x66)))),
        (Literal("1"), Chars(((0x30, 0x39), (0x61, 0x66)))),
    ),
}


def spelled(text: str) -> str:
    """Return `text` as a JSON string with quotes, in the only spelling that our grammars allow.

    This is the spelling of RFC 8785: `\\"`, `\\\\`, `\\b`, `\\f`, `\\n`, `\\r`, `\\t`, other characters below U+0020 as
    `\\u00xx` with lower-case digits, and every other character as itself.

    Raises:
        UnicodeEncodeError: `text` contains half of a surrogate pair, which no valid string can contain.
    """
    text.encode()
    return json.dumps(text, ensure_ascii=False)


def normal(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same set in ascending order and without overlaps."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, LAST)) if start <= LAST else tuple(found)


def minus(ranges: Ranges, without: Ranges) -> Ranges:
    return complement(normal((*complement(ranges), *without)))


def holds(ranges: Ranges, point: int) -> bool:
    return any(low <= point <= high for low, high in ranges)


def one_of(ranges: Ranges) -> tuple[Sequence, ...]:
    """Return alternatives that spell exactly one character of the set inside a JSON string. Empty for an empty set."""
    found: list[Sequence] = []
    plain = minus(minus(ranges, _ESCAPED), SURROGATES)
    if plain:
        is_open = plain[-1][1] == LAST  # spelled as a negated class: this is shorter, and has no invisible characters
        lacking = minus(complement(plain), SURROGATES)
        found.append((Chars(lacking, negated=True) if is_open else Chars(plain),))
    short = [letter for point, letter in _SHORT.items() if holds(ranges, point)]
    long = [point for point in _LONG if holds(ranges, point)]
    if len(short) == len(_SHORT) and len(long) == len(_LONG):
        return (*found, (Literal("\\"), Ref(ESCAPED)))
    if short:
        found.append((Literal("\\"), Chars(tuple((ord(letter), ord(letter)) for letter in sorted(short)))))
    if len(long) == len(_LONG):
        found.append((Literal("\\u00"), Ref(CONTROL)))
    else:
        found += [(Literal(f"\\u{point:04x}"),) for point in long]
    return tuple(found)
