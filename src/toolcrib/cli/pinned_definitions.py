"""Compares the definitions that servers offer with what was pinned, and prints both for a person."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from toolcrib.audit.audit_file import reason_of
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.cli.opened_catalog import opened, pins_of
from toolcrib.cli.terminal_output import plain, show, stderr
from toolcrib.config import Config, read_config
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.core.principal import LOCAL
from toolcrib.core.schema import nearest
from toolcrib.core.untrusted_text import visible
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.drift import Change, Drift, Grade, Judgement, Suspicion, Verdict
from toolcrib.definitions.pins import Pin, PinStore

PLACE_CHARS = 100
"""How many characters of a place in a definition are shown. Servers choose its keys, which can have any length."""

NAME_CHARS = 160
"""How many characters of an id are shown."""

SHOWN_NAMES = 4
"""How many tools are named when the same applies to several."""


class PinState(StrEnum):
    """How a definition compares with what was pinned."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    NEW = "new"
    """This definition is not pinned, but others of its source are."""
    UNPINNED = "unpinned"
    """No definition of this source is pinned."""


@dataclass(frozen=True, slots=True)
class OfferedDefinition:
    """What a source offers under one name."""

    entry: SourceEntry
    judgement: Judgement
    pin: Pin | None
    """The latest pin of this name."""

    @property
    def id(self) -> str:
        return self.judgement.tool.id

    @property
    def pin_state(self) -> PinState:
        drift = self.judgement.drift
        if drift is None:
            return PinState.NEW if self.judgement.origin.is_pinned else PinState.UNPINNED
        return PinState.CHANGED if drift.grades else PinState.UNCHANGED

    @property
    def suspicions(self) -> tuple[Suspicion, ...]:
        """The suspicions that were not pinned, even if the policy lets them pass."""
        policy = self.judgement.policy
        if policy.suspicious is not Verdict.PASS:
            return self.judgement.suspicions
        return replace(self.judgement, policy=replace(policy, suspicious=Verdict.WARN)).suspicions

    @property
    def seen_as(self) -> str:
        """What callers see: `offered` (the current definition), `approved` (the pinned one), or `hidden`."""
        shown = self.judgement.shown
        return "hidden" if shown is None else "offered" if shown is self.judgement.tool else "approved"

    def to_wire(self) -> dict[str, Any]:
        judgement = self.judgement
        wire: dict[str, Any] = {"tool_id": self.id, "standing": self.pin_state.value}
        if judgement.drift is not None and judgement.drift.grades:
            wire |= judgement.drift.to_wire()
        return wire | {
            "version": None if judgement.version is None else str(judgement.version),
            "approved": None if self.pin is None else pin_wire(self.pin),
            "verdict": judgement.verdict.value,
            "callers_see": self.seen_as,
            "why": list(judgement.why),
            "suspicions": [each.to_wire() for each in self.suspicions],
        }


@dataclass(frozen=True, slots=True)
class GoneTool:
    """A pinned tool that its source does not offer any more."""

    pin: Pin
    why: str | None
    """Why the tool cannot be used, if its source still offers it."""

    @property
    def id(self) -> str:
        return id_of(self.pin)

    def to_wire(self) -> dict[str, Any]:
        return {"tool_id": self.id, "approved": pin_wire(self.pin), "reason": self.why}


