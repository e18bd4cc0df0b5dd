"""Decides which tool definitions are shown, from the pins, the pin policy and the definitions that sources offer."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

import anyio
from anyio import to_thread

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.core.properties import renamed
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift import (
    DEFAULT_PINS,
    FIRST,
    Approved,
    Judgement,
    Neighbours,
    Origin,
    PinPolicy,
    Verdict,
    Version,
    drift_between,
)
from toolcrib.definitions.drift.definition_json import read, written
from toolcrib.definitions.drift.judging import is_still_right
from toolcrib.definitions.pins import Pin, PinStore, Seen, gone_for_long

logger = logging.getLogger(__name__)

_JUDGING = 2
"""How many listings are judged at the same time."""

COMPARING_S = 20.0
"""How long the definitions of one listing are compared, in seconds. Changes that are found later count as breaking."""

LARGE_BYTES = 50_000
"""From this size on, a definition is checked for suspicious text when it is listed; a smaller one, when it is shown."""

_EARLIER = 4
"""How many earlier definitions of a tool are remembered, because clients may still have handles for them."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is stored about the tools of one source."""

    approved: Mapping[str, Approved]
    """The pinned definitions, by tool name."""
    seen: Mapping[str, Seen]
    """The last seen definitions, by tool name."""
    is_readable: bool = True
    """Whether the pins could be read."""


@dataclass(frozen=True, slots=True)
class _Patience:
    """The time limit for comparing the definitions of one listing."""

    until: float

    @classmethod
    def begun(cls) -> _Patience:
        return cls(time.monotonic() + COMPARING_S)

    @property
    def lasts(self) -> bool:
        return time.monotonic() < self.until


