"""`toolcrib list`, `tree`, `categories`, `search` and `expand`: look around in the catalog."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import indent
from typing import cast

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from toolcrib.catalog.ontology import Branch
from toolcrib.catalog.view import View
from toolcrib.cli.opened_catalog import opened, principal_called, until_understood
from toolcrib.cli.options import (
    as_option,
    bundle_option,
    config_either_way,
    config_option,
    json_option,
    limit_option,
    tag_option,
    tools_option,
    wait_option,
)
from toolcrib.cli.terminal_output import (
    asynchronous,
    escape,
    plain,
    print_json,
    report_unavailable,
    say,
    show,
    show_json,
    show_next_action,
    stderr,
    stdout,
)
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.tools import ToolPointer, one_line, summarize
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.catalog_operations import MAX_LIMIT, why_unavailable
from toolcrib.operations.protocol_messages import CategoryPointer, Missing, SearchPage

TREE_TOOLS = 200
"""How many tools are shown below one category. The rest are counted."""

LEAST = 0.01
"""The lowest confidence of a result that is shown to a person."""

SUMMARY_CHARS = 90
"""How many characters of a category's summary are shown. Generated summaries are longer, because models read them."""

TREE_DEPTH = 50
"""How many levels are shown. `list` can go deeper."""


@click.command()
@config_either_way
@tools_option
@bundle_option
@as_option
@wait_option
@json_option
@asynchronous
async def tree(
    config: Path, tools: Path | None, wait_s: float, *, bundle: str | None, principal: str | None, as_json: bool
) -> None:
    """Show the whole catalog: its sources, categories and tools."""
    seen_by = principal_called(principal, config, tools)
    async with opened(config, tools, wait_s=wait_s, bundle=bundle, principal=seen_by) as crib:
        view, page = crib.view(seen_by), crib.list(context=CallContext(seen_by))
        if as_json:
            print_json({**_as_json(view, view.ontology.root), **page.missing.to_wire()})
            return
        if count := len(view.tools):
            root = Tree(f"[bold]{count} tool{'s' * (count != 1)}[/]")
            _grow(root, view, view.ontology.root)
            show(root)
        else:
            _report_nothing(crib, seen_by)
        _report(page.missing)


@click.command("list")
@click.argument("path", nargs=-1)
@config_option
@tools_option
@tag_option
@click.option("--query", help="Show only what matches this query, best first.")
@limit_option(50, "entries")
@bundle_option
@as_option
@wait_option
@json_option
@asynchronous
async def list_(
    path: tuple[str, ...],
    config: Path,
    tools: Path | None,
    *,
    tags: tuple[str, ...],
    query: str | None,
    limit: int,
    wait_s: float,
    bundle: str | None,
    principal: str | None,
    as_json: bool,
) -> None:
    """List the categories and tools at a path, given name by name: `toolcrib list Coding Refactoring`."""
    seen_by = principal_called(principal, config, tools)
    async with opened(config, tools, wait_s=wait_s, bundle=bundle, principal=seen_by) as crib:
        page = crib.list(path, tags=tags, query=query, limit=limit, context=CallContext(seen_by))
        if as_json:
            print_json(page.to_wire())
            return
        table = Table.grid(Column(overflow="fold"), Column(), padding=(0, 2))
        for node in page.nodes:
            about = f"{node.tool_count} · {one_line(node.node.summary, SUMMARY_CHARS)}"
            table.add_row(f"[bold cyan]{escape('/'.join(node.node.path))}[/]", f"[dim]{escape(about)}[/]")
        for pointer in page.tools:
            table.add_row(f"[bold]{escape(pointer.tool_id)}[/]", _summary_of(pointer))
        if page.nodes or page.tools:
            stdout.print(table, soft_wrap=False)
        elif tags or query:
            stderr.print("No matching tools or categories here.", markup=False)
        else:
            _report_nothing(crib, seen_by)
        if page.next_cursor is not None:
            _report_more(limit, "search in it with `--query`")
        _report(page.missing)


@click.command()
@config_either_way
@tools_option
@wait_option
@json_option
@asynchronous
async def categories(config: Path, tools: Path | None, wait_s: float, *, as_json: bool) -> None:
    """Show the top-level categories: how many tools each one has, and the version of each source."""
    async with opened(config, tools, wait_s=wait_s) as crib:
        pages = [crib.list_categories()]
        while (cursor := pages[-1].next_cursor) is not None:
            pages.append(crib.list_categories(cursor=cursor))
        found, missing = _whole(each for page in pages for each in page.categories), pages[0].missing
        if as_json:
            print_json({"categories": [category.to_wire() for category in found], **missing.to_wire()})
            return
        table = Table.grid(Column(overflow="fold"), Column(justify="right"), Column(), padding=(0, 2))
        for category in found:
            about = " · ".join(filter(None, (category.version, one_line(category.node.summary, SUMMARY_CHARS))))
            table.add_row(
                f"[bold cyan]{escape(category.node.name)}[/]", str(category.tool_count), f"[dim]{escape(about)}[/]"
            )
        if found:
            stdout.print(table, soft_wrap=False)
        else:
            _report_nothing(crib, LOCAL)
        _report(missing)


