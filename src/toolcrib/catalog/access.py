"""Decides what a principal can see and call: policies, rules and permissions."""

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
    """What a principal can do with a tool, from least to most."""

    HIDDEN = 0
    """The tool does not exist for this principal: it is in no answer, count, hint or error."""
    SEE = 1
    """The principal can see the tool. A call is refused with `NOT_AUTHORIZED`."""
    ASK = 2
    """The principal can see the tool, and call it after a person has approved."""
    CALL = 3
    """The principal can see and call the tool."""


EFFECTS: Mapping[str, Access] = {
    "allow": Access.CALL,
    "ask": Access.ASK,
    "refuse": Access.SEE,
    "hide": Access.HIDDEN,
}
"""The access levels by the words that configurations and rules use."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a decision is about: a tool, a prompt or a resource."""

    id: str
    """`source.name`. For a prompt or resource, the name is its own name or URI."""
    source: str
    paths: tuple[Path, ...]
    """The primary paths of its categories, and of the categories to which any category above it is linked."""
    tags: tuple[str, ...] = ()
    annotations: ToolAnnotations | None = NOTHING_CLAIMED
    """What the tool claims about itself; None for prompts and resources, which cannot claim anything."""
    trusted: bool = False
    """Whether the owner trusts what the source says about its tools: tags and annotations."""
    sure_paths: tuple[Path, ...] | None = None
    """The paths that do not depend on what the tool says about itself; None if these are all of `paths`."""
    sure_tags: tuple[str, ...] = ()
    """The tags that the owner gave it."""
    aliases: tuple[str, ...] = ()
    """Other names for it."""


ANY = re.compile(r"[*?]|\[[^\]]*\]")
"""The wildcards of a pattern."""

UNKNOWN = "\x00"
"""Marks an unknown part of an id. A pattern matches it only where the pattern would match any characters."""


def something_of(source: str) -> Subject:
    """Return a subject for an unknown tool of a source."""
    return Subject(f"{source}.{UNKNOWN}", source, ((source,),))


class Permissions(Protocol):
    """What one principal can do. Hashable; two principals with equal permissions see the same catalog."""

    def decide(self, subject: Subject) -> Access:
        """Return the access to `subject`. The same subject must always get the same answer."""
        ...


class Policy(Protocol):
    """Decides which permissions each principal has."""

    def permissions(self, principal: Principal) -> Permissions:
        """Return the permissions of `principal`."""
        ...


@dataclass(frozen=True, slots=True)
class Everything:
    """Permissions without any restriction."""

    def decide(self, subject: Subject) -> Access:
        return Access.CALL


EVERYTHING = Everything()


class _AllowAll:
    """Allows everyone to see and call everything. This is the policy if none is configured."""

    def permissions(self, principal: Principal) -> Permissions:
        return EVERYTHING


ALLOW_ALL = _AllowAll()

HINTS = ("read_only", "destructive", "idempotent", "open_world")
"""The annotations that a rule can test."""


