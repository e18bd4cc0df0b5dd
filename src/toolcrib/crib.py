"""`Toolcrib`: the composition root, where sources, catalog, disclosure and calling come together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token

from toolcrib.calling import Approvals, Approver, Runner
from toolcrib.catalog.access import ALLOW_ALL, NOTHING_CLAIMED, Access, Policy, may_show
from toolcrib.catalog.arrangement import Arrangement, Beside
from toolcrib.catalog.bundles import NOTHING, Bundles, Contents, Resolution, ToolBundle
from toolcrib.catalog.capabilities import Capabilities, Capability
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.overrides import MetadataOverride, Overrides
from toolcrib.catalog.registry import RunnableRegistry, ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import NO_OVERLAY, Overlay, View, subject_of
from toolcrib.catalog.views import Views, permissions_within
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.config.plugins import PluginConfig
from toolcrib.config.policy import policy_of
from toolcrib.config.search import DEFAULT_SEARCH
from toolcrib.core.client import NOBODY, Client
from toolcrib.core.errors import InvalidConfig, InvalidTool, ToolcribError, ToolNotFound, UnknownBundle
from toolcrib.core.events import Recorder
from toolcrib.core.metadata import NO_METADATA, ToolMetadata
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.core.values import check_kind
from toolcrib.counter import Counter, FunctionT
from toolcrib.declarations import Declarations
from toolcrib.disclosure.operations import MAX_QUERY_CHARS
from toolcrib.embedders import Embedder
from toolcrib.guard import Guard
from toolcrib.insights import Insights
from toolcrib.plugins import ConfiguredPlugins
from toolcrib.protocol.desk import Desk
from toolcrib.protocol.rules import Top
from toolcrib.protocol.tools import DEFAULT_SET
from toolcrib.registrations import Registered
from toolcrib.servers import ConfiguredServers, refuse_own_file
from toolcrib.sources.base import Source, free_name
from toolcrib.sources.condition import Condition
from toolcrib.sources.installed import installed_plugins
from toolcrib.sources.plugins import Plugin
from toolcrib.stores.definitions import Definitions
from toolcrib.stores.pins import PinStore
from toolcrib.stores.registrations import Registrations
from toolcrib.stores.vectors import Vectors
from toolcrib.tops import tops

if TYPE_CHECKING:
    from toolcrib.config.registrations import Kind, Registrable
    from toolcrib.sources.declared.definition import DeclaredTools
    from toolcrib.sources.functions import FunctionSource
    from toolcrib.surfaces.program import CribApp

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""How often a followed configuration file is looked at."""

_TOLD_OF: Mapping[str, Callable[[Config], object]] = {
    "servers that are switched off": lambda config: [each for each in config.servers if each.disabled],
    "names of servers": lambda config: {label: name for label, name in config.source_names.items() if label != name},
    "plugins": attrgetter("plugins", "chooses_plugins"),
    "declared tools": attrgetter("declared"),
    "policy": attrgetter("policy"),
    "who may ask": attrgetter("auth"),
    "tools": attrgetter("overrides.given"),
    "categories": attrgetter("categories.given"),
    "bundles": attrgetter("bundles.given"),
    "capabilities": attrgetter("capabilities"),
    "search": attrgetter("search"),
    "limits": attrgetter("rate", "lookup_rate", "patience", "capacity", "room", "max_isolated_principals"),
    "pins": attrgetter("said_of_pins"),
    "audit (from the next start)": attrgetter("audit"),
}
"""All of a configuration besides its enabled servers, as the log names it where it changed."""

_NO_CONFIG = Config(Path())
"""That of a program which took in none."""

FUNCTIONS = "functions"
"""What the source of a crib's own functions is called, where no configured server has the name."""


