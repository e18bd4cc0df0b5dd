"""`toolcrib audit`: show what agents searched for, expanded and called."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import anyio
import orjson
from rich.table import Table

from toolcrib.audit.audit_file import Gap, reason_of
from toolcrib.audit.audit_reader import (
    AT_THE_TOP,
    NAMING,
    SHOWING_NODES,
    AuditReader,
    Entry,
    NoAudit,
    Trace,
    Wanted,
    gap_wire,
)
from toolcrib.cli.terminal_output import escape, plain, plain_json, run, stderr, stdout, write
from toolcrib.config import read_config
from toolcrib.config.audit import DEFAULT_AUDIT
from toolcrib.core.errors import InvalidConfig, NotFound

FOLLOW_S = 0.5
"""Seconds between two looks at an audit that is followed."""

SHOWN_TRACES = 20
"""The default number of traces to show. With `--json`, the default is all of them."""

SHOWN_IDS = 3
"""How many of the tools that one operation showed are printed."""

CUT_FROM = 24
"""A trace with this many operations is shortened to its first and last ones, unless that trace was asked for."""

SHOWN_FIRST, SHOWN_LAST = 4, 8
"""How many operations of a shortened trace are printed at its start and at its end."""

SHORT_ID = 12
"""How many characters of a trace id are printed, after leading zeros: enough to name the trace."""

_APPROVALS = {
    "once": "approved",
    "always": "approved permanently",
    "kept": "approved permanently before",
    "refused": "refused by a person",
    "unasked": "could not ask a person",
    "unanswered": "no answer",
}
"""How each `Consent` is printed."""

_EVERYTHING = -1
"""SQLite reads a negative limit as no limit."""


class Display(Protocol):
    """A way to show the traces of an audit."""

    def traces(self, traces: Sequence[Trace], gaps: Iterable[Gap]) -> None:
        """Show all these traces and gaps, oldest first."""
        ...

    def entry(self, entry: Entry) -> None:
        """Show an operation that was just recorded."""
        ...

    def gap(self, gap: Gap) -> None: ...


def audit(
    trace: str | None,
    config: Path,
    path: Path | None,
    limit: int | None,
    *,
    principal: str | None,
    bundle: str | None,
    tool: str | None,
    since: float | None,
    failed: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the newest matching traces. With `follow`, keep showing new operations until interrupted."""
    display: Display = JsonLines() if as_json else Blocks(whole=trace is not None)
    if limit is None:
        limit = _EVERYTHING if as_json else SHOWN_TRACES

    async def main() -> None:
        place = path if path is not None else place_of(config)
        watch = _Watch(place, Wanted(trace, principal, tool, since, failed, bundle), display)
        with _readable(place):
            found = watch.show(limit)
        if not follow:
            watch.explain(found)
            return
        if found is None:
            stderr.print(f"Waiting for {plain(str(place))}.", markup=False)
        while True:
            with _readable(place):
                watch.show_new()
            await anyio.sleep(FOLLOW_S)

    run(main, as_json=as_json)


def place_of(config: Path) -> Path:
    """Return the path of the audit that a gateway writes if it serves `config`.

    Raises:
        InvalidConfig: the configuration cannot be used, or turns the audit off.
    """
    from toolcrib.cli.app import DEFAULT_CONFIG

    if config == DEFAULT_CONFIG and not config.exists():  # no configuration was named
        return DEFAULT_AUDIT.place
    settings = read_config(config).audit
    if settings is None:
        hint = "Pass --path FILE to show an audit that was written before."
        raise InvalidConfig(f"{config}: toolcrib.audit: the audit is turned off", hints=[hint])
    return settings.place


