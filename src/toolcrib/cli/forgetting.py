"""`toolcrib audit forget`: delete traces from the audit permanently."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import click

from toolcrib.audit.audit_file import AuditFile, Unwanted, reason_of
from toolcrib.cli.audit_command import place_of
from toolcrib.cli.terminal_output import plain, print_json, run, stderr
from toolcrib.core.errors import InvalidConfig

PATIENCE_S = 10.0
"""How long to wait for other programs that are writing the file."""


def forget(unwanted: Unwanted, config: Path, path: Path | None, *, yes: bool, as_json: bool) -> None:
    """Count the `unwanted` traces, ask, and delete them. Without a terminal, delete only with `yes`."""

    async def main() -> None:
        place = path if path is not None else place_of(config)
        if not place.exists():  # opening it would create a new audit
            _tell(place, 0, 0, as_json=as_json)
            return
        try:
            file = AuditFile(place, busy_s=PATIENCE_S)
            try:
                if not yes:
                    _ask(*file.matching(unwanted), as_json=as_json)
                traces, operations = file.forget(unwanted)
                left = _left_after(file, place)
            finally:
                file.close()
        except (OSError, sqlite3.Error) as error:
            raise InvalidConfig(f"{place}: cannot change the audit: {reason_of(error)}") from error
        _tell(place, traces, operations, as_json=as_json)
        if left is not None:
            stderr.print(f"{plain(left)} Run this command again later.", markup=False)
            sys.exit(1)

    run(main, as_json=as_json)


def _left_after(file: AuditFile, place: Path) -> str | None:
    """Return a sentence that says why copies of deleted traces may remain, or None if no copies remain."""
    try:
        is_gone = file.scrub()
    except (OSError, sqlite3.Error) as error:  # the traces are already deleted at this point
        return f"{place} may still contain copies, because it could not be rewritten: {reason_of(error)}."
    return None if is_gone else f"A program is reading the audit, so {place}-wal may still contain copies."


def _ask(traces: int, operations: int, *, as_json: bool) -> None:
    """Ask for confirmation. Exit unless the person agrees. If there is nothing to delete, do not ask."""
    if not traces:
        return
    if as_json or not all(stream.isatty() for stream in (sys.stdin, sys.stderr)):
        stderr.print(
            "Nothing was deleted, because there is no terminal to confirm on. Pass --yes to delete without asking."
        )
        sys.exit(1)
    question = f"Delete {_counted(traces, 'trace')} with {_counted(operations, 'operation')} permanently?"
    try:
        agreed = click.confirm(question, default=False, err=True)
    except click.Abort:
        agreed = False
        stderr.print()
    if not agreed:
        stderr.print("Nothing was deleted.")
        sys.exit(1)


def _tell(place: Path, traces: int, operations: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"traces": traces, "operations": operations})
    elif traces:
        stderr.print(f"Deleted {_counted(traces, 'trace')} with {_counted(operations, 'operation')}.")
    else:
        stderr.print(f"{plain(str(place))} has no matching traces.", markup=False)


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
