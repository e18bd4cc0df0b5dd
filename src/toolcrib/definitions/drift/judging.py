"""Whether a tool may be shown as its source offers it now, given what was approved of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift.grades import Drift, Grade, drift_between
from toolcrib.definitions.drift.suspicions import BESIDE_OTHERS, NOBODY, RULES, Neighbours, Suspicion, suspicions_in
from toolcrib.definitions.drift.versions import Version


class Verdict(StrEnum):
    """What becomes of a tool, the mildest first."""

    PASS = "pass"  # noqa: S105  no password
    WARN = "warn"
    """It is shown as it is, and its owner is told, as is whoever expands it."""
    QUARANTINE = "quarantine"
    """It is not shown as it is until somebody approves of it."""

    @classmethod
    def strictest(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """`PASS` for none."""
        return max(verdicts, key=tuple(cls).index, default=cls.PASS)


@dataclass(frozen=True, slots=True)
class PinPolicy:
    """What becomes of tools that nobody approved of as they are.

    By default nothing but what was approved is shown of a source of which anything was; other sources are not touched.
    """

    text: Verdict = Verdict.QUARANTINE
    """Of a change of this grade, as are the next four."""
    compatible: Verdict = Verdict.QUARANTINE
    breaking: Verdict = Verdict.QUARANTINE
    weakened: Verdict = Verdict.QUARANTINE
    source: Verdict = Verdict.QUARANTINE
    new: Verdict = Verdict.QUARANTINE
    """Of a tool of which nothing was approved, where something was of its source."""
    unpinned: Verdict = Verdict.PASS
    """Of a tool of a source of which nothing was approved."""
    unreadable: Verdict = Verdict.QUARANTINE
    """Of all tools while nobody can read what was approved."""
    suspicious: Verdict = Verdict.WARN
    """Of a definition that nobody approved of and in which one of `rules` finds something."""
    rules: frozenset[str] = frozenset(RULES)
    keeps_last: bool = True
    """Whether what was approved stays in the place of what is quarantined, if calls of it are still right."""
    takes_older: bool = False
    """Whether a call by an older handle passes if the definition of now covers the one that was shown."""

    def of(self, grade: Grade) -> Verdict:
        """What becomes of a change of this grade."""
        return Verdict.PASS if grade is Grade.SAME else Verdict(getattr(self, grade.value))

    @classmethod
    def verdicts(cls) -> tuple[str, ...]:
        """The names of what can be set to a verdict."""
        return tuple(field.name for field in fields(cls) if isinstance(field.default, Verdict))


DEFAULT_PINS = PinPolicy()


@dataclass(frozen=True, slots=True)
class Approved:
    """The definition of a tool that somebody approved of."""

    tool: Tool
    version: Version
    origin: str
    """What the tool's source was bound to then, fit to be shown; never the name that a server gives itself."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a source's tools are bound to now."""

    shown: str
    """As `Approved.origin`."""
    is_pinned: bool
    """Whether anything was approved of it."""
    is_known: bool = True
    """Whether that can be said."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """What becomes of one tool, and why."""

    tool: Tool
    """As its source offers it."""
    approved: Approved | None
    """What was approved of it last."""
    origin: Origin
    policy: PinPolicy
    version: Version | None = None
    """Of the contract of `tool`; None where nobody counts."""
    covered: tuple[Tool, ...] = ()
    """What callers saw of it before, where every call of that is still right and the policy lets it pass."""
    compares: bool = True
    """Whether there is time to compare what schemas accept."""
    neighbours: Callable[[], Neighbours] = lambda: NOBODY
    """The tools that it stands beside, by now."""

    @cached_property
    def drift(self) -> Drift | None:
        """What changed since it was approved; None where nothing was."""
        if self.approved is None:
            return None
        origins = self.approved.origin, self.origin.shown
        return drift_between(self.approved.tool, self.tool, origins=origins, compares=self.compares)

    @cached_property
    def shown(self) -> Tool | None:
        """What callers see of it: itself, what was approved, or nothing."""
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
        """Those that the policy asks about and that were not there when it was approved."""
        beside = self._suspicions(self.policy.rules & BESIDE_OTHERS, self.neighbours)
        return tuple(sorted((*self._own_suspicions, *beside), key=lambda each: _ORDER[each.rule]))

    @cached_property
    def _own_suspicions(self) -> tuple[Suspicion, ...]:
        """Those of them that stand in it whatever it stands beside."""
        return self._suspicions(self.policy.rules - BESIDE_OTHERS, lambda: NOBODY)

    def _suspicions(self, rules: frozenset[str], beside: Callable[[], Neighbours]) -> tuple[Suspicion, ...]:
        if not rules or self._is_as_approved or self.policy.suspicious is Verdict.PASS:
            return ()
        earlier = self.approved.tool if self.approved is not None else None
        return suspicions_in(self.tool, beside(), rules=rules, earlier=earlier)

    @property
    def why(self) -> tuple[str, ...]:
        """Why it does not pass, in sentences that any caller may read."""
        return (*self._not_as_approved(), *self._doubts())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever is shown it is to know."""
        return self.why if self.shown is self.tool or self.shown is None else (_KEPT,)

    @property
    def shown_version(self) -> Version | None:
        """Of what callers see."""
        return self.version if self.shown is self.tool or self.approved is None else self.approved.version

    @property
    def _is_as_approved(self) -> bool:
        return self.drift is not None and not self.drift.grades

    @property
    def _is_quarantined(self) -> bool:
        # What is suspicious is only looked for where that decides: it takes longer than all the rest.
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
            yield f"It is not as it was approved: {'; '.join(changed)}."

    def _doubts(self) -> Iterator[str]:
        """Without the excerpts: what was written for a model must not reach one here. Nor a word of other tools."""
        for rule in dict.fromkeys(each.rule for each in self._own_suspicions):
            yield f"Suspicious ({rule}): {RULES[rule]}"


def is_still_right(drift: Drift) -> bool:
    """Whether calls of the earlier definition can go to the later: nothing they rely on was taken back."""
    return drift.grades <= {Grade.TEXT, Grade.COMPATIBLE}


_ORDER = {rule: place for place, rule in enumerate(RULES)}

_UNREADABLE = "What was approved cannot be read, so nobody knows whether this was."
_KEPT = "This is the definition that was approved; its source has another by now, which nobody approved."
_NOT_APPROVED = {
    True: "Nobody approved of it, and somebody did of other tools of its source.",
    False: "Nobody approved of it.",
}
_CHANGED = {
    Grade.TEXT: "its words changed",
    Grade.COMPATIBLE: "what it takes or gives changed, and calls stay right",
    Grade.BREAKING: "what it takes or gives changed, and calls may fail",
    Grade.WEAKENED: "what it claims of its behaviour changed",
    Grade.SOURCE: "another command or address runs it",
}
