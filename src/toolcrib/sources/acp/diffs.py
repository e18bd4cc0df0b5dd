"""Which files a call reads or changes, as an editor shows it: values, and what an answer says of them in `_meta`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from toolcrib.core.results import ToolResult

META_KEY = "toolcrib"
"""Under this key of an answer's `_meta` stand `diffs` and `locations`."""

MAX_FILES = 200
"""Diffs, and locations, of one answer that are read."""

MAX_DIFF_CHARS = 1_000_000
"""Of either side of a diff; a larger one is not told."""


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of one file. Source: ACP v1, `Diff`."""

    path: str
    """Absolute."""
    new_text: str
    old_text: str | None = None
    """None where the file is new, or nobody could read it."""

    @property
    def is_too_large(self) -> bool:
        return max(len(self.new_text), len(self.old_text or "")) > MAX_DIFF_CHARS

    def to_wire(self) -> dict[str, Any]:
        return {"path": self.path, "oldText": self.old_text, "newText": self.new_text}


@dataclass(frozen=True, slots=True)
class Location:
    """A place that a call works at. Source: ACP v1, `ToolCallLocation`."""

    path: str
    """Absolute."""
    line: int | None = None
    """From 1."""

    def to_wire(self) -> dict[str, Any]:
        return {"path": self.path} if self.line is None else {"path": self.path, "line": self.line}


def with_files(result: ToolResult, *, diffs: Iterable[Diff] = (), locations: Iterable[Location] = ()) -> ToolResult:
    """`result`, saying in its `_meta` what it changed and where it was."""
    said: dict[str, Any] = {"locations": [location.to_wire() for location in locations]}
    if told := [diff.to_wire() for diff in diffs if not diff.is_too_large]:
        said["diffs"] = told
    return replace(result, wire={**result.wire, "_meta": {META_KEY: said}})


def diffs_of(result: ToolResult) -> tuple[Diff, ...]:
    """What `result` says that it changed; what is malformed, or too large, is passed over."""
    return tuple(diff for wire in _said(result, "diffs") if (diff := _diff(wire)) is not None and not diff.is_too_large)


def locations_of(result: ToolResult) -> tuple[Location, ...]:
    """Where `result` says that it was; what is malformed is passed over."""
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
