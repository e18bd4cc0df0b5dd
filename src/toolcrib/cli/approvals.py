"""`toolcrib approvals`: what may run without asking again, and taking it back."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

import platformdirs
from rich.table import Table

from toolcrib.cli.output import escape, print_json, run, stderr, stdout
from toolcrib.core.errors import InvalidConfig
from toolcrib.stores.approvals import Approval, ApprovalStore


def approvals(store: Path | None, revoke: tuple[int, ...], *, as_json: bool) -> None:
    """List them, or take back those of the given numbers."""

    async def main() -> None:
        kept = ApprovalStore(store or default_approvals())
        try:
            for number in revoke:
                if not kept.revoke(number):
                    raise InvalidConfig(f"there is no approval {number}", hints=["`toolcrib approvals` lists them."])
            left = kept.all()
        except (OSError, sqlite3.Error) as error:
            raise InvalidConfig(f"{kept.path}: {error}") from error
        if as_json:
            print_json([_wire(approval) for approval in left])
        elif left:
            stdout.print(_table(left))
        else:
            stderr.print("Nothing is approved for good: people are asked each time.")

    run(main, as_json=as_json)


def default_approvals() -> Path:
    """Where approvals are kept unless somebody says otherwise."""
    return platformdirs.user_state_path("toolcrib") / "approvals.sqlite"


def _wire(approval: Approval) -> dict[str, object]:
    return {
        "number": approval.number,
        "principal": approval.principal,
        "tool_id": approval.tool_id,
        "definition": approval.definition,
        "approved_at": datetime.fromtimestamp(approval.approved_at).astimezone().isoformat(timespec="seconds"),
    }


def _table(approvals: tuple[Approval, ...]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 3, 0, 0))
    for column in ("", "tool", "for", "since"):
        table.add_column(column)
    for approval in approvals:
        since = datetime.fromtimestamp(approval.approved_at).astimezone()
        table.add_row(
            str(approval.number),
            f"[bold]{escape(approval.tool_id)}[/]",
            escape(approval.principal),
            f"{since:%Y-%m-%d %H:%M}",
        )
    return table