def missing_from(place: Path, since: float) -> str | None:
    """Return a sentence about operations that are missing from the audit at `place`, from `since` on.

    Returns None if none is missing. If the audit cannot be read, the sentence says why.
    """
    try:
        with closing(AuditReader(place)) as reader:
            gaps = [gap for _, gap in reader.gaps(since)]
    except NoAudit:
        return None
    except (OSError, sqlite3.Error) as error:
        return f"It cannot be read: {reason_of(error)}."
    if not gaps:
        return None
    lost = sum(gap.lost for gap in gaps)
    reasons = "; ".join(dict.fromkeys(gap.reason for gap in reversed(gaps)))
    when = f"{_moment(min(gap.since for gap in gaps))} to {_moment(max(gap.until for gap in gaps))}"
    return f"{_counted(lost)} {'is' if lost == 1 else 'are'} missing, {when}: {reasons}."


class _Watch:
    """Follows an audit file that may not exist yet, or that may be replaced by a different file."""

    def __init__(self, place: Path, wanted: Wanted, display: Display) -> None:
        self._place = place
        self._wanted = wanted
        self._display = display
        self._reader: AuditReader | None = None
        self._hindered = False
        """Whether it was reported that the audit cannot be read, so that it is not reported twice."""
        self._seen = 0
        """The id of the last operation that was shown or skipped."""
        self._gaps_seen = 0

    def show(self, limit: int) -> int | None:
        """Show up to `limit` traces. Returns how many were shown, or None if there is no audit."""
        try:
            self._reader = reader = AuditReader(self._place)
        except NoAudit:
            return None
        with reader.snapshot():
            self._seen = reader.last_id()
            traces = reader.traces(self._wanted, limit)
            gaps = reader.gaps()
        self._gaps_seen = max((number for number, _ in gaps), default=0)
        oldest = self._wanted.since or 0.0
        if len(traces) == limit:  # there may be earlier traces, with gaps between them
            oldest = max(oldest, min((trace.entries[0].at for trace in traces), default=0.0))
        shows_gaps = limit and self._wanted.trace is None
        self._display.traces(traces, [gap for _, gap in gaps if shows_gaps and gap.until >= oldest])
        return len(traces)

    def explain(self, found: int | None) -> None:
        """Say why nothing was shown.

        Raises:
            NotFound: a trace was asked for that does not exist.
        """
        if found is None:
            stderr.print(f"{plain(str(self._place))} has no traces yet.", markup=False)
        elif not found and self._wanted.trace is not None:
            raise NotFound(f"No trace id in {self._place} begins with `{self._wanted.trace}`.")
        elif not found:
            stderr.print("The audit has no matching traces.")

    def show_new(self) -> None:
        """Show what was recorded since the last look. If the file cannot be read now, try again next time."""
        found: list[Gap | Entry] = []
        try:
            self._look(found)
        except NoAudit:
            pass
        except (OSError, sqlite3.Error) as error:
            self._tell_of(error)
        else:
            self._hindered = False
        for each in found:
            if isinstance(each, Gap):
                self._display.gap(each)
            else:
                self._display.entry(each)

    def _look(self, found: list[Gap | Entry]) -> None:
        """Append new gaps and entries to `found`. If reading fails, `found` keeps what was read before."""
        if self._reader is not None:
            # Check this before the last read: operations that were written before the move are then still shown.
            moved = self._reader.was_moved()
            try:
                found += self._read_on(self._reader)
            except sqlite3.Error:
                if not moved:
                    raise
            if not moved:
                return
        # Keep the old file open until a new one exists. The old file may come back, and reading continues where it
        # ended.
        reader = AuditReader(self._place)
        if self._reader is not None:
            self._reader.close()
        self._reader, self._seen, self._gaps_seen = reader, 0, 0
        found += self._read_on(reader)

    def _read_on(self, reader: AuditReader) -> list[Gap | Entry]:
        with reader.snapshot():
            gaps = reader.gaps(after=self._gaps_seen)
            entries = reader.entries(self._wanted, after=self._seen)
        self._gaps_seen = max((number for number, _ in gaps), default=self._gaps_seen)
        self._seen = max((entry.id for entry in entries), default=self._seen)
        return [*(gap for _, gap in gaps), *entries]

    def _tell_of(self, error: Exception) -> None:
        if self._hindered or str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY"):
            return
        self._hindered = True
        stderr.print(f"Waiting: {plain(str(self._place))} cannot be read: {plain(reason_of(error))}.", markup=False)


