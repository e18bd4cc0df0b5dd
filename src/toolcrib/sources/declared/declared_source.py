"""The source of declared tools: runs their commands and calls their endpoints."""

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
from toolcrib.sources.declared.command_line import CommandLine
from toolcrib.sources.declared.definition import DeclaredTool, DeclaredTools
from toolcrib.sources.declared.http_endpoint import Endpoint
from toolcrib.sources.declared.template import Values, read_values
from toolcrib.sources.environment import inherited
from toolcrib.sources.program_run import Run, run_program
from toolcrib.sources.watches import Watches

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from toolcrib.sources.declared.http_request import Answered

NEEDED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "SYSTEMROOT", "TEMP", "USERPROFILE", "PATHEXT")
"""Variables that programs need to find themselves and others, in addition to those of `inherited`."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A tool with its environment variables filled in."""

    declared: DeclaredTool
    action: CommandLine | Endpoint


class DeclaredSource:
    """Tools that are declared as data. Nothing needs to start: a call runs a program or sends a request.

    A tool whose declaration names a missing environment variable is ignored. The other tools remain.
    """

    def __init__(self, declared: DeclaredTools, environ: Mapping[str, str] = os.environ) -> None:
        """`environ` supplies the variables in declarations, and the few that programs inherit."""
        self._environ = environ
        self._declared = declared
        self._ready, self._set_aside = self._made_ready(declared.tools)
        self._watches = Watches()

    @property
    def name(self) -> str:
        return self._declared.name

    @property
    def listing(self) -> Listing:
        """The current result of `list_tools`."""
        tools = tuple(ready.declared.tool for ready in self._ready.values())
        return Listing(tools, title=self._declared.title, summary=self._declared.summary, set_aside=self._set_aside)

    def put(self, declared: DeclaredTools) -> None:
        """Offer exactly the tools of `declared`, which has the same name. Running calls finish."""
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

        An answer has `is_error` if the program exits with a code other than 0, if it is stopped because of its time
        limit, or if the HTTP status is 400 or more.

        Raises:
            InvalidArguments: a value is not allowed in its place. Nothing ran.
            StaleExpansion: the declaration of the tool has changed. Nothing ran.
            ToolFailed: there is no such tool or program, or the request may not go to its address.
            SourceUnavailable: an endpoint cannot be reached, or does not answer in time.
        """
        ready = self._ready.get(tool.name)
        if ready is None:
            raise ToolFailed(f"`{self.name}` has no tool `{tool.name}`.")
        if ready.declared.tool is not tool and ready.declared.tool.digests.wire != tool.digests.wire:
            raise StaleExpansion(f"The declaration of `{tool.id}` has changed. Nothing ran.")
        values = read_values(ready.declared.tool.input_schema, arguments)
        if isinstance(ready.action, CommandLine):
            return await self._run(ready.declared, ready.action, values)
        return await self._ask(ready.declared, ready.action, values)

    def changes(self) -> AsyncIterator[None]:
        """Yield after `put`; several changes in between yield once."""
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
        from toolcrib.sources.declared.http_request import ask  # noqa: PLC0415  the HTTP client is slow to import

        answered = await ask(
            endpoint.asking(values),
            name=declared.tool.id,
            allows_private=endpoint.allow_private,
            timeout_s=declared.timeout_s,
        )
        return _of_answer(answered, is_json=declared.tool.output_schema is not None)


def _not_started(tool: Tool, command: CommandLine, error: OSError) -> ToolFailed | InvalidArguments:
    """Return the error for the caller. The log gets the missing program or folder, as the owner wrote it."""
    match error:
        case FileNotFoundError() | NotADirectoryError() if error.filename == command.cwd:
            told, cause = "its working folder does not exist", f"the folder `{command.cwd}` does not exist"
        case FileNotFoundError():
            told, cause = "its program is not installed", f"the program `{command.program}` is not installed"
        case PermissionError():
            told = "permission to use its program or its working folder was denied"
            cause = f"no permission to use `{error.filename or command.program}`"
        case OSError(errno=7):  # E2BIG
            return InvalidArguments(
                f"The arguments of `{tool.id}` are longer than the system allows for a command. Nothing ran."
            )
        case _:
            told, cause = "its program could not be started", f"`{command.program}`: {error.strerror}"
    logger.warning("%s did not run: %s", tool.id, cause)
    return ToolFailed(f"`{tool.id}` did not run: {told}.", hints=["The gateway's owner can find the cause in the log."])


def _of_run(run: Run, declared: DeclaredTool) -> ToolResult:
    stdout, stderr = run.stdout.text, run.stderr.text
    if run.exit_code == 0:
        texts = [stdout, f"Standard error:\n{stderr}" if stderr else ""]
        return _result(texts, _json(stdout) if declared.tool.output_schema is not None else None)
    if run.exit_code is None:
        ended = f"The program was stopped, because it did not end within {declared.timeout_s:g} s."
    elif run.exit_code < 0:
        ended = f"The program was ended by signal {-run.exit_code}."
    else:
        ended = f"The program ended with exit code {run.exit_code}."
    return _result([ended, stdout, stderr], is_error=True)


def _of_answer(answered: Answered, *, is_json: bool) -> ToolResult:
    note = "[the rest was left out]" if answered.is_cut else ""
    if answered.status >= 400:
        return _result([f"HTTP {answered.status}", answered.text, note], is_error=True)
    return _result([answered.text, note], _json(answered.text) if is_json else None)


def _result(texts: Iterable[str], value: object = None, *, is_error: bool = False) -> ToolResult:
    """Return an answer with those `texts` that are not empty, because some vendors' APIs refuse an empty one."""
    wire: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts if text]}
    if isinstance(value, dict):
        wire["structuredContent"] = value
    return ToolResult({**wire, "isError": True} if is_error else wire)


def _json(text: str) -> object:
    """Return the JSON value of `text`; None if it is not valid JSON, which the check of the answer reports."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None