class DefinitionGuard:
    """Decides which tool definitions are shown. Sources without a known origin (`entry.origin` empty) are not checked.

    The store counts the versions of definitions. Without a store, or while it cannot be used, versions are counted only
    while the program runs.
    """

    def __init__(self, store: PinStore | None = None) -> None:
        self.policy: PinPolicy = DEFAULT_PINS
        self._problems: dict[tuple[str, str], str] = {}
        """By source and origin, why the pins are not known."""
        self._unread: set[tuple[str, str]] = set()
        """The sources and origins for which the store could not be read."""
        self._store = store
        self._seen: dict[tuple[str, str], dict[str, Seen]] = {}
        """By source and origin, the last seen definitions that are not in the store."""
        self._shown: dict[tuple[str, str], dict[str, tuple[Tool, ...]]] = {}
        """By source and origin, the last shown definitions of each tool, by tool name, latest first."""
        self._offered: dict[str, tuple[Tool, ...]] = {}
        """The last listing of each source that is judged."""
        self._last_neighbours: tuple[list[tuple[Tool, ...]], Neighbours] | None = None
        """The listings and their `Neighbours`, cached until a listing changes."""
        self._judged_by: object = None
        """What the last judgements depended on; see `_goes_by`."""
        self._threads = anyio.CapacityLimiter(_JUDGING)
        """A separate limiter, so that a definition that takes long to compare blocks nothing else."""

    @property
    def problem(self) -> str | None:
        """Why the pins of a source cannot be read; None if all can be read."""
        return next(iter(self._problems.values()), None)

    async def judge(self, entry: SourceEntry, tools: Iterable[Tool]) -> Mapping[str, Judgement]:
        """Judge the tools of a source; see `toolcrib.catalog.intake.Judge`."""
        if not entry.origin:
            return {}
        offered, given_up = tuple(tools), Event()
        judge = partial(self._judge, entry, offered, given_up)
        try:
            # `abandon_on_cancel`, so that stopping does not wait: many large definitions take seconds.
            return await to_thread.run_sync(judge, limiter=self._threads, abandon_on_cancel=True)
        finally:
            given_up.set()

    async def has_changed(self) -> bool:
        """Return whether judgements can have changed since the last call of this method."""
        now, reads_again = await to_thread.run_sync(
            lambda: (self._goes_by(), self._reads_again()), limiter=self._threads
        )
        turned, self._judged_by = reads_again or now != self._judged_by, now
        return turned

    def pin(self, judgements: Iterable[tuple[SourceEntry, Judgement]], by: str) -> None:
        """Pin the definitions that these sources offer now.

        Raises:
            OSError, sqlite3.Error: the pins cannot be stored.
            ValueError: this guard has no store.
        """
        self._writable().put(_pin(entry, each, by) for entry, each in judgements)

    def unpin(self, pins: Iterable[Pin], by: str) -> None:
        """Remove these pins.

        Raises:
            OSError, sqlite3.Error: the change cannot be stored.
            ValueError: this guard has no store.
        """
        self._writable().put(Pin(pin.source, pin.origin, pin.shown, pin.name, None, pin.version, by) for pin in pins)

    approve = renamed("approve", pin)
    withdraw = renamed("withdraw", unpin)

    def _writable(self) -> PinStore:
        if self._store is None:
            raise ValueError("pins cannot be stored, because no pin store was given")
        return self._store

    def _goes_by(self) -> object:
        """Return what judgements depend on in addition to the tools of their own source."""
        stamp = None
        if self._store is not None:
            try:
                stamp = self._store.stamp()
            except (OSError, sqlite3.Error) as error:
                stamp = str(error)
        names = None
        if self.policy.suspicious is Verdict.QUARANTINE:
            names = frozenset(tool.id for tools in [*self._offered.values()] for tool in tools)
        return stamp, self.policy, names

    def _reads_again(self) -> bool:
        """Return whether the store can be read again after a failure. The stamp does not show that a lock has ended."""
        for key in [*self._unread]:
            try:
                _ = self._writable().of(*key), self._writable().seen(*key)
            except (OSError, sqlite3.Error):
                continue
            self._unread.discard(key)  # here, because its source may be gone and is then not judged again
            self._note(key, None)
            return True
        return False

    def _judge(self, entry: SourceEntry, tools: tuple[Tool, ...], given_up: Event) -> Mapping[str, Judgement]:
        if self._judged_by is None:
            self._judged_by = self._goes_by()
        patience = _Patience.begun()
        definitions = {tool.name: written(tool) for tool in tools}
        known = self._known(entry, tools, definitions)
        versions = self._counted(entry, tools, definitions, known, patience)
        self._offered[entry.name] = tools
        origin = Origin(entry.address, is_pinned=bool(known.approved), is_known=known.is_readable)
        found: dict[str, Judgement] = {}
        for tool in tools:
            if given_up.is_set():
                return {}
            found[tool.name] = judgement = Judgement(
                tool,
                known.approved.get(tool.name),
                origin,
                self.policy,
                versions[tool.name],
                compares=patience.lasts,
                neighbours=self._neighbours,
            )
            _ = judgement.shown  # decide now and not in the first request, because a hostile definition can take long
            if len(definitions[tool.name]) > LARGE_BYTES:
                _ = judgement.warnings
        return self._with_covered(entry, found, patience) if self.policy.takes_older else found

    def _neighbours(self) -> Neighbours:
        """Return the names of all tools of all judged sources, including hidden tools."""
        offered, known = [*self._offered.values()], self._last_neighbours
        is_as_before = known is not None and [*map(id, known[0])] == [*map(id, offered)]
        if known is None or not is_as_before:
            known = self._last_neighbours = offered, Neighbours.of(tool for tools in offered for tool in tools)
        return known[1]

    def _with_covered(
        self, entry: SourceEntry, found: Mapping[str, Judgement], patience: _Patience
    ) -> Mapping[str, Judgement]:
        before = self._shown.get((entry.name, entry.origin), {})
        shown: dict[str, tuple[Tool, ...]] = {}
        judgements: dict[str, Judgement] = {}
        for name, judgement in found.items():
            tool, judgements[name] = judgement.shown, judgement
            if tool is None:
                continue
            others = tuple(each for each in before.get(name, ()) if each.fingerprint != tool.fingerprint)[:_EARLIER]
            shown[name] = (tool, *others)
            drifts = [drift_between(each, tool, compares=patience.lasts) for each in others]
            covered = tuple(each for each, drift in zip(others, drifts, strict=True) if is_still_right(drift))
            judgements[name] = replace(judgement, covered=covered)
        self._shown[entry.name, entry.origin] = shown
        return judgements

    def _known(self, entry: SourceEntry, tools: Iterable[Tool], definitions: Mapping[str, bytes]) -> _Known:
        """Read what the store has about a source. If it cannot be read, log that once."""
        key = entry.name, entry.origin
        here = self._seen.setdefault(key, {})
        if self._store is None:
            return _Known({}, here)
        try:
            pins = self._store.of(*key)
            same = {tool.name: tool for tool in tools}
            same = {pin.name: same[pin.name] for pin in pins if definitions.get(pin.name) == pin.definition}
            known = _Known(
                {pin.name: _approved(entry, pin, same.get(pin.name)) for pin in pins},
                {**here, **{each.name: each for each in self._store.seen(*key)}},
            )
        except (OSError, sqlite3.Error, ValueError) as error:
            if not isinstance(error, ValueError):
                self._unread.add(key)
            self._note(key, f"{self._store.path}: {error}")
            return _Known({}, here, is_readable=False)
        self._note(key, None)
        return known

    def _note(self, key: tuple[str, str], problem: str | None) -> None:
        before = self.problem
        self._problems.pop(key, None)
        if problem is not None:
            self._problems[key] = problem
        if self.problem == before:
            return
        if self.problem is not None:
            logger.warning("the pins cannot be read, so nothing counts as pinned: %s", self.problem)
        else:
            logger.warning("the pins can be read again")

    def _counted(
        self,
        entry: SourceEntry,
        tools: Iterable[Tool],
        definitions: Mapping[str, bytes],
        known: _Known,
        patience: _Patience,
    ) -> Mapping[str, Version]:
        """Return the version of each tool, by name, and store new versions."""
        versions: dict[str, Version] = {}
        new: list[Seen] = []
        for tool in tools:
            seen, definition = known.seen.get(tool.name), definitions[tool.name]
            versions[tool.name] = FIRST if seen is None else _next(entry.name, seen, tool, definition, patience)
            if (now := Seen(tool.name, definition, str(versions[tool.name]))) != seen:
                new.append(now)
        self._keep(entry, new, definitions)
        return versions

    def _keep(self, entry: SourceEntry, new: list[Seen], offered: Collection[str]) -> None:
        key = entry.name, entry.origin
        if new and self._store is not None and key not in self._problems:
            try:
                self._store.see(*key, new, offered)
            except (OSError, sqlite3.Error) as error:
                logger.warning("versions of definitions cannot be stored: %s: %s", self._store.path, error)
            else:
                return
        here = self._seen[key]
        here.update((each.name, each) for each in new)
        for name in gone_for_long([(name, len(each.definition)) for name, each in reversed(here.items())], offered):
            del here[name]


