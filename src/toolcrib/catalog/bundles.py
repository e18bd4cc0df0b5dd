"""Bundles: named sets of tools for a purpose, each a filter of what somebody may see anyway."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from itertools import takewhile

from toolcrib.catalog.access import UNKNOWN, Access, Permissions, Subject
from toolcrib.catalog.patterns import Patterns, is_pattern, nearest_id
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import BundleIncomplete, InvalidConfig, NextAction, UnknownBundle
from toolcrib.core.properties import cached_property
from toolcrib.core.schema import nearest
from toolcrib.core.tools import Tool
from toolcrib.core.values import read_strings

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def is_bundle_name(text: str) -> bool:
    """Letters, digits, `_` and `-` alone: a name stands in a URL as it is."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class ToolBundle:
    """A set of tools for a purpose. One without entries holds nothing. Source: ADR-001, "Tool Bundles".

    An entry is the id of a tool, a pattern of ids as file names have them (`git.*`), or a name without a dot, which
    means every tool that is called so, or has it as an alias, in any source. A lone string
    counts as a list of one.

    Raises:
        InvalidConfig: its name is not plain, or its entries are not strings, or blank.
    """

    name: str
    description: str = ""
    required: tuple[str, ...] = ()
    """Entries without which the purpose cannot be served: of each, one tool at least has to be there."""
    optional: tuple[str, ...] = ()
    """Entries that serve it better."""
    includes: tuple[str, ...] = ()
    """Names of bundles whose entries are its own as well."""

    def __post_init__(self) -> None:
        if not is_bundle_name(self.name):
            raise InvalidConfig(f"`{self.name}` cannot name a bundle; letters, digits, `_` and `-` can")
        for key in ("required", "optional", "includes"):
            object.__setattr__(self, key, read_strings(getattr(self, key), f"{self.name}.{key}"))
        if any(not entry.strip() for entry in (*self.required, *self.optional)):
            raise InvalidConfig(f"{self.name}: an id of a tool, a pattern of ids or a name is expected here")


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
"""Examples that are there without being set up, unless another has the name. Source: ADR-001, "Tool Bundles"."""


@dataclass(frozen=True)
class Contents:
    """The entries of a bundle with those of all that it includes; two that are equal show the same."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Those that are not required."""

    def holds(self, subject: Subject) -> bool:
        """Whether `subject` is in it; for one of which something is unknown, whether it could be."""
        if UNKNOWN in subject.id:
            return any(_could_meet(entry, subject.id) for entry in (*self.required, *self.optional))
        return bool(self._entries_of(subject.id, subject.aliases))

    def around(self, permissions: Permissions) -> Permissions:
        """Those of somebody with `permissions` within it."""
        return _Within(self, permissions)

    def look(self, name: str, view: View, whole: View | None = None) -> Resolution:
        """What is there of it, the bundle `name`, in `view`; `whole` is all there is, which only the owner may know."""
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
        """The visible tools by the entries that they meet."""
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
"""Those of a bundle that nobody knows."""


@dataclass(frozen=True)
class _Within:
    """What somebody may do with the tools of a bundle; nothing else exists there."""

    contents: Contents
    permissions: Permissions

    def decide(self, subject: Subject) -> Access:
        return self.permissions.decide(subject) if self.contents.holds(subject) else Access.HIDDEN


@dataclass(frozen=True)
class _Besides:
    """What somebody may do with the tools of a bundle, and with all that belongs to the session alone."""

    within: _Within
    own: frozenset[str]
    """Names of the session's own sources."""

    def decide(self, subject: Subject) -> Access:
        permissions: Permissions = self.within
        while subject.source in self.own and isinstance(permissions, _Within):
            permissions = permissions.permissions
        return permissions.decide(subject)


def besides(permissions: Permissions, own: Iterable[str]) -> Permissions:
    """`permissions` of a session with sources of its `own`: bundles are of the catalog, and keep none of them out."""
    return _Besides(permissions, frozenset(own)) if isinstance(permissions, _Within) else permissions


class Absence(StrEnum):
    """Why nothing is there that meets an entry, as far as anybody may know."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    """A source that could have it has not listed its tools yet."""
    UNAVAILABLE = "unavailable"
    """It, or the source whose it is, cannot be used."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An entry that nothing meets."""

    entry: str
    absence: Absence
    why: str
    """In words that any caller may read: what is hidden from it reads as what is unknown."""
    diagnosis: str
    """The same for the owner."""
    may_come: bool = False
    """Whether it may be there later without anybody doing anything."""

    def to_wire(self) -> dict[str, str]:
        return {"entry": self.entry, "absence": self.absence.value, "why": self.why}


