"""How much work a validator may have with a value: known before it begins, since nothing can interrupt it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from threading import Lock
from typing import Any, NamedTuple, cast

import orjson

from toolcrib.core.subschemas import IN_PLACE, References, has_embedded_resources, references_of

MAX_ENTRIES = 5_000
"""Of the table of one schema. One that needs more is not measured: every value is too much work."""

MAX_NODES = 100_000
"""Values within one another that are looked at; more are too much work."""

MAX_LEVELS = 250
"""Levels of a value; a parser takes no more."""

CHARS_PER_UNIT = 64
"""Of a string that is counted, compared or copied."""

BACKTRACKING = 20_000
"""What one try of a pattern that looks around may take, whatever the text."""

_APPLIED = (*IN_PLACE, "dependencies")
COMPARED = 20
"""Units for each value in a list whose items are to be unique: all of it is compared."""

DIVIDED = 100
"""Units for a division, which is exact where the number has a fraction."""

_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9]|\\k|[*+?}]\+")
_REPEATS = re.compile(r"(\)?)\{(\d*),?(\d*)\}")


class Weight(NamedTuple):
    """What a schema does to one value; sums are for several schemas on the same value."""

    units: float = 0
    """Some 10 ns each where a value is only judged, some 10 µs and 1 kB where each miss is explained."""
    per_char: float = 0
    """Units for each character of a string, where there are patterns."""
    per_square: float = 0
    """Units for the square of the length of a string, where patterns look around."""

    def plus(self, other: Weight) -> Weight:
        return Weight(self.units + other.units, self.per_char + other.per_char, self.per_square + other.per_square)

    def or_more(self, other: Weight) -> Weight:
        return Weight(*map(max, self, other))


NONE = Weight()
TOO_MUCH = Weight(math.inf, math.inf, math.inf)


class Cost:
    """The most work that values can be to a schema, in units; see `Weight.units`.

    What counts is how often the schema looks at one value, level by level: a chain of choices doubles that with each
    level, so that a value of sixty bytes can keep a validator busy for minutes.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._references = References(document)
        self._table: dict[tuple[int, int], Weight] = {}
        """What a subschema, by its id, does to one value so many levels below the one it applies to."""
        self._open: set[tuple[int, int]] = set()
        self._own: dict[int, Weight] = {}
        self._anchors: Mapping[str, list[object]] | None = None
        """Subschemas by their anchors; empty where parts of the document have base URIs of their own."""
        self._is_bundle = False
        self._levels: list[Weight] = []
        """What the document does to one value, by its level."""
        self._lock = Lock()

    def of(self, value: object, enough: float) -> float:
        """The most units that `value` may take. Beyond `enough` it is not told how many more."""
        total, looked_at, all_above = 0.0, 0, 0.0
        level, keys = [value], 0
        for depth in range(MAX_LEVELS):
            looked_at += len(level)
            if looked_at > MAX_NODES:
                return math.inf
            weight = self._at(depth)
            if not any(weight):
                return total
            all_above += weight.units
            strings = [len(each) for each in level if isinstance(each, str)]
            chars = sum(strings) + keys
            total += (len(level) + chars / CHARS_PER_UNIT) * all_above + chars * weight.per_char
            if weight.per_square:
                longest = max(strings, default=0) + keys
                total += (len(level) * BACKTRACKING + chars * longest) * weight.per_square
            if total > enough or math.isnan(total):
                return math.inf
            level, keys = _inside(level)
            if not level:
                return total
        return math.inf

    def _at(self, depth: int) -> Weight:
        if depth >= len(self._levels):
            with self._lock:
                while len(self._levels) <= depth:
                    try:
                        self._levels.append(self._weight(self._document, len(self._levels)))
                    except RecursionError:
                        self._levels.append(TOO_MUCH)
        return self._levels[depth]

    def _weight(self, schema: object, below: int) -> Weight:
        """What `schema` does to one value that is so many levels below the one that it applies to."""
        if not isinstance(schema, Mapping):
            return Weight(1) if below == 0 and isinstance(schema, bool) else NONE
        found = cast("Mapping[str, Any]", schema)
        key = id(found), below
        if (known := self._table.get(key)) is not None:
            return known
        if key in self._open or len(self._table) + len(self._open) >= MAX_ENTRIES:
            return TOO_MUCH
        self._open.add(key)
        try:
            weight = self._own_weight(found) if below == 0 else self._inside(found, below - 1)
            for applied in self._in_place(found):
                weight = weight.plus(self._weight(applied, below))
        finally:
            self._open.discard(key)
        if "unevaluatedProperties" in found or "unevaluatedItems" in found:  # what applies is looked at again
            weight = weight.plus(weight).plus(weight)
        self._table[key] = weight
        return weight

    def _inside(self, schema: Mapping[str, Any], below: int) -> Weight:
        """The same for what applies to the parts of a value: each is in an object, or in a list."""

        def most(parts: Iterable[object]) -> Weight:
            heaviest = NONE
            for part in parts:
                heaviest = heaviest.or_more(self._weight(part, below))
            return heaviest

        def all_of(parts: Iterable[object]) -> Weight:
            total = NONE
            for part in parts:
                total = total.plus(self._weight(part, below))
            return total

        by_pattern = _schemas(schema.get("patternProperties"))
        in_object = most([*_schemas(schema.get("properties")), schema.get("additionalProperties")])
        in_object = in_object.plus(all_of([*by_pattern, schema.get("unevaluatedProperties")]))
        if below == 0:
            in_object = in_object.plus(self._weight(schema.get("propertyNames"), 0))
            for pattern in cast("Mapping[str, Any]", schema.get("patternProperties") if by_pattern else {}):
                in_object = in_object.plus(_of_pattern(pattern))
        items = schema.get("items")
        either = [*_schemas(schema.get("prefixItems")), schema.get("additionalItems")]
        either += cast("list[object]", items) if isinstance(items, list) else [items]
        in_list = most(either).plus(all_of([schema.get("contains"), schema.get("unevaluatedItems")]))
        if schema.get("uniqueItems") is True:
            in_list = in_list.plus(Weight(COMPARED))
        return in_object.or_more(in_list)

    def _own_weight(self, schema: Mapping[str, Any]) -> Weight:
        """Of its keywords, subschemas left out."""
        key = id(schema)
        if key not in self._own:
            listed = _names_in(schema.get("required"))
            for keyword in ("dependentRequired", "dependencies"):
                listed += sum(1 + _names_in(names) for names in _schemas(schema.get(keyword)))
            weight = Weight(len(schema) + listed + _compared(schema.get("enum")) + _compared([schema.get("const")]))
            if isinstance(pattern := schema.get("pattern"), str):
                weight = weight.plus(_of_pattern(pattern))
            if "multipleOf" in schema:
                weight = weight.plus(Weight(DIVIDED))
            if "format" in schema:
                weight = weight.plus(Weight(per_char=0.1))
            self._own[key] = weight
        return self._own[key]

    def _in_place(self, schema: Mapping[str, Any]) -> Iterator[object]:
        for keyword in _APPLIED:
            found: object = schema.get(keyword)
            if isinstance(found, Mapping) and not keyword.startswith("depend"):
                yield cast("object", found)
            else:
                yield from _schemas(cast("object", found))
        for reference in references_of(schema):
            yield from self._referred(reference)

    def _referred(self, reference: str) -> Sequence[object]:
        """The subschemas that a reference may mean; where that is not known, one that is too much work."""
        if self._anchors is None:
            self._is_bundle = has_embedded_resources(self._document)
            self._anchors = {} if self._is_bundle else _anchors_in(self._document)
        if self._is_bundle or not reference.startswith("#"):
            return [_UNKNOWN]
        if (named := self._references.target(reference)) is not None:
            return [named]
        return self._anchors.get(reference[1:]) or [_UNKNOWN]


