"""The source of declared tools: it runs their commands and asks their endpoints."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolcrib.core.errors import InvalidArguments, StaleExpansion, ToolFailed
from toolcrib.core.placeholders import Problem
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, ProgressListener, SetAside
from toolcrib.sources.declared.command import CommandLine
from toolcrib.sources.declared.definition import DeclaredTool, DeclaredTools
from toolcrib.sources.declared.endpoint import Endpoint
from toolcrib.sources.declared.process import Run, run_program
from toolcrib.sources.declared.template import Values, read_values
from toolcrib.sources.environment import inherited
from toolcrib.sources.watches import Watches

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from toolcrib.sources.declared.client import Answered

NEEDED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "SYSTEMROOT", "TEMP", "USERPROFILE", "PATHEXT")
"""Variables that programs need to find themselves and others; those of `inherited` come besides."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A tool with the variables of the environment filled in."""

    declared: DeclaredTool
    action: CommandLine | Endpoint


class DeclaredSource:
    """Tools that are declared as data. There is nothing to start: a call runs a program, or sends a request.

    A tool whose declaration names a variable that the environment does not have is set aside, and the others are not
    touched by it.
    """

    def __init__(self, declared: DeclaredTools, environ: Mapping[str, str] = os.environ) -> None:
        """`environ` is what variables are filled in from, and what programs inherit a little of."""
        self._environ = environ
        self._declared = declared
        self._ready, self._set_aside = self._made_ready(declared.tools)
        self._watches = Watches()

    @property
    def name(self) -> str:
        return self._declared.name

    @property
    def listing(self) -> Listing:
        """What `list_tools` gives."""
        tools = tuple(ready.declared.tool for ready in self._ready.values())
        return Listing(tools, title=self._declared.title, summary=self._declared.summary, set_aside=self._set_aside)

    def put(self, declared: DeclaredTools) -> None:
        """Offer exactly `declared`, which is of the same name; calls that are under way finish."""
        self._ready, self._set_aside = self._made_ready(declared.tools)
        self._declared = declared
        self._watches.tell()

    async def list_tools(self) -> Listing:
        return self.listing

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run the command, or send the request, with `arguments`, which match the schema of `tool`.

        A program that exits with another code than 0, one that is ended because its time is over, and an HTTP status
        from 400 on are answers with `is_error`.

        Raises:
            InvalidArguments: a value cannot go where it should; nothing ran.
            StaleExpansion: it is declared in another way by now; nothing ran.
            ToolFailed: there is no such tool or program, or a request may not go where it would.
            SourceUnavailable: an endpoint cannot be reached, or does not answer in time.
        """
        ready = self._ready.get(tool.name)
        if ready is None:
            raise ToolFailed(f"`{self.name}` has no tool `{tool.name}`.")
        if ready.declared.tool is not tool and ready.declared.tool.digests.wire != tool.digests.wire:
            raise StaleExpansion(f"`{tool.id}` is declared in another way by now.")
        values = read_values(ready.declared.tool.input_schema, arguments)
        if isinstance(ready.action, CommandLine):
            return await self._run(ready.declared, ready.action, values)
        return await self._ask(ready.declared, ready.action, values)

    def changes(self) -> AsyncIterator[None]:
        """Yields after `put`, once for all that happened meanwhile."""
        return self._watches.watch()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watches.end()

    def _made_ready(self, tools: Iterable[DeclaredTool]) -> tuple[Mapping[str, _Ready], tuple[SetAside, ...]]:
        ready: dict[str, _Ready] = {}
        set_aside: list[SetAside] = []
        for each in tools:
            try:
                ready[each.tool.name] = _Ready(each, each.action.filled(self._environ))
            except Problem as problem:
                set_aside.append(SetAside(each.tool.name, str(problem)))
        return ready, tuple(set_aside)

    async def _run(self, declared: DeclaredTool, command: CommandLine, values: Values) -> ToolResult:
        tool = declared.tool
        needed = {name: self._environ[name] for name in NEEDED if name in self._environ}
        try:
            run = await run_program(
                command.argv(values),
                given=command.input(values),
                cwd=command.cwd,
                env={**needed, **inherited(self._environ), **command.env},
                timeout_s=declared.timeout_s,
            )
        except OSError as error:
            raise _not_started(tool, command, error) from error
        return _of_run(run, declared)

    async def _ask(self, declared: DeclaredTool, endpoint: Endpoint, values: Values) -> ToolResult:
        from toolcrib.sources.declared.client import ask  # noqa: PLC0415  the HTTP client takes its time to import

        answered = await ask(
            endpoint.asking(values),
            name=declared.tool.id,
            allows_private=endpoint.allows_private,
            timeout_s=declared.timeout_s,
        )
        return _of_answer(answered, is_json=declared.tool.output_schema is not None)


def _not_started(tool: Tool, command: CommandLine, error: OSError) -> ToolFailed | InvalidArguments:
    """The error for the caller; the log gets the program or folder that is missing, as the owner wrote it."""
    match error:
        case FileNotFoundError() | NotADirectoryError() if error.filename == command.cwd:
            told, cause = "the folder that it runs in is not there", f"there is no folder `{command.cwd}`"
        case FileNotFoundError():
            told, cause = "its program is not installed", f"there is no program `{command.program}`"
        case PermissionError():
            told = "its program, or the folder that it runs in, may not be used"
            cause = f"`{error.filename or command.program}` may not be used"
        case OSError(errno=7):  # E2BIG
            return InvalidArguments(f"Nothing was run: the arguments of `{tool.id}` are longer than a command may be.")
        case _:
            told, cause = "its program could not be started", f"`{command.program}`: {error.strerror}"
    logger.warning("%s did not run: %s", tool.id, cause)
    return ToolFailed(f"`{tool.id}` did not run: {told}.", hints=["The owner finds the cause in the log."])


def _of_run(run: Run, declared: DeclaredTool) -> ToolResult:
    stdout, stderr = run.stdout.text, run.stderr.text
    if run.exit_code == 0:
        texts = [stdout, f"Standard error:\n{stderr}" if stderr else ""]
        return _result(texts, _json(stdout) if declared.tool.output_schema is not None else None)
    if run.exit_code is None:
        ended = f"It was stopped, since it had not ended within {declared.timeout_s:g} s."
    elif run.exit_code < 0:
        ended = f"It was ended by signal {-run.exit_code}."
    else:
        ended = f"It ended with exit code {run.exit_code}."
    return _result([ended, stdout, stderr], is_error=True)


def _of_answer(answered: Answered, *, is_json: bool) -> ToolResult:
    note = "[what came after this was left out]" if answered.is_cut else ""
    if answered.status >= 400:
        return _result([f"HTTP {answered.status}", answered.text, note], is_error=True)
    return _result([answered.text, note], _json(answered.text) if is_json else None)


def _result(texts: Iterable[str], value: object = None, *, is_error: bool = False) -> ToolResult:
    """An answer of those `texts` that are not empty; some vendors' APIs refuse one that is."""
    wire: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts if text]}
    if isinstance(value, dict):
        wire["structuredContent"] = value
    return ToolResult({**wire, "isError": True} if is_error else wire)


def _json(text: str) -> object:
    """The JSON value that `text` is; None where it is none, which whoever checks the answer tells of."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None
