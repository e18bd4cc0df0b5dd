"""`toolcrib describe`, `instructions`, `grammar` and `schema`: what a program needs that has its own agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.opened_catalog import opened, registrations_of
from toolcrib.cli.options import (
    bundle_option,
    config_either_way,
    config_option,
    json_option,
    operations_option,
    tools_option,
    wait_option,
)
from toolcrib.cli.terminal_output import asynchronous, plain, print_json, report_unavailable, stderr, stdout, write
from toolcrib.config import read_config
from toolcrib.config.registrations import joined
from toolcrib.core.errors import ToolNotFound
from toolcrib.crib.crib import Toolcrib
from toolcrib.crib.top_level import top_level
from toolcrib.definitions.grammars import (
    STYLES,
    Grammar,
    Unenforced,
    arguments_grammar,
    call_grammar,
    strict_schema,
    text_or_call_grammar,
)
from toolcrib.operations.briefing import briefing
from toolcrib.operations.briefing import instructions as rules
from toolcrib.operations.operation_table import chosen, message_document
from toolcrib.operations.protocol_messages import DetailLevel


@click.command()
@config_either_way
@tools_option
@click.option(
    "--detail",
    type=click.Choice(["name", "summary", "full"]),
    default="full",
    show_default=True,
    help="The most to print about each tool. `full` adds its arguments and the handle for calling it.",
)
@click.option(
    "--budget",
    "budget_tokens",
    type=click.IntRange(min=100),
    metavar="TOKENS",
    default=2_000,
    show_default=True,
    help="The maximum length of the text, at four bytes per token.",
)
@bundle_option
@wait_option
@json_option
@asynchronous
async def describe(
    config: Path,
    tools: Path | None,
    detail: str,
    budget_tokens: int,
    wait_s: float,
    *,
    bundle: str | None,
    as_json: bool,
) -> None:
    """Print the tools of CONFIG's servers as text for a system prompt, for agents that cannot call tools natively.

    The text groups tools by category, required tools first. If the budget is too small, tools that matter less are
    shortened, and then only counted.
    """
    async with opened(config, tools, wait_s=wait_s, bundle=bundle) as crib:
        described = crib.describe(DetailLevel(detail), budget_tokens)
        if as_json:
            print_json(described.to_wire())
            return
        if stdout.is_terminal:
            stdout.print(plain(described.text), markup=False, end="")
        else:  # keep every byte: a prompt cache depends on it
            write(described.text)
        if lost := crib.list().missing.unavailable:
            report_unavailable(lost)
        count = len(described.left_out)
        left = f"; {count:,} more not shown" if count else ""
        stderr.print(
            f"About {described.tokens:,} tokens; {len(described.shown):,} tools{left}.", style="dim", markup=False
        )


@click.command()
@config_either_way
@click.option("--full", is_flag=True, help="Print the long version, for your own system prompt.")
@operations_option("[compact|full|guarded|discovery|NAME,NAME...]", "The operations that the instructions explain.")
@asynchronous
async def instructions(config: Path, operations: str, *, full: bool) -> None:
    """Print what a model is told about the operations and about the top-level categories of CONFIG's catalog."""
    exposed, inside = chosen(operations), top_level(joined(read_config(config), registrations_of(config).all()).config)
    text = rules(exposed, inside, full=True) if full else briefing(exposed, inside).instructions
    stdout.print(text, markup=False, soft_wrap=True)


@click.command()
def schema() -> None:
    """Print one JSON Schema document with every request, every response and the error of the discovery protocol."""
    stdout.print(json.dumps(message_document(), indent=2), markup=False, soft_wrap=True)


@click.command()
@click.argument("tool_ids", metavar="[TOOL]...", nargs=-1)
@config_option
@tools_option
@click.option(
    "--of",
    "what",
    type=click.Choice(["call", "arguments", "text-or-call"]),
    default="call",
    show_default=True,
    help="What to allow: a call of one of the tools, the arguments of the one TOOL, or text or a call.",
)
@click.option(
    "--style",
    type=click.Choice(["plain", "hermes", "llama"]),
    default="plain",
    show_default=True,
    help='How the model writes a call: {"name", "arguments"}; the same in <tool_call> tags; {"name", "parameters"}.',
)
@click.option("--strict", is_flag=True, help="Print schemas for the strict modes of OpenAI and Anthropic instead.")
@bundle_option
@wait_option
@json_option
@asynchronous
async def grammar(
    tool_ids: tuple[str, ...],
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
    """Print a grammar for llama.cpp (GBNF) that allows calls of TOOLs, or of all tools of CONFIG's servers.

    Rules of their schemas that the grammar cannot express are listed on standard error.

    \b
      toolcrib grammar files.read files.write > calls.gbnf
      llama-server -m model.gguf --grammar-file calls.gbnf
    """
    if what == "arguments" and len(tool_ids) != 1:
        raise click.UsageError("`--of arguments` needs exactly one TOOL.")
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
    _report(made)


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


def _report(made: Grammar) -> None:
    for degraded in made.degraded:
        name = plain(degraded.tool or "its arguments")
        stderr.print(f"The grammar allows any object for {name}: {plain(degraded.why)}.", style="yellow", markup=False)
    for each in made.unenforced:
        stderr.print(f"Not enforced: {_place(each)}: {plain(each.why)}.", style="yellow", markup=False)


def _place(each: Unenforced) -> str:
    return plain(f"{each.tool}{' ' if each.tool else ''}{each.pointer}/{each.keyword}")
