"""An editor as a source: its own tools if it lists them, otherwise the tools that ACP provides."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, cast

import anyio

from toolcrib.core.errors import InvalidArguments, InvalidTool, SourceUnavailable, StaleExpansion, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Schema
from toolcrib.core.tools import Tool
from toolcrib.core.untrusted_text import as_json, on_one_line
from toolcrib.sources.acp.descriptors import ToolCatalog, ToolDescriptor
from toolcrib.sources.acp.diffs import META_KEY, Diff, diffs_of
from toolcrib.sources.acp.editor_files import Files
from toolcrib.sources.acp.editor_terminals import GRACE_S, Commands, TerminalListener, Terminals, ignore_terminal
from toolcrib.sources.acp.port import ClientGone, ClientOffer, ClientPort, ClientRefused
from toolcrib.sources.acp.protocol_tools import (
    PROTOCOL_TOOLS,
    RUN_COMMAND,
    WRITE_FILE,
    as_shown,
    catalog_of,
    is_protocols_own,
    lack,
)
from toolcrib.sources.base import Listing, ProgressListener, SetAside
from toolcrib.sources.watches import Watches

EDITOR = "editor"

TIMEOUT_S = 10.0
"""How long an editor may take to list its tools, in seconds."""

_WORDS_CHARS = 300


class ToolsFrom(StrEnum):
    """Where the tools of an editor come from."""

    DISCOVERY = "discovery"
    """The editor lists them itself, and nothing else is offered."""
    CAPABILITIES = "capabilities"
    """The editor lists none. The tools are those that the protocol provides for its capabilities."""


_Run = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool as the editor offers it now."""

    tool: Tool
    method: _Run | None
    """The protocol's own method that runs the tool; None if the editor is called with the tool's name."""


