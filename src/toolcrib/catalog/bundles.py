"""Bundles: named sets of tools for a purpose. A bundle only restricts what a principal can see without it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from itertools import takewhile

from toolcrib.catalog.access import UNKNOWN, Access, Permissions, Subject
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.id_patterns import Patterns, is_pattern, nearest_id
from toolcrib.catalog.view import View
from toolcrib.core.errors import BundleIncomplete, InvalidConfig, NextAction, UnknownBundle
from toolcrib.core.properties import cached_property
from toolcrib.core.schema import nearest
from toolcrib.core.tools import Tool
from toolcrib.core.values import read_strings

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def is_bundle_name(text: str) -> bool:
    """Return whether `text` has only letters, digits, `_` and `-`, because names are used in URLs without escaping."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class ToolBundle:
    """A set of tools for a purpose. A bundle without entries is empty. Source: ADR-001, "Tool Bundles".

    An entry is a tool id, a pattern of ids as for file names (`git.*`), or a name without a dot. A name matches every
    tool of any source that has it as its name or alias. A lone string counts as a list of one.

    Raises:
        InvalidConfig: the name has other characters than letters, digits, `_` and `-`, or an entry is not a string or
            is blank.
    """

    name: str
    description: str = ""
    required: tuple[str, ...] = ()
    """Entries that the purpose needs. At least one tool that can be called must match each of them."""
    optional: tuple[str, ...] = ()
    """Entries that help with the purpose."""
    includes: tuple[str, ...] = ()
    """Names of bundles whose entries are added to this one."""

    def __post_init__(self) -> None:
        if not is_bundle_name(self.name):
            raise InvalidConfig(f"`{self.name}` is not a valid bundle name: use only letters, digits, `_` and `-`")
        for key in ("required", "optional", "includes"):
            object.__setattr__(self, key, read_strings(getattr(self, key), f"{self.name}.{key}"))
        if any(not entry.strip() for entry in (*self.required, *self.optional)):
            raise InvalidConfig(f"{self.name}: an entry must be a tool id, a pattern of tool ids, or a name")


CODE_AGENT = ToolBundle(
    "code_agent",
    "What an agent needs to read, change and commit code",
    required=("file", "code_edit", "search", "navigate", "git"),
    optional=("bash", "test", "web_search"),
)

BLOG_AGENT = ToolBundle(
    "blog_agent",
    "What helps to research, write and publish a blog",
    optional=("rss_feed", "calendar", "static_links", "blog_notion", "web_search"),
)


SHIPPED = (CODE_AGENT, BLOG_AGENT)
"""Example bundles, available unless a configured bundle has the same name. Source: ADR-001, "Tool Bundles"."""


