"""`toolcrib doctor`: start every source, and report how long that takes, what it offers and what is wrong.

The report also has the limits of all sources and of each source that differs, missing capabilities that tools need,
whether a policy is in force, quarantined definitions, gaps in the audit, and possible mistakes in the file. An isolated
server is started for the local principal, if it has access. The other principals' credentials are not available here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Self

import click
from anyio import to_thread
from rich.padding import Padding
from rich.table import Column, Table

from toolcrib.audit.audit_file import DAY_S
from toolcrib.catalog.access import EFFECTS
from toolcrib.catalog.bundles import Missing
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.cli.audit_command import missing_from
from toolcrib.cli.clients.install_records import served_here
from toolcrib.cli.clients.known_clients import Surroundings
from toolcrib.cli.config_mistakes import ConfigMistakes
from toolcrib.cli.definition_verdicts import DefinitionVerdicts
from toolcrib.cli.opened_catalog import hidden_warning, opened
from toolcrib.cli.options import config_either_way, is_config_named, json_option, wait_option
from toolcrib.cli.policy_matches import RuleMatches, matches_of
from toolcrib.cli.terminal_output import asynchronous, escape, fail, plain, print_json, stderr, stdout
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import LOCAL
from toolcrib.core.schema import nearest
from toolcrib.definitions.drift import suspicions_in_texts
from toolcrib.search.embedders.pinned_models import GAIN
from toolcrib.search.embedding import Embedding, EmbeddingCondition
from toolcrib.sources.base import Condition

_MARKS = {
    SourceStatus.READY: "[green]ready[/]",
    SourceStatus.FAILED: "[red]failed[/]",
    SourceStatus.STARTING: "[yellow]starting[/]",
}
_SIGN_IN = "[yellow]sign in[/]"


@click.command()
@config_either_way
@wait_option
@json_option
@asynchronous
async def doctor(config: Path, wait_s: float, *, as_json: bool) -> int:
    """Start every server of CONFIG and report problems: whether it starts, how long that takes and what it offers.

    Also reports possible mistakes in the policy and the categories, and quarantined or suspicious definitions. Exits
    with 1 if a server cannot be used or a tool is quarantined.
    """
    config = _to_check(config, as_json=as_json)
    async with opened(config, None, wait_s=wait_s, searched=True, reports_quarantine=False, sees_all=True) as crib:
        crib.peek(LOCAL)  # makes the capabilities be checked
        # Show everything that was listed, whatever the policy hides: the person who runs this owns the policy.
        view = View.of(crib.registry.state, overlay=crib.isolated_sources.open_overlay(LOCAL.id))
        conditions = {name: crib.condition(name) for name in view.sources}
        embedding = await _embedding(crib.knowledge.embedding, wait_s)
        hidden = hidden_warning(crib, LOCAL)
        bundles = [(each.name, crib.resolve(each.name).missing) for each in crib.bundles]
    counts = Counter(tool.source for tool in view.tools.values())
    read = crib.with_registered(read_config(config))
    configured = {server.name: server for server in read.servers}
    found = {
        name: _Found(entry, counts[name], conditions[name], configured.get(name), wait_s)
        for name, entry in sorted(view.sources.items())
    }
    isolated = [
        _Isolated.of(server, found.pop(server.name, None)) for server in read.enabled if server.isolation == "principal"
    ]
    report = _Report(
        read,
        [*found.values()],
        isolated,
        list(_lacking(read, view)),
        ConfigMistakes(read, view),
        tuple(matches_of(read, view)),
        hidden,
        crib.registration_problems,
        embedding,
        DefinitionVerdicts.of(crib, view.sources.values(), config, read.pins),
        [(name, missing) for name, missing in bundles if missing],
        None if (kept := read.audit) is None else missing_from(kept.place, time.time() - kept.max_days * DAY_S),
    )
    if as_json:
        print_json({"config": str(config), **report.to_wire()})
    else:
        _show(report, verbose=logging.getLogger().isEnabledFor(logging.INFO))
    return int(not report.is_healthy)


def _to_check(config: Path, *, as_json: bool) -> Path:
    """Return `config`, or the only configuration that clients here serve if `config` is an absent default."""
    if is_config_named() or config.exists():
        return config
    served = {path: clients for path, clients in served_here(Surroundings.here()).items() if path.is_file()}
    names = {path: ", ".join(map(str, clients)) for path, clients in served.items()}
    if not names:
        return config
    if len(names) > 1:
        hints = [f"toolcrib doctor {quote(str(path))}    # for {clients}" for path, clients in names.items()]
        fail(InvalidConfig(f"{config}: file not found", hints=hints), as_json=as_json)
    ((only, clients),) = names.items()
    stderr.print(plain(f"{config} does not exist. Checking {only} instead, which is for {clients}."), markup=False)
    click.get_current_context().params["config"] = only  # hints that propose a command read it there
    return only


@dataclass(frozen=True, slots=True)
class _Found:
    """The findings about one source."""

    entry: SourceEntry
    tool_count: int
    condition: Condition | None
    configured: ServerConfig | None
    """The server's entry in the file as it is now. None if the source is not in the file."""
    waited_s: float

    @property
    def reason(self) -> str | None:
        """Return why the source cannot be used, including what only its owner may read."""
        if self.entry.status is SourceStatus.STARTING:
            return f"It did not finish starting within {self.waited_s:g} s."
        return " ".join(filter(None, (self.entry.reason, self.entry.diagnosis))) or None

    @property
    def remedy(self) -> str | None:
        """Return what the owner can do about it, if that is known."""
        if self.entry.status is SourceStatus.STARTING:
            return "Increase --wait. The first start of a server may have to download it."
        return self.entry.remedy or None


