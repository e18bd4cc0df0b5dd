"""The one decision on what may be seen and what may be called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import translate
from functools import cached_property
from typing import Protocol

from toolcrib.core.principal import Principal
from toolcrib.core.tools import Path, ToolAnnotations

WORST = ToolAnnotations()
"""What a tool is taken for whose claims nobody vouches for: the defaults of MCP, which are the worst of each."""


class Access(IntEnum):
    """What a principal may do with a tool, the least first."""

    HIDDEN = 0
    """It does not exist for this principal, in any answer, count, hint or error."""
    SEE = 1
    """See it; calling it is refused with `NOT_AUTHORIZED`."""
    ASK = 2
    """See it, and call it once a person has approved."""
    CALL = 3
    """See it and call it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is decided on: a tool, a prompt or a resource."""

    id: str
    """`source.name`; of a prompt or resource with its own name or URI in the place of the name."""
    source: str
    paths: tuple[Path, ...]
    """Where it hangs, by primary paths; and the nodes that any node above it hangs under as well."""
    tags: tuple[str, ...] = ()
    annotations: ToolAnnotations = WORST
    """What it claims of itself."""
    trusted: bool = False
    """Whether the owner of its source vouches for that."""


class Permissions(Protocol):
    """What one principal may do. Hashable; two principals with equal permissions see the same catalog."""

    def decide(self, subject: Subject) -> Access:
        """Pure: the same question always has the same answer."""
        ...

    def may_know(self, source: str) -> bool:
        """Whether a source may be spoken of before anybody knows what it offers."""
        ...

    def may_know_node(self, path: Path) -> bool:
        """Whether a category that was set up may be spoken of before anybody knows what hangs in it."""
        ...


class Policy(Protocol):
    """Who may do what."""

    def permissions(self, principal: Principal) -> Permissions: ...


@dataclass(frozen=True, slots=True)
class Everything:
    """The permissions of somebody from whom nothing is kept."""

    def decide(self, subject: Subject) -> Access:
        return Access.CALL

    def may_know(self, source: str) -> bool:
        return True

    def may_know_node(self, path: Path) -> bool:
        return True


EVERYTHING = Everything()


class AllowAll:
    """Everything may be seen and called: the policy until one is configured."""

    def permissions(self, principal: Principal) -> Permissions:
        return EVERYTHING


ALLOW_ALL = AllowAll()

HINTS = ("read_only", "destructive", "idempotent", "open_world")
"""The claims that a rule can ask for."""


@dataclass(frozen=True)
class Rule:
    """What holds for whom, on which subjects: those that meet every condition. A condition left empty is met.

    Patterns are those of file names: `*` stands for any characters, `?` for one, `[...]` for one of several.
    """

    then: Access
    principals: tuple[str, ...] = ()
    """Patterns of the principal's id."""
    scopes: tuple[str, ...] = ()
    """The principal has all of these."""
    paths: tuple[Path, ...] = ()
    """It hangs at or below one of these nodes, by their primary paths."""
    tags: tuple[str, ...] = ()
    """It carries one of these."""
    sources: tuple[str, ...] = ()
    """Patterns of its source's name."""
    tools: tuple[str, ...] = ()
    """Patterns of its id."""
    annotations: Mapping[str, bool] = field(default_factory=dict[str, bool], hash=False)
    """It claims all of these, by `HINTS`. See `Rules.decide` for what a claim is worth."""

    def is_for(self, principal: Principal) -> bool:
        """Whether it speaks of this principal at all."""
        return principal.scopes.issuperset(self.scopes) and _matches(self._principals, principal.id)

    def meets(self, subject: Subject, annotations: ToolAnnotations) -> bool:
        """Whether `subject` meets it, taken to be what `annotations` claim."""
        return (
            _matches(self._sources, subject.source)
            and _matches(self._tools, subject.id)
            and (not self.tags or not set(self.tags).isdisjoint(subject.tags))
            and (not self.paths or any(path[: len(top)] == top for top in self.paths for path in subject.paths))
            and all(getattr(annotations, hint) is wanted for hint, wanted in self.annotations.items())
        )

    def meets_all_of(self, source: str) -> bool:
        """Whether whatever a source of this name may offer meets it."""
        under = not self.paths or (source,) in self.paths
        return under and not (self.tools or self.tags or self.annotations) and _matches(self._sources, source)

    def meets_all_below(self, path: Path) -> bool:
        """Whether whatever may hang at or below the node meets it."""
        under = not self.paths or any(path[: len(top)] == top for top in self.paths)
        return under and not (self.sources or self.tools or self.tags or self.annotations)

    @cached_property
    def _principals(self) -> re.Pattern[str] | None:
        return _pattern(self.principals)

    @cached_property
    def _sources(self) -> re.Pattern[str] | None:
        return _pattern(self.sources)

    @cached_property
    def _tools(self) -> re.Pattern[str] | None:
        return _pattern(self.tools)


@dataclass(frozen=True)
class Rules:
    """Rules in their order: the first that is met decides, `otherwise` where none is. A policy and its permissions."""

    rules: tuple[Rule, ...]
    otherwise: Access

    def permissions(self, principal: Principal) -> Rules:
        """The rules that speak of this principal."""
        return Rules(tuple(rule for rule in self.rules if rule.is_for(principal)), self.otherwise)

    def decide(self, subject: Subject) -> Access:
        """What the rules say of `subject`, which claims something of itself that nobody may vouch for.

        Then it is the stricter of what they say of a tool that is as it claims, and of one that is as bad as can be:
        a claim can tighten the decision and never loosen it.
        """
        claimed = self._first(subject, subject.annotations)
        if subject.trusted or claimed is Access.HIDDEN or not self._ask_for_claims:
            return claimed
        return min(claimed, self._first(subject, WORST))

    def may_know(self, source: str) -> bool:
        """What the first rule says that everything in the source would meet."""
        then = next((rule.then for rule in self.rules if rule.meets_all_of(source)), self.otherwise)
        return then is not Access.HIDDEN

    def may_know_node(self, path: Path) -> bool:
        """What the first rule says that everything below the node would meet."""
        then = next((rule.then for rule in self.rules if rule.meets_all_below(path)), self.otherwise)
        return then is not Access.HIDDEN

    def _first(self, subject: Subject, annotations: ToolAnnotations) -> Access:
        return next((rule.then for rule in self.rules if rule.meets(subject, annotations)), self.otherwise)

    @cached_property
    def _ask_for_claims(self) -> bool:
        return any(rule.annotations for rule in self.rules)


def _pattern(globs: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(glob) for glob in globs)) if globs else None


def _matches(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is None or pattern.fullmatch(text) is not None
