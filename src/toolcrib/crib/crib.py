"""The `Toolcrib` class: the composition root that connects sources, catalog, disclosure and calling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token

from toolcrib.catalog.access import ALLOW_ALL, NOTHING_CLAIMED, Access, Policy, may_show
from toolcrib.catalog.arrangement import Arrangement, Reserved
from toolcrib.catalog.bundles import NOTHING, Bundles, Contents, Resolution, ToolBundle
from toolcrib.catalog.capabilities import Capabilities, Capability
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.guard import Guard
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.overrides import MetadataOverride, Overrides
from toolcrib.catalog.own import OwnTools
from toolcrib.catalog.registry import RunnableRegistry, ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import NO_OVERLAY, Overlay, View, subject_of
from toolcrib.catalog.views import Views, permissions_within
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.config.plugins import PluginConfig
from toolcrib.config.policy import policy_of
from toolcrib.config.registration_store import Registrations
from toolcrib.config.search import DEFAULT_SEARCH
from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.errors import InvalidConfig, InvalidTool, ToolcribError, ToolNotFound, UnknownBundle
from toolcrib.core.events import Recorder
from toolcrib.core.metadata import NO_METADATA, ToolMetadata
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.core.values import check_kind
from toolcrib.crib.declared import Declarations
from toolcrib.crib.knowledge import Insights
from toolcrib.crib.plugins import ConfiguredPlugins
from toolcrib.crib.registered import Registered
from toolcrib.crib.servers import ConfiguredServers, refuse_own_file
from toolcrib.crib.tops import tops
from toolcrib.definitions.pins import PinStore
from toolcrib.operations.calling import Approvals, Approver, Runner
from toolcrib.operations.desk import Desk
from toolcrib.operations.methods import OperationMethods
from toolcrib.operations.rules import Top
from toolcrib.operations.showing import MAX_QUERY_CHARS
from toolcrib.operations.tools import DEFAULT_SET
from toolcrib.search.embedders import Embedder
from toolcrib.search.vector_store import Vectors
from toolcrib.sources.base import Condition, Source, free_name
from toolcrib.sources.definition_cache import Definitions
from toolcrib.sources.installed import installed_plugins
from toolcrib.sources.plugins import Plugin

if TYPE_CHECKING:
    from toolcrib.agent.session import Session
    from toolcrib.config.registrations import Kind, Registrable
    from toolcrib.sources.declared.definition import DeclaredTools
    from toolcrib.sources.functions import FunctionSource
    from toolcrib.surfaces.program import CribApp

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""Seconds between two checks of a followed configuration file."""

_TOLD_OF: Mapping[str, Callable[[Config], object]] = {
    "disabled servers": lambda config: [each for each in config.servers if each.disabled],
    "server names": lambda config: {label: name for label, name in config.source_names.items() if label != name},
    "plugins": attrgetter("plugins", "chooses_plugins"),
    "declared tools": attrgetter("declared"),
    "policy": attrgetter("policy"),
    "authentication": attrgetter("auth"),
    "tools": attrgetter("overrides.given"),
    "categories": attrgetter("categories.given"),
    "bundles": attrgetter("bundles.given"),
    "capabilities": attrgetter("capabilities"),
    "search": attrgetter("search"),
    "limits": attrgetter("rate", "lookup_rate", "patience", "capacity", "room", "max_isolated_principals"),
    "pins": attrgetter("said_of_pins"),
    "audit (applied at the next start)": attrgetter("audit"),
}
"""Every part of a configuration except its enabled servers, by the name that the log uses for it when it changed."""

_NO_CONFIG = Config(Path())
"""The configuration of a program that added none."""

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

FUNCTIONS = "functions"
"""The name of the source for the functions of this program, unless a configured server already has it."""


