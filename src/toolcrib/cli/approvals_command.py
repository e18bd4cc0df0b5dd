"""`toolcrib approvals`: show and revoke permanent approvals."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.opened_catalog import default_approvals
from toolcrib.cli.options import FILE, json_option
from toolcrib.cli.terminal_output import asynchronous, escape, plain, print_json, stderr, stdout
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.operations.calling.approval_store import Approval, ApprovalStore

if TYPE_CHECKING:
    from rich.table import Table


@click.command()
@click.option(
    "--revoke",
    metavar="NUMBER",
    type=int,
    multiple=True,
    help="Withdraw the approval with this number. Repeatable.",
)
@click.option("--store", metavar="FILE", type=FILE, help="The file with the approvals.")
@json_option
@asynchronous
async def approvals(store: Path | None, revoke: tuple[int, ...], *, as_json: bool) -> None:
    """Show which tools run without asking because a person answered `always`, and for which principal."""
    kept = ApprovalStore(store or default_approvals())
    try:
        revoked = _revoked(kept, revoke)
        left = kept.all()
    except (OSError, sqlite3.Error) as error:
        raise InvalidConfig(f"{kept.path}: {error}") from error
    if as_json:
        print_json({"approvals": [*map(_wire, left)], "revoked": [*map(_wire, revoked)]})
        return
    for approval in revoked:
        text = f"Revoked {approval.number}: {approval.principal} is asked again before `{approval.tool_id}` runs."
        stderr.print(plain(text), markup=False)
    if left:
        stdout.print(_table(left))
    else:
        stderr.print("No permanent approvals. People are asked every time.")


def _revoked(kept: ApprovalStore, numbers: tuple[int, ...]) -> list[Approval]:
    """Revoke the approvals with these numbers, all or none. Returns what was revoked.

    Raises:
        NotFound: there is no approval with one of the numbers.
        OSError, sqlite3.Error: the file cannot be read or written.
    """
    there = {approval.number: approval for approval in kept.all()}
    wanted = dict.fromkeys(numbers)
    for number in wanted:
        if number not in there:
            raise NotFound(f"Approval {number} not found.", hints=["Run `toolcrib approvals` to list them."])
    return [there[number] for number in wanted if kept.revoke(number)]


def _wire(approval: Approval) -> dict[str, object]:
    return {
        "number": approval.number,
        "principal": approval.principal,
        "tool_id": approval.tool_id,
        "definition": approval.definition,
        "approved_at": datetime.fromtimestamp(approval.approved_at).astimezone().isoformat(timespec="seconds"),
    }


def _table(approvals: tuple[Approval, ...]) -> Table:
    from rich.table import Table

    table = Table("", "tool", "for", "since", box=None, header_style="dim", padding=(0, 3, 0, 0))
    for approval in approvals:
        since = datetime.fromtimestamp(approval.approved_at).astimezone()
        table.add_row(
            str(approval.number),
            f"[bold]{escape(approval.tool_id)}[/]",
            escape(approval.principal),
            f"{since:%Y-%m-%d %H:%M}",
        )
    return table