@dataclass(frozen=True)
class Contents:
    """The entries of a bundle and of all bundles that it includes. Equal contents show the same tools."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """The entries that are not required."""

    def holds(self, subject: Subject) -> bool:
        """Return whether `subject` is in the bundle. If part of its id is unknown, return whether it could be."""
        if UNKNOWN in subject.id:
            return any(_could_meet(entry, subject.id) for entry in (*self.required, *self.optional))
        return bool(self._entries_of(subject.id, subject.aliases))

    def around(self, permissions: Permissions) -> Permissions:
        """Return `permissions` limited to this bundle."""
        return _Within(self, permissions)

    def resolve(self, name: str, view: View, whole: View | None = None) -> Resolution:
        """Return which entries of the bundle `name` have tools in `view`.

        `whole` is a view of the complete catalog, which only the owner may know. It is used for diagnoses.
        """
        found = self._found(view)
        there = {tool.id: tool for entry in self.required for tool in _callable(found[entry], view)}
        more = {tool.id: tool for entry in self.optional for tool in _callable(found[entry], view)}
        beyond = self._found(whole) if whole is not None else None
        return Resolution(
            name,
            required=tuple(there[tool_id] for tool_id in sorted(there)),
            optional=tuple(more[tool_id] for tool_id in sorted(more.keys() - there)),
            missing=tuple(_missing(self.required, found, view, beyond, whole)),
            absent=tuple(_missing(self.optional, found, view, beyond, whole)),
        )

    def _found(self, view: View) -> Mapping[str, list[Tool]]:
        """Return the visible tools by the entries that match them."""
        found: defaultdict[str, list[Tool]] = defaultdict(list)
        for tool in view.tools.values():
            for entry in self._entries_of(tool.id, tool.metadata.aliases):
                found[entry].append(tool)
        return found

    def _entries_of(self, subject_id: str, aliases: Collection[str]) -> dict[str, None]:
        names = (subject_id.partition(".")[2], *aliases)
        return dict.fromkeys((*(name for name in names if name in self._names), *self._patterns.of(subject_id)))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(entry for entry in (*self.required, *self.optional) if _is_bare(entry))

    @cached_property
    def _patterns(self) -> Patterns[str]:
        return Patterns((entry, entry) for entry in (*self.required, *self.optional) if not _is_bare(entry))


NOTHING = Contents()
"""The contents of an unknown bundle."""


@dataclass(frozen=True)
class _Within:
    """The permissions of a principal within a bundle. Tools outside of the bundle are hidden."""

    contents: Contents
    permissions: Permissions

    def decide(self, subject: Subject) -> Access:
        return self.permissions.decide(subject) if self.contents.holds(subject) else Access.HIDDEN


@dataclass(frozen=True)
class _Besides:
    """The permissions of a principal within a bundle, in a session with its own sources."""

    within: _Within
    own: frozenset[str]
    """The names of the session's own sources, which the bundle does not restrict."""

    def decide(self, subject: Subject) -> Access:
        permissions: Permissions = self.within
        while subject.source in self.own and isinstance(permissions, _Within):
            permissions = permissions.permissions
        return permissions.decide(subject)


def besides(permissions: Permissions, own: Iterable[str]) -> Permissions:
    """Return `permissions` for a session with its `own` sources. Bundles restrict the catalog, not these sources."""
    return _Besides(permissions, frozenset(own)) if isinstance(permissions, _Within) else permissions


class Absence(StrEnum):
    """Why no tool matches an entry, as far as callers may know."""

    UNKNOWN = "unknown"
    """No tool matches, or all tools that match are hidden."""
    STARTING = "starting"
    """A source that could have a matching tool has not listed its tools yet."""
    UNAVAILABLE = "unavailable"
    """The matching tool, or its source, cannot be used."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An entry that no tool matches."""

    entry: str
    absence: Absence
    why: str
    """The reason, for any caller. A hidden tool is reported as unknown."""
    diagnosis: str
    """The reason, for the owner."""
    may_come: bool = False
    """Whether a matching tool can appear without any action."""

    def to_wire(self) -> dict[str, str]:
        return {"entry": self.entry, "absence": self.absence.value, "why": self.why}


@dataclass(frozen=True)
class Resolution:
    """Which entries of a bundle have tools. Tools are sorted by id; entries are in their order."""

    name: str
    required: tuple[Tool, ...]
    """The tools that match a required entry and can be called."""
    optional: tuple[Tool, ...]
    """The other tools that can be called."""
    missing: tuple[Missing, ...]
    """The required entries without a tool."""
    absent: tuple[Missing, ...]
    """The optional entries without a tool."""

    def check(self) -> None:
        """Check that every required entry has a tool.

        Raises:
            BundleIncomplete: an entry has no tool; the error names all such entries.
        """
        if not self.missing:
            return
        raise BundleIncomplete(
            f"The bundle `{self.name}` is missing required tools: "
            f"{_entries_with_reasons((each.entry, each.why) for each in self.missing)}.",
            diagnosis=_entries_with_reasons((each.entry, each.diagnosis) for each in self.missing),
            next_action=NextAction("list"),
            retryable=all(each.may_come for each in self.missing),
            details={"missing": [each.to_wire() for each in self.missing]},
        )