@contextmanager
def _readable(place: Path) -> Generator[None]:
    try:
        yield
    except BrokenPipeError:  # this is about standard output, not about the audit
        raise
    except (OSError, sqlite3.Error, ValueError) as error:
        raise InvalidConfig(f"{place}: cannot read the audit: {reason_of(error)}") from error


class JsonLines:
    """Prints one JSON object per line, one for each operation or gap, in the order of time."""

    def traces(self, traces: Sequence[Trace], gaps: Iterable[Gap]) -> None:
        found = [(entry.at, entry.to_wire()) for trace in traces for entry in trace.entries]
        found += [(gap.until, gap_wire(gap)) for gap in gaps]
        for _, wire in sorted(found, key=itemgetter(0)):
            self._print(wire)

    def entry(self, entry: Entry) -> None:
        self._print(entry.to_wire())

    def gap(self, gap: Gap) -> None:
        self._print(gap_wire(gap))

    def _print(self, wire: dict[str, Any]) -> None:
        line = orjson.dumps(wire, option=orjson.OPT_APPEND_NEWLINE)
        write(plain_json(line.decode()) if stdout.is_terminal else line)


class Blocks:
    """Prints a block of lines for each trace."""

    def __init__(self, *, whole: bool) -> None:
        """With `whole`, nothing is shortened."""
        self._whole = whole
        self._last: tuple[str, str, str | None] | None = None
        """The trace id, the principal and the bundle of the last line."""

    def traces(self, traces: Sequence[Trace], gaps: Iterable[Gap]) -> None:
        found: list[tuple[float, Trace | Gap]] = [(trace.entries[-1].at, trace) for trace in traces]
        found += [(gap.until, gap) for gap in gaps]
        for _, each in sorted(found, key=itemgetter(0)):
            if isinstance(each, Gap):
                self.gap(each)
            else:
                self._heading(each.entries, _summary(each.entries))
                self._rows(each.entries)

    def entry(self, entry: Entry) -> None:
        if (entry.trace_id, entry.principal, entry.bundle) != self._last:
            self._heading([entry])
        self._rows([entry])

    def gap(self, gap: Gap) -> None:
        self._space()
        self._last = None
        some = f"{_counted(gap.lost)} {'is' if gap.lost == 1 else 'are'} missing"
        when = f"{_moment(gap.since)} to {_moment(gap.until)}"
        stdout.print(f"{some}, {when}: {plain(gap.reason)}", style="yellow", markup=False, soft_wrap=False)

    def _heading(self, entries: Sequence[Entry], *more: str) -> None:
        self._space()
        entry = entries[0]
        self._last = (entry.trace_id, entry.principal, entries[-1].bundle)
        trace_id = entry.trace_id if self._whole else entry.trace_id.lstrip("0")[:SHORT_ID]
        told = (
            f"[bold]{_moment(entry.at)}[/]",
            escape(entry.principal),
            f"[dim]{escape(trace_id)}[/]",
            *_within(entries),
            *more,
        )
        stdout.print("  ".join(told), soft_wrap=False)

    def _rows(self, entries: Sequence[Entry]) -> None:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=0)
        if self._whole:
            table.add_column(no_wrap=True, style="dim")
        table.add_column(no_wrap=True, min_width=12)
        table.add_column(no_wrap=True, min_width=7, justify="right")
        table.add_column(no_wrap=True, min_width=7, justify="right")
        table.add_column(overflow="fold")
        cut = len(entries) >= CUT_FROM and not self._whole
        for entry in entries[:SHOWN_FIRST] if cut else entries:
            self._row(table, entry)
        if cut:
            table.add_row("", "…", "", "", f"[dim]{_between(entries[SHOWN_FIRST:-SHOWN_LAST])}[/]")
            for entry in entries[-SHOWN_LAST:]:
                self._row(table, entry)
        stdout.print(table, soft_wrap=False)

    def _row(self, table: Table, entry: Entry) -> None:
        when = [_moment(entry.at)[11:]] if self._whole else []
        took, size = _duration(entry.duration_s), _size(entry.answer_bytes)
        table.add_row("", *when, escape(entry.operation), took, size, "\n".join(self._told(entry)))

    def _told(self, entry: Entry) -> Iterator[str]:
        """Yield lines that say what an operation was about and how it ended."""
        ended = "" if entry.is_ok else _outcome(entry)
        approval = "" if entry.approval is None else escape(_APPROVALS.get(entry.approval, _line(entry.approval)))
        yield "  ".join(filter(None, (self._about(entry), ended, approval)))
        if entry.query is not None and entry.path:
            yield f"[dim]in {escape(_path(entry.path))}[/]"
        if entry.operation in NAMING and entry.is_ok and (shown := self._shown_by(entry)):
            yield f"[dim]→ {shown}[/]"
        if self._whole and entry.arguments is not None:
            yield f"[dim]{escape(json.dumps(entry.arguments, ensure_ascii=False))}[/]"

    def _about(self, entry: Entry) -> str:
        if entry.query is not None:
            return escape(_line(entry.query))
        if entry.item is not None:
            return escape(_line(entry.item))
        if entry.operation not in NAMING:
            return self._ids(entry.tool_ids) if entry.tool_ids else ""
        return escape(_path(entry.path or ())) or ("the top" if entry.operation in AT_THE_TOP else "")

    def _shown_by(self, entry: Entry) -> str:
        """Return the categories and tools that an operation showed, or an empty string if they were not recorded."""
        if entry.operation not in SHOWING_NODES:
            return self._ids(entry.tool_ids)
        nodes = (
            ""
            if not entry.node_count
            else f"{entry.node_count:,} {'category' if entry.node_count == 1 else 'categories'}"
        )
        tools = self._ids(entry.tool_ids) if entry.tool_ids or entry.node_count == 0 else ""
        return ", ".join(filter(None, (nodes, tools)))

    def _ids(self, tool_ids: Sequence[str]) -> str:
        shown = tool_ids if self._whole else tool_ids[:SHOWN_IDS]
        more = f" and {len(tool_ids) - len(shown)} more" if len(tool_ids) > len(shown) else ""
        return f"{escape(', '.join(map(_line, shown)))}{more}" if shown else "nothing"

    def _space(self) -> None:
        """Print an empty line between two blocks."""
        if self._shown:
            stdout.print()
        self._shown = True

    _shown = False


