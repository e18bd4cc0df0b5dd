"""`toolcrib doctor`: does every source start, how long does it take, what does it offer, what is wrong with it?

It tells which limits hold, too: those of all sources once, and for a source what differs. A server that each principal
has for itself is not started here, where nobody has credentials but the person at this machine: it is only read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from rich.table import Table

from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.cli.opening import opened
from toolcrib.cli.output import escape, plain, print_json, run, stdout
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.sources.condition import Condition

_MARKS = {
    SourceStatus.READY: "[green]ready[/]",
    SourceStatus.FAILED: "[red]failed[/]",
    SourceStatus.STARTING: "[yellow]starting[/]",
}


def doctor(config: Path, wait_s: float, *, as_json: bool) -> None:
    """Start everything and report; the process ends with 1 when a source cannot be used."""

    async def main() -> bool:
        async with opened(config, None, wait_s=wait_s, wanted=lambda server: server.isolation == "shared") as crib:
            state = crib.registry.state
            conditions = {name: crib.condition(name) for name in state.sources}
        counts = dict.fromkeys(state.sources, 0)
        for tool in state.tools.values():
            counts[tool.source] += 1
        read = read_config(config)
        disabled = [server.name for server in read.servers if server.disabled]
        configured = {server.name: server for server in read.servers}
        found = [
            _Found(entry, counts[name], conditions[name], configured.get(name))
            for name, entry in sorted(state.sources.items())
        ]
        isolated = [_Isolated.of(server) for server in read.enabled if server.isolation == "principal"]
        healthy = all(each.entry.status is SourceStatus.READY for each in found)
        healthy = healthy and not any(each.problems for each in isolated)
        if as_json:
            print_json(
                {
                    "config": str(config),
                    "healthy": healthy,
                    "limits": _rate_wire(read),
                    "sources": [_wire(each) for each in found],
                    "isolated": [asdict(each) for each in isolated],
                    "disabled": disabled,
                }
            )
        else:
            _show(found, isolated, disabled)
            _show_limits(read, found)
        return healthy

    healthy: list[bool] = []

    async def note() -> None:
        healthy.append(await main())

    run(note, as_json=as_json)
    sys.exit(0 if healthy == [True] else 1)


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to say about one source."""

    entry: SourceEntry
    tool_count: int
    condition: Condition | None
    configured: ServerConfig | None
    """As the file says by now, where the source is in it."""


@dataclass(frozen=True, slots=True)
class _Isolated:
    """What there is to say about a server that each principal has for itself."""

    name: str
    principals: list[str] | None
    """Who has it; None where everybody does."""
    problems: list[str]
    """Why some or all of them cannot use it."""

    @classmethod
    def of(cls, server: ServerConfig) -> Self:
        if server.problem is not None:
            problems = [server.problem]
        else:
            owned = [server.of(each) for each in server.principals or {}]
            problems = [own.problem for own in owned if own is not None and own.problem is not None]
        return cls(server.name, None if server.principals is None else sorted(server.principals), problems)


def _reason(entry: SourceEntry) -> str | None:
    """Why a source failed, with what only its owner may read."""
    return " ".join(filter(None, (entry.reason, entry.diagnosis))) or None


def _wire(found: _Found) -> dict[str, Any]:
    entry, condition = found.entry, found.condition
    return {
        "name": entry.name,
        "status": entry.status.value,
        "title": entry.title,
        "tool_count": found.tool_count,
        "listed_in_s": None if entry.listed_in_s is None else round(entry.listed_in_s, 3),
        "reason": _reason(entry),
        "set_aside": [{"name": aside.name, "reason": aside.reason} for aside in entry.set_aside],
        "warnings": list(entry.warnings),
        "limits": None if found.configured is None else _limits_of(found.configured),
        "calls": None if condition is None else {"running": condition.running, "waiting": condition.waiting},
        "restarts": (
            None if condition is None else {"failures": condition.failures, "next_try_in_s": condition.retry_after_s}
        ),
    }


