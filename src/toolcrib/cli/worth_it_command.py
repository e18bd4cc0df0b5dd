"""`toolcrib worth-it`: compare the tokens of all definitions with the tokens that Toolcrib needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.padding import Padding
from rich.table import Column, Table

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.cli.clients.server_entries import serving
from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.options import config_either_way, json_option, tools_option, wait_option
from toolcrib.cli.terminal_output import asynchronous, escape, print_json, size_wire, stderr, stdout
from toolcrib.config import read_config
from toolcrib.core.digests import BYTES_PER_TOKEN, size_of
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.crib.top_level import top_level
from toolcrib.operations.briefing import Top, briefing
from toolcrib.operations.operation_table import DEFAULT_SET, SETS
from toolcrib.sources.mcp.server_spec import StdioServer

HANDFUL = 5
"""How many different tools a conversation looks up. Using the same tool again costs nothing more."""

WORTH_RATIO = 2
"""Toolcrib is worth it if a model reads this many times less with it, including a handful of lookups.

A search and an expansion are two more steps of the model before its first call of a tool, and the model can search
for the wrong words. Saving less than half does not pay for that.
"""

PROBED = 40
"""How many tools are searched for and expanded to measure one use. In a larger catalog, they are evenly spread."""

HEAVIEST = 5
"""How many of the heaviest tools are named."""


@dataclass(frozen=True, slots=True)
class _ServerWeight:
    """The sizes of the definitions of one server."""

    name: str
    tools: tuple[tuple[str, int], ...]
    """Pairs of a tool id and its size, heaviest first."""

    @property
    def size(self) -> int:
        return sum(size for _, size in self.tools)


@dataclass(frozen=True, slots=True)
class _Worth:
    """What a model reads without Toolcrib and with it. All sizes are in UTF-8 bytes of compact JSON."""

    servers: tuple[_ServerWeight, ...]
    """Heaviest first."""
    before_search: int
    """The size of the operations and the instructions."""
    search: int
    """The median size of a page of search results. Tools of this catalog are searched for by their own summaries."""
    expansion: int
    """The median size of one expansion."""
    missing: tuple[str, ...] = ()
    """Servers that could not be listed, so their size is unknown."""

    @property
    def tools(self) -> int:
        return sum(len(server.tools) for server in self.servers)

    @property
    def now(self) -> int:
        return sum(server.size for server in self.servers)

    @property
    def one_use(self) -> int:
        return self.search + self.expansion

    @property
    def handful(self) -> int:
        """The size with Toolcrib after a handful of tools were looked up."""
        return self.before_search + HANDFUL * self.one_use

    @property
    def uses_until_even(self) -> int:
        """How many lookups cost less than all definitions. 0 if even the first lookup costs more."""
        return max(0, self.now - self.before_search) // self.one_use if self.one_use else 0

    @property
    def is_worth_it(self) -> bool | None:
        """None if the answer depends on servers that could not be listed."""
        if self.now >= WORTH_RATIO * self.handful:
            return True
        return None if self.missing else False

    def to_wire(self) -> dict[str, Any]:
        return {
            "verdict": _VERDICTS[self.is_worth_it],
            "worth_it": self.is_worth_it,
            "reason": reason(self),
            "tool_count": self.tools,
            "now": size_wire(self.now),
            "with_toolcrib": {
                "before_first_search": size_wire(self.before_search),
                "search": size_wire(self.search),
                "expansion": size_wire(self.expansion),
                "one_use": size_wire(self.one_use),
                "after_a_handful": {**size_wire(self.handful), "uses": HANDFUL},
            },
            "uses_until_even": self.uses_until_even,
            "servers": [
                {
                    "name": server.name,
                    "tool_count": len(server.tools),
                    **size_wire(server.size),
                    "heaviest": [_tool_wire(*tool) for tool in server.tools[:HEAVIEST]],
                }
                for server in self.servers
            ],
            "heaviest": [_tool_wire(*tool) for tool in heaviest(self.servers)],
            "missing": list(self.missing),
        }


_VERDICTS = {True: "worth it", False: "leave it", None: "cannot tell"}


@click.command()
@config_either_way
@tools_option
@wait_option
@json_option
@asynchronous
async def worth_it(config: Path, tools: Path | None, wait_s: float, *, as_json: bool) -> int:
    """Compare how many tokens a model reads with Toolcrib, and without it.

    Without Toolcrib, a model reads all definitions of CONFIG's servers.

    Ends with a verdict: worth it, or not. Exits with 1 if the verdict depends on servers that cannot be listed.
    """
    weighed_config = config
    if tools is None and (behind := _behind(config)) is not None:
        weighed_config = behind
        stderr.print(f"{config} starts Toolcrib. Measuring the servers of {behind} instead.", markup=False)
    async with opened(weighed_config, tools, wait_s=wait_s) as crib:
        named = top_level(read_config(weighed_config)) if tools is None else _named(crib)
        worth = weighed(crib, named)
    if as_json:
        print_json(worth.to_wire())
    else:
        _show(worth)
    return int(worth.is_worth_it is None)


def _behind(config: Path) -> Path | None:
    """Return the configuration behind `config`, if `toolcrib install` made Toolcrib its only server."""
    servers = [each.server for each in read_config(config).enabled]
    match servers:
        case [StdioServer(command=command, args=args)]:
            found = serving({"command": command, "args": [*args]})
            behind = Path(found.config) if found is not None and found.config is not None else None
            return behind if behind is not None and behind.is_file() else None
        case _:
            return None


def weighed(crib: Toolcrib, named: Sequence[Top]) -> _Worth:
    """Measure the catalog of `crib`. `named` holds the top-level categories that the instructions list."""
    view = crib.view()
    servers: dict[str, list[tuple[str, int]]] = {
        name: [] for name, entry in view.sources.items() if entry.status is SourceStatus.READY
    }
    for tool in view.tools.values():
        servers[tool.source].append((tool.id, size_of(_as_shown(tool))))
    weights = [_ServerWeight(name, _heaviest_first(tools)) for name, tools in servers.items()]
    weights.sort(key=lambda server: (-server.size, server.name))
    probes = _spread(view)
    return _Worth(
        tuple(weights),
        briefing(SETS[DEFAULT_SET], named).size,
        _median(size_of(crib.search_tools(tool.summary).to_wire()) for tool in probes),
        _median(size_of(crib.expand_tool(tool.id).to_wire()) for tool in probes),
        tuple(sorted(name for name, entry in view.sources.items() if entry.status is not SourceStatus.READY)),
    )


def reason(worth: _Worth) -> str:
    """Return full sentences that explain the verdict."""
    now, handful = worth.now // BYTES_PER_TOKEN, worth.handful // BYTES_PER_TOKEN
    if not worth.tools and not worth.missing:
        return "There are no tools."
    with_it = f"With Toolcrib, a model that looks up {HANDFUL} tools reads about {handful:,} tokens"
    without = f"without it, about {now:,}"
    if worth.is_worth_it:
        return f"{with_it}; {without}, {now / handful:.1f} times as much."
    if worth.is_worth_it is None:
        others = f" For the other servers: {_VERDICTS[False]}." if worth.tools else ""
        text = f"{with_it}; {without}, not counting {', '.join(worth.missing)}."
        return f"{text}{others} Run `toolcrib doctor` to see what is wrong."
    if worth.uses_until_even == 0:
        return f"{with_it}; {without}. Toolcrib costs more from the first tool on."
    uses = f"{worth.uses_until_even} tool{'s' * (worth.uses_until_even != 1)}"
    if handful >= now:
        return f"{with_it}; {without}. Toolcrib costs more when more than {uses} are looked up."
    return f"{with_it}; {without}. That saves too little for the two extra steps before each new tool."


def heaviest(servers: Iterable[_ServerWeight]) -> tuple[tuple[str, int], ...]:
    """Return the heaviest tools of all servers."""
    return _heaviest_first([tool for server in servers for tool in server.tools])[:HEAVIEST]


def _named(crib: Toolcrib) -> list[Top]:
    """Return the top-level categories of a catalog that has no configuration."""
    entries = crib.view().sources.values()
    return [Top(entry.name, entry.summary or entry.title or "") for entry in entries]


def _as_shown(tool: Tool) -> Mapping[str, Any]:
    """Return what a client shows its model: name, description and input schema, and nothing else from the server."""
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}


def _spread(view: View) -> list[Tool]:
    tools = [view.tools[tool_id] for tool_id in sorted(view.tools)]
    step = max(1, -(-len(tools) // PROBED))
    return tools[::step]


def _median(sizes: Iterable[int]) -> int:
    measured = [*sizes]
    return round(median(measured)) if measured else 0


def _heaviest_first(tools: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(tools, key=lambda tool: (-tool[1], tool[0])))


def _tokens(size: int) -> str:
    return f"{size // BYTES_PER_TOKEN:,}"


def _tool_wire(tool_id: str, size: int) -> dict[str, Any]:
    return {"tool_id": tool_id, **size_wire(size)}


_STYLES = {True: "bold green", False: "bold yellow", None: "bold yellow"}


def _show(worth: _Worth) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("server", "tools", "≈ tokens", "share", "heaviest tool"):
        numeric = column in {"tools", "≈ tokens", "share"}
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for server in worth.servers:
        name, size = server.tools[0] if server.tools else ("", 0)
        table.add_row(
            f"[bold]{escape(server.name)}[/]",
            str(len(server.tools)),
            _tokens(server.size),
            f"{server.size / worth.now:.0%}" if worth.now else "",
            escape(f"{name.removeprefix(f'{server.name}.')}, {_tokens(size)}") if server.tools else "",
        )
    stdout.print(table, soft_wrap=False)
    if len(worth.servers) > 1:
        stdout.print("\n[dim]heaviest of all[/]")
        for tool_id, size in heaviest(worth.servers):
            stdout.print(f"  {_tokens(size):>6}  {escape(tool_id)}")
    stdout.print()
    lines = Table.grid(Column(), Column(justify="right"), padding=(0, 2, 0, 0))
    count = f"{worth.tools} tool{'s' * (worth.tools != 1)}"
    for label, size in (
        (f"now: {count}, all shown", worth.now),
        ("with Toolcrib, before the first search", worth.before_search),
        ("  plus for each tool that is looked up", worth.one_use),
        (f"  so after {HANDFUL} tools", worth.handful),
    ):
        lines.add_row(label, _tokens(size))
    lines.add_row("tools to look up until both are equal", f"{worth.uses_until_even:,}")
    stdout.print(lines)
    stdout.print(f"\n[{_STYLES[worth.is_worth_it]}]{_VERDICTS[worth.is_worth_it].capitalize()}.[/]")
    stdout.print(Padding(escape(reason(worth)), 0), soft_wrap=False)
    if worth.missing and worth.is_worth_it:
        stderr.print(f"Not counted, because unavailable: {', '.join(worth.missing)}.", style="yellow")
    note = "A token is estimated as four bytes. If your client already loads tools on demand, you save less."
    stdout.print(Padding(f"[dim]{note}[/]", 0), soft_wrap=False)
