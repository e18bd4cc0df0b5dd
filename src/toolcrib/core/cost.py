"""An upper bound for the work of validating a value, computed beforehand because a validation cannot be interrupted."""

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
"""The largest table of one schema. If a schema needs more entries, every value counts as too much work."""

MAX_NODES = 100_000
"""How many nested values are counted. A value with more parts counts as too much work."""

MAX_LEVELS = 250
"""How many levels a value can have; JSON parsers accept no more."""

CHARS_PER_UNIT = 64
"""How many characters of a string cost one unit when the string is counted, compared or copied."""

BACKTRACKING = 20_000
"""Units for one attempt to match a pattern with lookaround, independent of the string."""

_APPLIED = (*IN_PLACE, "dependencies")
COMPARED = 20
"""Units for each value inside a list with `uniqueItems`, because the whole list is compared."""

DIVIDED = 100
"""Units for the division of a `multipleOf`, which the validator computes exactly for numbers with a fraction."""

_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9]|\\k|[*+?}]\+")
_REPEATS = re.compile(r"(\)?)\{(\d*),?(\d*)\}")


class Work(NamedTuple):
    """The work of a schema on one value. The sum of weights is the work of several schemas on the same value."""

    units: float = 0
    """Units of work. One unit takes about 10 ns if the value is only checked. If each violation is explained, it takes
    about 10 µs and 1 kB of memory."""
    per_char: float = 0
    """Units for each character of a string; more than 0 if the schema has patterns."""
    per_square: float = 0
    """Units for the squared length of a string; more than 0 if a pattern has lookaround."""

    def plus(self, other: Work) -> Work:
        return Work(self.units + other.units, self.per_char + other.per_char, self.per_square + other.per_square)

    def or_more(self, other: Work) -> Work:
        return Work(*map(max, self, other))


NONE = Work()
TOO_MUCH = Work(math.inf, math.inf, math.inf)


