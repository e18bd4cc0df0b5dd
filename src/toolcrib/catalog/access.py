"""The one decision on what may be seen and what may be called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fnmatch import translate
from itertools import product
from typing import Any, Protocol, cast

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import Principal
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Path, ToolAnnotations
from toolcrib.core.values import check_string, read_choice, read_flag, read_paths, read_strings, unknown

NOTHING_CLAIMED = ToolAnnotations()


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


EFFECTS: Mapping[str, Access] = {
    "allow": Access.CALL,
    "ask": Access.ASK,
    "refuse": Access.SEE,
    "hide": Access.HIDDEN,
}
"""What a configuration calls them, and a rule may."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is decided on: a tool, a prompt or a resource."""

    id: str
    """`source.name`; of a prompt or resource with its own name or URI in the place of the name."""
    source: str
    paths: tuple[Path, ...]
    """Where it hangs, by primary paths; and the nodes that any node above it hangs under as well."""
    tags: tuple[str, ...] = ()
    annotations: ToolAnnotations | None = NOTHING_CLAIMED
    """What it claims of itself; None for what can claim nothing, as prompts and resources."""
    trusted: bool = False
    """Whether the owner of its source vouches for what it says of itself: its tags and annotations."""
    sure_paths: tuple[Path, ...] | None = None
    """Where it hangs whatever it says of itself; None where that is all of `paths`."""
    sure_tags: tuple[str, ...] = ()
    """Tags that its owner gave it."""
    aliases: tuple[str, ...] = ()
    """Other names that it is known by."""


ANY = re.compile(r"[*?]|\[[^\]]*\]")
"""What a pattern has in the place of characters."""

UNKNOWN = "\x00"
"""Stands in an id for whatever nobody knows yet: a pattern meets it only where it would meet any characters."""


def something_of(source: str) -> Subject:
    """Some tool of a source, of which nothing else is known."""
    return Subject(f"{source}.{UNKNOWN}", source, ((source,),))


class Permissions(Protocol):
    """What one principal may do. Hashable; two principals with equal permissions see the same catalog."""

    def decide(self, subject: Subject) -> Access:
        """Pure: the same question always has the same answer."""
        ...


class Policy(Protocol):
    """Who may do what."""

    def permissions(self, principal: Principal) -> Permissions: ...