@dataclass(frozen=True, slots=True)
class PinComparison:
    """The result of listing all sources, sorted by id."""

    definitions: tuple[OfferedDefinition, ...]
    gone: tuple[GoneTool, ...]
    unlisted: tuple[SourceEntry, ...]
    """Sources that did not list their tools, by name."""
    unjudged: tuple[str, ...]
    """Names of sources without a known origin: their tools are written in the configuration itself."""
    elsewhere: tuple[str, ...]
    """Names of isolated servers that the local principal has no access to."""

    @classmethod
    async def at(cls, config: Path, wait_s: float) -> PinComparison:
        """Start all servers of `config`: a definition can be suspicious because of the others.

        Raises:
            InvalidConfig: the configuration cannot be used, or the pins cannot be read.
        """
        store = pins_of(config)
        with using(store):
            store.all()  # fail before a server is started
        async with opened(config, None, wait_s=wait_s, reports_quarantine=False, sees_all=True) as crib:
            return cls._of(crib, store, crib.with_registered(read_config(config)))

    @classmethod
    def _of(cls, crib: Toolcrib, store: PinStore, config: Config) -> PinComparison:
        # Read everything that was listed, whatever the policy hides: the person who runs this owns the policy.
        entries = {**crib.registry.state.sources, **crib.isolated_sources.open_overlay(LOCAL.id).sources}
        definitions: list[OfferedDefinition] = []
        gone: list[GoneTool] = []
        unlisted = [entry for entry in entries.values() if entry.status is not SourceStatus.READY]
        listed = [entry for entry in entries.values() if entry.status is SourceStatus.READY]
        unjudged = [entry.name for entry in listed if not entry.origin]
        for entry in listed:
            if not entry.origin:
                continue
            with using(store):
                pins = {pin.name: pin for pin in store.of(entry.name, entry.origin)}
            for name, judgement in entry.judgements.items():
                if not judgement.origin.is_known:
                    raise unusable(store, crib.guard.problem or "")
                definitions.append(OfferedDefinition(entry, judgement, pins.pop(name, None)))
            aside = {each.name: each.reason for each in entry.set_aside}
            gone += [GoneTool(pin, aside.get(name)) for name, pin in pins.items()]
        elsewhere = [server.name for server in config.enabled if server.of(LOCAL.id) is None]
        return cls(
            tuple(sorted(definitions, key=lambda each: each.id)),
            tuple(sorted(gone, key=lambda each: each.id)),
            tuple(sorted(unlisted, key=lambda entry: entry.name)),
            tuple(sorted(unjudged)),
            tuple(sorted(elsewhere)),
        )

    def only(self, what: Sequence[str], config: Path) -> PinComparison:
        """Keep only what `what` names: sources, tool ids or patterns of ids. An empty `what` keeps everything.

        Raises:
            NotFound: a word in `what` matches nothing.
        """
        if not what:
            return self
        chosen = ToolSelection(what, read_config(config).source_names)
        sources = {*(entry.name for entry in self.unlisted), *self.elsewhere}
        ids = [each.id for each in (*self.definitions, *self.gone)]
        for word in chosen.what:
            if any(map(chosen.meets(word), ids)) or any(_may_be_of(word, name) for name in sources):
                continue
            if _may_be_of_one(word, self.unjudged):
                text = f"`{word}` is defined in your configuration, so there is nothing to pin."
                raise NotFound(text)
            raise chosen.unmet(word, ids)
        return PinComparison(
            tuple(each for each in self.definitions if each.id in chosen),
            tuple(each for each in self.gone if each.id in chosen),
            tuple(entry for entry in self.unlisted if any(_may_be_of(word, entry.name) for word in chosen.what)),
            tuple(name for name in self.unjudged if any(_may_be_of(word, name) for word in chosen.what)),
            tuple(name for name in self.elsewhere if any(_may_be_of(word, name) for word in chosen.what)),
        )


class ToolSelection:
    """Tool ids chosen by source name, by id or by pattern."""

    def __init__(self, what: Iterable[str], labels: Mapping[str, str]) -> None:
        """`labels` maps the keys of the configuration file to source names."""
        self.what = tuple(labels.get(word, word) for word in what)

    def __contains__(self, tool_id: str) -> bool:
        return any(self.meets(word)(tool_id) for word in self.what)

    @staticmethod
    def meets(word: str) -> Callable[[str], bool]:
        return lambda tool_id: word in {tool_id, tool_id.partition(".")[0]} or fnmatchcase(tool_id, word)

    @staticmethod
    def unmet(word: str, ids: Collection[str]) -> NotFound:
        near = nearest(word, [*dict.fromkeys(tool_id.partition(".")[0] for tool_id in ids), *ids])
        meant = f" Did you mean `{visible(near)}`?" if near is not None else ""
        is_file = word.endswith(".json") and Path(word).is_file()
        hints = [f"To name a configuration, pass `-c {word}`."] if is_file else []
        return NotFound(f"No server or tool is named `{word}`.{'' if is_file else meant}", hints=hints)


def _may_be_of(word: str, source: str) -> bool:
    """Return whether `word` could match a tool of `source`. The tools of the source do not need to be known."""
    return fnmatchcase(source, word.partition(".")[0])


def _may_be_of_one(word: str, sources: Iterable[str]) -> bool:
    return any(_may_be_of(word, name) for name in sources)


# -- the store --------------------------------------------------------------------------------------------------------


@contextmanager
def using(store: PinStore, done: str = "read") -> Generator[None]:
    """Turn errors of `store` in this block into `InvalidConfig`. `done` says what is attempted: `read` or `written`."""
    try:
        yield
    except (OSError, sqlite3.Error, ValueError) as error:
        raise unusable(store, f"{store.path}: {reason_of(error)}", done) from error


