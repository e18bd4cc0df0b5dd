"""Grades the changes of a tool's definition, and describes each change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from os.path import commonprefix
from typing import Any, cast

from toolcrib.core.contracts import TARGETS, WORDS, contract_of, without
from toolcrib.core.digests import canonical_bytes
from toolcrib.core.schema import pointer
from toolcrib.core.tools import DECLARATION, Tool
from toolcrib.core.untrusted_text import visible
from toolcrib.definitions.drift.containment import closed, covers, is_quick
from toolcrib.definitions.drift.definition_json import definition_of

MAX_CHANGES = 50
"""How many changes of one drift are listed, the most serious first."""

MAX_SUSPECTS = 20
"""How many changed parts of one schema are checked one by one to find those that break calls."""

EXCERPT_CHARS = 80
_LEAD_CHARS = 20
"""The number of characters that are shown before the first difference of two strings."""

Json = Mapping[str, Any]
Place = tuple[str, ...]


class Grade(StrEnum):
    """The seriousness of a change, in ascending order."""

    SAME = "same"
    TEXT = "text"
    """Only descriptive text changed. The accepted arguments and the promised results are the same."""
    COMPATIBLE = "compatible"
    """All valid calls stay valid, and all results have the promised form."""
    BREAKING = "breaking"
    """A valid call may now be refused, or a result may have a different form. Also used if this cannot be decided."""
    WEAKENED = "weakened"
    """The claims about behaviour changed: a promise was removed, or one was added that leads to fewer questions."""
    SOURCE = "source"
    """A different command runs the tool, or it is at a different address."""

    @classmethod
    def gravest(cls, grades: Iterable[Grade]) -> Grade:
        """Return the most serious grade. Without grades, return `SAME`."""
        return max(grades, key=tuple(cls).index, default=cls.SAME)


@dataclass(frozen=True, slots=True)
class Change:
    """One changed part of a definition."""

    place: str
    """A JSON Pointer into the definition in MCP's format. `""` if the source changed."""
    grade: Grade
    before: str | None
    """The old value as JSON, cut to the changed part, with invisible characters as `⟨U+200B⟩`. None if there was
    none."""
    after: str | None

    def __str__(self) -> str:
        where = self.place or "its source"
        match self.before, self.after:
            case None, after:
                return f"{where}: {after} was added ({self.grade})"
            case before, None:
                return f"{where}: {before} was removed ({self.grade})"
            case before, after:
                return f"{where}: {before} became {after} ({self.grade})"

    def to_wire(self) -> dict[str, str]:
        wire = {"place": self.place, "grade": self.grade.value, "before": self.before, "after": self.after}
        return {key: value for key, value in wire.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Drift:
    """The changes from one definition of a tool to a later one."""

    grades: frozenset[Grade]
    """The grades of all changes. Empty if nothing changed. A policy checks each grade, because no grade includes
    others."""
    changes: tuple[Change, ...]
    """At most `MAX_CHANGES`, the most serious first, then ordered by place."""
    omitted: int = 0
    """The number of changes that are not listed."""

    @property
    def grade(self) -> Grade:
        return Grade.gravest(self.grades)

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"grade": self.grade.value, "changes": [change.to_wire() for change in self.changes]}
        return {**wire, "omitted": self.omitted} if self.omitted else wire


def drift_between(earlier: Tool, later: Tool, *, origins: tuple[str, str] = ("", ""), compares: bool = True) -> Drift:
    """Return what changed from `earlier` to `later`. Key order, spacing and `1.0` instead of `1` are not changes.

    `origins` are the commands or URLs that run the two definitions, without secrets. They are never names that a server
    gives itself.

    The time is bounded for every input. A schema that is too large to compare counts as breaking. Without `compares`,
    every change of what a schema accepts counts as breaking.
    """
    changes = [] if earlier is later else list(_changes(earlier, later, compares=compares))
    if origins[0] != origins[1]:
        changes.append(Change("", Grade.SOURCE, *_told(*origins)))
    order = tuple(Grade)
    changes.sort(key=lambda change: (-order.index(change.grade), change.place))
    kept = tuple(changes[:MAX_CHANGES])
    return Drift(frozenset(change.grade for change in changes), kept, len(changes) - len(kept))


def _changes(earlier: Tool, later: Tool, *, compares: bool) -> Iterator[Change]:
    before, after = definition_of(earlier), definition_of(later)
    for side in ("inputSchema", "outputSchema"):
        if side in before and side in after:
            yield from _of_schema(side, before.pop(side), after.pop(side), compares=compares)
    for place, (was, now) in _moves(before, after).items():
        yield Change(pointer(place), _grade_beside_schemas(place, was), *_told(was, now))


def _grade_beside_schemas(place: Place, was: Any) -> Grade:
    match place:
        case ("name",):
            return Grade.BREAKING
        case ("outputSchema",):
            return Grade.COMPATIBLE if was is _NOTHING else Grade.BREAKING
        case ("annotations", hint) if hint in _HINTS:
            return Grade.WEAKENED
        case ("metadata", "requires_permission") if was is True:
            return Grade.WEAKENED
        case ("_meta", key) if key == DECLARATION:
            return Grade.SOURCE
        case _:
            return Grade.TEXT


_HINTS = frozenset({"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"})


def _of_schema(side: str, was: Json, now: Json, *, compares: bool) -> Iterator[Change]:
    moved = _moves(was, now)
    if not moved:
        return
    with_defaults = _moves(without(was, WORDS), without(now, WORDS))
    bare_was, bare_now = without(was, WORDS | {"default"}), without(now, WORDS | {"default"})
    binding = _moves(bare_was, bare_now)
    grades = _grades_of_binding(side, bare_was, bare_now, binding, compares=compares)
    for place, pair in moved.items():
        # A default does not restrict any call, but the same call may now do something different.
        grade = grades.get(place, Grade.COMPATIBLE if place in with_defaults else Grade.TEXT)
        yield Change(pointer((side, *place)), grade, *_told(*pair))