class Bundles:
    """All bundles by name, checked. The shipped bundles can be used by name in addition to the configured ones."""

    def __init__(self, given: Iterable[ToolBundle] = ()) -> None:
        """Check the configured bundles, given in any order.

        Raises:
            InvalidConfig: two bundles have the same name, or one includes an unknown bundle or, directly or indirectly,
                itself.
        """
        self.given = tuple(given)
        self._by_name: dict[str, ToolBundle] = {}
        for bundle in self.given:
            if bundle.name in self._by_name:
                raise InvalidConfig(f"duplicate bundle name `{bundle.name}`")
            self._by_name[bundle.name] = bundle
        self._by_name = {**{bundle.name: bundle for bundle in SHIPPED}, **self._by_name}
        for bundle in self.given:
            for name in bundle.includes:
                if name not in self._by_name:
                    raise InvalidConfig(f"{bundle.name}: includes unknown bundle `{name}`{self._meant(name)}")
        self._contents: dict[str, Contents] = {}
        for bundle in self._by_name.values():
            self._flatten(bundle, ())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[ToolBundle]:
        """Yield the configured bundles, sorted by name."""
        return iter(sorted(self.given, key=lambda bundle: bundle.name))

    @property
    def all(self) -> tuple[ToolBundle, ...]:
        """The configured bundles, sorted by name, then the shipped ones."""
        shipped = (bundle for bundle in SHIPPED if self._by_name[bundle.name] is bundle)
        return (*self, *(bundle for bundle in shipped if bundle not in self.given))

    def __getitem__(self, name: str) -> ToolBundle:
        """Return the bundle `name`.

        Raises:
            UnknownBundle: no bundle has this name; the hints name the closest.
        """
        if (bundle := self._by_name.get(name)) is None:
            raise self.unknown(name)
        return bundle

    def contents(self, name: str) -> Contents:
        """Return the contents of the bundle `name`.

        Raises:
            UnknownBundle: no bundle has this name; the hints name the closest.
        """
        if (contents := self._contents.get(name)) is None:
            raise self.unknown(name)
        return contents

    def _flatten(self, bundle: ToolBundle, way: tuple[str, ...]) -> Contents:
        if (known := self._contents.get(bundle.name)) is not None:
            return known
        if bundle.name in way:
            cycle = (*way[way.index(bundle.name) :], bundle.name)
            raise InvalidConfig(f"a bundle cannot include itself: {' > '.join(cycle)}")
        inner = [self._flatten(self._by_name[name], (*way, bundle.name)) for name in bundle.includes]
        required = dict.fromkeys((*bundle.required, *(entry for each in inner for entry in each.required)))
        optional = dict.fromkeys((*bundle.optional, *(entry for each in inner for entry in each.optional)))
        contents = Contents(tuple(required), tuple(entry for entry in optional if entry not in required))
        self._contents[bundle.name] = contents
        return contents

    def unknown(self, name: str, seen: Callable[[str], bool] | None = None) -> UnknownBundle:
        """Return the error for the unknown bundle `name`. Its hints name only bundles for which `seen` returns True."""
        shown = [each for each in self._by_name if seen is None or seen(each)]
        known = ", ".join(f"`{bundle.name}`" for bundle in self if bundle.name in shown)
        near = nearest(name, shown)
        return UnknownBundle(
            f"Bundle `{name[:200]}` not found.",
            hints=[
                f"Did you mean `{near}`?"
                if near is not None
                else f"Known bundles: {known}"
                if known
                else "No bundle is configured."
            ],
        )

    def _meant(self, name: str) -> str:
        near = nearest(name, self._by_name)
        return f" (did you mean `{near}`?)" if near is not None else ""


NO_BUNDLES = Bundles()


