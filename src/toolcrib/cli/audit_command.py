"""`toolcrib audit`: show what agents searched for, expanded and called, or delete it permanently."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import click

from toolcrib.audit.audit_file import AuditFile, DeletionFilter, Gap, reason_of
from toolcrib.audit.audit_reader import AuditEntry, AuditReader, NoAudit, TraceFilter
from toolcrib.cli.audit_display import Blocks, JsonLines, missing_operations
from toolcrib.cli.options import DEFAULT_CONFIG, FILE, config_option, json_option, yes_option
from toolcrib.cli.terminal_output import Confirmation, asynchronous, counted, plain, print_json, stderr
from toolcrib.config import read_config
from toolcrib.config.configuration import DEFAULT_AUDIT
from toolcrib.core.errors import InvalidConfig, NotFound

FOLLOW_S = 0.5
"""Seconds between two looks at an audit that is followed."""

SHOWN_TRACES = 20
"""The default number of traces to show. With `--json`, the default is all of them."""

_EVERYTHING = -1
"""SQLite reads a negative limit as no limit."""

PATIENCE_S = 10.0
"""How long `forget` waits for other programs that are writing the file."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class _Since(click.ParamType[float]):
    """`90s`, `30m`, `2h`, `7d` or `1w` ago, or a date in local time, with or without a time of day."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to seconds since 1970."""
        if ago := re.fullmatch(r"(\d{1,9})([smhdw])", str(value)):
            return time.time() - int(ago[1]) * _UNITS[ago[2]]
        try:
            return datetime.fromisoformat(str(value)).timestamp()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time. Use 90s, 30m, 2h, 7d or 1w, or a date: 2026-08-01 or 2026-08-01T09:30."
            )


_path_option = click.option("--path", metavar="FILE", type=FILE, help="Read this audit instead of CONFIG's.")