def _line(text: str) -> str:
    """Put untrusted text on one line."""
    return " ".join(text.split())


def _path(path: Iterable[str]) -> str:
    return "/".join(map(_line, path))


def _summary(entries: Sequence[Entry]) -> str:
    took = max(entry.at + entry.duration_s for entry in entries) - entries[0].at
    return f"{_counted(len(entries))} in {_duration(took)}, {_outcome(entries[-1])}"


def _within(entries: Iterable[Entry]) -> list[str]:
    """Name the bundles in which these operations ran. Returns an empty list if there were no bundles."""
    bundles = [*dict.fromkeys(entry.bundle for entry in entries if entry.bundle is not None)]
    return [f"in {escape(', '.join(map(_line, bundles)))}"] if bundles else []


def _between(entries: Sequence[Entry]) -> str:
    failed = sum(not entry.is_ok for entry in entries)
    return f"{_counted(len(entries))} between" + (f", {failed:,} of them failed" if failed else "")


def _counted(operations: int) -> str:
    return "1 operation" if operations == 1 else f"{operations:,} operations"


def _outcome(entry: Entry) -> str:
    return f"[{'green' if entry.is_ok else 'red'}]{escape(entry.outcome)}[/]"


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # the clock was far off when this was written
        return f"{at:.0f}"


def _duration(seconds: float) -> str:
    if seconds < 0.0005:
        return "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.0f} h"


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} kB" if count < 999_950 else f"{count / 1_000_000:,.1f} MB"