def _whole(shown: Iterable[CategoryPointer]) -> list[CategoryPointer]:
    """Merge entries of the same category: a category that spans several pages lists some of its tools on each."""
    found: dict[tuple[str, ...], CategoryPointer] = {}
    for category in shown:
        before = found.get(category.node.path)
        tools = (*(before.tools if before is not None else ()), *category.tools)
        found[category.node.path] = replace(category, tools=tools)
    return list(found.values())


@click.command()
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@config_option
@tools_option
@limit_option(10, "tools")
@click.option(
    "--in",
    "category",
    metavar="CATEGORY",
    multiple=True,
    help="Search only this category and those below it. Repeat to go deeper: `--in Work --in Files`.",
)
@tag_option
@bundle_option
@as_option
@wait_option
@json_option
@asynchronous
async def search(
    words: tuple[str, ...],
    config: Path,
    tools: Path | None,
    *,
    category: tuple[str, ...],
    tags: tuple[str, ...],
    limit: int,
    wait_s: float,
    bundle: str | None,
    principal: str | None,
    as_json: bool,
) -> None:
    """Find tools by what they do, in plain words: `toolcrib search show the last commits`.

    The best match comes first. The number before each tool is its confidence, from 0 to 1.
    """
    query = " ".join(words)
    seen_by = principal_called(principal, config, tools)
    async with opened(config, tools, wait_s=wait_s, bundle=bundle, searched=True, principal=seen_by) as crib:
        await until_understood(crib, wait_s)
        await crib.prepare(query)
        page = crib.search_tools(query, category=category, tags=tags, limit=limit, context=CallContext(seen_by))
        if as_json:
            print_json(page.to_wire())
        else:
            if not page.results and page.suggestion is None and not tags:
                _report_nothing(crib, seen_by)
            _show_found(page, limit, is_tagged=bool(tags))
    if not page.results:
        sys.exit(1)


def _show_found(page: SearchPage, limit: int, *, is_tagged: bool) -> None:
    if page.suggestion is not None:
        say(" ".join(page.suggestion.hints))
        show_next_action(page.suggestion.next_action)
    elif is_tagged and not page.results:
        stderr.print("No matching tools.", markup=False)
    shown = [pointer for pointer in page.results if pointer.confidence is None or pointer.confidence >= LEAST]
    shown = shown or [*page.results]
    table = Table.grid(padding=(0, 2))
    if any(pointer.confidence is not None for pointer in shown):  # a query without words has no confidence
        table.add_column()
    table.add_column(overflow="fold")  # other commands do not accept a truncated id
    table.add_column()
    for pointer in shown:
        found = [f"[bold]{escape(pointer.tool_id)}[/]", _summary_of(pointer)]
        table.add_row(*found if pointer.confidence is None else (f"{pointer.confidence:.2f}", *found))
    stdout.print(table, soft_wrap=False)
    if left_out := len(page.results) - len(shown):
        stderr.print(f"{left_out} more have a confidence below {LEAST:.2f}. Pass `--json` to see them.", markup=False)
    elif page.next_cursor is not None:
        _report_more(limit, "narrow the search with `--in` or `--tag`")
    _report(page.missing)


def _summary_of(pointer: ToolPointer) -> str:
    """Return the summary of a tool, and the reason if it cannot be called."""
    summary = escape(pointer.summary)
    return (
        summary if pointer.unavailable is None else f"{summary}\n[yellow]unavailable: {escape(pointer.unavailable)}[/]"
    )


