"""`Toolcrib`: the composition root, where sources, catalog, disclosure and calling come together."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.calling import call_tool
from toolcrib.catalog.access import ALLOW_ALL, Policy
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.core.errors import InvalidConfig, InvalidTool
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import ROOT, Tool, ToolMetadata
from toolcrib.disclosure.messages import Expansion, ListPage, SearchPage
from toolcrib.disclosure.operations import DEFAULT_LIMIT, Operations
from toolcrib.protocol.rules import Top
from toolcrib.sources.base import ProgressListener, Source
from toolcrib.sources.functions import FunctionSource
from toolcrib.sources.unavailable import UnavailableSource

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""How often a followed configuration file is looked at."""


@dataclass
class _Attended:
    """A source whose task runs, and how to end it."""

    config: ServerConfig | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    listed: anyio.Event = field(default_factory=anyio.Event)
    """Set once it has listed its tools for the first time, or failed to."""
    ended: anyio.Event = field(default_factory=anyio.Event)


class Toolcrib:
    """All tools of an agent behind one counter.

    Functions can be added, listed and searched at once. Servers start when the crib is entered (`async with crib:`),
    in the background; `ready` waits for them.
    """

    def __init__(self, *, policy: Policy = ALLOW_ALL) -> None:
        self.registry = ToolRegistry()
        self.operations = Operations()
        self._policy = policy
        self._intake = Intake(self.registry)
        self._functions = FunctionSource()
        self._waiting: dict[str, tuple[Source, SourceEntry, ServerConfig | None]] = {}
        self._attended: dict[str, _Attended] = {}
        self._tasks: TaskGroup | None = None
        self._stack = AsyncExitStack()
        self._view = View(self.registry.state, LOCAL, policy)

    # -- what there is ------------------------------------------------------------------------------------------------

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: ToolMetadata | None = None,
    ) -> Tool:
        """Take in a Python function as a tool; signature, annotations and docstring become its schema.

        Raises:
            InvalidTool: no schema can be made of it, or the name is taken.
        """
        tool = self._functions.add(function, name=name, description=description, metadata=metadata or ToolMetadata())
        sources = self.registry.state.sources
        if self._functions.name not in sources:
            title = "Functions of this program"
            self.registry.put_source(SourceEntry(self._functions, SourceStatus.READY, title))
        self.registry.register(tool)
        return tool

    def add_source(self, source: Source, *, title: str | None = None, summary: str = "") -> None:
        """Take in any source; it is listed in the background from when the crib is entered.

        Raises:
            InvalidTool: a source of this name is there already.
        """
        self._add(source, SourceEntry(source, title=title, summary=summary), None)

    def add_config(self, path: str | Path, wanted: Callable[[ServerConfig], bool] | None = None) -> Config:
        """Take in the servers of an `mcp.json`, or those that are `wanted`.

        A server that is wrong in itself is kept as unavailable, with the reason.

        Raises:
            InvalidConfig: the file as a whole cannot be used.
        """
        config = read_config(Path(path))
        for server in config.enabled:
            if wanted is None or wanted(server):
                self._add_server(server)
        return config

    async def follow(self, config: Config, changed: Callable[[Config], Awaitable[None]] | None = None) -> None:
        """Keep in step with the file of `config` until cancelled: start what is new in it, stop what left it.

        A file that became unusable changes nothing; the reason is logged. `changed` is told of every configuration
        that was taken over.
        """
        seen = _stamp(config.path)
        while True:
            await anyio.sleep(POLL_S)
            if (now := _stamp(config.path)) == seen:
                continue
            seen = now
            try:
                new = read_config(config.path)
            except InvalidConfig as error:
                logger.warning("%s; the configuration before it stays in force", error.message)
                continue
            await self._take_over(config, new)
            config = new
            if changed is not None:
                await changed(config)

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        for source, entry, config in self._waiting.values():
            self._attend(source, entry, config)
        self._waiting.clear()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        self._tasks = None
        await self._stack.aclose()

    async def ready(self, timeout_s: float | None = None, sources: Collection[str] | None = None) -> bool:
        """Wait until every source, or each of `sources`, has listed its tools or failed to.

        False when `timeout_s` ran out first.
        """
        with anyio.move_on_after(timeout_s):
            for name, attended in [*self._attended.items()]:
                if sources is None or name in sources:
                    await attended.listed.wait()
            return True
        return False

    @property
    def starting(self) -> tuple[str, ...]:
        """Names of the sources that have neither listed their tools nor failed to."""
        return (*self._waiting, *(name for name, attended in self._attended.items() if not attended.listed.is_set()))

    # -- the operations -----------------------------------------------------------------------------------------------

    def view(self, principal: Principal = LOCAL) -> View:
        """What `principal` may see of the catalog as it is now."""
        view = self._view
        if view.state is not self.registry.state or view.principal != principal:
            view = self._view = View(self.registry.state, principal, self._policy)
        return view

    def list(
        self,
        path: Sequence[str] = ROOT,
        *,
        tags: Sequence[str] = (),
        query: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> ListPage:
        """The nodes and tools at `path`; see `Operations.list`."""
        return self.operations.list(self.view(), path, tags=tags, query=query, limit=limit, cursor=cursor)

    def search_tools(
        self, query: str, *, category: Sequence[str] = ROOT, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> SearchPage:
        """The tools that serve `query`, best first; see `Operations.search_tools`."""
        return self.operations.search_tools(self.view(), query, category=category, limit=limit, cursor=cursor)

    def expand_tool(self, tool_id: str) -> Expansion:
        """The full schemas of one tool and the handle to call it by; see `Operations.expand_tool`."""
        return self.operations.expand_tool(self.view(), tool_id)

    async def call_tool(
        self,
        handle: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: CallContext | None = None,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run an expanded tool; see `toolcrib.calling.call_tool`."""
        context = context or CallContext()
        return await call_tool(self.view(context.principal), handle, arguments, context, progress=progress)

    # -- the sources --------------------------------------------------------------------------------------------------

    def _add_server(self, config: ServerConfig) -> None:
        if config.server is None:
            source: Source = UnavailableSource(config.name, config.problem or "it is not configured")
        else:
            from toolcrib.sources.mcp.source import McpSource  # noqa: PLC0415  the SDK takes half a second to import

            source = McpSource(config.name, config.server, patience=config.patience)
        self._add(source, SourceEntry(source, title=config.title, summary=config.summary), config)

    def _add(self, source: Source, entry: SourceEntry, config: ServerConfig | None) -> None:
        if source.name in (*self._waiting, *self._attended, *self.registry.state.sources):
            raise InvalidTool(f"a source named `{source.name}` is there already")
        if self._tasks is None:
            self._waiting[source.name] = (source, entry, config)
        else:
            self._attend(source, entry, config)

    def _attend(self, source: Source, entry: SourceEntry, config: ServerConfig | None) -> None:
        if self._tasks is None:
            raise RuntimeError("the crib was not entered")
        attended = self._attended[source.name] = _Attended(config)
        self.registry.put_source(entry)

        async def attend() -> None:
            try:
                with attended.scope:
                    await self._intake.attend(source, entry, attended.listed)
            finally:
                attended.ended.set()

        self._tasks.start_soon(attend, name=f"source {source.name}")

    async def _take_over(self, old: Config, new: Config) -> None:
        wanted = {server.name: server for server in new.enabled}
        for server in old.enabled:
            attended = self._attended.get(server.name)
            if attended is not None and wanted.get(server.name) != server:
                attended.scope.cancel()
                await attended.ended.wait()
                del self._attended[server.name]
        for name, server in wanted.items():
            if name not in self._attended:
                self._add_server(server)


def tops(config: Config) -> tuple[Top, ...]:
    """The top of a catalog as its configuration tells of it, whatever has started by now."""
    return tuple(Top(server.name, server.summary or server.title or "") for server in config.enabled)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