class Cost:
    """The maximum work of validating values against one schema, in units; see `Work.units`.

    The work depends on how often the schema looks at one value, level by level. A chain of choices doubles that number
    with each level, so a value of sixty bytes can keep a validator busy for minutes.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._references = References(document)
        self._table: dict[tuple[int, int], Work] = {}
        """The weight of a subschema on one value, by (`id` of the subschema, levels from its own value down to it)."""
        self._open: set[tuple[int, int]] = set()
        self._own: dict[int, Work] = {}
        self._anchors: Mapping[str, list[object]] | None = None
        """Subschemas by their anchors; empty if parts of the document have base URIs of their own."""
        self._is_bundle = False
        self._levels: list[Work] = []
        """The weight of the document on one value, by the level of the value."""
        self._lock = Lock()

    def of(self, value: object, enough: float) -> float:
        """Return the maximum units for `value`, or infinity if they are more than `enough`."""
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

    def _at(self, depth: int) -> Work:
        if depth >= len(self._levels):
            with self._lock:
                while len(self._levels) <= depth:
                    try:
                        self._levels.append(self._weight(self._document, len(self._levels)))
                    except RecursionError:
                        self._levels.append(TOO_MUCH)
        return self._levels[depth]

    def _weight(self, schema: object, below: int) -> Work:
        """Return the weight of `schema` on one value, `below` levels under the value that the schema applies to."""
        if not isinstance(schema, Mapping):
            return Work(1) if below == 0 and isinstance(schema, bool) else NONE
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
        if "unevaluatedProperties" in found or "unevaluatedItems" in found:  # the validator evaluates all of it again
            weight = weight.plus(weight).plus(weight)
        self._table[key] = weight
        return weight

    def _inside(self, schema: Mapping[str, Any], below: int) -> Work:
        """Return the weight of the subschemas that apply to the parts of a value: members of an object or a list."""

        def most(parts: Iterable[object]) -> Work:
            heaviest = NONE
            for part in parts:
                heaviest = heaviest.or_more(self._weight(part, below))
            return heaviest

        def all_of(parts: Iterable[object]) -> Work:
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
            in_list = in_list.plus(Work(COMPARED))
        return in_object.or_more(in_list)

    def _own_weight(self, schema: Mapping[str, Any]) -> Work:
        """Return the weight of the keywords of `schema`, without its subschemas."""
        key = id(schema)
        if key not in self._own:
            listed = _names_in(schema.get("required"))
            for keyword in ("dependentRequired", "dependencies"):
                listed += sum(1 + _names_in(names) for names in _schemas(schema.get(keyword)))
            weight = Work(len(schema) + listed + _compared(schema.get("enum")) + _compared([schema.get("const")]))
            if isinstance(pattern := schema.get("pattern"), str):
                weight = weight.plus(_of_pattern(pattern))
            if "multipleOf" in schema:
                weight = weight.plus(Work(DIVIDED))
            if "format" in schema:
                weight = weight.plus(Work(per_char=0.1))
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
        """Return the subschemas that a reference can mean. If unknown, return one that counts as too much work."""
        if self._anchors is None:
            self._is_bundle = has_embedded_resources(self._document)
            self._anchors = {} if self._is_bundle else _anchors_in(self._document)
        if self._is_bundle or not reference.startswith("#"):
            return [_UNKNOWN]
        if (named := self._references.target(reference)) is not None:
            return [named]
        return self._anchors.get(reference[1:]) or [_UNKNOWN]


_UNKNOWN: Mapping[str, Any] = {"allOf": []}
cast("list[object]", _UNKNOWN["allOf"]).append(_UNKNOWN)  # contains itself, so `Cost._weight` returns TOO_MUCH


def _inside(level: Sequence[object]) -> tuple[list[object], int]:
    """Return the values directly inside the values of `level`, and the number of characters in their keys."""
    objects = [cast("Mapping[object, object]", each) for each in level if isinstance(each, dict | Mapping)]
    lists = [cast("Sequence[object]", each) for each in level if isinstance(each, list | tuple)]
    if sum(map(len, objects)) + sum(map(len, lists)) > MAX_NODES:
        return [None] * (MAX_NODES + 1), 0
    keys = sum(len(key) for each in objects for key in each if isinstance(key, str))
    return [*chain.from_iterable(each.values() for each in objects), *chain.from_iterable(lists)], keys


def _schemas(found: object) -> list[object]:
    """Return the subschemas in a list, or in the values of an object."""
    if isinstance(found, list):
        return cast("list[object]", found)
    return [*cast("Mapping[str, object]", found).values()] if isinstance(found, Mapping) else []


def _names_in(found: object) -> int:
    return len(cast("list[object]", found)) if isinstance(found, list) else 0


def _anchors_in(document: Mapping[str, Any]) -> Mapping[str, list[object]]:
    """Return the subschemas of one schema resource, by anchor."""
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


def _of_pattern(pattern: str) -> Work:
    """Return the weight of a pattern. Counted repetitions multiply the ways to match at each character."""
    ways = 1.0
    for after_group, least, most in cast("list[tuple[str, str, str]]", _REPEATS.findall(pattern)):
        times = int((most or least or "1")[:9])
        ways = ways * max(1, times) if after_group else ways + times
    weight = Work(1, ways + len(pattern) / 8)
    return weight.plus(Work(per_square=1)) if _LOOKS_AROUND.search(pattern) else weight


def _compared(values: object) -> float:
    """Return the units for comparing a value with each of `values`. Objects and lists are slow to compare."""
    if not isinstance(values, list):
        return 0
    try:
        size = len(orjson.dumps(values))
    except TypeError:  # for example an integer beyond 64 bits
        size = len(repr(cast("list[object]", values)))
    return (
        size if any(isinstance(each, dict | list) for each in cast("list[object]", values)) else size / CHARS_PER_UNIT
    )