class Toolcrib(OperationMethods):
    """All tools of an agent, behind one interface.

    Functions can be added, listed and searched at once. Servers start in the background when you enter the crib
    (`async with crib:`). `ready` waits for them.
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
        """Create a crib without tools. Every argument is optional.

        `policy` takes precedence over the policy of a configuration; a mapping is read as `toolcrib.policy` is. With
        `definitions`, a server whose definitions are cached there starts when it is first called. `approvals` stores
        permanent approvals; without it, they last as long as the program. `registrations` stores what `keep` registers.
        The crib loads it together with a configuration, or when you enter the crib. `pins` stores the pinned
        definitions and their versions; without it, nothing is pinned, and versions are counted only while the program
        runs. `embedder` computes vectors for search and takes precedence over the embedder of a configuration.
        `vectors` caches the vectors of tools. `record` receives every operation.

        Raises:
            InvalidConfig: `policy` is not a policy, or the mapping is invalid.
        """
        self.client: Client = NO_CLIENT
        """The client that a server of a handshake-era MCP version starts with. The server may ask it outside a call."""
        self.registry: ToolRegistry = RunnableRegistry()
        runner = Runner(approver=Approver(approvals), view_of=self.seen_by)
        recorders = [record] if record is not None else []
        self.desk = Desk(runner=runner, recorders=recorders, bundle_of=lambda asked: asked.bundle or self._confined_to)
        self._policy = None if policy is None else policy_of(policy)
        self._configured = Arrangement()
        self._added = Arrangement()
        """Categories, bundles, overrides and capabilities that were added one by one."""
        self._bundles = Bundles()
        self._capabilities = Capabilities(self.registry.set_findings)
        self._said = _NO_CONFIG
        """The last configuration, without registered items, and with the declarations of the configurations before it.
        """
        self._registered = Registered(registrations)
        self._closed_by: Config | None = None
        """The last configuration that had a policy."""
        self._is_running = False
        self._confined_to: str | None = None
        """The only bundle that is visible, for every principal. None if the crib is not confined to a bundle."""
        self.guard = Guard(pins)
        """Decides which definitions are shown, based on the pins."""
        self._intake = Intake(self.registry, self.guard)
        self._functions: FunctionSource | None = None
        self._servers = ConfiguredServers(self._intake, definitions, lambda: self.client, self.guard)
        self._plugins = ConfiguredPlugins(self._intake)
        self._declarations = Declarations(self.registry)
        self.lockers = self._servers.lockers
        """The isolated sources: those that each principal has separately."""
        self.insights = Insights(self.registry, self.lockers, vectors, embedder)
        """What search knows about a request in addition to its words."""
        self._views = Views(self.registry, self._policy_of(_NO_CONFIG), self.insights)

    # -- content of the catalog ---------------------------------------------------------------------------------------

    @overload
    def add(
        self,
        function: _FunctionT,
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: ToolMetadata | Mapping[str, Any] = NO_METADATA,
        annotations: ToolAnnotations = NOTHING_CLAIMED,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> _FunctionT: ...

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
    ) -> Callable[[_FunctionT], _FunctionT]: ...

    def add(self, function: Callable[..., Any] | None = None, **given: Any) -> Callable[..., Any]:
        """Add a Python function as a tool. Its schema is made from the signature, annotations and docstring.

        Returns the function unchanged, so it also works as a decorator: `@crib.add`, or `@crib.add(name="hello")`.
        `tool_of(function)` returns the tool.

        Raises:
            InvalidTool: no schema can be made from the function, a given schema does not agree with it, an example does
                not match the schema, or the name is taken. See `FunctionSource.add`.
        """
        if function is None:
            return partial(self.add, **given)
        if isinstance(function, Tool):
            raise InvalidTool(f"`{function.id}` is a tool definition, which cannot be called. Add the function itself")
        if self._functions is None:
            from toolcrib.sources.functions import FunctionSource  # noqa: PLC0415  reading signatures takes a parser

            self._functions = FunctionSource(free_name(FUNCTIONS, {*self.registry.state.sources, *self._servers.names}))
            title = "Functions of this program"
            self.registry.put_source(SourceEntry(self._functions, SourceStatus.READY, title, trusted=True))
        self.registry.register(self._functions.add(function, **given))
        return function

    def tool_of(self, function: Callable[..., Any]) -> Tool:
        """Return the tool that `add` made from a function. If there are several, return the last one.

        Raises:
            ToolNotFound: the function was not added, or was removed.
        """
        tool = self._functions.tool_of(function) if self._functions is not None else None
        if tool is None:
            raise ToolNotFound(
                f"`{getattr(function, '__name__', function)}` was not added with `add()`, or was removed"
            )
        return self.registry.get(tool.id) or tool

    def remove(self, tool: Callable[..., Any] | Tool | str) -> None:
        """Remove a function that was added with `add`. Pass the function, its tool or its tool id. Running calls
        finish.

        Raises:
            ToolNotFound: the tool does not exist, or was not added with `add`.
        """
        if not isinstance(tool, str | Tool):
            tool = self.tool_of(tool)
        tool_id = tool if isinstance(tool, str) else tool.id
        source, _, _ = tool_id.partition(".")
        if self._functions is None or source != self._functions.name:
            raise ToolNotFound(f"`{tool_id}` was not added with `add()`")
        self.registry.unregister(tool_id)

    def add_source(self, source: Source, *, title: str | None = None, summary: str = "", trusted: bool = False) -> None:
        """Add a source. Its tools are listed in the background once the crib is entered.

        With `trusted`, Toolcrib relies on what the tools claim about themselves (read-only, idempotent).

        Raises:
            InvalidTool: a source with this name already exists.
        """
        if source.name in self._servers.names:
            raise InvalidTool(f"a source named `{source.name}` already exists")
        self._intake.add(source, SourceEntry(source, title=title, summary=summary, trusted=trusted))

    def add_plugin(self, plugin: Plugin, *, trusted: bool = True) -> None:
        """Add a plugin of this program. `trusted` has the same meaning as in `add_source`.

        Raises:
            InvalidTool: the name is taken or is not valid for a source, or two of the tools have the same name.
        """
        dispatcher = self._plugins.dispatcher
        source = dispatcher.add(plugin)
        try:
            self.add_source(source, trusted=trusted)
        except InvalidTool:
            dispatcher.remove(source.name)
            raise

    def add_plugins(self, names: Collection[str] | None = None, *, trusted: bool = False) -> None:
        """Add the installed plugins with these names, or all of them.

        A plugin that cannot be used is listed as unavailable, with the reason.
        """
        plugins = (PluginConfig(plugin, trusted=trusted) for plugin in installed_plugins(names))
        self._plugins.add(plugins, {*self.registry.state.sources, *self._servers.names})

    def declare(self, declared: DeclaredTools) -> None:
        """Add a declared source, or replace the one with the same name that was declared with this method.

        Its tools are available at once, and trusted.

        Raises:
            InvalidTool: a different source has this name.
        """
        name = declared.name
        if name not in self.declared and (name in self.registry.state.sources or name in self._servers.names):
            raise InvalidTool(f"a source named `{name}` already exists")
        self._declarations.put(declared)

    def withdraw(self, name: str) -> None:
        """Remove a source that was added with `declare`. Running calls finish.

        Raises:
            ToolNotFound: no source with this name was added with `declare`. Declarations of the configuration do not
            count.
        """
        self._declarations.drop(name)

    @property
    def declared(self) -> Mapping[str, DeclaredTools]:
        """The sources that were added with `declare`, by name. Declarations of the configuration are not included."""
        return self._declarations.added

    def add_category(self, category: Category) -> None:
        """Add a category with its tools. Categories of the configuration claim tools first.

        Raises:
            InvalidConfig: a category with this path already exists, the category would be its own descendant, or
                `category` is not a `Category`.
        """
        check_kind(category, Category, "category")
        self._arrange(self._configured, replace(self._added, categories=(*self._added.categories, category)))

    def add_capability(self, capability: Capability) -> None:
        """Add a capability that tools may need. It replaces an earlier one with the same name.

        Raises:
            InvalidConfig: `capability` is not a `Capability`.
        """
        check_kind(capability, Capability, "capability")
        self._arrange(self._configured, replace(self._added, capabilities=(*self._added.capabilities, capability)))

    def add_bundle(self, bundle: ToolBundle) -> None:
        """Add a bundle that a session can be confined to. Add the bundles that it includes first.

        Raises:
            InvalidConfig: a bundle with this name already exists, one that it includes does not exist, or `bundle` is
                not a `ToolBundle`.
        """
        check_kind(bundle, ToolBundle, "bundle")
        self._arrange(self._configured, replace(self._added, bundles=(*self._added.bundles, bundle)))

    def add_override(self, override: MetadataOverride) -> None:
        """Override the metadata of tools that are defined elsewhere. The last override wins.

        Raises:
            InvalidConfig: the category that it names would be its own descendant, or `override` is not a
                `MetadataOverride`.
        """
        check_kind(override, MetadataOverride, "override")
        self._arrange(self._configured, replace(self._added, overrides=(*self._added.overrides, override)))

    def keep(self, *things: Registrable, replacing: bool = False) -> None:
        """Register things permanently, for this program and all others that share its `registrations`.

        Either all of them are registered or none. With `replacing`, they may replace registered things with the same
        names. A function or a `Tool` cannot be registered, because it exists only in this program.

        Raises:
            InvalidConfig: one of them exists already and differs, would have no effect, or cannot be stored; or the
                store cannot be written.
        """
        from toolcrib.config.registrations import Registering, rows_of  # noqa: PLC0415  most programs register nothing

        registering, new = Registering(self._said, self._reserved(changing=False)), rows_of(things)
        self._registered.change(lambda rows: registering.added(rows, new, replacing=replacing))
        self._registered.read()
        self._take_registered()

    def forget(self, kind: Kind | str, name: str) -> None:
        """Unregister something, here and in every program that loaded it. `Kind` says what `name` is for each kind.

        Raises:
            NotFound: nothing of this kind and name is registered.
            InvalidConfig: a different registered thing needs it, or the store cannot be written.
        """
        from toolcrib.config.registrations import Kind, Registering  # noqa: PLC0415  see `keep`

        if kind == Kind.BUNDLE and name == self._confined_to:
            raise InvalidConfig(f"the bundle `{name}` is being served, so it cannot be unregistered here")
        registering = Registering(self._said, self._reserved(changing=False))
        self._registered.change(lambda rows: registering.removed(rows, [(kind, name)]))
        self._registered.read()
        self._take_registered()

    @property
    def registration_problems(self) -> tuple[str, ...]:
        """What is registered but not used, and why. See `Registered.problems`."""
        return self._registered.problems

    def with_registered(self, config: Config) -> Config:
        """Return `config` together with the registered things that apply to it."""
        return self._registered.joined(config, self._reserved(changing=True))

    def add_config(self, path: str | Path, wanted: Callable[[str], bool] | None = None) -> Config:
        """Add the servers, plugins and declared sources of an `mcp.json`, or those whose names are `wanted`.

        A server with an invalid entry is listed as unavailable, with the reason. A server with the same name as the
        source of this program's functions gets a number appended to its name. A plugin with the name of a server is
        unavailable.

        Raises:
            InvalidConfig: the file as a whole cannot be used, or a server or declared source has the name of an
                existing source.
        """
        refuse_own_file(Path(path))
        said = self._kept_closed(self._with_free_names(read_config(Path(path))))
        servers = [server for server in said.enabled if wanted is None or wanted(server.name)]
        declared = [each for each in said.declared if wanted is None or wanted(each.name)]
        before = {each.name for each in self._said.declared}
        self._check_free(said, [*servers, *declared], self._declarations.configured - before)
        said = self._joined_with_earlier(replace(said, declared=tuple(declared)))
        self._registered.read()
        config = self._registered.joined(said, self._reserved(changing=False))
        self._check_arrangement(config)
        more = [plugin for plugin in config.plugins if wanted is None or wanted(plugin.name)]
        plugins = self._plugins.change_to([*self._plugins.wanted, *more], self._other_names(config, servers=True))
        self._plugins.leave(plugins)
        self._declarations.leave(config.declared)
        self._apply(config, said)
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
        """Apply changes of the file of `config`, of the registrations and of the pins, until cancelled.

        New servers are started, and removed ones are stopped.

        If the file becomes invalid or cannot be applied, nothing changes, and the reason is logged. Each valid
        configuration is passed to `before` while none of it is in effect, and to `changed` when all of it is. No other
        task runs between the two.
        """
        seen, known = _stamp(config), self._registered.version
        while True:
            await anyio.sleep(POLL_S)
            now = _stamp(config)
            if self._registered.is_kept:
                await to_thread.run_sync(self._registered.read, abandon_on_cancel=True)
            counts = None
            if config is not None and now != seen:
                counts = _unless_refused(partial(self._reread, config.path, before), "the previous configuration")
            if counts is None and self._registered.version != known:
                counts = _unless_refused(self._take_registered, "the previous set of registrations")
            seen, known = now, self._registered.version
            if await self.guard.has_turned():
                await self.judge_again()
            if counts is not None and changed is not None:
                changed(counts)

    async def judge_again(self) -> None:
        """Show exactly the definitions that the current pins allow. No source is asked."""
        await self._intake.judge_again()
        await self.lockers.judge_again()

    # -- life cycle ----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the crib has been entered."""
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
        self.lockers.close()  # first, so that all servers stop at the same time
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
        """Wait until each source that `principal` has, or each of `sources`, has listed its tools or has failed.

        For None, wait for the sources that all principals share. The isolated sources of `principal` are started. Then
        wait for a first answer about each capability that the tools need, until that answer's own deadline.

        Returns False if `timeout_s` ran out first, or if the crib is not running.
        """
        with anyio.move_on_after(timeout_s):
            if principal is not None:
                self.lockers.overlay(principal)  # start them now, at the same time as the others
            listed = await self._intake.ready(None, sources)
            if principal is not None:
                listed = listed and await self.lockers.ready(principal, None, sources)
            self.glance(principal or LOCAL)
            await self._capabilities.settled()
            return listed
        return False

    @property
    def has_kept(self) -> bool:
        """Whether cached definitions are used in place of any server that has not started."""
        return self._servers.has_kept

    def may_show(self, source: str, principal: Principal) -> bool:
        """Whether `principal` may see something of a shared source, as far as that is known before the source is
        listed.
        """
        permissions, categories = self._views.policy.permissions(principal), self.registry.state.categories
        return may_show(permissions, source) or any(
            permissions.decide(subject_of(tool, categories)) is not Access.HIDDEN
            for category in categories.given
            for tool in category.possible_tools()
            if tool.source == source
        )

    @property
    def starting(self) -> tuple[str, ...]:
        """Names of the shared sources that have neither listed their tools nor failed. For others, see `lockers`."""
        return self._intake.starting

    def condition(self, source: str) -> Condition | None:
        """The state of a shared server of the configuration. None if the source is not such a server."""
        return self._servers.condition(source)

    # -- the operations -----------------------------------------------------------------------------------------------

    def seen_by(self, context: CallContext) -> View:
        view = self.view(context.principal, context.bundle)
        return context.own.on(view) if isinstance(context.own, OwnTools) else view

    def view(self, principal: Principal = LOCAL, bundle: str | None = None) -> View:
        """Return what `principal` may see of the current catalog, within `bundle`.

        Raises:
            UnknownBundle: no bundle has this name.
        """
        return self._looked(principal, self.lockers.overlay(principal), self._within(bundle, principal))

    def glance(self, principal: Principal, bundle: str | None = None) -> View:
        """Return the view of `principal` without starting its isolated sources and without counting it as active.

        Within an unknown bundle, the view is empty.
        """
        return self._looked(
            principal, self.lockers.open_overlay(principal.id), self._within_or_nothing(bundle, principal)
        )

    def hidden_entirely(self, principal: Principal) -> int:
        """Return the number of tools if the policy hides all of them from `principal`, and 0 if it shows some.

        Only the owner may see this number. No answer to a client may depend on it.
        """
        overlay = self.lockers.open_overlay(principal.id)
        is_empty = not self._views.of(principal, overlay).tools
        return len(View.of(self.registry.state, overlay=overlay).tools) if is_empty else 0

    async def prepare(self, query: str) -> None:
        if self.registry.state.index.weights.embedding:
            await self.insights.prepare(query[:MAX_QUERY_CHARS])

    def session(
        self,
        *,
        bundle: str | None = None,
        principal: Principal = LOCAL,
        client: Client | None = None,
        saved: str | None = None,
    ) -> Session:
        """Create a session: the operations on behalf of `principal`, optionally within `bundle`, and a conversation.

        `client` is asked when a person has to approve a call, or when a tool asks for input. `saved` is a conversation
        that `Session.to_json` wrote. The session continues it.

        Raises:
            UnknownBundle: no bundle has this name.
            InvalidPrompt: `saved` is not a saved conversation.
        """
        from toolcrib.agent.conversation.conversation import Conversation  # noqa: PLC0415  a gateway never has a session
        from toolcrib.agent.session import Session  # noqa: PLC0415  see above

        conversation = None if saved is None else Conversation.from_json(saved)
        session = Session(self, CallContext(principal, bundle=bundle, client=client), conversation)
        session.view()
        return session

    def resolve(self, bundle: str, principal: Principal | None = LOCAL) -> Resolution:
        """Report which tools of a bundle `principal` has now. For None, report those that all principals share.

        Before its sources are `ready`, their tools count as missing.

        Raises:
            UnknownBundle: no bundle has this name.
        """
        self.glance(principal or LOCAL)  # so that the capabilities that its tools need are checked
        whole = View.of(
            self.registry.state, overlay=self.lockers.open_overlay(principal.id) if principal else NO_OVERLAY
        )
        return self._bundles.contents(bundle).look(bundle, self.view(principal) if principal else whole, whole)

    @property
    def bundles(self) -> Bundles:
        """The bundles of the configuration and those that were added."""
        return self._bundles

    def confine(self, bundle: str) -> None:
        """Restrict the crib to `bundle` from now on, for every principal and within every other bundle.

        Raises:
            UnknownBundle: no bundle has this name.
        """
        self._bundles.contents(bundle)
        self._confined_to = bundle

    @property
    def differs_by_principal(self) -> bool:
        """Whether the catalog that one principal sees may be secret from others. Every policy may have this effect."""
        return self._views.policy is not ALLOW_ALL or bool(self._servers.isolated)

    def tops(self, config: Config, principal: Principal, bundle: str | None = None) -> tuple[Top, ...]:
        """Return the top level of the catalog that `principal` may see, limited to `bundle`. See `tops`."""
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
        """Return the bundle `name`.

        Raises:
            UnknownBundle: it does not exist. The hints name only bundles in which `principal` sees a tool.
        """
        if name not in self._bundles:
            shows = partial(self._shows_something, principal=principal) if self.differs_by_principal else None
            raise self._bundles.unknown(name, shows)
        return self._bundles[name]

    def _shows_something(self, bundle: str, principal: Principal) -> bool:
        return bool(self.glance(principal, bundle).tools)

    def _within(self, bundle: str | None, principal: Principal) -> tuple[Contents, ...]:
        """The contents of every bundle that an operation of `principal` is confined to."""
        names = dict.fromkeys(name for name in (self._confined_to, bundle) if name is not None)
        return tuple(self._bundles.contents(self.bundle_for(name, principal).name) for name in names)

    def _within_or_nothing(self, bundle: str | None, principal: Principal) -> tuple[Contents, ...]:
        try:
            return self._within(bundle, principal)
        except UnknownBundle:
            return (NOTHING,)

    def _looked(self, principal: Principal, overlay: Overlay, within: tuple[Contents, ...]) -> View:
        """The view of `principal`, after checking the capabilities that its tools need."""
        self._capabilities.look(self.registry.state.needing, overlay.needed)
        return self._views.of(principal, overlay, within)

    # -- serving ------------------------------------------------------------------------------------------------------

    async def serve_stdio(self, *, operations: str | Sequence[str] = DEFAULT_SET) -> None:
        """Serve MCP over standard input and output until the client disconnects or SIGINT or SIGTERM arrives.

        `operations` says what a client sees, as in `toolcrib serve --operations`: the name of a set, names of
        operations, or `"all"` for the tools themselves. The method enters the crib unless it is already entered.

        Raises:
            InvalidConfig: no such set or operation exists.
        """
        from toolcrib.surfaces.program import serve_stdio  # noqa: PLC0415  a program that does not serve does not need it

        await serve_stdio(self, self._config, operations)

    async def serve_http(
        self,
        address: str = "127.0.0.1:8808",
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
        auth: Mapping[str, Any] | None = None,
        listening: Callable[[str], None] | None = None,
    ) -> None:
        """Serve at `HOST:PORT` what `toolcrib serve --http` serves, until SIGINT, SIGTERM or cancellation.

        `operations` is as for `serve_stdio`. If you name operations one by one, the HTTP API has only those too. `auth`
        holds the settings of `toolcrib.auth`; without it, those of the configuration that was added are used. Port 0
        picks a free port. `listening` receives the address of the MCP endpoint.

        Raises:
            InvalidConfig: the address is in use, it can be reached from other machines but authentication is off,
                `auth` is invalid, or no such set or operation exists.
        """
        from toolcrib.surfaces.program import serve_http  # noqa: PLC0415  see `serve_stdio`

        await serve_http(self, self._config, address, operations, auth=auth, listening=listening)

    def app(
        self,
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
        auth: Mapping[str, Any] | None = None,
        url: str | None = None,
    ) -> CribApp:
        """Return an ASGI application with what `serve_http` serves, to be mounted in your own application.

        `url` is the address that clients use, for example `https://example.com/tools`. Without it, the application only
        answers requests that name this machine. `operations` and `auth` are as for `serve_http`. Pass its `lifespan` to
        your own application, because an application does not run the lifespan of mounted applications.

        Raises:
            InvalidConfig: for the same reasons as `serve_http`.
        """
        from toolcrib.surfaces.program import CribApp  # noqa: PLC0415  see `serve_stdio`

        return CribApp(self, self._config, operations, auth=auth, url=url)

    @property
    def _config(self) -> Config:
        """The configuration that was added last, together with registered things."""
        return self._registered.joined(self._said, self._reserved(changing=False))

    # -- the configuration --------------------------------------------------------------------------------------------

    def _reread(self, path: Path, before: Callable[[Config], None] | None) -> Config:
        """Apply the current content of the file at `path`. Raises the same errors as `_take_over`."""
        return self._take_over(self._kept_closed(self._with_free_names(read_config(path))), before)

    def _take_over(self, said: Config, before: Callable[[Config], None] | None) -> Config:
        """Apply exactly `said` and the registered things. Returns the configuration that is now in effect.

        Raises:
            ToolcribError: nothing was changed.
        """
        config = self.with_registered(said)
        if self._confined_to not in self._said.bundles:  # it was registered
            config = self._still_confined(config)
        change = self._servers.change_to(config)
        self._check_free(config, [*change.added, *config.declared], {*change.gone, *self._declarations.configured})
        self._check_isolated(config)
        self._check_chosen(config)
        plugins = self._plugins.change_to(config.plugins, self._other_names(config, servers=False))
        self._check_arrangement(config)
        if before is not None:
            before(config)
        earlier = self._said
        # Order matters: removed sources disappear before the new rules apply, because the new rules may not mention
        # them. New sources appear only after the rules that are about them apply.
        self._servers.leave(change)
        self._plugins.leave(plugins)
        self._declarations.leave(config.declared)
        self._apply(config, said)
        self._servers.join(change)
        self._plugins.join(plugins)
        self._declarations.join(config.declared, config.capacity)
        told = [f"servers {change.told}"] if change.told else []
        told += [f"{what} changed" for what, of in _TOLD_OF.items() if of(earlier) != of(said)]
        logger.info("applied %s: %s", said.path, "; ".join(told) or "no changes")
        return config

    def _take_registered(self) -> Config:
        """Apply the current registrations to the current configuration. Returns the configuration that is now in
        effect.

        Raises:
            ToolcribError: nothing was changed.
        """
        config = self._still_confined(self._registered.joined(self._said, self._reserved(changing=False)))
        self._check_arrangement(config)
        self._declarations.leave(config.declared)
        self._arrange(config.arrangement, self._added)
        self._declarations.join(config.declared, config.capacity)
        return config

    def _reserved(self, *, changing: bool) -> Reserved:
        """The names that registered items must not take.

        With `changing`, the sources that the configuration starts are excluded, because they are checked separately.
        """
        started = self._servers.names | self._plugins.names
        own = self.registry.state.sources.keys() - self._declarations.configured - started
        return Reserved(self._added, frozenset(own if changing else own | started))

    def _apply(self, config: Config, said: Config) -> None:
        """Apply a configuration except for its servers. `said` is the configuration without registered items."""
        # Rules refer to categories, so the old rules must never apply to the new categories alone, nor the reverse.
        with self._views.turning_to(self._policy_of(config)):
            self._arrange(config.arrangement, self._added)
        self.desk.runner.limits.rate = config.rate
        self.desk.lookups.rate = config.lookup_rate
        self.registry.set_weights(config.search.weights)
        self.insights.apply(config)
        self.guard.policy = config.pins
        self._said = said
        last = self._closed_by
        if said.policy is not None and (last is None or said.policy is not last.policy):
            self._closed_by = said

    def _policy_of(self, config: Config) -> Policy:
        # Compare with None: a policy that a program defines may be false in Python, like an empty container.
        given = (policy for policy in (self._policy, config.policy) if policy is not None)
        return next(given, ALLOW_ALL)

    def _kept_closed(self, config: Config) -> Config:
        """Return `config` with the last policy if it has none, so that a truncated file does not open what was closed.

        The setting for definitions that are not pinned is kept in the same way. The kept policy also keeps its
        categories and overrides, because its rules may refer to them.
        """
        last, pins = self._closed_by, self._said.said_of_pins
        if pins is not None and config.said_of_pins is None:
            logger.warning(
                "%s: `pins` is no longer set; the previous setting stays in force until the next start",
                config.path,
            )
            config = replace(config, said_of_pins=pins)
        if self._policy is not None or config.policy is not None or last is None:
            return config
        logger.warning(
            "%s: `policy` is no longer set; the previous policy and its categories stay in force until the next start "
            '(set it to {"otherwise": "allow"} to allow everything)',
            config.path,
        )
        more = [category for category in config.categories.given if category.path not in last.categories]
        categories = Categories([*last.categories.given, *more])
        overrides = Overrides((*last.overrides.given, *config.overrides.given))
        return replace(config, policy=last.policy, categories=categories, overrides=overrides)

    def _joined_with_earlier(self, config: Config) -> Config:
        """Return `config` together with the settings of the configurations before it, except their servers."""
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
        categories, bundles = whole.all_categories, whole.all_bundles  # raises here, before anything has changed
        self.registry.set_overrides(whole.all_overrides)
        self.lockers.set_overrides(whole.all_overrides)
        self.registry.set_categories(categories)
        self.lockers.set_categories(categories)
        self._bundles = bundles
        self._capabilities.set_up(whole.capabilities)
        self._configured, self._added = configured, added

    def _other_names(self, config: Config, *, servers: bool) -> frozenset[str]:
        """Names of all sources that are not configured plugins, once `config` is in effect.

        With `servers`, the names of the current servers and configured declarations are included.
        """
        mine = self._servers.names
        others = self.registry.state.sources.keys() - mine - self._plugins.names - self._declarations.configured
        theirs = {each.name for each in (*config.enabled, *config.declared)}
        return frozenset(theirs | others | ((mine | self._declarations.configured) if servers else frozenset()))

    def _check_free(
        self, config: Config, sources: Iterable[ServerConfig | DeclaredTools], going: Collection[str] = ()
    ) -> None:
        """Raise unless the name of each of `sources` is free. Sources that are `going` and plugins do not count."""
        taken = (self.registry.state.sources.keys() - self._plugins.names | self._servers.names).difference(going)
        for source in sources:
            if source.name in taken:
                raise InvalidConfig(f"{config.path}: a source named `{source.name}` already exists")

    def _still_confined(self, config: Config) -> Config:
        """Return `config` with the confining bundle as it was, in case a different program unregistered it."""
        name = self._confined_to
        if name is None or name in Arrangement.of((config.arrangement, self._added)).all_bundles:
            return config
        logger.warning(
            "the bundle `%s` is no longer registered; it stays the only bundle served until the next start",
            name,
        )
        was = self._bundles.contents(name)
        bundle = ToolBundle(name, required=was.required, optional=was.optional)
        return replace(config, bundles=Bundles([*config.bundles.given, bundle]))

    def _check_arrangement(self, config: Config) -> None:
        whole = Arrangement.of((config.arrangement, self._added))
        _ = whole.all_categories
        if self._confined_to is not None and self._confined_to not in whole.all_bundles:
            raise InvalidConfig(
                f"{config.path}: the bundle `{self._confined_to}` is being served, but it is no longer defined"
            )

    def _check_isolated(self, config: Config) -> None:
        """Raise if a truncated file would share an isolated server, or give it to principals that did not have it."""
        for server in config.enabled:
            was, is_shared = server.name in self._servers.isolated, server.isolation == "shared"
            if was and is_shared and not server.is_expressly_shared:
                raise InvalidConfig(
                    f'{config.path}: server `{server.name}` was isolated. To share it, set `"isolation": "shared"`'
                )
            if server.name in self._servers.for_some and not is_shared and server.principals is None:
                raise InvalidConfig(
                    f"{config.path}: only some principals had server `{server.name}`. "
                    'To give it to every principal, set `"principals": {"*": {}}`'
                )

    def _check_chosen(self, config: Config) -> None:
        """Raise if a truncated file would add every installed plugin."""
        if self._said.chooses_plugins and not config.chooses_plugins:
            raise InvalidConfig(
                f'{config.path}: `plugins` is no longer set. To add all installed plugins, set `"plugins": true`'
            )

    def _with_free_names(self, config: Config) -> Config:
        """Return `config` without the source name of the crib's own functions, because handles with that name are in
        use.
        """
        if self._functions is None:
            return config
        mine = self._functions.name
        other = free_name(mine, {mine, *(server.name for server in config.servers)})
        servers = (replace(server, name=other) if server.name == mine else server for server in config.servers)
        return replace(config, servers=tuple(servers))


def _unless_refused(take: Callable[[], Config], earlier: str) -> Config | None:
    """Return the result of `take`, or None if it raises. The log then has the reason, and says that `earlier` stays."""
    try:
        return take()
    except ToolcribError as error:
        logger.warning("%s; %s stays in force", error.message, earlier)
        return None


def _stamp(config: Config | None) -> tuple[int, int, int] | None:
    """A value that changes when the file of `config` is written or replaced. None if there is no such file."""
    if config is None:
        return None
    try:
        status = config.path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
