"""Decides whether a tool may be shown with its current definition, given the pinned one, and counts its versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self

from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift.grades import Drift, Grade, drift_between
from toolcrib.definitions.drift.suspicions import (
    CATALOG_RULES,
    NO_NEIGHBOURS,
    RULES,
    Neighbours,
    Suspicion,
    suspicions_in,
)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Major, minor and patch, as in semantic versioning. Toolcrib counts them from changes; servers do not report
    them."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str(version)`. Raises ValueError for everything else."""
        if (found := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", text, re.ASCII)) is None:
            raise ValueError(f"not a version: {text!r}")
        return cls(*map(int, found.groups()))

    def after(self, drift: Drift) -> Version:
        """Return the next version: major if valid calls may fail now, minor if more calls are valid, else patch.

        Without changes, the version stays the same.
        """
        if Grade.BREAKING in drift.grades:
            return Version(self.major + 1, 0, 0)
        if Grade.COMPATIBLE in drift.grades:
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1) if drift.grades else self

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


FIRST = Version(1, 0, 0)
"""The version of a tool that is seen for the first time."""


class Verdict(StrEnum):
    """What happens to a tool, in order of severity."""

    PASS = "pass"  # noqa: S105  not a password
    WARN = "warn"
    """The tool is shown. Its owner and every caller that expands it are warned."""
    QUARANTINE = "quarantine"
    """The current definition is not shown until a person pins it."""

    @classmethod
    def strictest(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the strictest verdict. Without verdicts, return `PASS`."""
        return max(verdicts, key=tuple(cls).index, default=cls.PASS)


@dataclass(frozen=True, slots=True)
class PinPolicy:
    """The verdicts for definitions that are not pinned.

    By default, if anything of a source is pinned, only its pinned definitions are shown. Sources without pins are not
    affected.
    """

    text: Verdict = Verdict.QUARANTINE
    """The verdict for a text-only change. The next four fields are the verdicts for the other grades."""
    compatible: Verdict = Verdict.QUARANTINE
    breaking: Verdict = Verdict.QUARANTINE
    weakened: Verdict = Verdict.QUARANTINE
    source: Verdict = Verdict.QUARANTINE
    new: Verdict = Verdict.QUARANTINE
    """The verdict for a tool without a pin, if other tools of its source are pinned."""
    unpinned: Verdict = Verdict.PASS
    """The verdict for a tool of a source without any pins."""
    unreadable: Verdict = Verdict.QUARANTINE
    """The verdict for all tools while the pins cannot be read."""
    suspicious: Verdict = Verdict.WARN
    """The verdict for a definition that is not pinned and in which one of `rules` finds something."""
    rules: frozenset[str] = frozenset(RULES)
    keeps_last: bool = True
    """Whether the pinned definition is shown in place of a quarantined one, if its calls are still valid."""
    takes_older: bool = False
    """Whether a call with an older handle passes if the current definition accepts all calls of the older one."""

    def of(self, grade: Grade) -> Verdict:
        """Return the verdict for a change of this grade."""
        return Verdict.PASS if grade is Grade.SAME else Verdict(getattr(self, grade.value))

    @classmethod
    def verdicts(cls) -> tuple[str, ...]:
        """Return the names of the fields that hold a verdict."""
        return tuple(field.name for field in fields(cls) if isinstance(field.default, Verdict))


DEFAULT_PINS = PinPolicy()


@dataclass(frozen=True, slots=True)
class Approved:
    """The pinned definition of a tool."""

    tool: Tool
    version: Version
    origin: str
    """The command or URL of the tool's source when it was pinned, without secrets. Never a name that a server gives
    itself."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The current command or URL of a source."""

    shown: str
    """The command or URL, in the form of `Approved.origin`."""
    is_pinned: bool
    """Whether anything of the source is pinned."""
    is_known: bool = True
    """Whether `is_pinned` is known."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """The verdict on one tool, and its reasons."""

    tool: Tool
    """The definition that the source offers now."""
    approved: Approved | None
    """The definition that was pinned last. None if the tool was never pinned."""
    origin: Origin
    policy: PinPolicy
    version: Version | None = None
    """The version of the contract of `tool`. None if versions are not counted."""
    covered: tuple[Tool, ...] = ()
    """Definitions that callers saw earlier, whose calls are all still valid and allowed by the policy."""
    compares: bool = True
    """Whether there is time to compare what schemas accept."""
    neighbours: Callable[[], Neighbours] = lambda: NO_NEIGHBOURS
    """The names of all other tools that are visible now."""

    @cached_property
    def drift(self) -> Drift | None:
        """What changed since the tool was pinned. None if it was never pinned."""
        if self.approved is None:
            return None
        origins = self.approved.origin, self.origin.shown
        return drift_between(self.approved.tool, self.tool, origins=origins, compares=self.compares)

    @cached_property
    def shown(self) -> Tool | None:
        """The definition that callers see: the current one, the pinned one, or None."""
        if not self._is_quarantined:
            return self.tool
        if self.drift is None or self.approved is None or not self.policy.keeps_last:
            return None
        return self.approved.tool if is_still_right(self.drift) else None

    @cached_property
    def verdict(self) -> Verdict:
        return Verdict.strictest((self._by_approval, *([self.policy.suspicious] if self.suspicions else [])))

    @cached_property
    def suspicions(self) -> tuple[Suspicion, ...]:
        """The suspicions that the policy checks for and that the pinned definition does not have."""
        of_catalog = self._suspicions(self.policy.rules & CATALOG_RULES, self.neighbours)
        return tuple(sorted((*self._own_suspicions, *of_catalog), key=lambda each: _ORDER[each.rule]))

    @cached_property
    def _own_suspicions(self) -> tuple[Suspicion, ...]:
        """The suspicions that do not depend on other tools."""
        return self._suspicions(self.policy.rules - CATALOG_RULES, lambda: NO_NEIGHBOURS)

    def _suspicions(self, rules: frozenset[str], neighbours: Callable[[], Neighbours]) -> tuple[Suspicion, ...]:
        if not rules or self._is_as_approved or self.policy.suspicious is Verdict.PASS:
            return ()
        earlier = self.approved.tool if self.approved is not None else None
        return suspicions_in(self.tool, neighbours(), rules=rules, earlier=earlier)

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons why the tool does not pass, in sentences that every caller may read."""
        return (*self._not_as_approved(), *self._doubts())

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings for callers that see the tool."""
        return self.why if self.shown is self.tool or self.shown is None else (_KEPT,)

    @property
    def shown_version(self) -> Version | None:
        """The version of the definition that callers see."""
        return self.version if self.shown is self.tool or self.approved is None else self.approved.version

    @property
    def _is_as_approved(self) -> bool:
        return self.drift is not None and not self.drift.grades

    @property
    def _is_quarantined(self) -> bool:
        # Suspicions are computed only where they matter, because they take longer than everything else.
        if self._by_approval is Verdict.QUARANTINE:
            return True
        return self.policy.suspicious is Verdict.QUARANTINE and bool(self.suspicions)

    @cached_property
    def _by_approval(self) -> Verdict:
        if not self.origin.is_known:
            return self.policy.unreadable
        if self.drift is not None:
            return Verdict.strictest(map(self.policy.of, self.drift.grades))
        return self.policy.new if self.origin.is_pinned else self.policy.unpinned

    def _not_as_approved(self) -> Iterator[str]:
        if self._by_approval is Verdict.PASS:
            return
        if not self.origin.is_known:
            yield _UNREADABLE
        elif self.drift is None:
            yield _NOT_APPROVED[self.origin.is_pinned]
        else:
            telling = {grade for grade in self.drift.grades if self.policy.of(grade) is not Verdict.PASS}
            if Grade.BREAKING in telling:
                telling.discard(Grade.COMPATIBLE)
            changed = (said for grade, said in _CHANGED.items() if grade in telling)
            yield f"The definition changed since it was pinned: {'; '.join(changed)}."

    def _doubts(self) -> Iterator[str]:
        """Without excerpts, because text that was written for a model must not reach a model here. Without other tools'
        names."""
        for rule in dict.fromkeys(each.rule for each in self._own_suspicions):
            yield f"Suspicious ({rule}): {RULES[rule]}"


def is_still_right(drift: Drift) -> bool:
    """Whether calls of the earlier definition can go to the later one, because nothing that they rely on was
    removed."""
    return drift.grades <= {Grade.TEXT, Grade.COMPATIBLE}


_ORDER = {rule: place for place, rule in enumerate(RULES)}

_UNREADABLE = "The pins cannot be read, so it is unknown whether this definition is pinned."
_KEPT = "This is the pinned definition. Its source now offers a different one, which is not pinned."
_NOT_APPROVED = {
    True: "This tool is not pinned, but other tools of its source are.",
    False: "This tool is not pinned.",
}
_CHANGED = {
    Grade.TEXT: "its text changed",
    Grade.COMPATIBLE: "its input or output changed, and calls stay valid",
    Grade.BREAKING: "its input or output changed, and calls may fail",
    Grade.WEAKENED: "its claims about its behaviour changed",
    Grade.SOURCE: "it runs with a different command or at a different address",
}