def unusable(store: PinStore, problem: str, done: str = "read") -> InvalidConfig:
    """Return the error for pins that cannot be read or written. `problem` names the file."""
    return InvalidConfig(f"The pins cannot be {done}: {problem}.", hints=[remedy(store)])


def remedy(store: PinStore) -> str:
    return f"Restore {store.path}, or move it away and run `toolcrib pin` again."


def id_of(pin: Pin) -> str:
    return f"{pin.source}.{pin.name}"


def pin_wire(pin: Pin) -> dict[str, Any]:
    return {"version": pin.version, "at": when(pin).isoformat(timespec="seconds"), "by": pin.by, "origin": pin.shown}


def pinned_when(pin: Pin) -> str:
    return f"{when(pin):%Y-%m-%d} by {shown_name(pin.by)}"


def when(pin: Pin) -> datetime:
    return datetime.fromtimestamp(pin.at).astimezone()


# -- what a person sees -----------------------------------------------------------------------------------------------

_STYLES = {
    Grade.SAME: "",
    Grade.TEXT: "yellow",
    Grade.COMPATIBLE: "yellow",
    Grade.BREAKING: "red",
    Grade.WEAKENED: "red",
    Grade.SOURCE: "red",
}


def shown_name(text: str, most: int = NAME_CHARS) -> str:
    """Put an untrusted name on one line, truncated to `most` characters."""
    text = visible(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def grades_of(drift: Drift) -> Text:
    """List the grades of a change, the most serious first."""
    grades = sorted(drift.grades, key=tuple(Grade).index, reverse=True)
    return Text(", ").join(Text(grade.value, _STYLES[grade]) for grade in grades)


def show_details(changes: Iterable[Change], suspicions: Iterable[Suspicion], omitted: int = 0) -> None:
    """Print each change and suspicion on a line of its own, below the tool that they are about."""
    texts = Column(overflow="fold"), Column(overflow="fold")
    grid = Table.grid(Column(width=0), Column(no_wrap=True), *texts, padding=(0, 2, 0, 0))
    for change in changes:
        grade = Text(change.grade.value, _STYLES[change.grade])
        place = change.place or "its source"
        grid.add_row("", grade, Text(shown_name(place, PLACE_CHARS)), _moved(change))
    if omitted:
        grid.add_row("", "", "", Text(f"and {omitted:,} more changes", "dim"))
    for each in suspicions:
        text = Text.assemble(f"{each.rule}: {visible(each.why)}: ", (f"“{visible(each.excerpt)}”", "bold"))
        grid.add_row("", Text("suspicious", "magenta"), Text(shown_name(each.place, PLACE_CHARS)), text)
    if grid.row_count:
        show(grid)


def _moved(change: Change) -> Text:
    before = "" if change.before is None else visible(change.before)
    after = "" if change.after is None else visible(change.after)
    match change.before, change.after:
        case None, _:
            return Text.assemble((after, "green"), " was added")
        case _, None:
            return Text.assemble((before, "red"), " was removed")
        case _:
            return Text.assemble((before, "red"), " became ", (after, "green"))


def show_unlisted(unlisted: Iterable[SourceEntry]) -> None:
    """Print on standard error why these sources were not compared."""
    for entry in unlisted:
        text = f"Not compared: {shown_name(entry.name)}: {plain(_why(entry))}"
        stderr.print(text, markup=False, style="red", soft_wrap=False)


def show_elsewhere(names: Collection[str]) -> None:
    if names:
        whose = f"Not compared, because `{LOCAL.id}` has no access: {', '.join(map(shown_name, names))}."
        stderr.print(whose, markup=False, style="yellow")


def not_looked_at(comparison: PinComparison) -> list[dict[str, str | None]]:
    return [
        *({"source": entry.name, "reason": _why(entry)} for entry in comparison.unlisted),
        *({"source": name, "reason": f"`{LOCAL.id}` has no access to it"} for name in comparison.elsewhere),
    ]


def _why(entry: SourceEntry) -> str:
    """Return why a source was not listed, including what only its owner may read."""
    return " ".join(filter(None, (entry.reason, entry.diagnosis))) or "it did not list its tools in time"


def some_of(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    shown = ", ".join(map(shown_name, names[:SHOWN_NAMES]))
    return f"{shown} and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else shown