@click.command()
@click.argument("tool_id", metavar="ID")
@config_option
@tools_option
@bundle_option
@as_option
@wait_option
@json_option
@asynchronous
async def expand(
    tool_id: str,
    config: Path,
    tools: Path | None,
    wait_s: float,
    *,
    bundle: str | None,
    principal: str | None,
    as_json: bool,
) -> None:
    """Show the full definition of the tool ID: its description, input schema and output schema."""
    seen_by = principal_called(principal, config, tools)
    wanted = only_source_of(tool_id)
    async with opened(config, tools, wait_s=wait_s, wanted=wanted, bundle=bundle, principal=seen_by) as crib:
        expansion = crib.expand_tool(tool_id, context=CallContext(seen_by))
        if as_json:
            print_json(expansion.to_wire())
            return
        version = f"  [dim]definition {expansion.version}[/]" if expansion.version is not None else ""
        stdout.print(f"[bold]{escape(expansion.tool_id)}[/]{version}  [dim]{escape('/'.join(expansion.path))}[/]")
        if expansion.description:
            stdout.print(indent(plain(expansion.description), "  "), markup=False)
        for warning in expansion.warnings:
            stdout.print(f"\n{plain(warning)}", markup=False, style="yellow")
        if expansion.obstacle is not None:
            stdout.print(f"\n{plain(expansion.obstacle)}", markup=False, style="yellow")
        _show_metadata(expansion.metadata)
        for title, schema in (("arguments", expansion.args_schema), ("result", expansion.result_schema)):
            if schema is not None:
                stdout.print(f"\n{title}")
                show_json(dict(schema))
        tool = crib.view(seen_by).tools[expansion.tool_id]
        claims = [name.removesuffix("Hint") for name, claimed in expansion.annotations.items() if claimed]
        note = f"claims to be: {', '.join(claims) or 'nothing'}" if tool.wire.get("annotations") else "claims nothing"
        stdout.print(f"\n{note}\nhandle: {escape(expansion.handle)}")


def _show_metadata(metadata: ToolMetadata) -> None:
    """Print what the tool's owner wrote about it, one key per line."""
    said = metadata.to_wire()
    said.pop("category", None)
    for example in said.pop("examples", []):
        stdout.print(f"\nfor example: {plain(example['description'])}", markup=False)
        stdout.print(indent(plain(json.dumps(example["input"], ensure_ascii=False)), "  "), markup=False)
    if said:
        stdout.print()
    for key, value in said.items():
        several = cast("list[str]", value) if isinstance(value, list) else ["yes" if value is True else str(value)]
        text = ", ".join(several)
        stdout.print(f"{key.replace('_', ' ')}: {plain(text)}", markup=False)


def only_source_of(tool_id: str) -> Callable[[str], bool] | None:
    """Return a filter that accepts only the source of `tool_id`, or None if the id does not name its source."""
    source = tool_id.partition(".")[0]

    def wanted(name: str) -> bool:
        return name == source

    return wanted if "." in tool_id else None


def _as_json(view: View, branch: Branch, depth: int = 0) -> dict[str, object]:
    ontology = view.ontology
    node = ontology.node(branch)
    children = ontology.children(branch)
    return {
        "name": node.name,
        "path": list(node.path),
        "summary": node.summary,
        "tool_count": branch.count,
        "nodes": [
            _as_json(view, child, depth + 1)
            if depth < TREE_DEPTH and child.above is branch
            else {"path": [*child.path]}
            for child in children
        ],
        "tools": [
            {"tool_id": tool_id, "summary": view.tools[tool_id].summary} for tool_id in ontology.tool_ids(branch)
        ],
    }


def _grow(tree: Tree, view: View, branch: Branch, depth: int = 0) -> None:
    ontology = view.ontology
    for child in ontology.children(branch):
        node = ontology.node(child)
        if child.above is not branch:  # this category has a second parent, and is shown in full below its first
            tree.add(_Line(node.name, f"see {'/'.join(node.path)}", "bold cyan"))
            continue
        below = tree.add(_Line(node.name, f"{child.count} · {summarize(node.summary, SUMMARY_CHARS)}", "bold cyan"))
        if depth < TREE_DEPTH:
            _grow(below, view, child, depth + 1)
    ids = ontology.tool_ids(branch)
    for tool_id in ids[:TREE_TOOLS]:
        why = why_unavailable(view, view.tools[tool_id])
        summary = summarize(view.tools[tool_id].summary, 80)
        tree.add(_Line(tool_id, summary if why is None else f"{summary} · unavailable: {why}"))
    if len(ids) > TREE_TOOLS:
        tree.add(f"[dim]and {len(ids) - TREE_TOOLS} more[/]")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the tree: a name, and as much of its description as fits. The name is never truncated."""

    name: str
    about: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name = Text(plain(self.name), style=self.style, no_wrap=False, overflow="fold")
        if cell_len(name.plain) + 2 > options.max_width:
            yield name
            return
        yield Text.assemble(name, " ", (plain(self.about), "dim"), no_wrap=True, overflow="ellipsis")


def _report_nothing(crib: Toolcrib, principal: Principal) -> None:
    """Say that no tools were found, unless `opened` has already said that the policy hides all of them."""
    if not crib.hidden_entirely(principal):
        stderr.print("No tools found. Run `toolcrib doctor` to check your servers.", markup=False)


def _report_more(limit: int, otherwise: str) -> None:
    more = f"pass a larger `-n` (at most {MAX_LIMIT})" if limit < MAX_LIMIT else otherwise
    stderr.print(f"More results are available: {more}.", markup=False)


def _report(missing: Missing) -> None:
    if missing.unavailable:
        report_unavailable(missing.unavailable)
