"""`toolcrib audit forget`: delete traces from the audit, so that they are found in it no more."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import click

from toolcrib.audit.file import AuditFile, Unwanted, reason_of
from toolcrib.cli.audit import place_of
from toolcrib.cli.output import plain, print_json, run, stderr
from toolcrib.core.errors import InvalidConfig

PATIENCE_S = 10.0
"""How long to wait for other programs that write the file."""


def forget(unwanted: Unwanted, config: Path, path: Path | None, *, yes: bool, as_json: bool) -> None:
    """Say how many traces are `unwanted`, ask, and delete them; without a terminal to ask at, only with `yes`."""

    async def main() -> None:
        place = path if path is not None else place_of(config)
        if not place.exists():  # opening it would begin one
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
            raise InvalidConfig(f"{place}: the audit cannot be changed: {reason_of(error)}") from error
        _tell(place, traces, operations, as_json=as_json)
        if left is not None:
            stderr.print(f"{plain(left)} Repeat this later.", markup=False)
            sys.exit(1)

    run(main, as_json=as_json)


def _left_after(file: AuditFile, place: Path) -> str | None:
    """Why copies of what was deleted may be left, as a sentence; None where there are none."""
    try:
        is_gone = file.scrub()
    except (OSError, sqlite3.Error) as error:  # what was deleted is deleted all the same
        return f"Copies may be found in {place}, which cannot be written anew: {reason_of(error)}."
    return None if is_gone else f"Something else reads the audit: copies may be found in {place}-wal."


def _ask(traces: int, operations: int, *, as_json: bool) -> None:
    """Go on only if a person agrees, or there is nothing to delete."""
    if not traces:
        return
    if as_json or not all(stream.isatty() for stream in (sys.stdin, sys.stderr)):
        stderr.print("Nothing was forgotten: there is nobody to ask. With --yes it is.")
        sys.exit(1)
    question = f"Forget {_counted(traces, 'trace')} with {_counted(operations, 'operation')}, for good?"
    try:
        agreed = click.confirm(question, default=False, err=True)
    except click.Abort:
        agreed = False
        stderr.print()
    if not agreed:
        stderr.print("Nothing was forgotten.")
        sys.exit(1)


def _tell(place: Path, traces: int, operations: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"traces": traces, "operations": operations})
    elif traces:
        stderr.print(f"Forgot {_counted(traces, 'trace')} with {_counted(operations, 'operation')}.")
    else:
        stderr.print(f"Nothing like that is written down in {plain(str(place))}.", markup=False)


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
