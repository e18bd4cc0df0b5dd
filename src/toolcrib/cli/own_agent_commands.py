"""`toolcrib grammar`: print a grammar that only allows valid tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.terminal_output import plain, print_json, run, stderr, stdout, write
from toolcrib.core.errors import ToolNotFound
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.grammars import (
    STYLES,
    Grammar,
    Unenforced,
    arguments_grammar,
    call_grammar,
    strict_schema,
    text_or_call_grammar,
)


def grammar(
    tool_ids: Sequence[str],
    *,
    config: Path,
    tools: Path | None,
    what: str,
    style: str,
    wait_s: float,
    strict: bool,
    bundle: str | None,
    as_json: bool,
) -> None:
    """Print only the grammar on standard output. With `strict`, print JSON with the schema of each tool instead."""
    if what == "arguments" and len(tool_ids) != 1:
        raise click.UsageError("`--of arguments` needs exactly one TOOL.")

    async def main() -> None:
        async with opened(config, tools, wait_s=wait_s, wanted=_sources_of(tool_ids), bundle=bundle) as crib:
            schemas = _schemas(crib, tool_ids)
        if strict:
            _print_strict(schemas)
            return
        match what:
            case "arguments":
                made = arguments_grammar(next(iter(schemas.values())))
            case "call":
                made = call_grammar(schemas, STYLES[style])
            case _:
                made = text_or_call_grammar(schemas, STYLES[style])
        if as_json:
            print_json(asdict(made))
            return
        write(plain(made.text) if stdout.is_terminal else made.text)
        _tell(made)

    run(main, as_json=as_json)


def _sources_of(tool_ids: Sequence[str]) -> Callable[[str], bool] | None:
    """Return a filter for the sources of these tools, or None if an id does not name its source."""
    sources = {tool_id.partition(".")[0] for tool_id in tool_ids}
    return sources.__contains__ if sources and all("." in tool_id for tool_id in tool_ids) else None


def _schemas(crib: Toolcrib, tool_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return input schemas by the names that models see. Without `tool_ids`, return those of all visible tools.

    Raises:
        ToolNotFound: a tool does not exist, or there are no tools at all.
    """
    view = crib.view()
    found = {tool_id: view.find(tool_id) for tool_id in tool_ids} if tool_ids else dict(view.tools)
    for tool_id, tool in found.items():
        if tool is None:
            crib.expand_tool(tool_id)  # raises an error that suggests similar ids
    if not found:
        raise ToolNotFound("there are no tools to call")
    return {view.visible.names[tool.id]: tool.input_schema for tool in found.values() if tool is not None}


def _print_strict(schemas: Mapping[str, Mapping[str, Any]]) -> None:
    made = {name: strict_schema(schema) for name, schema in schemas.items()}
    print_json(
        {name: {"schema": each.schema, "lost": [asdict(lost) for lost in each.lost]} for name, each in made.items()}
    )


def _tell(made: Grammar) -> None:
    for degraded in made.degraded:
        name = plain(degraded.tool or "its arguments")
        stderr.print(f"The grammar allows any object for {name}: {plain(degraded.why)}.", style="yellow", markup=False)
    for each in made.unenforced:
        stderr.print(f"Not enforced: {_place(each)}: {plain(each.why)}.", style="yellow", markup=False)


def _place(each: Unenforced) -> str:
    return plain(f"{each.tool}{' ' if each.tool else ''}{each.pointer}/{each.keyword}")
