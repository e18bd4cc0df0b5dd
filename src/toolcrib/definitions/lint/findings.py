"""The types of the linter: levels, rules, problems and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.linted_tool import LintedTool


class Level(StrEnum):
    """The severity of a finding, in the words of SARIF."""

    ERROR = "error"
    """Something cannot be used, or a client or provider refuses it, and Toolcrib cannot correct that."""
    WARNING = "warning"
    """A model or a client will probably make mistakes."""
    NOTE = "note"
    """A possible improvement."""

    def is_at_least(self, other: Level) -> bool:
        order = tuple(Level)
        return order.index(self) <= order.index(other)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that one rule found."""

    text: str
    """What is wrong, as a sentence without a capital letter and a full stop."""
    change: str
    """What to change, as a sentence without a full stop."""
    places: tuple[str, ...] = ()
    """JSON Pointers into the definition. Empty if the problem concerns the whole definition."""
    tool_id: str = ""
    """The tool with the problem. Empty if the check received only one definition."""
    related: tuple[str, ...] = ()
    """Ids of other tools that the problem concerns, in order."""


class _ToolCheck(Protocol):
    """Checks one definition. Never raises, whatever the definition contains."""

    def __call__(self, definition: LintedTool, /) -> Iterable[Problem]: ...


class _CatalogCheck(Protocol):
    """Checks all definitions together. They are ordered by id. Never raises."""

    def __call__(self, tools: Sequence[Tool], /) -> Iterable[Problem]: ...


@dataclass(frozen=True, slots=True)
class LintRule:
    """One thing that can be wrong."""

    id: str
    """The permanent name, in kebab case."""
    level: Level
    title: str
    """What the rule finds, in one line."""
    help: str
    """Why the problem matters, and other details, in a few sentences."""
    change: str = ""
    """What to do, as a sentence without a full stop, if it is the same for all findings of the rule."""
    of_tool: _ToolCheck | None = None
    of_catalog: _CatalogCheck | None = None
    """If both checks are missing, the rule is not about definitions. The code that looks at its subject reports it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem and its place."""

    rule: LintRule
    where: str
    """What a person would search for: a tool id, or the place of something else."""
    problem: Problem
    file: Path | None = None
    """The file with the problem, if known."""
    line: int | None = None
    """The line in `file`, counted from 1, if known."""

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