class Toolcrib(Counter):
    """All tools of an agent behind one counter.

    Functions can be added, listed and searched at once. Servers start when the crib is entered (`async with crib:`),
    in the background; `ready` waits for them.
    """

    def __init__(
        self,
        *,
        policy: Policy | Mapping[str, Any] | None = None,
        definitions: Definitions | None = None,
        approvals: Approvals | None = None,
        registrations: Registrations | None = None,
        pins: PinStore | None = None,
        embedder: Embedder | None = None,
        vectors: Vectors | None = None,
        record: Recorder | None = None,
    ) -> None:
        """With `definitions`, servers whose definitions are kept there are started when they are first called.

        `policy` stands before any that a configuration sets. A mapping is read as `toolcrib.policy` is.
        `approvals` keeps what people approved for good, else that
        lasts as long as the program. What stands in `registrations` is taken in with a configuration, or when the crib
        is entered; `keep` puts more there. `pins` holds which definitions people approved of, and which versions there
        were; without it nothing is approved, and versions are counted as long as the program lasts. `embedder` knows
        what texts mean, and stands before any that a configuration names; `vectors` keeps what it made of tools.
        `record` is told of every operation.

        Raises:
            InvalidConfig: `policy` is no policy, or the mapping is wrong.
        """
        self.client: Client = NOBODY
        """Whom a server of the handshake era may count on from its start, and ask while nobody calls."""
        self.registry: ToolRegistry = RunnableRegistry()
        runner = Runner(approver=Approver(approvals), view_of=self.seen_by)
        recorders = [record] if record is not None else []
        super().__init__(
            Desk(runner=runner, recorders=recorders, bundle_of=lambda asked: asked.bundle or self._confined_to)
        )
        self._policy = None if policy is None else policy_of(policy)
        self._configured = Arrangement()
        self._added = Arrangement()
        """What was added one by one."""
        self._bundles = Bundles()
        self._capabilities = Capabilities(self.registry.set_findings)
        self._said = _NO_CONFIG
        """The last configuration, without what is registered, and with what those before it declare."""
        self._registered = Registered(registrations)
        self._closed_by: Config | None = None
        """The last configuration with a policy."""
        self._is_running = False
        self._confined_to: str | None = None
        """The bundle beside which nothing exists, whoever asks."""
        self.guard = Guard(pins)
        """Who says what is shown, given what people approved of."""
        self._intake = Intake(self.registry, self.guard)
        self._functions: FunctionSource | None = None
        self._servers = ConfiguredServers(self._intake, definitions, lambda: self.client, self.guard)
        self._plugins = ConfiguredPlugins(self._intake)
        self._declarations = Declarations(self.registry)
        self.lockers = self._servers.lockers
        """What principals have for themselves."""
        self.insights = Insights(self.registry, self.lockers, vectors, embedder)
        """What is known of requests besides their words."""
        self._views = Views(self.registry, self._policy_of(_NO_CONFIG), self.insights)

    # -- what there is ------------------------------------------------------------------------------------------------

    @overload
    def add(
        self,
        function: FunctionT,
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: ToolMetadata | Mapping[str, Any] = NO_METADATA,
        annotations: ToolAnnotations = NOTHING_CLAIMED,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> FunctionT: ...

    @overload
    def add(
        self,
        function: None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: ToolMetadata | Mapping[str, Any] = NO_METADATA,
        annotations: ToolAnnotations = NOTHING_CLAIMED,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def add(self, function: Callable[..., Any] | None = None, **given: Any) -> Callable[..., Any]:
        """Take in a Python function as a tool; signature, annotations and docstring become its schema.

        Gives back the function as it is, so it serves as a decorator too: `@crib.add`, or `@crib.add(name="hello")`.
        The tool that was made of it is `tool_of(function)`.

        Raises:
            InvalidTool: no schema can be made of it, one given by hand does not agree with it, an example does not
                match the schema, or the name is taken; see `FunctionSource.add`.
        """
        if function is None:
            return partial(self.add, **given)
        if isinstance(function, Tool):
            raise InvalidTool(f"`{function.id}` is a definition, which cannot be called; add the function itself")
        if self._functions is None:
            from toolcrib.sources.functions import FunctionSource  # noqa: PLC0415  reading signatures takes a parser

            self._functions = FunctionSource(free_name(FUNCTIONS, {*self.registry.state.sources, *self._servers.names}))
            title = "Functions of this program"
            self.registry.put_source(SourceEntry(self._functions, SourceStatus.READY, title, trusted=True))
        self.registry.register(self._functions.add(function, **given))
        return function

    def tool_of(self, function: Callable[..., Any]) -> Tool:
        """The tool that `add` made of a function: of several, the last.

        Raises:
            ToolNotFound: it was not added, or is removed.
        """
        tool = self._functions.tool_of(function) if self._functions is not None else None
        if tool is None:
            raise ToolNotFound(f"`{getattr(function, '__name__', function)}` was not added with `add`, or is removed")
        return self.registry.get(tool.id) or tool

    def remove(self, tool: Callable[..., Any] | Tool | str) -> None:
        """Let go of a function that `add` took in, given by itself, its tool or its id; calls under way finish.

        Raises:
            ToolNotFound: it is not there.
        """
        if not isinstance(tool, str | Tool):
            tool = self.tool_of(tool)
        tool_id = tool if isinstance(tool, str) else tool.id
        source, _, _ = tool_id.partition(".")
        if self._functions is None or source != self._functions.name:
            raise ToolNotFound(f"`{tool_id}` was not added with `add`")
        self.registry.unregister(tool_id)

    def add_source(self, source: Source, *, title: str | None = None, summary: str = "", trusted: bool = False) -> None:
        """Take in any source; it is listed in the background from when the crib is entered.

        `trusted`: what its tools claim of themselves (read-only, idempotent) may be relied on.

        Raises:
            InvalidTool: a source of this name is there already.
        """
        if source.name in self._servers.names:
            raise InvalidTool(f"a source named `{source.name}` is there already")
        self._intake.add(source, SourceEntry(source, title=title, summary=summary, trusted=trusted))

    def add_plugin(self, plugin: Plugin, *, trusted: bool = True) -> None:
        """Take in a plugin of this program; `trusted` is as for any source.

        Raises:
            InvalidTool: its name is taken or cannot name a source, or two of its tools have the same name.
        """
        dispatcher = self._plugins.dispatcher
        source = dispatcher.add(plugin)
        try:
            self.add_source(source, trusted=trusted)
        except InvalidTool:
            dispatcher.remove(source.name)
            raise

    def add_plugins(self, names: Collection[str] | None = None, *, trusted: bool = False) -> None:
        """Take in the installed plugins of these names, or all; one that cannot be used is kept, with the reason."""
        plugins = (PluginConfig(plugin, trusted=trusted) for plugin in installed_plugins(names))
        self._plugins.add(plugins, {*self.registry.state.sources, *self._servers.names})

    def declare(self, declared: DeclaredTools) -> None:
        """Take in a declared source, or put it in the place of the one of its name that was declared in this way.

        Its tools are there at once, trusted.

        Raises:
            InvalidTool: another source has the name.
        """
        name = declared.name
        if name not in self.declared and (name in self.registry.state.sources or name in self._servers.names):
            raise InvalidTool(f"a source named `{name}` is there already")
        self._declarations.put(declared)

    def withdraw(self, name: str) -> None:
        """Let go of a source that was declared; calls that are under way finish.

        Raises:
            ToolNotFound: none of this name was declared, other than by the configuration.
        """
        self._declarations.drop(name)

    @property
    def declared(self) -> Mapping[str, DeclaredTools]:
        """What was declared, by source name; without what the configuration declares."""
        return self._declarations.added

    def add_category(self, category: Category) -> None:
        """Set up a node, and the tools that hang in it; it claims tools after those of the configuration.

        Raises:
            InvalidConfig: one of its path is there already, it would hang below itself, or it is no `Category`.
        """
        check_kind(category, Category, "category")
        self._arrange(self._configured, replace(self._added, categories=(*self._added.categories, category)))

    def add_capability(self, capability: Capability) -> None:
        """Set up what tools may need; it stands in the place of an earlier one of its name.

        Raises:
            InvalidConfig: it is no `Capability`.
        """
        check_kind(capability, Capability, "capability")
        self._arrange(self._configured, replace(self._added, capabilities=(*self._added.capabilities, capability)))

    def add_bundle(self, bundle: ToolBundle) -> None:
        """Set up a set of tools that a session can be kept within; those that it includes are there already.

        Raises:
            InvalidConfig: one of its name is there already, one that it includes is not, or it is no `ToolBundle`.
        """
        check_kind(bundle, ToolBundle, "bundle")
        self._arrange(self._configured, replace(self._added, bundles=(*self._added.bundles, bundle)))

    def add_override(self, override: MetadataOverride) -> None:
        """Say something of tools that others define; it has the last word over what was said before.

        Raises:
            InvalidConfig: the category that it names would hang below itself, or it is no `MetadataOverride`.
        """
        check_kind(override, MetadataOverride, "override")
        self._arrange(self._configured, replace(self._added, overrides=(*self._added.overrides, override)))

    def keep(self, *things: Registrable, replacing: bool = False) -> None:
        """Register these for this program and all that share its `registrations`, beyond its end; all of them or none.

        With `replacing`, they may take the place of what is registered under their names.

        Raises:
            InvalidConfig: one of them is there already and differs, would not count beside what is there, or cannot be
                kept, as a function or a `Tool`, which live in this program; or the store cannot be written.
        """
        from toolcrib.config.registrations import Registering, rows_of  # noqa: PLC0415  mostly nothing is registered

        registering, new = Registering(self._said, self._beside(changing=False)), rows_of(things)
        self._registered.change(lambda rows: registering.added(rows, new, replacing=replacing))
        self._registered.read()
        self._take_registered()

    def forget(self, kind: Kind | str, name: str) -> None:
        """Register this no longer, here and wherever it was taken in; `name` is as `Kind` says.

        Raises:
            NotFound: nothing of this kind and name is registered.
            InvalidConfig: something else that is registered needs it, or the store cannot be written.
        """
        from toolcrib.config.registrations import Kind, Registering  # noqa: PLC0415  likewise

        if kind == Kind.BUNDLE and name == self._confined_to:
            raise InvalidConfig(f"the bundle `{name}` is served; it cannot be let go of here")
        registering = Registering(self._said, self._beside(changing=False))
        self._registered.change(lambda rows: registering.removed(rows, [(kind, name)]))
        self._registered.read()
        self._take_registered()

    @property
    def registration_problems(self) -> tuple[str, ...]:
        """What is registered and does not count, and why; see `Registered.problems`."""
        return self._registered.problems

    def with_registered(self, config: Config) -> Config:
        """`config`, with what is registered and counts beside it."""
        return self._registered.joined(config, self._beside(changing=True))

    def add_config(self, path: str | Path, wanted: Callable[[str], bool] | None = None) -> Config:
        """Take in the servers of an `mcp.json`, its plugins and declared sources, or those whose names are `wanted`.

        A server that is wrong in itself is kept as unavailable, with the reason. One called as the crib's own functions
        already are gets a number after its name. A plugin with the name of a server is unavailable.

        Raises:
            InvalidConfig: the file as a whole cannot be used, or a server or declared source has the name of a source
                that is there.
        """
        refuse_own_file(Path(path))
        said = self._kept_closed(self._beside_functions(read_config(Path(path))))
        servers = [server for server in said.enabled if wanted is None or wanted(server.name)]
        declared = [each for each in said.declared if wanted is None or wanted(each.name)]
        before = {each.name for each in self._said.declared}
        self._check_free(said, [*servers, *declared], self._declarations.configured - before)
        said = self._beside_said(replace(said, declared=tuple(declared)))
        self._registered.read()
        config = self._registered.joined(said, self._beside(changing=False))
        self._check_arrangement(config)
        more = [plugin for plugin in config.plugins if wanted is None or wanted(plugin.name)]
        plugins = self._plugins.change_to([*self._plugins.wanted, *more], self._beside_plugins(config, servers=True))
        self._plugins.leave(plugins)
        self._declarations.leave(config.declared)
        self._heed(config, said)
        self._servers.add(config, servers)
        self._plugins.join(plugins)
        self._declarations.join(config.declared, config.capacity)
        return config

    async def follow(
        self,
        config: Config | None = None,
        changed: Callable[[Config], None] | None = None,
        before: Callable[[Config], None] | None = None,
    ) -> None:
        """Keep in step with the file of `config`, with what is registered and with what is approved, until cancelled.

        What is new is started, and what left is stopped.

        A file that became unusable, or cannot be taken over, changes nothing; the reason is logged. Each that can is
        told to `before` as long as nothing of it counts, and to `changed` when all of it does; in between, no other
        task runs.
        """
        seen, known = _stamp(config), self._registered.version
        while True:
            await anyio.sleep(POLL_S)
            now = _stamp(config)
            if self._registered.is_kept:
                await to_thread.run_sync(self._registered.read, abandon_on_cancel=True)
            counts = None
            if config is not None and now != seen:
                counts = _unless_refused(partial(self._reread, config.path, before), "the configuration before it")
            if counts is None and self._registered.version != known:
                counts = _unless_refused(self._take_registered, "what was registered before")
            seen, known = now, self._registered.version
            if await self.guard.has_turned():
                await self.judge_again()
            if counts is not None and changed is not None:
                changed(counts)

    async def judge_again(self) -> None:
        """Show what may be shown by now, given what is approved; no source is asked."""
        await self._intake.judge_again()
        await self.lockers.judge_again()

    # -- its life -----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it is entered."""
        return self._is_running

    async def __aenter__(self) -> Self:
        self._is_running = True
        self._capabilities.loop = current_token()
        if self._said is _NO_CONFIG and self._registered.read():
            self._take_registered()
        self.insights.resume()
        await self.lockers.__aenter__()
        await self._intake.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_running = False
        self._capabilities.loop = None
        self.lockers.close()  # first, so that all servers end side by side
        try:
            await self._intake.__aexit__(kind, error, traceback)
        finally:
            await self.lockers.__aexit__(kind, error, traceback)
            self._servers.clear()
            self._plugins.clear()
            await self.insights.aclose()

    async def ready(
        self,
        timeout_s: float | None = None,
        sources: Collection[str] | None = None,
        *,
        principal: Principal | None = LOCAL,
    ) -> bool:
        """Wait until every source that `principal` has, or each of `sources`, has listed its tools or failed to.

        For None, those that principals share.

        Those that it has for itself are begun. Then for a first answer on each capability that its tools need, until
        the deadline of that. False when `timeout_s` ran out first, or nothing is running.
        """
        with anyio.move_on_after(timeout_s):
            if principal is not None:
                self.lockers.overlay(principal)  # begun now, to start beside the others
            listed = await self._intake.ready(None, sources)
            if principal is not None:
                listed = listed and await self.lockers.ready(principal, None, sources)
            self.glance(principal or LOCAL)
            await self._capabilities.settled()
            return listed
        return False

    @property
    def has_kept(self) -> bool:
        """Whether kept definitions stand in for any source."""
        return self._servers.has_kept

    def may_show(self, source: str, principal: Principal) -> bool:
        """Whether `principal` may see something of a shared source, as far as is known before it is listed."""
        permissions, categories = self._views.policy.permissions(principal), self.registry.state.categories
        return may_show(permissions, source) or any(
            permissions.decide(subject_of(tool, categories)) is not Access.HIDDEN
            for category in categories.given
            for tool in category.possible_tools()
            if tool.source == source
        )

    @property
    def starting(self) -> tuple[str, ...]:
        """Names of the shared sources that have neither listed their tools nor failed to; see `lockers` for others."""
        return self._intake.starting

    def condition(self, source: str) -> Condition | None:
        """How a shared server of the configuration is doing; None where the source is no such server."""
        return self._servers.condition(source)

    # -- the operations -----------------------------------------------------------------------------------------------

    def view(self, principal: Principal = LOCAL, bundle: str | None = None) -> View:
        return self._looked(principal, self.lockers.overlay(principal), self._within(bundle, principal))

    def glance(self, principal: Principal, bundle: str | None = None) -> View:
        """The same for whoever only looks: nothing that `principal` has for itself is begun, and nobody was seen.

        Within a bundle that is unknown there is nothing.
        """
        return self._looked(
            principal, self.lockers.open_overlay(principal.id), self._within_or_nothing(bundle, principal)
        )

    def hidden_entirely(self, principal: Principal) -> int:
        """How many tools there are where the policy hides all of them from `principal`; 0 where it shows some.

        For the owner alone: nothing that a caller reads may depend on it.
        """
        overlay = self.lockers.open_overlay(principal.id)
        is_empty = not self._views.of(principal, overlay).tools
        return len(View.of(self.registry.state, overlay=overlay).tools) if is_empty else 0

    async def prepare(self, query: str) -> None:
        if self.registry.state.index.weights.embedding:
            await self.insights.prepare(query[:MAX_QUERY_CHARS])

    def resolve(self, bundle: str, principal: Principal | None = LOCAL) -> Resolution:
        self.glance(principal or LOCAL)  # for what its tools need to have been looked at
        whole = View.of(
            self.registry.state, overlay=self.lockers.open_overlay(principal.id) if principal else NO_OVERLAY
        )
        return self._bundles.contents(bundle).look(bundle, self.view(principal) if principal else whole, whole)

    @property
    def bundles(self) -> Bundles:
        """Those of the configuration and those that were added."""
        return self._bundles

    def confine(self, bundle: str) -> None:
        """From now on nothing exists but what `bundle` holds, whoever asks and within whichever other bundle.

        Raises:
            UnknownBundle: no bundle is called so.
        """
        self._bundles.contents(bundle)
        self._confined_to = bundle

    @property
    def differs_by_principal(self) -> bool:
        """Whether what one principal sees of the catalog may be another's secret; any policy may make it so."""
        return self._views.policy is not ALLOW_ALL or bool(self._servers.isolated)

    def tops(self, config: Config, principal: Principal, bundle: str | None = None) -> tuple[Top, ...]:
        """The top of the catalog that `principal` has and may know of, and that `bundle` may hold; see `tops`."""
        permissions = self._views.policy.permissions(principal)
        permissions = permissions_within(permissions, self._within_or_nothing(bundle, principal))
        if self._added.categories:
            categories = Arrangement.of((config.arrangement, self._added)).all_categories
            config = replace(config, categories=categories)
        configured = {each.name for each in (*config.servers, *config.declared, *config.plugins)} | self._plugins.names
        state = self.registry.state
        mine = [entry for name, entry in state.sources.items() if name not in configured]
        return tops(config, permissions, principal, program=mine, tools=state.tools.values() if mine else ())

    def bundle_for(self, name: str, principal: Principal) -> ToolBundle:
        """The bundle `name`.

        Raises:
            UnknownBundle: there is none. Hints name only bundles in which `principal` sees a tool.
        """
        if name not in self._bundles:
            shows = partial(self._shows_something, principal=principal) if self.differs_by_principal else None
            raise self._bundles.unknown(name, shows)
        return self._bundles[name]

    def _shows_something(self, bundle: str, principal: Principal) -> bool:
        return bool(self.glance(principal, bundle).tools)

    def _within(self, bundle: str | None, principal: Principal) -> tuple[Contents, ...]:
        """What all hold that an operation of `principal` is kept within."""
        names = dict.fromkeys(name for name in (self._confined_to, bundle) if name is not None)
        return tuple(self._bundles.contents(self.bundle_for(name, principal).name) for name in names)

    def _within_or_nothing(self, bundle: str | None, principal: Principal) -> tuple[Contents, ...]:
        try:
            return self._within(bundle, principal)
        except UnknownBundle:
            return (NOTHING,)

    def _looked(self, principal: Principal, overlay: Overlay, within: tuple[Contents, ...]) -> View:
        """What `principal` may see, once the capabilities that its tools need have been looked at."""
        self._capabilities.look(self.registry.state.needing, overlay.needed)
        return self._views.of(principal, overlay, within)

    # -- serving ------------------------------------------------------------------------------------------------------

    async def serve_stdio(self, *, operations: str | Sequence[str] = DEFAULT_SET) -> None:
        """Be an MCP server over standard input and output, until the client goes away or SIGINT or SIGTERM arrives.

        `operations`: what a client sees, as `toolcrib serve --operations` takes it: the name of a set, names of
        operations, or `"all"` for the tools themselves. The crib is entered with it, unless it is entered already.

        Raises:
            InvalidConfig: there is no such set or operation.
        """
        from toolcrib.surfaces.program import serve_stdio  # noqa: PLC0415  no program that serves nothing needs it

        await serve_stdio(self, self._config, operations)

    async def serve_http(
        self,
        address: str = "127.0.0.1:8808",
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
        auth: Mapping[str, Any] | None = None,
        listening: Callable[[str], None] | None = None,
    ) -> None:
        """Serve at `HOST:PORT` what `toolcrib serve --http` does, until SIGINT or SIGTERM arrives or it is cancelled.

        `operations` are as for `serve_stdio`; those that are named one by one are all that the HTTP API has, too.
        `auth` is what `toolcrib.auth` of a configuration holds; without it, that of the configuration that was added.
        Port 0 takes a free one; `listening` is told the address of MCP.

        Raises:
            InvalidConfig: the address is taken, others reach it and nobody is asked who they are, `auth` cannot be
                read, or there is no such set or operation.
        """
        from toolcrib.surfaces.program import serve_http  # noqa: PLC0415  likewise

        await serve_http(self, self._config, address, operations, auth=auth, listening=listening)

    def app(
        self,
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
        auth: Mapping[str, Any] | None = None,
        url: str | None = None,
    ) -> CribApp:
        """What `serve_http` serves as an ASGI application, to be mounted in that of a program.

        `url` is where clients reach it, as in `https://example.com/tools`; without it, only requests that name this
        machine are answered. `operations` and `auth` are as for `serve_http`. Its `lifespan` has to be that of the
        program's application, which does not run those of applications that are mounted in it.

        Raises:
            InvalidConfig: as `serve_http` does.
        """
        from toolcrib.surfaces.program import CribApp  # noqa: PLC0415  likewise

        return CribApp(self, self._config, operations, auth=auth, url=url)

    @property
    def _config(self) -> Config:
        """The configuration that was added last, with what is registered."""
        return self._registered.joined(self._said, self._beside(changing=False))

    # -- the configuration --------------------------------------------------------------------------------------------

    def _reread(self, path: Path, before: Callable[[Config], None] | None) -> Config:
        """Take over what the file at `path` says by now; raises as `_take_over` does."""
        return self._take_over(self._kept_closed(self._beside_functions(read_config(path))), before)

    def _take_over(self, said: Config, before: Callable[[Config], None] | None) -> Config:
        """Have exactly what `said` says from now on, and what is registered beside it; that is given.

        Raises:
            ToolcribError: nothing of it counts.
        """
        config = self.with_registered(said)
        if self._confined_to not in self._said.bundles:  # it was registered
            config = self._still_confined(config)
        change = self._servers.change_to(config)
        self._check_free(config, [*change.added, *config.declared], {*change.gone, *self._declarations.configured})
        self._check_isolated(config)
        self._check_chosen(config)
        plugins = self._plugins.change_to(config.plugins, self._beside_plugins(config, servers=False))
        self._check_arrangement(config)
        if before is not None:
            before(config)
        earlier = self._said
        # What goes is out of sight before rules count that may have nothing to say of it any more; what is new comes
        # when those count that are about it.
        self._servers.leave(change)
        self._plugins.leave(plugins)
        self._declarations.leave(config.declared)
        self._heed(config, said)
        self._servers.join(change)
        self._plugins.join(plugins)
        self._declarations.join(config.declared, config.capacity)
        told = [f"servers {change.told}"] if change.told else []
        told += [f"{what} changed" for what, of in _TOLD_OF.items() if of(earlier) != of(said)]
        logger.info("%s was taken over: %s", said.path, "; ".join(told) or "it says the same as before")
        return config

    def _take_registered(self) -> Config:
        """Have what is registered now, beside the configuration as it is; both are given.

        Raises:
            ToolcribError: nothing of it counts.
        """
        config = self._still_confined(self._registered.joined(self._said, self._beside(changing=False)))
        self._check_arrangement(config)
        self._declarations.leave(config.declared)
        self._arrange(config.arrangement, self._added)
        self._declarations.join(config.declared, config.capacity)
        return config

    def _beside(self, *, changing: bool) -> Beside:
        """What what is registered makes way for; where the configuration is `changing`, what that starts is its own
        matter."""
        started = self._servers.names | self._plugins.names
        own = self.registry.state.sources.keys() - self._declarations.configured - started
        return Beside(self._added, frozenset(own if changing else own | started))

    def _heed(self, config: Config, said: Config) -> None:
        """Take over what a configuration says besides its servers; `said` is it without what is registered."""
        # Rules go by categories: those of the one must never be all that holds over the other.
        with self._views.turning_to(self._policy_of(config)):
            self._arrange(config.arrangement, self._added)
        self.desk.runner.limits.rate = config.rate
        self.desk.lookups.rate = config.lookup_rate
        self.registry.set_weights(config.search.weights)
        self.insights.heed(config)
        self.guard.policy = config.pins
        self._said = said
        last = self._closed_by
        if said.policy is not None and (last is None or said.policy is not last.policy):
            self._closed_by = said

    def _policy_of(self, config: Config) -> Policy:
        # A program's own policy may be false in Python, as an empty container is. It counts all the same.
        given = (policy for policy in (self._policy, config.policy) if policy is not None)
        return next(given, ALLOW_ALL)

    def _kept_closed(self, config: Config) -> Config:
        """`config`, with the last policy where it has none: a file that was cut short must not open what was closed.

        The same of what becomes of definitions that nobody approved of.

        The categories that stood beside that policy stay with it, and what was said of tools: its rules may go by them.
        """
        last, pins = self._closed_by, self._said.said_of_pins
        if pins is not None and config.said_of_pins is None:
            logger.warning(
                "%s: it says nothing of `pins` any more; what it said last stays in force until the next start",
                config.path,
            )
            config = replace(config, said_of_pins=pins)
        if self._policy is not None or config.policy is not None or last is None:
            return config
        logger.warning(
            "%s: it has no policy; the last one stays in force, with its categories, until the next start "
            '(one of {"otherwise": "allow"} opens everything)',
            config.path,
        )
        more = [category for category in config.categories.given if category.path not in last.categories]
        categories = Categories([*last.categories.given, *more])
        overrides = Overrides((*last.overrides.given, *config.overrides.given))
        return replace(config, policy=last.policy, categories=categories, overrides=overrides)

    def _beside_said(self, config: Config) -> Config:
        """`config` with what those before it said besides their servers."""
        before = self._said
        more = (category for category in config.categories.given if category.path not in before.categories)
        return replace(
            config,
            declared=(*before.declared, *config.declared),
            categories=Categories([*before.categories.given, *more]),
            overrides=Overrides((*before.overrides.given, *config.overrides.given)),
            bundles=Bundles([*before.bundles.given, *config.bundles.given]),
            capabilities=(*before.capabilities, *config.capabilities),
            search=before.search if config.search == DEFAULT_SEARCH else config.search,
            said_of_pins=before.said_of_pins if config.said_of_pins is None else config.said_of_pins,
        )

    def _arrange(self, configured: Arrangement, added: Arrangement) -> None:
        whole = Arrangement.of((configured, added))
        categories, bundles = whole.all_categories, whole.all_bundles  # refused here, before anything has changed
        self.registry.set_overrides(whole.all_overrides)
        self.lockers.set_overrides(whole.all_overrides)
        self.registry.set_categories(categories)
        self.lockers.set_categories(categories)
        self._bundles = bundles
        self._capabilities.set_up(whole.capabilities)
        self._configured, self._added = configured, added

    def _beside_plugins(self, config: Config, *, servers: bool) -> frozenset[str]:
        """Names of all sources but plugins of configurations, once `config` counts; with `servers`, beside those there
        are."""
        mine = self._servers.names
        others = self.registry.state.sources.keys() - mine - self._plugins.names - self._declarations.configured
        theirs = {each.name for each in (*config.enabled, *config.declared)}
        return frozenset(theirs | others | ((mine | self._declarations.configured) if servers else frozenset()))

    def _check_free(
        self, config: Config, sources: Iterable[ServerConfig | DeclaredTools], going: Collection[str] = ()
    ) -> None:
        """Pass where no source but those that are `going` has the name of one of `sources`; a plugin makes way."""
        taken = (self.registry.state.sources.keys() - self._plugins.names | self._servers.names).difference(going)
        for source in sources:
            if source.name in taken:
                raise InvalidConfig(f"{config.path}: a source named `{source.name}` is there already")

    def _still_confined(self, config: Config) -> Config:
        """`config` with the bundle that everything is kept within as it was, where another program let go of it."""
        name = self._confined_to
        if name is None or name in Arrangement.of((config.arrangement, self._added)).all_bundles:
            return config
        logger.warning("the bundle `%s` is registered no more; until the next start nothing else is served", name)
        was = self._bundles.contents(name)
        bundle = ToolBundle(name, required=was.required, optional=was.optional)
        return replace(config, bundles=Bundles([*config.bundles.given, bundle]))

    def _check_arrangement(self, config: Config) -> None:
        whole = Arrangement.of((config.arrangement, self._added))
        _ = whole.all_categories
        if self._confined_to is not None and self._confined_to not in whole.all_bundles:
            raise InvalidConfig(f"{config.path}: the bundle `{self._confined_to}` is served, and not there any more")

    def _check_isolated(self, config: Config) -> None:
        """A file that was cut short must not share a principal's server, nor give one to a principal that had none."""
        for server in config.enabled:
            was, is_shared = server.name in self._servers.isolated, server.isolation == "shared"
            if was and is_shared and not server.is_expressly_shared:
                raise InvalidConfig(
                    f'{config.path}: `{server.name}` was isolated; say `"isolation": "shared"` if it is to be shared'
                )
            if server.name in self._servers.for_some and not is_shared and server.principals is None:
                raise InvalidConfig(
                    f"{config.path}: only some principals had `{server.name}`; "
                    'say `"principals": {"*": {}}` if each principal is to have one'
                )

    def _check_chosen(self, config: Config) -> None:
        """Nor may it bring in every plugin that is installed."""
        if self._said.chooses_plugins and not config.chooses_plugins:
            raise InvalidConfig(f'{config.path}: `plugins` was said; say `"plugins": true` if all are to be taken in')

    def _beside_functions(self, config: Config) -> Config:
        """`config` without the name that the crib's own functions have: handles of theirs are out already."""
        if self._functions is None:
            return config
        mine = self._functions.name
        other = free_name(mine, {mine, *(server.name for server in config.servers)})
        servers = (replace(server, name=other) if server.name == mine else server for server in config.servers)
        return replace(config, servers=tuple(servers))


def _unless_refused(take: Callable[[], Config], earlier: str) -> Config | None:
    """What `take` gives; None where it refuses: the reason is logged, and that `earlier` goes on to count."""
    try:
        return take()
    except ToolcribError as error:
        logger.warning("%s; %s stays in force", error.message, earlier)
        return None


def _stamp(config: Config | None) -> tuple[int, int, int] | None:
    """What changes when the file of `config` is written or replaced; None while there is none."""
    if config is None:
        return None
    try:
        status = config.path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