def _pin(entry: SourceEntry, judgement: Judgement, by: str) -> Pin:
    tool, version = judgement.tool, str(judgement.version or FIRST)
    return Pin(entry.name, entry.origin, entry.address, tool.name, written(tool), version, by)


def _approved(entry: SourceEntry, pin: Pin, same: Tool | None) -> Approved:
    """Return the pinned definition as a tool of `entry`. `same` is an offered tool with the same bytes, if any.

    Raises:
        ValueError: the pin cannot be read.
    """
    origin = pin.shown
    if pin.origin != entry.origin and origin == entry.address:
        # The origins differ in a part that is not shown, for example a key.
        origin = f"{origin} ({pin.origin[:8]})"
    if pin.origin == entry.origin:
        origin = entry.address  # the address as it is shown now, which can differ from the stored one
    tool = same if same is not None else read(entry.name, pin.definition or b"")
    return Approved(tool, Version.parse(pin.version), origin)


def _next(source: str, seen: Seen, tool: Tool, definition: bytes, patience: _Patience) -> Version:
    try:
        version = Version.parse(seen.version)
        if seen.definition == definition:
            return version
        return version.after(drift_between(read(source, seen.definition), tool, compares=patience.lasts))
    except ValueError:  # the stored version or definition cannot be read
        return FIRST
