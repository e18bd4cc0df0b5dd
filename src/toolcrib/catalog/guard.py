"""Which tools may be shown and as what, given what people approved of: it follows the store and the policy."""

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

from toolcrib.catalog.state import SourceEntry
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
from toolcrib.definitions.drift.judging import is_still_right
from toolcrib.definitions.drift.kept import read, written
from toolcrib.definitions.pins import Pin, PinStore, Seen, gone_for_long

logger = logging.getLogger(__name__)

_JUDGING = 2
"""Listings that are judged at once."""

COMPARING_S = 20.0
"""For how long the definitions of one listing are compared; what a stranger changed beyond that counts as breaking."""

LARGE_BYTES = 50_000
"""Of a definition that nobody who is shown it is to wait for; what is suspicious in others is looked for then."""

_EARLIER = 4
"""Definitions of one tool that were shown before it, and whose handles may be out."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the tools of one source besides what it offers."""

    approved: Mapping[str, Approved]
    """By name."""
    seen: Mapping[str, Seen]
    """Likewise."""
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class _Patience:
    """For the definitions of one listing."""

    until: float

    @classmethod
    def begun(cls) -> _Patience:
        return cls(time.monotonic() + COMPARING_S)

    @property
    def lasts(self) -> bool:
        return time.monotonic() < self.until


