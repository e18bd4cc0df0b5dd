"""`Toolcrib`: the composition root, where sources, catalog, disclosure and calling come together."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from toolcrib.calling import CallLimits, call_tool, complete, get_prompt, read_resource, watch_resource
from toolcrib.catalog.access import ALLOW_ALL, Policy
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.core.client import NOBODY, Client
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import ROOT, Tool, ToolMetadata
from toolcrib.disclosure.messages import Expansion, ListPage, SearchPage
from toolcrib.disclosure.operations import DEFAULT_LIMIT, Operations
from toolcrib.protocol.dispatch import Answer, perform
from toolcrib.protocol.rules import Top
from toolcrib.sources.base import ProgressListener, Source
from toolcrib.sources.cached import CachedSource
from toolcrib.sources.condition import Condition
from toolcrib.sources.limited import LimitedSource
from toolcrib.sources.mcp.server import McpServer, StdioServer, address
from toolcrib.sources.unavailable import UnavailableSource
from toolcrib.stores.definitions import DefinitionStore

if TYPE_CHECKING:
    from toolcrib.sources.mcp.source import McpSource

if TYPE_CHECKING:
    from toolcrib.sources.functions import FunctionSource

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""How often a followed configuration file is looked at."""

FUNCTIONS = "functions"
"""What the source of a crib's own functions is called, where no configured server has the name."""

SERVING = "TOOLCRIB_SERVING"
"""Tells the servers of a configuration which file they stand in: one that would start Toolcrib on it again must not."""

MAX_VIEWS = 1_000
"""Views of one state that are kept; each holds what one principal may see."""


