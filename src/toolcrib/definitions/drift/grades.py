"""How much it matters that a tool's definition changed, and what of it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from os.path import commonprefix
from typing import Any, cast

from toolcrib.core.characters import visible
from toolcrib.core.contracts import TARGETS, WORDS, contract_of, without
from toolcrib.core.digests import canonical_bytes
from toolcrib.core.schema import pointer
from toolcrib.core.tools import DECLARATION, Tool
from toolcrib.definitions.drift.containment import closed, covers, is_quick
from toolcrib.definitions.drift.definitions import definition_of

MAX_CHANGES = 50
"""Changes that are told of one drift, the gravest first."""

MAX_SUSPECTS = 20
"""Parts of one schema that are looked at one by one for which of them breaks calls."""

EXCERPT_CHARS = 80
_LEAD_CHARS = 20
"""How much of two texts is shown before they part."""

Json = Mapping[str, Any]
Place = tuple[str, ...]


class Grade(StrEnum):
    """How much a change matters, the least first."""

    SAME = "same"
    TEXT = "text"
    """Only what is read changed: the same arguments are accepted, and the same results promised."""
    COMPATIBLE = "compatible"
    """Every call that was right still is, and every result is of the kind that was promised."""
    BREAKING = "breaking"
    """A call that was right may be refused, or a result be of another kind; also where nobody can tell."""
    WEAKENED = "weakened"
    """What it claims of its behaviour changed: a promise was taken back, or one was added for which less is asked."""
    SOURCE = "source"
    """It is run by another command, or at another address."""

    @classmethod
    def gravest(cls, grades: Iterable[Grade]) -> Grade:
        """`SAME` for none."""
        return max(grades, key=tuple(cls).index, default=cls.SAME)


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a definition that changed."""

    place: str
    """A JSON Pointer into the definition as MCP writes it; `""` where the source changed."""
    grade: Grade
    before: str | None
    """As JSON, cut to what changed, with what cannot be seen shown as `⟨U+200B⟩`; None where there was nothing."""
    after: str | None

    def __str__(self) -> str:
        where = self.place or "its source"
        match self.before, self.after:
            case None, after:
                return f"{where}: {after} was added ({self.grade})"
            case before, None:
                return f"{where}: {before} is gone ({self.grade})"
            case before, after:
                return f"{where}: {before} became {after} ({self.grade})"

    def to_wire(self) -> dict[str, str]:
        wire = {"place": self.place, "grade": self.grade.value, "before": self.before, "after": self.after}
        return {key: value for key, value in wire.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Drift:
    """What changed from one definition of a tool to a later one."""

    grades: frozenset[Grade]
    """Of all changes; empty where nothing changed. A policy asks about each, for none includes another."""
    changes: tuple[Change, ...]
    """At most `MAX_CHANGES`, the gravest first, then in the order of places."""
    omitted: int = 0
    """Changes that are not told."""

    @property
    def grade(self) -> Grade:
        return Grade.gravest(self.grades)

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"grade": self.grade.value, "changes": [change.to_wire() for change in self.changes]}
        return {**wire, "omitted": self.omitted} if self.omitted else wire


def drift_between(earlier: Tool, later: Tool, *, origins: tuple[str, str] = ("", ""), compares: bool = True) -> Drift:
    """What of `earlier` changed in `later`; key order, spacing and `1.0` for `1` are no changes.

    `origins`: the command or URL that each was bound to, fit to be shown. Never the name that a server gives itself.

    Bounded in time whatever a stranger wrote there: what is too large to be compared counts as breaking,
    and so does every change of what a schema accepts where it `compares` none.
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
        # A value that is put in for an argument binds nobody, and yet the same call may do something else.
        grade = grades.get(place, Grade.COMPATIBLE if place in with_defaults else Grade.TEXT)
        yield Change(pointer((side, *place)), grade, *_told(*pair))


def _grades_of_binding(
    side: str, was: Json, now: Json, places: Iterable[Place], *, compares: bool
) -> dict[Place, Grade]:
    """What each change of a schema without words makes of the whole; if nobody can tell which breaks calls, all do."""
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
    """`was` with one of its parts as it is now, and with whatever that may refer to."""
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
    """`TEXT`, `COMPATIBLE` or `BREAKING`, for schemas without words."""
    if canonical_bytes(contract_of(was)) == canonical_bytes(contract_of(now)):
        return Grade.TEXT
    is_input = side == "inputSchema"
    narrow_was, narrow_now = (closed(schema, with_root=is_input) for schema in (was, now))
    # Callers send what was declared: that must be accepted as it is written now, and be declared still.
    is_taken = covers(now, narrow_was) and covers(narrow_now, narrow_was)
    # A tool gives what it declares now, and who reads that passes over what was not declared.
    is_promised = covers(was, narrow_now)
    if not (is_taken if is_input else is_promised):
        return Grade.BREAKING
    return Grade.TEXT if is_taken and is_promised and covers(narrow_was, narrow_now) else Grade.COMPATIBLE


_NOTHING = object()
"""Stands where one of two definitions has no value."""


def _moves(was: Any, now: Any) -> dict[Place, tuple[Any, Any]]:
    """Where two JSON values differ, each place with both values; of lists of scalars, what is in one of them only."""
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
    """What only one of them has; both whole where that is nothing, and only their order differs."""
    ours, theirs = ({canonical_bytes(each): each for each in some} for some in (former, latter))
    gone = [each for key, each in ours.items() if key not in theirs]
    new = [each for key, each in theirs.items() if key not in ours]
    return (gone or _NOTHING, new or _NOTHING) if gone or new else (former, latter)


def _told(was: Any, now: Any) -> tuple[str | None, str | None]:
    if isinstance(was, str) and isinstance(now, str):
        alike = commonprefix((was, now))  # noqa: RUF071 - by characters, which are no path
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