@dataclass(frozen=True)
class Resolution:
    """What is there of a bundle. Tools by id, entries in their order."""

    name: str
    required: tuple[Tool, ...]
    """Tools that can be called and meet a required entry."""
    optional: tuple[Tool, ...]
    """The others that can be called."""
    missing: tuple[Missing, ...]
    """Required entries that none of them meets."""
    absent: tuple[Missing, ...]
    """Optional ones."""

    def check(self) -> None:
        """Pass where nothing is missing.

        Raises:
            BundleIncomplete: something is; all of it is named.
        """
        if not self.missing:
            return
        raise BundleIncomplete(
            f"The bundle `{self.name}` is incomplete: {_told((each.entry, each.why) for each in self.missing)}.",
            diagnosis=_told((each.entry, each.diagnosis) for each in self.missing),
            next_action=NextAction("list"),
            retryable=all(each.may_come for each in self.missing),
            details={"missing": [each.to_wire() for each in self.missing]},
        )


class Bundles:
    """All of them by name, checked; beside those that are set up, the shipped ones are there for whoever names them."""

    def __init__(self, given: Iterable[ToolBundle] = ()) -> None:
        """In any order.

        Raises:
            InvalidConfig: two have the same name, one includes one that is not there, or itself by some way.
        """
        self.given = tuple(given)
        self._by_name: dict[str, ToolBundle] = {}
        for bundle in self.given:
            if bundle.name in self._by_name:
                raise InvalidConfig(f"two bundles are named `{bundle.name}`")
            self._by_name[bundle.name] = bundle
        self._by_name = {**{bundle.name: bundle for bundle in SHIPPED}, **self._by_name}
        for bundle in self.given:
            for name in bundle.includes:
                if name not in self._by_name:
                    raise InvalidConfig(f"{bundle.name}: there is no bundle `{name}` to include{self._meant(name)}")
        self._contents: dict[str, Contents] = {}
        for bundle in self._by_name.values():
            self._flatten(bundle, ())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[ToolBundle]:
        """Those that are set up, by name."""
        return iter(sorted(self.given, key=lambda bundle: bundle.name))

    @property
    def all(self) -> tuple[ToolBundle, ...]:
        """Those that are set up, by name, then the shipped ones."""
        shipped = (bundle for bundle in SHIPPED if self._by_name[bundle.name] is bundle)
        return (*self, *(bundle for bundle in shipped if bundle not in self.given))

    def __getitem__(self, name: str) -> ToolBundle:
        """Raises `UnknownBundle`, as `contents` does."""
        if (bundle := self._by_name.get(name)) is None:
            raise self.unknown(name)
        return bundle

    def contents(self, name: str) -> Contents:
        """What the bundle `name` holds.

        Raises:
            UnknownBundle: there is none of this name; hints name the nearest.
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
        """The error for `name`, which no bundle has. Its hints name only bundles that `seen` lets through."""
        shown = [each for each in self._by_name if seen is None or seen(each)]
        known = ", ".join(f"`{bundle.name}`" for bundle in self if bundle.name in shown)
        near = nearest(name, shown)
        return UnknownBundle(
            f"There is no bundle `{name[:200]}`.",
            hints=[f"Closest: `{near}`" if near is not None else f"Known are: {known}" if known else "None is set up."],
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
    """Those of `entries` that no tool of `found`, which are those of `view`, meets; `beyond` are those of `whole`."""
    for entry in entries:
        tools = found.get(entry, [])
        if _callable(tools, view):
            continue
        absence, why, may_come = _absence(entry, tools, view)
        diagnosis = why
        if whole is not None and beyond is not None:
            there = beyond.get(entry, [])
            is_hidden = bool(_callable(there, whole))
            diagnosis = f"it is hidden from `{view.principal.id}`" if is_hidden else _absence(entry, there, whole)[1]
        yield Missing(entry, absence, why, diagnosis, may_come)


def _absence(entry: str, tools: Sequence[Tool], view: View) -> tuple[Absence, str, bool]:
    """Why nothing that can be called meets `entry`, in words, and whether it may come by itself; `tools` meet it."""
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
        told = "; ".join(map(_failure, failed))
        may_come = any(not source.is_lasting for source in failed)
        return Absence.UNKNOWN, f"it is unknown, and not all can be listed: {told}", may_come
    near = None if is_pattern(entry) else nearest_id(entry, view.tools)
    return Absence.UNKNOWN, "it is unknown" + (f" (did you mean `{near}`?)" if near is not None else ""), False


def _failure(source: SourceEntry) -> str:
    return f"`{source.name}` is unavailable: {_clause(source.reason or 'nobody knows why')}"


def _clause(text: str) -> str:
    return text.rstrip(". ")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _told(entries: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"`{entry}`: {why}" for entry, why in entries)


_TOKEN = re.compile(r"\*|\?|\[!?+\]?+[^\]]*\]|.", re.DOTALL)
"""What a pattern is made of, each as `fnmatch` reads it."""


def _could_meet(entry: str, subject_id: str) -> bool:
    """Whether something could meet `entry` whose id has any characters in the place of each `UNKNOWN`."""
    if _is_bare(entry):  # its name is unknown, or else its aliases are
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
    """The places in a pattern that `live` lead to without a further character."""
    reached: set[int] = set()
    for start in live:
        stars = takewhile(lambda at: tokens[at] == "*", range(start, len(tokens)))
        reached.update((start, *(at + 1 for at in stars)))
    return reached