@dataclass(frozen=True)
class Rule:
    """Gives the access `then` to every principal and subject that match all conditions. None matches everything.

    Patterns work as for file names: `*` matches any characters, `?` one character, `[...]` one of several. Values are
    read as in `mcp.json`: a lone string counts as a list of one, `"Storage/Buckets"` as a path, and `"hide"` as a
    member of `Access`.

    Raises:
        InvalidConfig: a value has the wrong form, a pattern has a `[` without a `]`, or a condition is empty. An empty
            condition is refused, because a rule that was meant for nothing must not apply to everything.
    """

    then: Access
    principals: tuple[str, ...] | None = None
    """Patterns; one of them matches the principal's id."""
    scopes: tuple[str, ...] | None = None
    """The principal has all of these scopes."""
    paths: tuple[Path, ...] | None = None
    """The subject is in or below one of these categories, given by primary paths."""
    tags: tuple[str, ...] | None = None
    """The subject has one of these tags."""
    sources: tuple[str, ...] | None = None
    """Patterns; one of them matches the name of the subject's source."""
    tools: tuple[str, ...] | None = None
    """Patterns; one of them matches the subject's id."""
    annotations: Mapping[str, bool] | None = field(default=None, hash=False)
    """The subject claims all of these values, by `HINTS`. `Rules.decide` explains how claims are used."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", read_choice(self.then, "then", EFFECTS))
        for condition, read in _CONDITIONS.items():
            if (given := getattr(self, condition)) is not None:
                if not (value := read(given, condition)):
                    raise InvalidConfig(f"{condition}: must not be empty; leave it out to match everything")
                object.__setattr__(self, condition, value)

    def is_for(self, principal: Principal) -> bool:
        """Return whether the rule applies to this principal."""
        return principal.scopes.issuperset(self.scopes or ()) and _matches(self._principals, principal.id)

    def meets(self, subject: Subject, claims: ToolAnnotations | None) -> bool:
        """Return whether `subject` matches the rule, if its annotations are `claims`."""
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
    return claims is not None and all(getattr(claims, hint) is claimed for hint, claimed in annotations.items())


def _read_patterns(value: object, where: str) -> tuple[str, ...]:
    patterns = read_strings(value, where)
    for pattern in patterns:
        check_string(pattern, where)
        if "[" in ANY.sub("", pattern):
            raise InvalidConfig(f"{where}: `{pattern}` has a `[` without a `]`; write `[[]` to match the character `[`")
    return patterns


def _read_claims(value: object, where: str) -> Mapping[str, bool]:
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{where}: must be an object")
    claims = cast("Mapping[object, object]", value)
    for hint in claims:
        if hint not in HINTS:
            raise InvalidConfig(f"{where}: unknown key `{hint}`{unknown(hint, HINTS)}")
    return {str(hint): read_flag(claimed, f"{where}.{hint}") for hint, claimed in claims.items()}


_CONDITIONS: Mapping[str, Callable[[object, str], Any]] = {
    "principals": _read_patterns,
    "scopes": read_strings,
    "paths": read_paths,
    "tags": read_strings,
    "sources": _read_patterns,
    "tools": _read_patterns,
    "annotations": _read_claims,
}
"""The conditions of a rule, each with the function that reads its value."""


@dataclass(frozen=True)
class Rules:
    """An ordered list of rules. The first rule that matches decides; if no rule matches, `otherwise` decides.

    The class is both a policy and the permissions of a principal under it.

    Raises:
        InvalidConfig: `rules` is not a list of `Rule`, or `otherwise` is not one of `Access`.
    """

    rules: tuple[Rule, ...]
    otherwise: Access

    def __post_init__(self) -> None:
        rules = cast("Sequence[Any]", self.rules)
        if not isinstance(rules, list | tuple) or not all(isinstance(rule, Rule) for rule in rules):
            raise InvalidConfig("rules: must be a list of `Rule`")
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "otherwise", read_choice(self.otherwise, "otherwise", EFFECTS))

    def permissions(self, principal: Principal) -> Rules:
        """Return the rules that apply to this principal."""
        return Rules(tuple(rule for rule in self.rules if rule.is_for(principal)), self.otherwise)

    def decide(self, subject: Subject) -> Access:
        """Return the access that the rules give to `subject`.

        If the subject is not trusted, the result is the strictest of several decisions: with and without its own tags
        and the categories that they lead to, and with every combination of annotations that it could have claimed. So
        what an untrusted source says can make the decision stricter, never less strict.
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
        """All combinations of annotations that the rules can distinguish."""
        asked = [hint for hint in HINTS if any(hint in (rule.annotations or ()) for rule in self.rules)]
        combinations = (dict(zip(asked, claimed, strict=True)) for claimed in product((False, True), repeat=len(asked)))
        return tuple(replace(NOTHING_CLAIMED, **claimed) for claimed in combinations)


def may_show(permissions: Permissions, source: str) -> bool:
    """Return whether a tool of `source` can be visible, as far as this is known before the source is listed.

    It can if an unknown tool of the source would be visible, or if a rule names a tool of it that would be.
    """
    # A pattern without a dot, for example `*push`, matches source and name together.
    named = {
        f"{source}.{ANY.sub(UNKNOWN, pattern.partition('.')[2] or pattern)}"
        for rule in (permissions.rules if isinstance(permissions, Rules) else ())
        for pattern in rule.tools or ()
    }
    subjects = (something_of(source), *(Subject(tool_id, source, ((source,),)) for tool_id in named))
    return any(permissions.decide(subject) is not Access.HIDDEN for subject in subjects)


CAREFUL = Rules((Rule(Access.CALL, annotations={"read_only": True}),), Access.ASK)
"""The policy if a person is present and no policy is set: only trusted read-only tools run without a question."""


def _pattern(globs: tuple[str, ...] | None) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(glob) for glob in globs)) if globs else None


def _matches(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is None or pattern.fullmatch(text) is not None
