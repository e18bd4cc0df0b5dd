"""`toolcrib grammar`: what holds a model to valid calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.opening import opened
from toolcrib.cli.output import plain, print_json, run, stderr, stdout, write
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
    """Print the grammar alone on standard output, to be kept in a file; with `strict`, schemas by name as JSON."""
    if what == "arguments" and len(tool_ids) != 1:
        raise click.UsageError("Arguments are those of one tool: name it.")

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
    """Start only the servers whose tools these are, unless an id does not say which that is."""
    sources = {tool_id.partition(".")[0] for tool_id in tool_ids}
    return sources.__contains__ if sources and all("." in tool_id for tool_id in tool_ids) else None


def _schemas(crib: Toolcrib, tool_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Input schemas by the names under which a model is given the tools; of all that may be seen where none is named.

    Raises:
        ToolNotFound: there is no such tool, or none at all.
    """
    view = crib.view()
    found = {tool_id: view.find(tool_id) for tool_id in tool_ids} if tool_ids else dict(view.tools)
    for tool_id, tool in found.items():
        if tool is None:
            crib.expand_tool(tool_id)  # which says what was probably meant
    if not found:
        raise ToolNotFound("there is no tool that could be called")
    return {view.visible.names[tool.id]: tool.input_schema for tool in found.values() if tool is not None}


def _print_strict(schemas: Mapping[str, Mapping[str, Any]]) -> None:
    made = {name: strict_schema(schema) for name, schema in schemas.items()}
    print_json(
        {name: {"schema": each.schema, "lost": [asdict(lost) for lost in each.lost]} for name, each in made.items()}
    )


def _tell(made: Grammar) -> None:
    for degraded in made.degraded:
        name = plain(degraded.tool or "its arguments")
        stderr.print(f"Any object is allowed for {name}: {plain(degraded.why)}.", style="yellow", markup=False)
    for each in made.unenforced:
        stderr.print(f"Not held: {_place(each)}: {plain(each.why)}.", style="yellow", markup=False)


def _place(each: Unenforced) -> str:
    return plain(f"{each.tool}{' ' if each.tool else ''}{each.pointer}/{each.keyword}")
