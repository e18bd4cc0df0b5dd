"""An editor as a source: what it says of its tools, or else what the protocol lets every editor do."""

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
from toolcrib.core.quoting import as_json, on_one_line
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Schema
from toolcrib.core.tools import Tool
from toolcrib.sources.acp.commands import Commands
from toolcrib.sources.acp.descriptors import ToolCatalog, ToolDescriptor
from toolcrib.sources.acp.diffs import META_KEY, Diff, diffs_of
from toolcrib.sources.acp.files import Files
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
from toolcrib.sources.acp.terminals import GRACE_S, TerminalListener, Terminals, tell_nobody
from toolcrib.sources.base import Listing, ProgressListener, SetAside
from toolcrib.sources.watches import Watches

EDITOR = "editor"

TIMEOUT_S = 10.0
"""How long an editor may take to list its tools."""

_WORDS_CHARS = 300


class Rung(StrEnum):
    """Where the tools of an editor come from."""

    DISCOVERY = "discovery"
    """It lists them itself, and nothing else is offered."""
    CAPABILITIES = "capabilities"
    """It does not, or lists none; these are what the protocol has for what it said it can do."""


_Run = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool as the editor offers it now."""

    tool: Tool
    method: _Run | None
    """The protocol's own way to run it; None where the editor is asked by the tool's name."""


class EditorSource:
    """The tools of one session of an editor.

    What it started in terminals is gone when it is left.
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
        on_terminal: TerminalListener = tell_nobody,
    ) -> None:
        """`cwd` is the session's folder, absolute. `title` is what the editor calls itself.

        A listing may take `timeout_s`, and letting go of a terminal `grace_s`. `on_terminal` is told of each terminal
        as soon as it is open.
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
        self._rung: Rung | None = None
        self._failure: SourceUnavailable | None = None
        self._listing = anyio.Lock()
        """One listing at a time: the answer to the later question counts."""
        self._watches = Watches()
        self._stack = AsyncExitStack()

    @property
    def name(self) -> str:
        return self._name

    @property
    def rung(self) -> Rung | None:
        """Where the tools that it offers now come from; None where it offers none, or was not asked yet."""
        return self._rung

    @property
    def open_terminals(self) -> frozenset[str]:
        """Ids of the terminals that were opened here and not released."""
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
        """What the editor offers now.

        An editor that lists its tools is taken at its word, less what its capabilities deny. Where it does not list
        them, or lists none, its capabilities alone count. Where it fails to, nothing is offered before it was asked
        again: a guess could offer more than it would.
        """
        async with self._listing:
            try:
                rung, catalog, set_aside, warnings = await self.catalog()
            except SourceUnavailable as error:
                self._offered, self._rung, self._failure = {}, None, error
                raise
            return replace(self.listed(catalog, rung, set_aside), warnings=warnings)

    def listed(
        self, catalog: ToolCatalog, rung: Rung = Rung.DISCOVERY, set_aside: tuple[SetAside, ...] = ()
    ) -> Listing:
        """Offer from now on what `catalog` has, less what the editor's capabilities deny, without asking it."""
        offered: dict[str, _Offered] = {}
        for descriptor in catalog.tools:
            if (reason := lack(descriptor.name, self._port.offer)) is not None:
                set_aside += (SetAside(descriptor.name, reason),)
            else:
                offered[descriptor.name] = self._offer(descriptor)
        self._offered, self._rung, self._failure = offered, rung, None
        return Listing(
            tuple(each.tool for each in offered.values()),
            title=self._title,
            summary=_summary(rung, self._port.offer),
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
            raise SourceUnavailable(f"`{self._name}`: the editor is not connected any more.") from gone
        if not _is_result(answer):
            raise ToolFailed(
                f"Whether `{tool.name}` ran is not known: the editor answered with what is not a tool result.",
                hints=["Its `content` is not a list of objects that have a `type`."],
            )
        return ToolResult(cast("Mapping[str, Any]", answer))

    def changes(self) -> AsyncIterator[None]:
        """Yields after `tools_changed`."""
        return self._watches.watch()

    def tools_changed(self) -> None:
        """The editor said that its tools are others by now."""
        self._watches.tell()

    async def diffs(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[Diff, ...]:
        """What a call would change, for a person who is asked about it; empty where nobody knows.

        `arguments` match the tool's schema. It never raises.
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
        """Whether the editor says that it can tell what its own tools would change, and a person is asked about it."""
        return self._port.offer.previews and tool.metadata.requires_permission

    async def catalog(self) -> tuple[Rung, ToolCatalog, tuple[SetAside, ...], tuple[str, ...]]:
        """Ask the editor what it offers: the rung of the ladder that answered, its catalog before capabilities deny any
        of it, what was set aside, and what is odd.

        Raises:
            SourceUnavailable: the editor says that it lists its tools, and failed to.
        """
        warnings: tuple[str, ...] = ()
        if self._port.offer.discovery:
            catalog, set_aside = await self._discovered()
            if catalog.tools or set_aside:
                return Rung.DISCOVERY, catalog, set_aside, ()
            warnings = ("it says that it lists its tools and lists none; those of the protocol are offered",)
        return Rung.CAPABILITIES, catalog_of(self._port.offer), (), warnings

    async def _discovered(self) -> tuple[ToolCatalog, tuple[SetAside, ...]]:
        try:
            with anyio.fail_after(self._timeout_s):
                answer = await self._port.discover_tools(self._session_id)
            return ToolCatalog.from_wire(answer)
        except TimeoutError as error:
            raise self._unlisted(f"did not list its tools within {self._timeout_s:g} s") from error
        except ClientRefused as refused:
            words = on_one_line(refused.message)[:_WORDS_CHARS]
            raise self._unlisted(f"said that it lists its tools and refused to: {words} ({refused.code})") from refused
        except ClientGone as gone:
            raise self._unlisted("is not connected any more") from gone
        except InvalidTool as error:
            raise self._unlisted(f"did not answer with its tools: {error.message}") from error

    def _unlisted(self, what: str) -> SourceUnavailable:
        # Not `retryable`: that shows the tools of an earlier listing as unavailable, not as if they could be called.
        return SourceUnavailable(f"`{self._name}`: the editor {what}. It is asked again with the next prompt.")

    def _offer(self, descriptor: ToolDescriptor) -> _Offered:
        tool = as_shown(descriptor).as_tool(self._name)
        return _Offered(tool, self._methods[tool.name] if is_protocols_own(descriptor) else None)

    def _as_offered(self, tool: Tool) -> _Offered:
        """Whoever calls was shown a definition; what is run must be what the editor says it is now.

        Raises:
            StaleExpansion: it is not.
            SourceUnavailable: the editor did not say what it offers.
        """
        if self._failure is not None:
            raise SourceUnavailable(self._failure.message)
        offered = self._offered.get(tool.name)
        if offered is None:
            raise StaleExpansion(f"`{tool.id}` is gone: the editor does not offer it any more.")
        # By all that was sent: whether a person has to be asked may be all that changed.
        if offered.tool is not tool and offered.tool.digests.wire != tool.digests.wire:
            raise StaleExpansion(f"The definition of `{tool.id}` has changed in the editor.")
        return offered

    def _given_to_method(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the protocol's own method would be given; None where another runs the tool, or it would not run."""
        offered = self._offered.get(tool.name)
        if offered is None or offered.method is None:
            return None
        try:
            return _for_method(offered.tool, arguments)
        except InvalidArguments:
            return None


def _for_method(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """`arguments` as the protocol's own method takes them.

    Raises:
        InvalidArguments: they match the editor's schema, which may ask for less, and not that of the method.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if violations := _METHODS[tool.name].violations(given):
        raise InvalidArguments(
            f"Nothing was run: the arguments of `{tool.id}` do not fit the protocol: {violations[0].message}.",
            details={"violations": [violation.to_wire() for violation in violations]},
        )
    return given


_METHODS = {name: Schema(descriptor.parameters) for name, descriptor in PROTOCOL_TOOLS.items()}
"""What the protocol's own methods take, by the names of their tools."""


def _cause(data: object) -> str:
    """What an editor's error has in `data`, on one line: there SDKs put the cause of an "Internal error"."""
    match data:
        case None | "":
            return ""
        case str(words) | {"details": str(words)} | {"message": str(words)}:
            pass
        case _:
            words = as_json(data)
    return on_one_line(words[: 4 * _WORDS_CHARS])[:_WORDS_CHARS]


def _one_program(tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """For a command line where the protocol takes a program: the arguments that were probably meant.

    Models write `ls -la` first; editors start the program of exactly that name and report that there is none.
    """
    command = arguments.get("command")
    if tool.name != RUN_COMMAND.name or not isinstance(command, str) or arguments.get("args"):
        return ()
    try:
        program, *args = shlex.split(command)
    except ValueError:  # a quotation mark that is not closed, or nothing at all
        return ()
    if not args:
        return ()
    meant = as_json({**arguments, "command": program, "args": args})
    return (f"`command` is one program, without a shell; its arguments are `args`. Perhaps: {meant}",)


def _is_result(answer: object) -> bool:
    if not isinstance(answer, Mapping):
        return False
    wire = cast("Mapping[str, object]", answer)
    content = wire.get("content")
    asks = wire.get("resultType") == "input_required"  # an editor asks people itself
    return not asks and isinstance(content, list) and all(map(_is_block, cast("list[object]", content)))


def _is_block(block: object) -> bool:
    return isinstance(block, Mapping) and isinstance(cast("Mapping[str, object]", block).get("type"), str)


def _summary(rung: Rung, offer: ClientOffer) -> str:
    if rung is Rung.DISCOVERY:
        return "Tools of your editor, as it lists them."
    things = {"files": offer.read_text_file or offer.write_text_file, "terminals": offer.terminal}
    return f"Tools of your editor: its {' and '.join(name for name, is_there in things.items() if is_there)}."
