"""`toolcrib bundles`: show the bundles and what each one is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table

from toolcrib.catalog.bundles import SHIPPED, Missing, Resolution, ToolBundle, is_bundle_name
from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.options import config_option, is_typed, json_option, wait_option
from toolcrib.cli.terminal_output import asynchronous, escape, plain, print_json, stderr, stdout
from toolcrib.core.tools import Tool


@click.command()
@click.argument("words", metavar="[CONFIG] [NAME]", nargs=-1)
@config_option
@wait_option
@json_option
@asynchronous
async def bundles(words: tuple[str, ...], config: Path, wait_s: float, *, as_json: bool) -> None:
    """Show the bundles of CONFIG and whether their required tools are available. With NAME, show that bundle's tools.

    Exits with 1 if a tool that NAME requires is missing.
    """
    names = [word for word in words if is_bundle_name(word)]
    files = [Path(word) for word in words if not is_bundle_name(word)]
    files += [config] if not files or is_typed("config") else []
    if len(names) > 1 or len(files) > 1:
        raise click.UsageError("Pass at most one configuration and one bundle.")
    (file,) = files
    click.get_current_context().params["config"] = file
    async with opened(file, None, wait_s=wait_s) as crib:
        if not names:
            _show_all([(bundle, crib.resolve(bundle.name)) for bundle in crib.bundles.all], as_json=as_json)
            return
        bundle, found = crib.bundles[names[0]], crib.resolve(names[0])
    if as_json:
        print_json(_wire(bundle, found))
    else:
        _show(bundle, found)
    if found.missing:
        sys.exit(1)


def _show_all(found: list[tuple[ToolBundle, Resolution]], *, as_json: bool) -> None:
    if as_json:
        print_json({"bundles": [_wire(bundle, resolution) for bundle, resolution in found]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("bundle", "state", "tools", "purpose"):
        table.add_column(column, justify="right" if column == "tools" else "left", overflow="fold")
    for bundle, resolution in found:
        count = len(resolution.missing)
        state = f"[yellow]incomplete: {count} missing[/]" if count else "[green]complete[/]"
        tools = len(resolution.required) + len(resolution.optional)
        table.add_row(f"[bold]{bundle.name}[/]", state, str(tools), escape(bundle.description))
    stdout.print(table, soft_wrap=False)
    if all(bundle in SHIPPED for bundle, _ in found):
        stderr.print(
            "These bundles come with Toolcrib. Define your own under `toolcrib.bundles` in the configuration.",
            markup=False,
        )


def _show(bundle: ToolBundle, found: Resolution) -> None:
    stdout.print(plain(bundle.description or bundle.name), markup=False)
    for kind, tools in (("required", found.required), ("optional", found.optional)):
        _show_tools(kind, tools)
    _show_missing("missing", found.missing, style="red")
    _show_missing("optional, not available", found.absent, style="dim")
    if not (found.required or found.optional or found.missing or found.absent):
        stdout.print("This bundle is empty.")


def _show_tools(kind: str, tools: Iterable[Tool]) -> None:
    table = Table.grid(Column(overflow="fold"), Column(), padding=(0, 2))
    for tool in tools:
        table.add_row(f"[bold]{escape(tool.id)}[/]", escape(tool.summary))
    if table.row_count:
        stdout.print(f"\n{kind}")
        stdout.print(table, soft_wrap=False)


def _show_missing(kind: str, missing: Iterable[Missing], *, style: str) -> None:
    lines = [f"{plain(each.entry)}: {plain(each.diagnosis)}" for each in missing]
    if lines:
        stdout.print(f"\n{kind}")
    for line in lines:
        stdout.print(line, markup=False, style=style)


def _wire(bundle: ToolBundle, found: Resolution) -> dict[str, Any]:
    return {
        "name": bundle.name,
        "description": bundle.description,
        "complete": not found.missing,
        "required": [tool.id for tool in found.required],
        "optional": [tool.id for tool in found.optional],
        "missing": [_missing_wire(each) for each in found.missing],
        "absent": [_missing_wire(each) for each in found.absent],
    }


def _missing_wire(missing: Missing) -> dict[str, str]:
    """Convert to JSON, with the diagnosis that only the owner may read. The owner runs this command."""
    return {**missing.to_wire(), "why": missing.diagnosis}