class Toolcrib:
    """All tools of an agent behind one counter.

    Functions can be added, listed and searched at once. Servers start when the crib is entered (`async with crib:`),
    in the background; `ready` waits for them.
    """

    def __init__(self, *, policy: Policy = ALLOW_ALL, definitions: DefinitionStore | None = None) -> None:
        """With `definitions`, servers whose definitions are kept there are started when they are first called."""
        self._definitions = definitions
        self.client: Client = NOBODY
        """Whom a server of the handshake era may count on from its start, and ask while nobody calls."""
        self._kept: dict[str, CachedSource] = {}
        self.registry = ToolRegistry()
        self.operations = Operations()
        self.limits = CallLimits()
        """How fast each principal may call, as the configuration that was taken in last says; no limit before."""
        self._policy = policy
        self._intake = Intake(self.registry)
        self._functions: FunctionSource | None = None
        self._configured: dict[str, ServerConfig] = {}
        self._servers: dict[str, tuple[LimitedSource, McpSource]] = {}
        """The running ones of them, by name."""
        self._viewed = self.registry.state
        self._views: dict[Principal, View] = {}

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
        if self._functions is None:
            from toolcrib.sources.functions import FunctionSource  # noqa: PLC0415  reading signatures takes a parser

            self._functions = FunctionSource(_free_name(FUNCTIONS, self.registry.state.sources))
            title = "Functions of this program"
            self.registry.put_source(SourceEntry(self._functions, SourceStatus.READY, title, trusted=True))
        tool = self._functions.add(function, name=name, description=description, metadata=metadata or ToolMetadata())
        self.registry.register(tool)
        return tool

    def add_source(self, source: Source, *, title: str | None = None, summary: str = "", trusted: bool = False) -> None:
        """Take in any source; it is listed in the background from when the crib is entered.

        `trusted`: what its tools claim of themselves (read-only, idempotent) may be relied on.

        Raises:
            InvalidTool: a source of this name is there already.
        """
        self._intake.add(source, SourceEntry(source, title=title, summary=summary, trusted=trusted))

    def add_config(self, path: str | Path, wanted: Callable[[ServerConfig], bool] | None = None) -> Config:
        """Take in the servers of an `mcp.json`, or those that are `wanted`.

        A server that is wrong in itself is kept as unavailable, with the reason. One called as the crib's own functions
        already are gets a number after its name.

        Raises:
            InvalidConfig: the file as a whole cannot be used, or a server has the name of a source that is there.
        """
        if os.path.realpath(path) in os.environ.get(SERVING, "").split(os.pathsep):
            raise InvalidConfig(f"{path}: Toolcrib serves this file already, and one of its servers is Toolcrib again")
        config = self._beside_functions(read_config(Path(path)))
        servers = [server for server in config.enabled if wanted is None or wanted(server)]
        self._check_free(config, servers)
        self.limits.rate = config.rate
        for server in servers:
            self._add_server(server, config.path)
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
                new = self._beside_functions(read_config(config.path))
                await self._take_over(new)
            except InvalidConfig as error:
                logger.warning("%s; the configuration before it stays in force", error.message)
                continue
            if changed is not None:
                await changed(new)

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._intake.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._intake.__aexit__(kind, error, traceback)
        self._configured.clear()
        self._servers.clear()
        self._kept.clear()

    async def ready(self, timeout_s: float | None = None, sources: Collection[str] | None = None) -> bool:
        """Wait until every source, or each of `sources`, has listed its tools or failed to; see `Intake.ready`."""
        return await self._intake.ready(timeout_s, sources)

    @property
    def has_kept(self) -> bool:
        """Whether kept definitions stand in for any source."""
        return any(source.stands_in for source in self._kept.values())

    @property
    def starting(self) -> tuple[str, ...]:
        """Names of the sources that have neither listed their tools nor failed to."""
        return self._intake.starting

    def condition(self, source: str) -> Condition | None:
        """How a server of the configuration is doing; None where the source is no such server."""
        if (found := self._servers.get(source)) is None:
            return None
        limited, server = found
        return Condition(limited.running, limited.waiting, server.breaker.failures, server.breaker.retry_after_s)

    # -- the operations -----------------------------------------------------------------------------------------------

    def view(self, principal: Principal = LOCAL) -> View:
        """What `principal` may see of the catalog as it is now."""
        state = self.registry.state
        if self._viewed is not state or len(self._views) >= MAX_VIEWS:
            self._viewed, self._views = state, {}
        if (view := self._views.get(principal)) is None:
            view = self._views[principal] = View(state, principal, self._policy)
        return view

    def list(
        self,
        path: Sequence[str] = ROOT,
        *,
        tags: Sequence[str] = (),
        query: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        principal: Principal = LOCAL,
    ) -> ListPage:
        """The nodes and tools at `path`; see `Operations.list`."""
        return self.operations.list(self.view(principal), path, tags=tags, query=query, limit=limit, cursor=cursor)

    def search_tools(
        self,
        query: str,
        *,
        category: Sequence[str] = ROOT,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        principal: Principal = LOCAL,
    ) -> SearchPage:
        """The tools that serve `query`, best first; see `Operations.search_tools`."""
        return self.operations.search_tools(self.view(principal), query, category=category, limit=limit, cursor=cursor)

    def expand_tool(self, tool_id: str, *, principal: Principal = LOCAL) -> Expansion:
        """The full schemas of one tool and the handle to call it by; see `Operations.expand_tool`."""
        return self.operations.expand_tool(self.view(principal), tool_id)

    async def perform(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        context: CallContext | None = None,
        progress: ProgressListener | None = None,
    ) -> Answer:
        """The answer to an operation by its name and JSON arguments, as surfaces get them; see `protocol.perform`."""
        context = context or CallContext()
        view = self.view(context.principal)
        return await perform(self.operations, view, name, arguments, context, limits=self.limits, progress=progress)

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
        return await call_tool(
            self.view(context.principal), handle, arguments, context, limits=self.limits, progress=progress
        )

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, context: CallContext | None = None
    ) -> Mapping[str, Any]:
        """A server's prompt, by its name in `view().shelf.prompts`; see `toolcrib.calling.get_prompt`."""
        context = context or CallContext()
        return await get_prompt(self.view(context.principal), name, arguments, context, limits=self.limits)

    async def read_resource(self, uri: str, *, context: CallContext | None = None) -> Mapping[str, Any]:
        """A server's resource, by a URI of `view().shelf` or of a link; see `toolcrib.calling.read_resource`."""
        context = context or CallContext()
        return await read_resource(self.view(context.principal), uri, context, limits=self.limits)

    async def watch_resource(
        self, uri: str, updated: Callable[[], None], *, context: CallContext | None = None
    ) -> Callable[[], None]:
        """Be told of changes of a resource until what this gives is called; see `toolcrib.calling.watch_resource`."""
        context = context or CallContext()
        return await watch_resource(self.view(context.principal), uri, updated, context, limits=self.limits)

    async def complete(self, params: Mapping[str, Any], *, context: CallContext | None = None) -> Mapping[str, Any]:
        """Values for an argument of a prompt or template; see `toolcrib.calling.complete`."""
        context = context or CallContext()
        return await complete(self.view(context.principal), params, context, limits=self.limits)

    # -- the sources --------------------------------------------------------------------------------------------------

    def _add_server(self, config: ServerConfig, path: Path) -> None:
        if config.server is None:
            source: Source = UnavailableSource(config.name, f"{config.problem}.", diagnosis=f"It stands in {path}.")
        else:
            source = self._server_source(config, config.server, path)
        entry = SourceEntry(
            source,
            title=config.title,
            summary=config.summary,
            trusted=config.trusted,
            plain_names=config.plain_names,
        )
        self._intake.add(source, entry)
        self._configured[config.name] = config

    def _server_source(self, config: ServerConfig, server: McpServer, path: Path) -> Source:
        from toolcrib.sources.mcp.source import McpSource  # noqa: PLC0415  the SDK takes half a second to import

        kept = self._definitions
        marked = _marked(server, path)
        source = McpSource(
            config.name,
            marked,
            patience=config.patience,
            stops_when_idle=kept is not None,
            client=lambda: self.client,
        )
        # Kept under what the file says, not under where it stands: a configuration that moved finds its definitions.
        listed: Source = source
        if kept is not None:
            listed = self._kept[config.name] = CachedSource(source, kept, address(server), client=lambda: self.client)
        limited = LimitedSource(listed, config.capacity)
        self._servers[config.name] = limited, source
        return limited

    async def _take_over(self, config: Config) -> None:
        wanted = {server.name: server for server in config.enabled}
        gone = [name for name, server in self._configured.items() if wanted.get(name) != server]
        new = [server for name, server in wanted.items() if name in gone or name not in self._configured]
        self._check_free(config, [server for server in new if server.name not in gone])
        self.limits.rate = config.rate
        await self._intake.remove(gone)
        for name in gone:
            del self._configured[name]
            self._servers.pop(name, None)
            self._kept.pop(name, None)
        for _, server in self._servers.values():
            server.try_again()
        for server in new:
            self._add_server(server, config.path)

    def _check_free(self, config: Config, servers: Iterable[ServerConfig]) -> None:
        for server in servers:
            if server.name in self.registry.state.sources:
                raise InvalidConfig(f"{config.path}: a source named `{server.name}` is there already")

    def _beside_functions(self, config: Config) -> Config:
        """`config` without the name that the crib's own functions have: handles of theirs are out already."""
        if self._functions is None:
            return config
        mine = self._functions.name
        other = _free_name(mine, {mine, *(server.name for server in config.servers)})
        servers = (replace(server, name=other) if server.name == mine else server for server in config.servers)
        return replace(config, servers=tuple(servers))


def tops(config: Config) -> tuple[Top, ...]:
    """The top of a catalog as its configuration tells of it, whatever has started by now."""
    return tuple(Top(server.name, server.summary or server.title or "") for server in config.enabled)


def _marked(server: McpServer, path: Path) -> McpServer:
    """`server`, told which configurations it is started from."""
    if not isinstance(server, StdioServer):
        return server
    above = os.environ.get(SERVING)
    here = os.path.realpath(path)
    return replace(server, env={**server.env, SERVING: f"{above}{os.pathsep}{here}" if above else here})


def _free_name(name: str, taken: Container[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