@dataclass(frozen=True, slots=True)
class Everything:
    """The permissions of somebody from whom nothing is kept."""

    def decide(self, subject: Subject) -> Access:
        return Access.CALL


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
    """What holds for whom, on which subjects: those that meet every condition. A condition that is None is always met.

    Patterns are those of file names: `*` stands for any characters, `?` for one, `[...]` for one of several. Values are
    read as `mcp.json` has them: a lone string counts as a list of one, `"Storage/Buckets"` as a path, and `"hide"` as a
    member of `Access`.

    Raises:
        InvalidConfig: a value cannot be read like this, a pattern has a `[` without a `]`, or a condition is empty:
            a rule that was meant to hold for nothing must not hold for everything.
    """

    then: Access
    principals: tuple[str, ...] | None = None
    """Patterns of the principal's id."""
    scopes: tuple[str, ...] | None = None
    """The principal has all of these."""
    paths: tuple[Path, ...] | None = None
    """It hangs at or below one of these nodes, by their primary paths."""
    tags: tuple[str, ...] | None = None
    """It carries one of these."""
    sources: tuple[str, ...] | None = None
    """Patterns of its source's name."""
    tools: tuple[str, ...] | None = None
    """Patterns of its id."""
    annotations: Mapping[str, bool] | None = field(default=None, hash=False)
    """It claims all of these, by `HINTS`. See `Rules.decide` for what a claim is worth."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", read_choice(self.then, "then", EFFECTS))
        for condition, read in _CONDITIONS.items():
            if (given := getattr(self, condition)) is not None:
                if not (value := read(given, condition)):
                    raise InvalidConfig(f"{condition}: it is empty; without it, the rule holds for any")
                object.__setattr__(self, condition, value)

    def is_for(self, principal: Principal) -> bool:
        """Whether it speaks of this principal at all."""
        return principal.scopes.issuperset(self.scopes or ()) and _matches(self._principals, principal.id)

    def meets(self, subject: Subject, claims: ToolAnnotations | None) -> bool:
        """Whether `subject` meets it, taken to be what `claims` say."""
        return (
            _matches(self._sources, subject.source)
            and _matches(self._tools, subject.id)
            and (not self.tags or not set(self.tags).isdisjoint(subject.tags))
            and (not self.paths or any(path[: len(top)] == top for top in self.paths for path in subject.paths))
            and (not self.annotations or _is_claimed(self.annotations, claims))
        )

    @cached_property
    def _principals(self) -> re.Pattern[str] | None:
        return _pattern(self.principals)

    @cached_property
    def _sources(self) -> re.Pattern[str] | None:
        return _pattern(self.sources)

    @cached_property
    def _tools(self) -> re.Pattern[str] | None:
        return _pattern(self.tools)


def _is_claimed(annotations: Mapping[str, bool], claims: ToolAnnotations | None) -> bool:
    return claims is not None and all(getattr(claims, hint) is told for hint, told in annotations.items())


def _read_patterns(value: object, place: str) -> tuple[str, ...]:
    patterns = read_strings(value, place)
    for pattern in patterns:
        check_string(pattern, place)
        if "[" in ANY.sub("", pattern):
            raise InvalidConfig(f"{place}: `{pattern}` has a `[` without a `]`; write `[[]` for the character itself")
    return patterns


def _read_claims(value: object, place: str) -> Mapping[str, bool]:
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{place}: must be an object")
    claims = cast("Mapping[object, object]", value)
    for hint in claims:
        if hint not in HINTS:
            raise InvalidConfig(f"{place}: unknown key `{hint}`{unknown(hint, HINTS)}")
    return {str(hint): read_flag(told, f"{place}.{hint}") for hint, told in claims.items()}


_CONDITIONS: Mapping[str, Callable[[object, str], Any]] = {
    "principals": _read_patterns,
    "scopes": read_strings,
    "paths": read_paths,
    "tags": read_strings,
    "sources": _read_patterns,
    "tools": _read_patterns,
    "annotations": _read_claims,
}
"""What a rule can ask for, each with how it is read."""


@dataclass(frozen=True)
class Rules:
    """Rules in their order: the first that is met decides, `otherwise` where none is. A policy and its permissions.

    Raises:
        InvalidConfig: `rules` is not a list of `Rule`, or `otherwise` is not one of `Access`.
    """

    rules: tuple[Rule, ...]
    otherwise: Access

    def __post_init__(self) -> None:
        rules = cast("Sequence[Any]", self.rules)
        if not isinstance(rules, list | tuple) or not all(isinstance(rule, Rule) for rule in rules):
            raise InvalidConfig("rules: a list of `Rule` is expected here")
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "otherwise", read_choice(self.otherwise, "otherwise", EFFECTS))

    def permissions(self, principal: Principal) -> Rules:
        """The rules that speak of this principal."""
        return Rules(tuple(rule for rule in self.rules if rule.is_for(principal)), self.otherwise)

    def decide(self, subject: Subject) -> Access:
        """What the rules say of `subject`.

        Where nobody vouches for what it says of itself, the strictest of what they say with and without its tags and
        the places these brought it, and for anything that its annotations could have claimed. So what a stranger says
        can tighten the decision and never loosen it.
        """
        if subject.trusted:
            return self._first(subject, subject.annotations)
        strictest = Access.CALL
        for each in self._with_and_without_its_word(subject):
            for claims in self._possible_claims if subject.annotations is not None else (None,):
                strictest = min(strictest, self._first(each, claims))
                if strictest is Access.HIDDEN:
                    return strictest
        return strictest

    def _first(self, subject: Subject, claims: ToolAnnotations | None) -> Access:
        return next((rule.then for rule in self.rules if rule.meets(subject, claims)), self.otherwise)

    def _with_and_without_its_word(self, subject: Subject) -> tuple[Subject, ...]:
        sure = subject.paths if subject.sure_paths is None else subject.sure_paths
        if (subject.tags, subject.paths) == (subject.sure_tags, sure):
            return (subject,)
        return subject, replace(subject, tags=subject.sure_tags, paths=sure)

    @cached_property
    def _possible_claims(self) -> tuple[ToolAnnotations, ...]:
        """All that can be claimed, as far as any rule asks."""
        asked = [hint for hint in HINTS if any(hint in (rule.annotations or ()) for rule in self.rules)]
        combinations = (dict(zip(asked, told, strict=True)) for told in product((False, True), repeat=len(asked)))
        return tuple(replace(NOTHING_CLAIMED, **told) for told in combinations)


def may_show(permissions: Permissions, source: str) -> bool:
    """Whether something of `source` may be visible, as far as that is known before it is listed.

    That is so where the source as a whole may be known, or where a rule names one of its tools that may.
    """
    # A pattern without a dot, as `*push`, meets the source and the name together.
    named = {
        f"{source}.{ANY.sub(UNKNOWN, pattern.partition('.')[2] or pattern)}"
        for rule in (permissions.rules if isinstance(permissions, Rules) else ())
        for pattern in rule.tools or ()
    }
    subjects = (something_of(source), *(Subject(tool_id, source, ((source,),)) for tool_id in named))
    return any(permissions.decide(subject) is not Access.HIDDEN for subject in subjects)


CAREFUL = Rules((Rule(Access.CALL, annotations={"read_only": True}),), Access.ASK)
"""Where a person is there and no policy is set: whatever nobody vouches for as reading only is asked about."""


def _pattern(globs: tuple[str, ...] | None) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(glob) for glob in globs)) if globs else None


def _matches(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is None or pattern.fullmatch(text) is not None
