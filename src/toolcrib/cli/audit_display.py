"""Prints the traces of an audit, as JSON or for a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import orjson
from rich.table import Column, Table

from toolcrib.audit.audit_file import Gap
from toolcrib.audit.audit_reader import AT_THE_TOP, NAMING, SHOWING_NODES, AuditEntry, Trace, gap_wire
from toolcrib.cli.terminal_output import counted, escape, plain, plain_json, stdout, write

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
    "pending": "waits for a person",
    "unasked": "could not ask a person",
    "unanswered": "no answer",
}
"""How each `Consent` is printed."""


class JsonLines:
    """Prints one JSON object per line, one for each operation or gap, in the order of time."""

    def traces(self, traces: Sequence[Trace], gaps: Iterable[Gap]) -> None:
        """Print all these traces and gaps, oldest first."""
        found = [(entry.at, entry.to_wire()) for trace in traces for entry in trace.entries]
        found += [(gap.until, gap_wire(gap)) for gap in gaps]
        for _, wire in sorted(found, key=itemgetter(0)):
            self._print(wire)

    def entry(self, entry: AuditEntry) -> None:
        """Print an operation that was just recorded."""
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

    def entry(self, entry: AuditEntry) -> None:
        if (entry.trace_id, entry.principal, entry.bundle) != self._last:
            self._heading([entry])
        self._rows([entry])

    def gap(self, gap: Gap) -> None:
        self._space()
        self._last = None
        missing = missing_operations(gap.lost, gap.since, gap.until)
        stdout.print(f"{missing}: {plain(gap.reason)}", style="yellow", markup=False, soft_wrap=False)

    def _heading(self, entries: Sequence[AuditEntry], *more: str) -> None:
        self._space()
        entry = entries[0]
        self._last = (entry.trace_id, entry.principal, entries[-1].bundle)
        trace_id = entry.trace_id if self._whole else entry.trace_id.lstrip("0")[:SHORT_ID]
        parts = (
            f"[bold]{_moment(entry.at)}[/]",
            escape(entry.principal),
            f"[dim]{escape(trace_id)}[/]",
            *_within(entries),
            *more,
        )
        stdout.print("  ".join(parts), soft_wrap=False)

    def _rows(self, entries: Sequence[AuditEntry]) -> None:
        time = [Column(no_wrap=True, style="dim")] if self._whole else []
        operation = Column(no_wrap=True, min_width=12)
        took, size = (Column(no_wrap=True, min_width=7, justify="right") for _ in range(2))
        table = Table.grid(Column(width=0), *time, operation, took, size, Column(overflow="fold"), padding=(0, 2, 0, 0))
        cut = len(entries) >= CUT_FROM and not self._whole
        for entry in entries[:SHOWN_FIRST] if cut else entries:
            self._row(table, entry)
        if cut:
            table.add_row("", "…", "", "", f"[dim]{_between(entries[SHOWN_FIRST:-SHOWN_LAST])}[/]")
            for entry in entries[-SHOWN_LAST:]:
                self._row(table, entry)
        stdout.print(table, soft_wrap=False)

    def _row(self, table: Table, entry: AuditEntry) -> None:
        when = [_moment(entry.at)[11:]] if self._whole else []
        took, size = _duration(entry.duration_s), _size(entry.answer_bytes)
        table.add_row("", *when, escape(entry.operation), took, size, "\n".join(self._lines(entry)))

    def _lines(self, entry: AuditEntry) -> Iterator[str]:
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

    def _about(self, entry: AuditEntry) -> str:
        if entry.query is not None:
            return escape(_line(entry.query))
        if entry.item is not None:
            return escape(_line(entry.item))
        if entry.operation not in NAMING:
            return self._ids(entry.tool_ids) if entry.tool_ids else ""
        return escape(_path(entry.path or ())) or ("the top" if entry.operation in AT_THE_TOP else "")

    def _shown_by(self, entry: AuditEntry) -> str:
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


def missing_operations(count: int, since: float, until: float) -> str:
    """Return how many operations are missing from the audit, and from when to when."""
    return (
        f"{counted(count, 'operation')} {'is' if count == 1 else 'are'} missing, {_moment(since)} to {_moment(until)}"
    )


def _line(text: str) -> str:
    """Put untrusted text on one line."""
    return " ".join(text.split())


def _path(path: Iterable[str]) -> str:
    return "/".join(map(_line, path))


def _summary(entries: Sequence[AuditEntry]) -> str:
    took = max(entry.at + entry.duration_s for entry in entries) - entries[0].at
    return f"{counted(len(entries), 'operation')} in {_duration(took)}, {_outcome(entries[-1])}"


def _within(entries: Iterable[AuditEntry]) -> list[str]:
    """Name the bundles in which these operations ran. Returns an empty list if there were no bundles."""
    bundles = [*dict.fromkeys(entry.bundle for entry in entries if entry.bundle is not None)]
    return [f"in {escape(', '.join(map(_line, bundles)))}"] if bundles else []


def _between(entries: Sequence[AuditEntry]) -> str:
    failed = sum(not entry.is_ok for entry in entries)
    return f"{counted(len(entries), 'operation')} between" + (f", {failed:,} of them failed" if failed else "")


def _outcome(entry: AuditEntry) -> str:
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