class EditorSource:
    """The tools of one session of an editor.

    Leaving the source ends everything that it started in terminals.
    """

    def __init__(
        self,
        port: ClientPort,
        session_id: str,
        *,
        cwd: str,
        title: str | None = None,
        name: str = EDITOR,
        timeout_s: float = TIMEOUT_S,
        grace_s: float = GRACE_S,
        on_terminal: TerminalListener = ignore_terminal,
    ) -> None:
        """`cwd` is the session's folder, an absolute path. `title` is the editor's own name.

        A listing may take `timeout_s`, and releasing a terminal `grace_s`. `on_terminal` is called for each terminal as
        soon as it is open.
        """
        self._port = port
        self._session_id = session_id
        self._name = name
        self._title = title
        self._timeout_s = timeout_s
        self._terminals = Terminals(port, session_id, on_terminal, grace_s=grace_s)
        self._files = Files(port, session_id, cwd, before_s=timeout_s)
        commands = Commands(self._terminals, cwd)
        self._methods: Mapping[str, _Run] = {
            "read_file": self._files.read,
            "write_file": self._files.write,
            "run_command": commands.run,
            "get_terminal_output": commands.output,
            "wait_for_terminal_exit": commands.wait,
            "kill_terminal": commands.kill,
            "release_terminal": commands.release,
        }
        self._offered: Mapping[str, _Offered] = {}
        self._tools_from: ToolsFrom | None = None
        self._failure: SourceUnavailable | None = None
        self._listing = anyio.Lock()
        """Allows one listing at a time, so that the answer to the later request counts."""
        self._watches = Watches()
        self._stack = AsyncExitStack()

    @property
    def name(self) -> str:
        return self._name

    @property
    def tools_from(self) -> ToolsFrom | None:
        """Where the current tools come from; None before the first listing and after one that failed."""
        return self._tools_from

    @property
    def open_terminals(self) -> frozenset[str]:
        """The ids of the terminals that were opened here and not released."""
        return self._terminals.open_ids

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._terminals)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watches.end()
        await self._stack.aclose()

    async def list_tools(self) -> Listing:
        """Return what the editor offers now.

        If the editor lists its tools, these are offered, without those that its capabilities exclude. If it does not
        list tools, or lists none, only its capabilities count. If its listing fails, nothing is offered until the next
        one succeeds, because a guess could offer more than the editor would.
        """
        async with self._listing:
            try:
                tools_from, catalog, set_aside, warnings = await self.catalog()
            except SourceUnavailable as error:
                self._offered, self._tools_from, self._failure = {}, None, error
                raise
            return replace(self.listed(catalog, tools_from, set_aside), warnings=warnings)

    def listed(
        self, catalog: ToolCatalog, tools_from: ToolsFrom = ToolsFrom.DISCOVERY, set_aside: tuple[SetAside, ...] = ()
    ) -> Listing:
        """Offer the tools of `catalog` from now on, without those that the editor's capabilities exclude. The editor is
        not asked."""
        offered: dict[str, _Offered] = {}
        for descriptor in catalog.tools:
            if (reason := lack(descriptor.name, self._port.offer)) is not None:
                set_aside += (SetAside(descriptor.name, reason),)
            else:
                offered[descriptor.name] = self._offer(descriptor)
        self._offered, self._tools_from, self._failure = offered, tools_from, None
        return Listing(
            tuple(each.tool for each in offered.values()),
            title=self._title,
            summary=_summary(tools_from, self._port.offer),
            set_aside=set_aside,
        )

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        offered = self._as_offered(tool)
        try:
            if offered.method is not None:
                return await offered.method(_for_method(offered.tool, arguments))
            answer = cast("object", await self._port.call_tool(self._session_id, tool.name, dict(arguments)))
        except ClientRefused as refused:
            words = on_one_line(refused.message)[:_WORDS_CHARS]
            cause = _cause(refused.data)
            said = ": ".join(filter(None, (words, cause))) or str(refused.code)
            upstream = {"code": refused.code, "message": words, **({"data": cause} if cause else {})}
            raise ToolFailed(
                f"The editor answered the call of `{tool.name}` with an error: {said}",
                hints=_one_program(tool, arguments),
                details={"upstream": upstream},
            ) from refused
        except ClientGone as gone:
            raise SourceUnavailable(f"`{self._name}`: the editor is no longer connected.") from gone
        if not _is_result(answer):
            raise ToolFailed(
                f"`{tool.name}` may or may not have run: the editor's answer is not a tool result.",
                hints=["Its `content` must be a list of objects with a `type`."],
            )
        return ToolResult(cast("Mapping[str, Any]", answer))

    def changes(self) -> AsyncIterator[None]:
        """Yield after `tools_changed`."""
        return self._watches.watch()

    def tools_changed(self) -> None:
        """Note that the editor reported a change of its tools."""
        self._watches.tell()

    async def diffs(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[Diff, ...]:
        """Return what a call would change, to show to the person who is asked about it; empty if unknown.

        `arguments` match the tool's schema. This never raises.
        """
        offered = self._offered.get(tool.name)
        given = self._given_to_method(tool, arguments)
        try:
            with anyio.move_on_after(self._timeout_s):
                if given is not None and tool.name == WRITE_FILE.name:
                    diff = await self._files.diff(given)
                    return () if diff.is_too_large else (diff,)
                if offered is not None and offered.method is None and self._can_preview(offered.tool):
                    answer = await self._port.preview_tool(self._session_id, tool.name, dict(arguments))
                    return diffs_of(ToolResult({"_meta": {META_KEY: answer}}))
        except (ClientGone, ClientRefused):
            pass
        return ()

    def _can_preview(self, tool: Tool) -> bool:
        """Return whether the editor can preview what its tool would change, and a person is asked about the tool."""
        return self._port.offer.previews and tool.metadata.requires_permission

    async def catalog(self) -> tuple[ToolsFrom, ToolCatalog, tuple[SetAside, ...], tuple[str, ...]]:
        """Ask the editor what it offers. Return where its tools come from, its catalog before capabilities exclude any
        tool, the ignored descriptors, and warnings.

        Raises:
            SourceUnavailable: the editor declares that it lists its tools, but failed to.
        """
        warnings: tuple[str, ...] = ()
        if self._port.offer.discovery:
            catalog, set_aside = await self._discovered()
            if catalog.tools or set_aside:
                return ToolsFrom.DISCOVERY, catalog, set_aside, ()
            warnings = (
                "the editor declares that it lists its tools, but lists none; the tools of the protocol are offered",
            )
        return ToolsFrom.CAPABILITIES, catalog_of(self._port.offer), (), warnings

    async def _discovered(self) -> tuple[ToolCatalog, tuple[SetAside, ...]]:
        try:
            with anyio.fail_after(self._timeout_s):
                answer = await self._port.discover_tools(self._session_id)
            return ToolCatalog.from_wire(answer)
        except TimeoutError as error:
            raise self._unlisted(f"did not list its tools within {self._timeout_s:g} s") from error
        except ClientRefused as refused:
            words = on_one_line(refused.message)[:_WORDS_CHARS]
            raise self._unlisted(
                f"declares that it lists its tools, but refused to: {words} ({refused.code})"
            ) from refused
        except ClientGone as gone:
            raise self._unlisted("is no longer connected") from gone
        except InvalidTool as error:
            raise self._unlisted(f"did not answer with its tools: {error.message}") from error

    def _unlisted(self, what: str) -> SourceUnavailable:
        # Not `retryable`, so that the tools of an earlier listing are shown as unavailable and not as callable.
        return SourceUnavailable(f"`{self._name}`: the editor {what}. Toolcrib asks it again with the next prompt.")

    def _offer(self, descriptor: ToolDescriptor) -> _Offered:
        tool = as_shown(descriptor).as_tool(self._name)
        return _Offered(tool, self._methods[tool.name] if is_protocols_own(descriptor) else None)

    def _as_offered(self, tool: Tool) -> _Offered:
        """Check that the editor still offers the definition that the caller was shown, and return its current form.

        Raises:
            StaleExpansion: it does not.
            SourceUnavailable: the last listing failed.
        """
        if self._failure is not None:
            raise SourceUnavailable(self._failure.message)
        offered = self._offered.get(tool.name)
        if offered is None:
            raise StaleExpansion(f"`{tool.id}` no longer exists: the editor does not offer it any more.")
        # Compares everything that was sent, because the need for approval may be the only change.
        if offered.tool is not tool and offered.tool.digests.wire != tool.digests.wire:
            raise StaleExpansion(f"The definition of `{tool.id}` changed in the editor.")
        return offered

    def _given_to_method(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what the protocol's own method would get; None if the editor runs the tool, or the arguments do not
        fit."""
        offered = self._offered.get(tool.name)
        if offered is None or offered.method is None:
            return None
        try:
            return _for_method(offered.tool, arguments)
        except InvalidArguments:
            return None


def _for_method(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `arguments` in the form that the protocol's own method takes.

    Raises:
        InvalidArguments: they match the editor's schema, which may require less, but not the schema of the method.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if violations := _METHODS[tool.name].violations(given):
        raise InvalidArguments(
            f"The arguments of `{tool.id}` do not fit the protocol: {violations[0].message}. Nothing ran.",
            details={"violations": [violation.to_wire() for violation in violations]},
        )
    return given


_METHODS = {name: Schema(descriptor.parameters) for name, descriptor in PROTOCOL_TOOLS.items()}
"""The input schemas of the protocol's own methods, by tool name."""


def _cause(data: object) -> str:
    """Return the `data` of an editor's error on one line. SDKs put the cause of an "Internal error" there."""
    match data:
        case None | "":
            return ""
        case str(words) | {"details": str(words)} | {"message": str(words)}:
            pass
        case _:
            words = as_json(data)
    return on_one_line(words[: 4 * _WORDS_CHARS])[:_WORDS_CHARS]


def _one_program(tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a hint with the arguments that were probably meant, if `command` is a whole command line.

    Models often write `ls -la` there. Editors then look for a program of exactly that name, and report that it does not
    exist.
    """
    command = arguments.get("command")
    if tool.name != RUN_COMMAND.name or not isinstance(command, str) or arguments.get("args"):
        return ()
    try:
        program, *args = shlex.split(command)
    except ValueError:  # an unclosed quotation mark, or an empty string
        return ()
    if not args:
        return ()
    meant = as_json({**arguments, "command": program, "args": args})
    return (f"`command` is one program, without a shell. Put its arguments into `args`, for example: {meant}",)


def _is_result(answer: object) -> bool:
    if not isinstance(answer, Mapping):
        return False
    wire = cast("Mapping[str, object]", answer)
    content = wire.get("content")
    asks = wire.get("resultType") == "input_required"  # an editor asks people itself
    return not asks and isinstance(content, list) and all(map(_is_block, cast("list[object]", content)))


def _is_block(block: object) -> bool:
    return isinstance(block, Mapping) and isinstance(cast("Mapping[str, object]", block).get("type"), str)


def _summary(tools_from: ToolsFrom, offer: ClientOffer) -> str:
    if tools_from is ToolsFrom.DISCOVERY:
        return "The tools that your editor lists."
    things = {"files": offer.read_text_file or offer.write_text_file, "terminals": offer.terminal}
    return f"Tools of your editor: its {' and '.join(name for name, is_there in things.items() if is_there)}."
