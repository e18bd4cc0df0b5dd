"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.definition import Definition


class Level(StrEnum):
    """How bad it is, in the words of SARIF."""

    ERROR = "error"
    """Something cannot be used, or a client or provider refuses it, and Toolcrib cannot put that right."""
    WARNING = "warning"
    """A model or a client will probably go wrong."""
    NOTE = "note"
    """It could be better."""

    def is_at_least(self, other: Level) -> bool:
        order = tuple(Level)
        return order.index(self) <= order.index(other)


@dataclass(frozen=True, slots=True)
class Problem:
    """What a check of one rule found."""

    text: str
    """What is wrong, as a sentence without a capital and a full stop."""
    change: str
    """What to change, as a sentence without a full stop."""
    places: tuple[str, ...] = ()
    """Where in the definition, as JSON Pointers into it; none where it is the whole."""
    tool_id: str = ""
    """Of the definition, where it was not given to the check alone."""
    related: tuple[str, ...] = ()
    """Ids of other tools that it is also about, in order."""


class ToolCheck(Protocol):
    """Looks at one definition. Never raises, whatever a stranger wrote there."""

    def __call__(self, definition: Definition, /) -> Iterable[Problem]: ...


class CatalogCheck(Protocol):
    """Looks at all definitions together, which come in order of their ids. Never raises."""

    def __call__(self, tools: Sequence[Tool], /) -> Iterable[Problem]: ...


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong."""

    id: str
    """What it is called for good: kebab case."""
    level: Level
    title: str
    """What it finds, in a line."""
    help: str
    """Why that matters, and whatever else there is to know, in a few sentences."""
    change: str = ""
    """What to do about it, as a sentence without a full stop, where that is the same for all it finds."""
    of_tool: ToolCheck | None = None
    of_catalog: CatalogCheck | None = None
    """Neither of the two where the rule is about something other than definitions: whoever looks at that finds it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    rule: Rule
    where: str
    """What a person would look for: the id of a tool, or the place of something else."""
    problem: Problem
    file: Path | None = None
    """In which it was written, where that is known."""
    line: int | None = None
    """From 1, likewise."""

    @property
    def level(self) -> Level:
        return self.rule.level

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "rule": self.rule.id,
            "level": self.level.value,
            "place": self.where,
            "problem": self.problem.text,
            "change": self.problem.change,
        }
        if self.problem.places:
            wire["paths"] = list(self.problem.places)
        if self.problem.related:
            wire["related"] = list(self.problem.related)
        if self.file is not None:
            wire["file"] = str(self.file)
        if self.line is not None:
            wire["line"] = self.line
        return wire