class _Audit(click.Command):
    """Shows the audit. `audit forget` runs a separate command: no trace id begins with `forget`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == [forget.name]:
            return forget.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_Audit)
@click.argument("trace", metavar="[TRACE | forget]", required=False)
@config_option
@_path_option
@click.option("--principal", metavar="ID", help="Traces of this principal.")
@click.option("--bundle", metavar="NAME", help="Traces with an operation in this bundle.")
@click.option("--tool", metavar="ID", help="Traces that expanded or called this tool, or any tool of this source.")
@click.option("--since", type=_Since(), metavar="WHEN", help="Traces since this time: 90s, 30m, 2h, 7d, 1w, or a date.")
@click.option("--failed", is_flag=True, help="Traces with a failure.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    help="How many traces to show. Default: 20, or all of them with --json.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep running and show new operations as they happen.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, one for each operation.")
@asynchronous
async def audit(
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
    """Show what agents searched for, expanded and called, and how it ended. Prints the latest traces, newest last.

    A trace is a search with the expansions and calls that followed it. With TRACE, the beginning of a trace id, the
    command shows everything about that trace. To delete traces, run `toolcrib audit forget`, which has its own --help.
    """
    display = JsonLines() if as_json else Blocks(whole=trace is not None)
    if limit is None:
        limit = _EVERYTHING if as_json else SHOWN_TRACES
    place = path if path is not None else place_of(config)
    watch = _Watch(place, TraceFilter(trace, principal, tool, since, failed, bundle), display)
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


def place_of(config: Path) -> Path:
    """Return the path of the audit that a gateway writes if it serves `config`.

    Raises:
        InvalidConfig: the configuration cannot be used, or turns the audit off.
    """
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
    missing = missing_operations(lost, min(gap.since for gap in gaps), max(gap.until for gap in gaps))
    return f"{missing}: {reasons}."


class _Watch:
    """Follows an audit file that may not exist yet, or that may be replaced by a different file."""

    def __init__(self, place: Path, wanted: TraceFilter, display: Blocks | JsonLines) -> None:
        self._place = place
        self._wanted = wanted
        self._display = display
        self._reader: AuditReader | None = None
        self._has_reported = False
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
        found: list[Gap | AuditEntry] = []
        try:
            self._look(found)
        except NoAudit:
            pass
        except (OSError, sqlite3.Error) as error:
            self._report_problem(error)
        else:
            self._has_reported = False
        for each in found:
            if isinstance(each, Gap):
                self._display.gap(each)
            else:
                self._display.entry(each)

    def _look(self, found: list[Gap | AuditEntry]) -> None:
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

    def _read_on(self, reader: AuditReader) -> list[Gap | AuditEntry]:
        with reader.snapshot():
            gaps = reader.gaps(after=self._gaps_seen)
            entries = reader.entries(self._wanted, after=self._seen)
        self._gaps_seen = max((number for number, _ in gaps), default=self._gaps_seen)
        self._seen = max((entry.id for entry in entries), default=self._seen)
        return [*(gap for _, gap in gaps), *entries]

    def _report_problem(self, error: Exception) -> None:
        if self._has_reported or str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY"):
            return
        self._has_reported = True
        stderr.print(f"Waiting: {plain(str(self._place))} cannot be read: {plain(reason_of(error))}.", markup=False)


@contextmanager
def _readable(place: Path) -> Generator[None]:
    try:
        yield
    except BrokenPipeError:  # this is about standard output, not about the audit
        raise
    except (OSError, sqlite3.Error, ValueError) as error:
        raise InvalidConfig(f"{place}: cannot read the audit: {reason_of(error)}") from error


@click.command("forget")
@config_option
@_path_option
@click.option("--principal", metavar="ID", help="Traces of this principal.")
@click.option("--tool", metavar="ID", help="Traces that name this tool, or any tool of this source, in any way.")
@click.option("--query", metavar="TEXT", help="Traces with a query that contains TEXT, in upper or lower case.")
@click.option(
    "--before", type=_Since(), metavar="WHEN", help="Traces that ended before a date, or 90s, 30m, 2h, 7d ago."
)
@click.option("--all", "everything", is_flag=True, help="All traces.")
@yes_option
@json_option
@asynchronous
async def forget(
    config: Path, path: Path | None, *, everything: bool, yes: bool, as_json: bool, **selected: Any
) -> None:
    """Delete traces from the audit permanently. A trace is deleted if it matches all the options that you pass.

    Programs that use the audit keep running. Search in running gateways forgets these traces within a few seconds.
    """
    unwanted = DeletionFilter(**selected)
    if unwanted.is_all != everything or "" in selected.values():
        raise click.UsageError(
            "Say which traces: pass --principal, --tool, --query or --before, or --all for all of them."
        )
    place = path if path is not None else place_of(config)
    if not place.exists():  # opening it would create a new audit
        _report(place, 0, 0, as_json=as_json)
        return
    try:
        file = AuditFile(place, busy_s=PATIENCE_S)
        try:
            traces, operations = file.matching(unwanted)
            confirmation = Confirmation(sys.stdin, sys.stderr, yes=yes, as_json=as_json)
            if traces and not confirmation.agrees(f"Delete {_traces(traces, operations)} permanently?"):
                confirmation.explain_refusal("Nothing was deleted")
                sys.exit(1)
            traces, operations = file.forget(unwanted)
            left = _left_after(file, place)
        finally:
            file.close()
    except (OSError, sqlite3.Error) as error:
        raise InvalidConfig(f"{place}: cannot change the audit: {reason_of(error)}") from error
    _report(place, traces, operations, as_json=as_json)
    if left is not None:
        stderr.print(f"{plain(left)} Run this command again later.", markup=False)
        sys.exit(1)


def _left_after(file: AuditFile, place: Path) -> str | None:
    """Return a sentence that says why copies of deleted traces may remain, or None if no copies remain."""
    try:
        is_gone = file.scrub()
    except (OSError, sqlite3.Error) as error:  # the traces are already deleted at this point
        return f"{place} may still contain copies, because it could not be rewritten: {reason_of(error)}."
    return None if is_gone else f"A program is reading the audit, so {place}-wal may still contain copies."


def _report(place: Path, traces: int, operations: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"traces": traces, "operations": operations})
    elif traces:
        stderr.print(f"Deleted {_traces(traces, operations)}.")
    else:
        stderr.print(f"{plain(str(place))} has no matching traces.", markup=False)


def _traces(traces: int, operations: int) -> str:
    return f"{counted(traces, 'trace')} with {counted(operations, 'operation')}"
