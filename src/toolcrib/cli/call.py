"""`toolcrib call`: run one tool from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.markup import escape

from toolcrib.cli.browse import only_source_of
from toolcrib.cli.opening import opened
from toolcrib.cli.output import print_json, run, stderr, stdout
from toolcrib.core.errors import InvalidArguments
from toolcrib.core.results import ToolResult


def call(tool_id: str, arguments: str, config: Path, wait_s: float, *, as_json: bool) -> None:
    """Expand and call at once: a person who types an id has seen what it takes, or is told by the error."""

    async def main() -> None:
        given = _parsed(sys.stdin.read() if arguments == "-" else arguments)
        async with opened(config, None, wait_s=wait_s, wanted=only_source_of(tool_id)) as crib:
            handle = crib.expand_tool(tool_id).handle

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                of = f"/{total:g}" if total is not None else ""
                stderr.print(f"[dim]{progress:g}{of} {escape(message or '')}[/]")

            result = await crib.call_tool(handle, given, progress=progress)
        if as_json:
            print_json(dict(result.wire))
        else:
            _show(result)
        for warning in result.warnings:
            stderr.print(f"[yellow]{escape(warning)}[/]")
        if result.is_error:
            sys.exit(1)

    run(main, as_json=as_json)


def _parsed(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArguments(f"The arguments are no JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidArguments("The arguments are not a JSON object.")
    return value  # pyright: ignore[reportUnknownVariableType]  keys of a JSON object are strings


def _show(result: ToolResult) -> None:
    for block in result.content:
        match block.get("type"):
            case "text":
                stdout.print(str(block.get("text", "")), markup=False)
            case "resource_link":
                stdout.print(f"{block.get('name', '')} <{block.get('uri', '')}>", markup=False)
            case kind:
                size = len(str(block.get("data", "")))
                shown = f"[{kind} {block.get('mimeType', '')}, {size} characters of base64; --json shows it]"
                stdout.print(shown, markup=False)
    if not result.content and result.structured_content is not None:
        stdout.print_json(data=result.structured_content)
