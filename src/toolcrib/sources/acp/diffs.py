"""Values for the files that a call reads or changes, and their form in the `_meta` of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from toolcrib.core.results import ToolResult

META_KEY = "toolcrib"
"""The key in an answer's `_meta` that contains `diffs` and `locations`."""

MAX_FILES = 200
"""How many diffs, and how many locations, of one answer are read."""

MAX_DIFF_CHARS = 1_000_000
"""The maximum length of either side of a diff, in characters. A larger diff is left out."""


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of one file. Source: ACP v1, `Diff`."""

    path: str
    """An absolute path."""
    new_text: str
    old_text: str | None = None
    """None if the file is new or could not be read."""

    @property
    def is_too_large(self) -> bool:
        return max(len(self.new_text), len(self.old_text or "")) > MAX_DIFF_CHARS

    def to_wire(self) -> dict[str, Any]:
        return {"path": self.path, "oldText": self.old_text, "newText": self.new_text}


@dataclass(frozen=True, slots=True)
class Location:
    """A place that a call works on. Source: ACP v1, `ToolCallLocation`."""

    path: str
    """An absolute path."""
    line: int | None = None
    """A line number, counted from 1."""

    def to_wire(self) -> dict[str, Any]:
        return {"path": self.path} if self.line is None else {"path": self.path, "line": self.line}


def with_files(result: ToolResult, *, diffs: Iterable[Diff] = (), locations: Iterable[Location] = ()) -> ToolResult:
    """Return `result` with the diffs and locations in its `_meta`."""
    said: dict[str, Any] = {"locations": [location.to_wire() for location in locations]}
    if told := [diff.to_wire() for diff in diffs if not diff.is_too_large]:
        said["diffs"] = told
    return replace(result, wire={**result.wire, "_meta": {META_KEY: said}})


def diffs_of(result: ToolResult) -> tuple[Diff, ...]:
    """Return the diffs in `result`. Malformed and too large ones are ignored."""
    return tuple(diff for wire in _said(result, "diffs") if (diff := _diff(wire)) is not None and not diff.is_too_large)


def locations_of(result: ToolResult) -> tuple[Location, ...]:
    """Return the locations in `result`. Malformed ones are ignored."""
    return tuple(location for wire in _said(result, "locations") if (location := _location(wire)) is not None)


def _said(result: ToolResult, key: str) -> Sequence[object]:
    said: object = result.wire
    for step in ("_meta", META_KEY, key):
        said = cast("Mapping[str, object]", said).get(step) if isinstance(said, Mapping) else None
    return cast("list[object]", said)[:MAX_FILES] if isinstance(said, list) else ()


def _diff(wire: object) -> Diff | None:
    match wire:
        case {"path": str(path), "newText": str(new_text)} if path:
            old_text = cast("Mapping[str, object]", wire).get("oldText")
            return Diff(path, new_text, old_text) if isinstance(old_text, str | None) else None
        case _:
            return None


def _location(wire: object) -> Location | None:
    match wire:
        case {"path": str(path)} if path:
            line = cast("Mapping[str, object]", wire).get("line")
            is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
            return Location(path, cast("int", line) if is_line else None)
        case _:
            return None
