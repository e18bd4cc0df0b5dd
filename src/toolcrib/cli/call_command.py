"""`toolcrib call`: run one tool from the command line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from toolcrib.cli.catalog_commands import only_source_of
from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.options import bundle_option, config_option, json_option, wait_option
from toolcrib.cli.terminal_output import asynchronous, escape, plain, print_json, show_json, stderr, stdout
from toolcrib.core.errors import InvalidArguments
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.operations.calling import Approver
from toolcrib.operations.calling.approval_question import Intent, Question
from toolcrib.operations.dispatcher import Dispatcher


@click.command()
@click.argument("tool_id", metavar="ID")
@click.argument("arguments", metavar="[JSON | KEY=VALUE...]", nargs=-1)
@config_option
@bundle_option
@wait_option
@json_option
@asynchronous
async def call(
    tool_id: str, arguments: tuple[str, ...], config: Path, wait_s: float, *, bundle: str | None, as_json: bool
) -> None:
    """Run the tool ID. Pass its arguments as one JSON object (`-` reads it from standard input), or as KEY=VALUE pairs.

    A VALUE that is a JSON number, true, false, null, list or object is read as JSON. Any other VALUE is a string.

    \b
      toolcrib call git.git_log '{"repo_path": ".", "max_count": 3}'
      toolcrib call git.git_log repo_path=. max_count=3
    """
    given = _given(arguments)
    async with opened(config, None, wait_s=wait_s, wanted=only_source_of(tool_id), bundle=bundle) as crib:
        if sys.stdin.isatty() and sys.stderr.isatty():
            crib.dispatcher = _asking_here(crib.dispatcher)
        # A bare tool id gets the current handle, because the person typed it on purpose. A handle is checked as
        # usual.
        handle = crib.expand_tool(tool_id).handle if crib.view().find(tool_id) is not None else tool_id

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


class _TerminalApprover(Approver):
    """Asks the person at the terminal for approval."""

    async def _answered(self, intent: Intent, context: CallContext) -> Consent:
        question = Question.about(intent)
        context.note_approval("unanswered")
        stderr.print(plain(question.message), markup=False)
        try:
            answer = click.prompt("Your answer", type=click.Choice(question.choices), err=True)
        except click.Abort:
            return "unanswered"
        return question.settled_by({"action": "accept", "content": {"answer": answer}})


def _asking_here(dispatcher: Dispatcher) -> Dispatcher:
    """Return `dispatcher` with an approver that asks at this terminal."""
    approver = _TerminalApprover(dispatcher.runner.approver.approvals)
    return replace(dispatcher, runner=replace(dispatcher.runner, approver=approver))


_KEY_VALUE = re.compile(r"(?P<key>[^\s={}\[\]\"]+)=(?P<value>.*)", re.DOTALL)
_EXAMPLES = ("""For example: '{"path": "notes.txt"}', or path=notes.txt""",)


def _given(words: Sequence[str]) -> dict[str, object]:
    """Parse the arguments of a call from one JSON object or from KEY=VALUE pairs."""
    pairs = [_KEY_VALUE.fullmatch(word) for word in words]
    if words and all(pairs):
        return {pair["key"]: _value(pair["value"]) for pair in pairs if pair is not None}
    if len(words) > 1:
        raise InvalidArguments("Pass one JSON object, or KEY=VALUE for each argument.", hints=_EXAMPLES)
    text = words[0] if words else "{}"
    return _parsed(sys.stdin.read() if text == "-" else text)


def _value(text: str) -> object:
    """Read JSON numbers, lists, objects, true, false and null as JSON. Everything else is a string."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def _parsed(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArguments(f"The arguments are not valid JSON: {error}.", hints=_EXAMPLES) from error
    if not isinstance(value, dict):
        raise InvalidArguments("The arguments are not a JSON object.", hints=_EXAMPLES)
    return value  # pyright: ignore[reportUnknownVariableType]  keys of a JSON object are strings


def _show(result: ToolResult) -> None:
    for block in result.content:
        text = _text_of(block)
        # A file or a program gets the text unchanged. Only a terminal needs control characters made visible.
        stdout.print(plain(text) if stdout.is_terminal else text, markup=False)
    if not result.content and result.structured_content is not None:
        show_json(result.structured_content)


def _text_of(block: Mapping[str, Any]) -> str:
    """Return the text of a content block, or a short note about a block that is not text."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link"}:
            return f"{block.get('name', '')} <{block.get('uri', '')}>"
        case {"type": "resource"}:
            resource = cast("Mapping[str, Any]", block.get("resource") or {})
            return _omitted(str(resource.get("uri", "resource")), resource.get("mimeType"), resource.get("blob"))
        case _:
            return _omitted(str(block.get("type")), block.get("mimeType"), block.get("data"))


def _omitted(what: str, mime_type: object, data: object) -> str:
    return f"[{what} {mime_type or ''}, {len(str(data or ''))} characters of base64; --json shows it]"