def _is_bare(entry: str) -> bool:
    return "." not in entry and not is_pattern(entry)


def _callable(tools: Iterable[Tool], view: View) -> list[Tool]:
    return [tool for tool in tools if tool.id not in view.unavailable]


def _missing(
    entries: Sequence[str],
    found: Mapping[str, list[Tool]],
    view: View,
    beyond: Mapping[str, list[Tool]] | None,
    whole: View | None,
) -> Iterator[Missing]:
    """Yield the entries without a tool that can be called. `found` is from `view`, and `beyond` from `whole`."""
    for entry in entries:
        tools = found.get(entry, [])
        if _callable(tools, view):
            continue
        absence, why, may_come = _absence(entry, tools, view)
        diagnosis = why
        if whole is not None and beyond is not None:
            there = beyond.get(entry, [])
            is_hidden = bool(_callable(there, whole))
            diagnosis = f"hidden from `{view.principal.id}`" if is_hidden else _absence(entry, there, whole)[1]
        yield Missing(entry, absence, why, diagnosis, may_come)


def _absence(entry: str, tools: Sequence[Tool], view: View) -> tuple[Absence, str, bool]:
    """Return why no tool that can be called matches `entry`, as a code and in words, and whether that can change.

    `tools` are the visible tools that match it.
    """
    if tools:
        return Absence.UNAVAILABLE, _clause(view.unavailable[tools[0].id]), False
    possible = [source for name, source in view.sources.items() if _could_meet(entry, f"{name}.{UNKNOWN}")]
    if starting := [source.name for source in possible if source.status is SourceStatus.STARTING]:
        return Absence.STARTING, f"still starting: {_listed(starting)}", True
    failed = [source for source in possible if source.status is SourceStatus.FAILED]
    is_of_one = not _is_bare(entry) and not is_pattern(entry.partition(".")[0])
    if failed and is_of_one:
        return Absence.UNAVAILABLE, _failure(failed[0]), not failed[0].is_lasting
    if failed:
        failures = "; ".join(map(_failure, failed))
        may_come = any(not source.is_lasting for source in failed)
        return Absence.UNKNOWN, f"not found, but some sources are unavailable: {failures}", may_come
    near = None if is_pattern(entry) else nearest_id(entry, view.tools)
    return Absence.UNKNOWN, "not found" + (f" (did you mean `{near}`?)" if near is not None else ""), False


def _failure(source: SourceEntry) -> str:
    return f"`{source.name}` is unavailable: {_clause(source.reason or 'unknown reason')}"


def _clause(text: str) -> str:
    return text.rstrip(". ")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _entries_with_reasons(entries: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"`{entry}`: {why}" for entry, why in entries)


_TOKEN = re.compile(r"\*|\?|\[!?+\]?+[^\]]*\]|.", re.DOTALL)
"""The parts of a pattern, as `fnmatch` reads them."""


def _could_meet(entry: str, subject_id: str) -> bool:
    """Return whether `entry` could match an id that has any characters in the place of each `UNKNOWN`."""
    if _is_bare(entry):  # the name or the aliases of the tool are unknown, so the entry could match
        return True
    tokens = _TOKEN.findall(entry)
    live = _onward({0}, tokens)
    for character in subject_id:
        if not live:
            return False
        if character == UNKNOWN:
            live = set(range(min(live), len(tokens) + 1))
            continue
        taken = (at for at in live if at < len(tokens) and re.fullmatch(translate(tokens[at]), character))
        live = _onward({at if tokens[at] == "*" else at + 1 for at in taken}, tokens)
    return len(tokens) in live


def _onward(live: set[int], tokens: Sequence[str]) -> set[int]:
    """Return the positions in a pattern that can be reached from `live` without reading a character."""
    reached: set[int] = set()
    for start in live:
        stars = takewhile(lambda at: tokens[at] == "*", range(start, len(tokens)))
        reached.update((start, *(at + 1 for at in stars)))
    return reached