class Guard:
    """Judges what sources offer, but for those of which nobody can say what is behind them.

    Versions are counted in the store; without one, or while it cannot be used, as long as the program lasts.
    """

    def __init__(self, store: PinStore | None = None) -> None:
        self.policy: PinPolicy = DEFAULT_PINS
        self._problems: dict[tuple[str, str], str] = {}
        """By source and origin, why what was approved is not known."""
        self._unread: set[tuple[str, str]] = set()
        """Those of which the store could not be read."""
        self._store = store
        self._seen: dict[tuple[str, str], dict[str, Seen]] = {}
        """By source and origin, what the store does not hold."""
        self._shown: dict[tuple[str, str], dict[str, tuple[Tool, ...]]] = {}
        """Likewise, by name what was shown last of each tool, the latest first."""
        self._offered: dict[str, tuple[Tool, ...]] = {}
        """The last listing of each source that is judged."""
        self._last_neighbours: tuple[list[tuple[Tool, ...]], Neighbours] | None = None
        """Those of these listings, as long as they are the last."""
        self._judged_by: object = None
        """What the last judgements went by."""
        self._threads = anyio.CapacityLimiter(_JUDGING)
        """Of their own: a definition that takes long to compare holds up nothing else."""

    @property
    def problem(self) -> str | None:
        """Why what was approved of some source is not known; None while all is."""
        return next(iter(self._problems.values()), None)

    async def judge(self, entry: SourceEntry, tools: Iterable[Tool]) -> Mapping[str, Judgement]:
        """See `toolcrib.catalog.intake.Judge`."""
        if not entry.origin:
            return {}
        offered, given_up = tuple(tools), Event()
        judge = partial(self._judge, entry, offered, given_up)
        try:
            # Not waited for when the source leaves or the program stops: many large definitions take seconds.
            return await to_thread.run_sync(judge, limiter=self._threads, abandon_on_cancel=True)
        finally:
            given_up.set()

    async def has_turned(self) -> bool:
        """Whether what was judged since this was asked last may be judged otherwise by now."""
        now, reads_again = await to_thread.run_sync(
            lambda: (self._goes_by(), self._reads_again()), limiter=self._threads
        )
        turned, self._judged_by = reads_again or now != self._judged_by, now
        return turned

    def approve(self, judgements: Iterable[tuple[SourceEntry, Judgement]], by: str) -> None:
        """Have what these sources offer approved of as it is.

        Raises:
            OSError, sqlite3.Error: it cannot be kept.
            ValueError: no store was given.
        """
        self._kept().put(_pin(entry, each, by) for entry, each in judgements)

    def withdraw(self, pins: Iterable[Pin], by: str) -> None:
        """Have these approvals end; raises as `approve` does."""
        self._kept().put(Pin(pin.source, pin.origin, pin.shown, pin.name, None, pin.version, by) for pin in pins)

    def _kept(self) -> PinStore:
        if self._store is None:
            raise ValueError("nothing keeps what is approved: no store of pins was given")
        return self._store

    def _goes_by(self) -> object:
        """What judgements go by besides the tools of their own source."""
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
        """Whether the store can be read by now where it could not: that it was locked for a moment leaves no trace."""
        for place in [*self._unread]:
            try:
                _ = self._kept().of(*place), self._kept().seen(*place)
            except (OSError, sqlite3.Error):
                continue
            self._unread.discard(place)  # its source may be gone
            self._note(place, None)
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
            _ = judgement.shown  # decided here and not by the first who asks: a stranger's definition may take long
            if len(definitions[tool.name]) > LARGE_BYTES:
                _ = judgement.warnings
        return self._with_covered(entry, found, patience) if self.policy.takes_older else found

    def _neighbours(self) -> Neighbours:
        """The names of all tools that any judged source offers, hidden ones too."""
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
        """What the store holds; where it cannot be used, that is logged once."""
        place = entry.name, entry.origin
        here = self._seen.setdefault(place, {})
        if self._store is None:
            return _Known({}, here)
        try:
            pins = self._store.of(*place)
            same = {tool.name: tool for tool in tools}
            same = {pin.name: same[pin.name] for pin in pins if definitions.get(pin.name) == pin.definition}
            known = _Known(
                {pin.name: _approved(entry, pin, same.get(pin.name)) for pin in pins},
                {**here, **{each.name: each for each in self._store.seen(*place)}},
            )
        except (OSError, sqlite3.Error, ValueError) as error:
            if not isinstance(error, ValueError):
                self._unread.add(place)
            self._note(place, f"{self._store.path}: {error}")
            return _Known({}, here, is_readable=False)
        self._note(place, None)
        return known

    def _note(self, place: tuple[str, str], problem: str | None) -> None:
        before = self.problem
        self._problems.pop(place, None)
        if problem is not None:
            self._problems[place] = problem
        if self.problem == before:
            return
        if self.problem is not None:
            logger.warning("what was approved cannot be read, and nothing counts as approved: %s", self.problem)
        else:
            logger.warning("what was approved can be read again")

    def _counted(
        self,
        entry: SourceEntry,
        tools: Iterable[Tool],
        definitions: Mapping[str, bytes],
        known: _Known,
        patience: _Patience,
    ) -> Mapping[str, Version]:
        """The version of each tool, by name; those that are new are kept."""
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
        place = entry.name, entry.origin
        if new and self._store is not None and place not in self._problems:
            try:
                self._store.see(*place, new, offered)
            except (OSError, sqlite3.Error) as error:
                logger.warning("versions of definitions are not kept: %s: %s", self._store.path, error)
            else:
                return
        here = self._seen[place]
        here.update((each.name, each) for each in new)
        for name in gone_for_long([(name, len(each.definition)) for name, each in reversed(here.items())], offered):
            del here[name]


def _pin(entry: SourceEntry, judgement: Judgement, by: str) -> Pin:
    tool, version = judgement.tool, str(judgement.version or FIRST)
    return Pin(entry.name, entry.origin, entry.address, tool.name, written(tool), version, by)


def _approved(entry: SourceEntry, pin: Pin, same: Tool | None) -> Approved:
    """What was approved, as a tool of the source of `entry`; `same` is one that is written just like it.

    Raises:
        ValueError: it cannot be read.
    """
    origin = pin.shown
    if pin.origin != entry.origin and origin == entry.address:
        # They differ in what is not shown, a key for instance.
        origin = f"{origin} ({pin.origin[:8]})"
    if pin.origin == entry.origin:
        origin = entry.address  # whatever was shown of it then
    tool = same if same is not None else read(entry.name, pin.definition or b"")
    return Approved(tool, Version.parse(pin.version), origin)


def _next(source: str, seen: Seen, tool: Tool, definition: bytes, patience: _Patience) -> Version:
    try:
        version = Version.parse(seen.version)
        if seen.definition == definition:
            return version
        return version.after(drift_between(read(source, seen.definition), tool, compares=patience.lasts))
    except ValueError:  # nobody knows what was seen
        return FIRST