@dataclass(frozen=True, slots=True)
class _Isolated:
    """The findings about an isolated server."""

    name: str
    principals: list[str] | None
    """The principals with access. None means everyone."""
    problems: list[str]
    """Why some or all principals cannot use the server."""
    local: _Found | None
    """The server's state for the local principal. None if it has no access, or if the server cannot start."""

    @classmethod
    def of(cls, server: ServerConfig, local: _Found | None) -> Self:
        owned = [server, *(server.of(each) for each in (*(server.principals or ()), LOCAL.id))]
        problems = dict.fromkeys(own.problem for own in owned if own is not None and own.problem is not None)
        mine = server.of(LOCAL.id)
        tried = local if mine is not None and mine.problem is None else None
        return cls(server.name, None if server.principals is None else sorted(server.principals), [*problems], tried)

    @property
    def is_healthy(self) -> bool:
        return not self.problems and (self.local is None or self.local.entry.status is SourceStatus.READY)

    def to_wire(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "principals": self.principals,
            "problems": self.problems,
            "local": None if self.local is None else _wire(self.local),
        }


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A missing capability that at least one tool needs."""

    name: str
    why: str
    """The reason and what to do about it, in sentences."""
    looked_for: str | None
    """How Toolcrib looks for it, for the owner only. None if the file does not define a check."""
    tool_count: int
    """The number of tools that cannot be called until the capability is available."""

    def to_wire(self) -> dict[str, Any]:
        return {"name": self.name, "reason": self.why, "looked_for": self.looked_for, "tool_count": self.tool_count}


def _lacking(config: Config, view: View) -> Iterator[_Lacking]:
    """Yield the missing capabilities, sorted by name."""
    findings, checks = view.visible.state.findings, {each.name: each.check for each in config.capabilities}
    needed = Counter(name for tool_id in view.lacking for name in {*view.tools[tool_id].metadata.requires_capabilities})
    for name in sorted(needed.keys() - findings.there):
        looked_for = checks[name].looked_for if name in checks else None
        # Suggest a similar name here only: callers must not learn which other capabilities exist.
        near = None if name in checks else nearest(name, checks)
        why = findings.why_missing(name) + (f" Did you mean `{near}`?" if near is not None else "")
        yield _Lacking(name, why, looked_for, needed[name])


@dataclass(frozen=True, slots=True)
class _Report:
    """All findings."""

    config: Config
    found: list[_Found]
    isolated: list[_Isolated]
    lacking: list[_Lacking]
    mistakes: ConfigMistakes
    matches: tuple[RuleMatches, ...]
    """What each rule of the policy matches."""
    hidden: str | None
    """A sentence if the policy hides everything from the local principal."""
    registered: tuple[str, ...]
    """Registered items that are not used, with the reason."""
    embedding: EmbeddingCondition | None
    """None if no embedding model is configured."""
    verdicts: DefinitionVerdicts
    incomplete: Sequence[tuple[str, Sequence[Missing]]]
    """Incomplete bundles by name, with their missing required tools."""
    audit: str | None
    """A sentence about operations that are missing from the audit."""

    @property
    def is_empty(self) -> bool:
        return not (self.found or self.isolated or self.config.servers)

    @property
    def disabled(self) -> list[str]:
        return [server.name for server in self.config.servers if server.disabled]

    @property
    def causes(self) -> frozenset[str]:
        """The mistakes that make a rule match nothing, so that the report is not healthy."""
        failed = (each for each in self.matches if each.matches_nothing)
        return frozenset(mistake for each in failed for mistake in self.mistakes.of_rule(each.rule, each.number))

    @property
    def is_healthy(self) -> bool:
        ready = all(each.entry.status is SourceStatus.READY for each in self.found)
        has_model = self.embedding is None or self.embedding.problem is None
        has_all = not (self.is_empty or self.incomplete)
        isolated = all(each.is_healthy for each in self.isolated)
        rules = not any(each.matches_nothing for each in self.matches)
        return ready and has_model and has_all and self.verdicts.is_healthy and isolated and rules

    def to_wire(self) -> dict[str, Any]:
        return {
            "healthy": self.is_healthy,
            "limits": _rate_wire(self.config),
            "policy": _policy_wire(self.config, self.matches),
            "hidden_from_local": self.hidden,
            "sources": [_wire(each) for each in self.found],
            "isolated": [each.to_wire() for each in self.isolated],
            "disabled": self.disabled,
            "embedding": None if self.embedding is None else _embedding_wire(self.embedding),
            "definitions": self.verdicts.to_wire(),
            "incomplete_bundles": [
                {"name": name, "missing": [{**each.to_wire(), "why": each.diagnosis} for each in missing]}
                for name, missing in self.incomplete
            ],
            "missing_capabilities": [each.to_wire() for each in self.lacking],
            "categories_named_as_sources": list(self.mistakes.named_as_sources),
            "audit": self.audit,
            "passed_over": list(self.registered),
            "warnings": list(self.mistakes),
        }


def _wire(found: _Found) -> dict[str, Any]:
    entry, condition = found.entry, found.condition
    return {
        "name": entry.name,
        "status": entry.status.value,
        "title": entry.title,
        "tool_count": found.tool_count,
        "listed_in_s": None if entry.listed_in_s is None else round(entry.listed_in_s, 3),
        "reason": found.reason,
        "remedy": found.remedy,
        "needs_sign_in": entry.needs_sign_in,
        "set_aside": [{"name": aside.name, "reason": aside.reason} for aside in entry.set_aside],
        "warnings": [*entry.warnings, *_doubts_about_extras(entry)],
        "limits": None if found.configured is None else _limits_of(found.configured),
        "calls": None if condition is None else {"running": condition.running, "waiting": condition.waiting},
        "restarts": (
            None if condition is None else {"failures": condition.failures, "next_try_in_s": condition.retry_after_s}
        ),
    }


def _limits_of(configured: Config | ServerConfig) -> dict[str, float]:
    """Return the limits of a server by their keys in the file."""
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
    rate, lookups = config.rate, config.lookup_rate
    return {
        "calls_per_minute": None if rate is None else rate.calls_per_minute,
        "burst_calls": None if rate is None else rate.burst_calls,
        "lookups_per_minute": None if lookups is None else lookups.calls_per_minute,
    }


def _policy_wire(config: Config, matches: Sequence[RuleMatches]) -> dict[str, Any] | None:
    if config.policy is None:
        return None
    otherwise = next(name for name, access in EFFECTS.items() if access is config.policy.otherwise)
    wire = [each.to_wire() for each in matches]
    return {"rules": len(config.policy.rules), "otherwise": otherwise, "matches": wire}


_EMBEDDING_S = 3.0
"""How many seconds to wait for embeddings. Stored ones are counted in this time; new ones may take longer."""


async def _embedding(embedding: Embedding | None, wait_s: float) -> EmbeddingCondition | None:
    """Return the condition of the embedding model after it was loaded, or after loading failed."""
    if embedding is None:
        return None
    await to_thread.run_sync(embedding.opened, wait_s)
    await to_thread.run_sync(partial(embedding.settle, min(wait_s, _EMBEDDING_S), patient=False))
    return embedding.condition


def _embedding_wire(condition: EmbeddingCondition) -> dict[str, Any]:
    return {
        "model": condition.model,
        "dimensions": condition.dim,
        "embedded": condition.embedded,
        "wanted": condition.wanted,
        "refused": condition.refused,
        "problem": condition.problem,
        "next_try_in_s": condition.retry_after_s,
    }


def _show_embedding(condition: EmbeddingCondition) -> None:
    model = (
        "the model is not available" if condition.model is None else f"{condition.model}, {condition.dim} dimensions"
    )
    if condition.model is None and condition.problem is not None:
        lines = ["Embedding:"]
    else:
        lines = [f"Embedding: {model}; {condition.embedded} of {condition.wanted} tools have embeddings."]
    if condition.refused:
        lines.append(f"The model refused {condition.refused} of them.")
    if condition.problem is not None:
        when = "" if condition.retry_after_s is None else f" Toolcrib retries in {condition.retry_after_s:.0f} s."
        lines.append(f"{condition.problem}.{when} Tools without an embedding are found by their words only.")
    style = "dim" if condition.problem is None else "yellow"
    stdout.print(plain(" ".join(lines)), markup=False, style=style, soft_wrap=False)


def _show(report: _Report, *, verbose: bool) -> None:
    if report.is_empty:
        stdout.print(_NO_SERVERS.format(plain(str(report.config.path))), markup=False)
    else:
        _show_sources(report)
    for each in report.lacking:
        tools = "1 tool needs" if each.tool_count == 1 else f"{each.tool_count} tools need"
        looked_for = f" Looked for: {plain(each.looked_for)}." if each.looked_for is not None else ""
        text = f"Missing capability: {plain(each.name)}, which {tools}: {plain(each.why)}{looked_for}"
        stdout.print(text, markup=False, style="yellow", soft_wrap=False)
    for name, missing in report.incomplete:
        absent = "; ".join(f"{each.entry}: {each.diagnosis}" for each in missing)
        text = f"Problem: The bundle {name} is missing required tools: {plain(absent)}."
        stdout.print(text, markup=False, style="red", soft_wrap=False)
    if verbose:
        _show_limits(report.config, report.found)
    policy = _policy_wire(report.config, report.matches)
    rules = "everyone can see and call every tool"
    if policy is not None:
        rules = f"{policy['rules']} rule{'s' * (policy['rules'] != 1)}, else `{policy['otherwise']}`"
    lines = [f"Policy: {rules if policy is not None else f'none, {rules}'}."]
    if both := report.mistakes.named_as_sources:
        lines.append(f"Categories merged with the source of the same name: {', '.join(map(plain, both))}.")
    for line in lines:
        stdout.print(line, markup=False, style="dim", soft_wrap=False)
    for each in report.matches:
        style = "red" if each.matches_nothing else "yellow" if each.claiming else "dim"
        heading = "Problem: " if each.matches_nothing else ""
        stdout.print(f"{heading}{plain(each.sentence)}", markup=False, style=style, soft_wrap=False)
    if report.hidden is not None:
        stdout.print(plain(report.hidden), markup=False, style="yellow", soft_wrap=False)
    if report.embedding is not None:
        _show_embedding(report.embedding)
    elif not report.is_empty:
        stdout.print(
            f"Embedding: no model, search uses word vectors. {GAIN}", markup=False, style="dim", soft_wrap=False
        )
    report.verdicts.show()
    if report.audit is not None:
        stdout.print(f"Audit: {plain(report.audit)}", markup=False, style="yellow", soft_wrap=False)
    for each in report.registered:
        stdout.print(f"Registered but not used: {plain(each)}.", markup=False, style="yellow", soft_wrap=False)
    causes = report.causes
    for mistake in report.mistakes:
        heading, style = ("Problem", "red") if mistake in causes else ("Possible mistake", "yellow")
        stdout.print(f"{heading}: {plain(mistake)}.", markup=False, style=style, soft_wrap=False)


_NO_SERVERS = """\
There are no servers in {}. Add one, for example:

  {{"mcpServers": {{"time": {{"command": "uvx", "args": ["mcp-server-time"]}}}}}}