_UNKNOWN: Mapping[str, Any] = {"allOf": []}
cast("list[object]", _UNKNOWN["allOf"]).append(_UNKNOWN)


def _inside(level: Sequence[object]) -> tuple[list[object], int]:
    """The values directly inside those of `level`, and how many characters their keys have."""
    objects = [cast("Mapping[object, object]", each) for each in level if isinstance(each, dict | Mapping)]
    lists = [cast("Sequence[object]", each) for each in level if isinstance(each, list | tuple)]
    if sum(map(len, objects)) + sum(map(len, lists)) > MAX_NODES:
        return [None] * (MAX_NODES + 1), 0
    keys = sum(len(key) for each in objects for key in each if isinstance(key, str))
    return [*chain.from_iterable(each.values() for each in objects), *chain.from_iterable(lists)], keys


def _schemas(found: object) -> list[object]:
    """The subschemas of a list or an object of them."""
    if isinstance(found, list):
        return cast("list[object]", found)
    return [*cast("Mapping[str, object]", found).values()] if isinstance(found, Mapping) else []


def _names_in(found: object) -> int:
    return len(cast("list[object]", found)) if isinstance(found, list) else 0


def _anchors_in(document: Mapping[str, Any]) -> Mapping[str, list[object]]:
    """Subschemas by their anchors, of one schema resource."""
    anchors: dict[str, list[object]] = {}
    waiting: list[object] = [document]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += cast("list[object]", found)
        elif isinstance(found, Mapping):
            schema = cast("Mapping[str, object]", found)
            waiting += schema.values()
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := schema.get(keyword), str):
                    anchors.setdefault(name, []).append(schema)
    return anchors


def _of_pattern(pattern: str) -> Weight:
    """One whose repetitions are counted may have so many ways to try at each character."""
    ways = 1.0
    for after_group, least, most in cast("list[tuple[str, str, str]]", _REPEATS.findall(pattern)):
        times = int((most or least or "1")[:9])
        ways = ways * max(1, times) if after_group else ways + times
    weight = Weight(1, ways + len(pattern) / 8)
    return weight.plus(Weight(per_square=1)) if _LOOKS_AROUND.search(pattern) else weight


def _compared(values: object) -> float:
    """Units for a comparison with one of these after the other, which objects and lists take long for."""
    if not isinstance(values, list):
        return 0
    try:
        size = len(orjson.dumps(values))
    except TypeError:  # an integer beyond 64 bits, say
        size = len(repr(cast("list[object]", values)))
    return (
        size if any(isinstance(each, dict | list) for each in cast("list[object]", values)) else size / CHARS_PER_UNIT
    )