def _limits_of(configured: Config | ServerConfig) -> dict[str, float]:
    """The limits of a server by the names that they have in the file."""
    patience, capacity = configured.patience, configured.capacity
    return {
        "start_timeout_s": patience.start_s,
        "list_timeout_s": patience.list_s,
        "call_timeout_s": patience.call_s,
        "idle_timeout_s": patience.idle_s,
        "max_concurrent_calls": capacity.concurrent_calls,
        "max_queued_calls": capacity.queued_calls,
    }


def _rate_wire(config: Config) -> dict[str, int | None]:
    rate = config.rate
    return {
        "calls_per_minute": None if rate is None else rate.calls_per_minute,
        "burst_calls": None if rate is None else rate.burst_calls,
    }


def _show(found: list[_Found], isolated: list[_Isolated], disabled: list[str]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("source", "status", "tools", "seconds", "what is wrong"):
        table.add_column(column, justify="right" if column in {"tools", "seconds"} else "left", overflow="fold")
    for each in found:
        entry = each.entry
        wrong = [reason] if (reason := _reason(entry)) else []
        wrong += _troubles(each.condition)
        wrong += [f"`{aside.name[:60]}` is set aside: {aside.reason}" for aside in entry.set_aside]
        wrong += entry.warnings
        took = f"{entry.listed_in_s:.2f}" if entry.listed_in_s is not None else ""
        table.add_row(
            f"[bold]{escape(entry.name)}[/]",
            _MARKS[entry.status],
            str(each.tool_count),
            took,
            "\n".join(escape(problem) for problem in wrong),
        )
    for server in isolated:
        whose = "everybody" if server.principals is None else ", ".join(server.principals) or "nobody"
        said = [f"Started for each principal that asks. Who has it: {whose}.", *server.problems]
        label = "[red]isolated[/]" if server.problems else "isolated"
        table.add_row(f"[bold]{escape(server.name)}[/]", label, "", "", "\n".join(map(escape, said)))
    for name in disabled:
        table.add_row(f"[bold]{escape(name)}[/]", "[dim]disabled[/]", "", "", "")
    stdout.print(table, soft_wrap=False)
    counted = [f"{sum(each.entry.status is status for each in found)} {status.value}" for status in SourceStatus]
    counted += [f"{len(isolated)} isolated", f"{len(disabled)} disabled"]
    states = [state for state in counted if not state.startswith("0 ")]
    count = sum(each.tool_count for each in found)
    stdout.print(f"{count} tool{'s' * (count != 1)}; servers: {', '.join(states) or 'none are configured'}")


def _troubles(condition: Condition | None) -> Iterator[str]:
    """What keeps a source from being called, or calls from it."""
    if condition is None:
        return
    if condition.failures:
        often = "Failed once" if condition.failures == 1 else f"Failed {condition.failures} times in a row"
        when = "by the next call" if condition.retry_after_s is None else f"in {condition.retry_after_s:g} s"
        yield f"{often}; tried again {when}."
    elif condition.retry_after_s is not None:
        yield f"Asked to be left alone; tried again in {condition.retry_after_s:g} s."
    if condition.waiting:
        yield f"{condition.running} calls are running, {condition.waiting} wait in line."


def _show_limits(config: Config, found: list[_Found]) -> None:
    every = _limits_of(config)
    lines = [f"Every server: {_told(every)}."]
    for each in found:
        own = {} if each.configured is None else dict(_limits_of(each.configured).items() - every.items())
        if own:
            lines.append(f"  {plain(each.entry.name)}: {_told(own)}")
    rate = config.rate
    told = f"{rate.calls_per_minute} calls a minute, {rate.burst_calls} of them at once" if rate else "no limit"
    lines.append(f"Every principal: {told}.")
    for line in lines:
        stdout.print(line, markup=False, style="dim", soft_wrap=False)


_TOLD = {
    "start_timeout_s": "{:g} s to start",
    "list_timeout_s": "{:g} s to list",
    "call_timeout_s": "{:g} s to answer",
    "idle_timeout_s": "stopped after {:g} s unused",
    "max_concurrent_calls": "{:g} calls at once",
    "max_queued_calls": "{:g} more in line",
}


def _told(limits: Mapping[str, float]) -> str:
    return ", ".join(how.format(limits[key]) for key, how in _TOLD.items() if key in limits)