"""


def _show_sources(report: _Report) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("source", "status", "tools", "seconds"):
        table.add_column(column, justify="right" if column in {"tools", "seconds"} else "left", overflow="fold")
    problems: dict[str, tuple[list[str], str | None]] = {}
    for each in report.found:
        table.add_row(*_row(each, _SIGN_IN if each.entry.needs_sign_in else _MARKS[each.entry.status]))
        problems[each.entry.name] = [*_wrong(each)], each.remedy
    for server in report.isolated:
        whose = "everyone" if server.principals is None else ", ".join(server.principals) or "no one"
        said = [f"Each principal gets their own instance. Available to: {whose}.", *server.problems]
        label = "isolated" if server.is_healthy else "[red]isolated[/]"
        if server.local is None:
            said += [] if server.problems else [f"Not started: the principal `{LOCAL.id}` has no access to it."]
            table.add_row(f"[bold]{escape(server.name)}[/]", label, "", "")
            problems[server.name] = said, None
            continue
        said += [f"For `{LOCAL.id}`: {server.local.entry.status.value}.", *_wrong(server.local)]
        table.add_row(*_row(server.local, label))
        problems[server.name] = said, server.local.remedy
    for name in report.disabled:
        table.add_row(f"[bold]{escape(name)}[/]", "[dim]disabled[/]", "", "")
    stdout.print(table, soft_wrap=False)
    statuses = Counter(each.entry.status for each in report.found)
    counted = [f"{statuses[status]} {status.value}" for status in SourceStatus]
    counted += [f"{len(report.isolated)} isolated", f"{len(report.disabled)} disabled"]
    states = [state for state in counted if not state.startswith("0 ")]
    own = (each.local for each in report.isolated if each.local is not None)
    count = sum(each.tool_count for each in (*report.found, *own))
    stdout.print(f"{count} tool{'s' * (count != 1)}; servers: {', '.join(states)}")
    for name, (said, remedy) in problems.items():
        if said or remedy is not None:
            _show_wrong(name, said, remedy)
    if any(said or remedy for said, remedy in problems.values()):
        stdout.print()


def _show_wrong(name: str, said: Sequence[str], remedy: str | None) -> None:
    """Print the problems of a source below the table: a narrow terminal has no room for sentences next to it."""
    stdout.print(f"\n[bold]{escape(name)}[/]")
    lines = Table.grid(Column(overflow="fold"))
    for line in said:
        lines.add_row(escape(line))
    if remedy is not None:
        lines.add_row(f"[cyan]Fix:[/] {escape(remedy)}")
    stdout.print(Padding(lines, (0, 0, 0, 2)), soft_wrap=False)


def _row(found: _Found, label: str) -> tuple[str, ...]:
    entry = found.entry
    took = f"{entry.listed_in_s:.2f}" if entry.listed_in_s is not None else ""
    return f"[bold]{escape(entry.name)}[/]", label, str(found.tool_count), took


def _wrong(found: _Found) -> Iterator[str]:
    """Yield everything that is wrong with a source."""
    entry = found.entry
    if reason := found.reason:
        text = reason.removeprefix(f"`{entry.name}` ")
        yield text[:1].upper() + text[1:]
    yield from _troubles(found.condition)
    yield from (f"`{aside.name[:60]}` is ignored: {aside.reason}" for aside in entry.set_aside)
    yield from entry.warnings
    yield from _doubts_about_extras(entry)


def _doubts_about_extras(entry: SourceEntry) -> Iterator[str]:
    """Yield suspicious texts in prompts and resources. They matter because clients show them to people and models."""
    kinds = (
        ("prompt", entry.extras.prompts),
        ("resource", entry.extras.resources),
        ("template", entry.extras.templates),
    )
    for kind, wires in () if entry.trusted else kinds:
        for wire in wires:
            called = str(wire.get("name") or wire.get("uri") or wire.get("uriTemplate"))[:60]
            for doubt in suspicions_in_texts(wire):
                yield f"suspicious {kind} `{called}`: {doubt.why} (“{doubt.excerpt}”)"


def _troubles(condition: Condition | None) -> Iterator[str]:
    """Yield what prevents calls to a source, or delays them."""
    if condition is None:
        return
    if condition.failures:
        often = "Failed once" if condition.failures == 1 else f"Failed {condition.failures} times in a row"
        when = "with the next call" if condition.retry_after_s is None else f"after {condition.retry_after_s:g} s"
        yield f"{often}; a gateway retries {when}."
    elif condition.retry_after_s is not None:
        yield f"The server asked clients to wait; a gateway retries after {condition.retry_after_s:g} s."
    if condition.waiting:
        yield f"{condition.running} calls are running, {condition.waiting} are queued."


def _show_limits(config: Config, found: list[_Found]) -> None:
    every = _limits_of(config)
    lines = [f"Limits per server: {_limits_text(every)}."]
    for each in found:
        own = {} if each.configured is None else dict(_limits_of(each.configured).items() - every.items())
        if own:
            lines.append(f"  {plain(each.entry.name)}: {_limits_text(own)}")
    rate = config.rate
    text = f"{rate.calls_per_minute} calls per minute, burst of {rate.burst_calls}" if rate else "no limit"
    lines.append(f"Limits per principal: {text}.")
    for line in lines:
        stdout.print(line, markup=False, style="dim", soft_wrap=False)


_TOLD = {
    "start_timeout_s": "{:g} s to start",
    "list_timeout_s": "{:g} s to list",
    "call_timeout_s": "{:g} s to answer",
    "idle_timeout_s": "stopped after {:g} s unused",
    "max_concurrent_calls": "{:g} calls at once",
    "max_queued_calls": "{:g} more queued",
}


def _limits_text(limits: Mapping[str, float]) -> str:
    return ", ".join(how.format(limits[key]) for key, how in _TOLD.items() if key in limits)