def _grades_of_binding(
    side: str, was: Json, now: Json, places: Iterable[Place], *, compares: bool
) -> dict[Place, Grade]:
    """Return the grade that each change of a schema (without descriptive text) has for the whole schema.

    If it cannot be decided which change breaks calls, all of them are breaking.
    """
    parts = {place: place[: 2 if place[:1] == ("properties",) else 1] for place in places}
    if not parts:
        return {}
    if not compares:
        return dict.fromkeys(parts, Grade.BREAKING)
    whole = _grade_of_schema(side, was, now)
    suspects = sorted(set(parts.values()))
    if whole is not Grade.BREAKING or len(suspects) > MAX_SUSPECTS or not (is_quick(was) and is_quick(now)):
        return dict.fromkeys(parts, whole)
    alone = {part: _grade_of_schema(side, was, _with_part(was, now, part)) for part in suspects}
    if Grade.BREAKING not in alone.values():
        return dict.fromkeys(parts, whole)
    return {place: alone[part] for place, part in parts.items()}


def _with_part(was: Json, now: Json, part: Place) -> Json:
    """Return `was` with one part taken from `now`, and with all definitions that the part may refer to."""
    targets = {key: {**_mapping(now.get(key)), **_mapping(was.get(key))} for key in TARGETS if key in now}
    keyword, *names = part
    value = now.get(keyword)
    if names:
        given = _mapping(value)
        rest = {name: below for name, below in _mapping(was.get(keyword)).items() if name != names[0]}
        value = {**rest, names[0]: given[names[0]]} if names[0] in given else rest
    kept = {key: below for key, below in {**was, **targets}.items() if key != keyword}
    return kept if value is None else {**kept, keyword: value}


def _grade_of_schema(side: str, was: Json, now: Json) -> Grade:
    """Return `TEXT`, `COMPATIBLE` or `BREAKING` for schemas without descriptive text."""
    if canonical_bytes(contract_of(was)) == canonical_bytes(contract_of(now)):
        return Grade.TEXT
    is_input = side == "inputSchema"
    narrow_was, narrow_now = (closed(schema, with_root=is_input) for schema in (was, now))
    # Callers send declared properties. These must be accepted by the new schema, and must still be declared in it.
    is_taken = covers(now, narrow_was) and covers(narrow_now, narrow_was)
    # A tool returns the properties that it declares now. Readers ignore undeclared properties.
    is_promised = covers(was, narrow_now)
    if not (is_taken if is_input else is_promised):
        return Grade.BREAKING
    return Grade.TEXT if is_taken and is_promised and covers(narrow_was, narrow_now) else Grade.COMPATIBLE


_NOTHING = object()
"""Marks a missing value in one of two definitions."""


def _moves(was: Any, now: Any) -> dict[Place, tuple[Any, Any]]:
    """Return the places at which two JSON values differ, each with both values.

    For lists of scalars, the values are the items that are only in one of the lists.
    """
    found: dict[Place, tuple[Any, Any]] = {}
    waiting: list[tuple[Place, Any, Any]] = [((), was, now)]
    while waiting:
        place, one, other = waiting.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            former = cast("Json", one)
            latter = cast("Json", other)
            keys = former.keys() | latter.keys()
            waiting += [((*place, key), former.get(key, _NOTHING), latter.get(key, _NOTHING)) for key in keys]
        elif isinstance(one, list) and isinstance(other, list):
            ours = cast("list[Any]", one)
            theirs = cast("list[Any]", other)
            if len(ours) == len(theirs) and any(isinstance(each, Mapping | list) for each in (*ours, *theirs)):
                pairs = enumerate(zip(ours, theirs, strict=True))
                waiting += [((*place, str(position)), *pair) for position, pair in pairs]
            elif canonical_bytes(ours) != canonical_bytes(theirs):
                found[place] = _set_apart(ours, theirs)
        elif one is _NOTHING or other is _NOTHING or canonical_bytes(one) != canonical_bytes(other):
            found[place] = (one, other)
    return found


def _set_apart(former: Sequence[Any], latter: Sequence[Any]) -> tuple[Any, Any]:
    """Return the items that are only in one of the two lists, or both lists if only the order differs."""
    ours, theirs = ({canonical_bytes(each): each for each in some} for some in (former, latter))
    gone = [each for key, each in ours.items() if key not in theirs]
    new = [each for key, each in theirs.items() if key not in ours]
    return (gone or _NOTHING, new or _NOTHING) if gone or new else (former, latter)


def _told(was: Any, now: Any) -> tuple[str | None, str | None]:
    if isinstance(was, str) and isinstance(now, str):
        alike = commonprefix((was, now))  # noqa: RUF071 - compares characters, not paths
        start = max(0, len(alike) - _LEAD_CHARS)
        return _excerpt(was, start), _excerpt(now, start)
    return (None if was is _NOTHING else _shown(was)), (None if now is _NOTHING else _shown(now))


def _excerpt(text: str, start: int) -> str:
    shown = visible(text[start : start + EXCERPT_CHARS])
    end = "…" if start + EXCERPT_CHARS < len(text) else ""
    return f'"{"…" if start else ""}{shown}{end}"'


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return _excerpt(value, 0)
    try:
        text = json.dumps(value, ensure_ascii=False, default=dict)
    except RecursionError:
        return "…"
    return visible(text[:EXCERPT_CHARS]) + ("…" if len(text) > EXCERPT_CHARS else "")


def _mapping(value: Any) -> Json:
    if not isinstance(value, Mapping):
        return {}
    return cast("Json", value)
