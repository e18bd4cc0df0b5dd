"""`toolcrib doctor`: does every source start, how long does it take, what does it offer, what is wrong with it?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.cli.opening import opened
from toolcrib.cli.output import escape, print_json, run, stdout
from toolcrib.config import read_config

_MARKS = {
    SourceStatus.READY: "[green]ready[/]",
    SourceStatus.FAILED: "[red]failed[/]",
    SourceStatus.STARTING: "[yellow]starting[/]",
}


def doctor(config: Path, wait_s: float, *, as_json: bool) -> None:
    """Start everything and report; the process ends with 1 when a source cannot be used."""

    async def main() -> bool:
        async with opened(config, None, wait_s=wait_s) as crib:
            state = crib.view().state
        counts = dict.fromkeys(state.sources, 0)
        for tool in state.tools.values():
            counts[tool.source] += 1
        entries = sorted(state.sources.values(), key=lambda entry: entry.name)
        disabled = [server.name for server in read_config(config).servers if server.disabled]
        healthy = all(entry.status is SourceStatus.READY for entry in entries)
        if as_json:
            print_json(
                {
                    "config": str(config),
                    "healthy": healthy,
                    "sources": [_wire(entry, counts[entry.name]) for entry in entries],
                    "disabled": disabled,
                }
            )
        else:
            _show(entries, counts, disabled)
        return healthy

    healthy: list[bool] = []

    async def note() -> None:
        healthy.append(await main())

    run(note, as_json=as_json)
    sys.exit(0 if healthy == [True] else 1)


def _reason(entry: SourceEntry) -> str | None:
    """Why a source failed, with what only its owner may read."""
    return " ".join(filter(None, (entry.reason, entry.diagnosis))) or None


def _wire(entry: SourceEntry, tool_count: int) -> dict[str, Any]:
    return {
        "name": entry.name,
        "status": entry.status.value,
        "title": entry.title,
        "tool_count": tool_count,
        "listed_in_s": None if entry.listed_in_s is None else round(entry.listed_in_s, 3),
        "reason": _reason(entry),
        "set_aside": [{"name": aside.name, "reason": aside.reason} for aside in entry.set_aside],
        "warnings": list(entry.warnings),
    }


def _show(entries: list[SourceEntry], counts: dict[str, int], disabled: list[str]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("source", "status", "tools", "seconds", "what is wrong"):
        table.add_column(column, justify="right" if column in {"tools", "seconds"} else "left", overflow="fold")
    for entry in entries:
        wrong = [reason] if (reason := _reason(entry)) else []
        wrong += [f"`{aside.name[:60]}` is set aside: {aside.reason}" for aside in entry.set_aside]
        wrong += entry.warnings
        took = f"{entry.listed_in_s:.2f}" if entry.listed_in_s is not None else ""
        table.add_row(
            f"[bold]{escape(entry.name)}[/]",
            _MARKS[entry.status],
            str(counts[entry.name]),
            took,
            "\n".join(escape(problem) for problem in wrong),
        )
    for name in disabled:
        table.add_row(f"[bold]{escape(name)}[/]", "[dim]disabled[/]", "", "", "")
    stdout.print(table, soft_wrap=False)
    states = [f"{sum(entry.status is status for entry in entries)} {status.value}" for status in SourceStatus]
    states = [state for state in states if not state.startswith("0 ")] + (
        [f"{len(disabled)} disabled"] if disabled else []
    )
    count = sum(counts.values())
    stdout.print(f"{count} tool{'s' * (count != 1)}; servers: {', '.join(states) or 'none are configured'}")
