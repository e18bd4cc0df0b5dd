"""The `Toolcrib` class: the composition root that connects sources, catalog, disclosure and calling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload
from warnings import warn

import anyio
from anyio.lowlevel import current_token

from toolcrib.catalog.access import ALLOW_ALL, NOTHING_CLAIMED, Access, Policy, may_show
from toolcrib.catalog.bundles import NOTHING, Bundles, Contents, Resolution, ToolBundle
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.catalog_settings import CatalogSettings
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Category
from toolcrib.catalog.definition_guard import DefinitionGuard
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.isolated_sources import IsolatedSources
from toolcrib.catalog.overrides import MetadataOverride
from toolcrib.catalog.registry import RunnableRegistry, ToolRegistry
from toolcrib.catalog.session_tools import SessionTools
from toolcrib.catalog.view import NO_OVERLAY, Overlay, View, subject_of
from toolcrib.catalog.view_cache import ViewCache, permissions_within
from toolcrib.config import Config
from toolcrib.config.config_file import policy_of
from toolcrib.config.configuration import PluginConfig
from toolcrib.config.registration_store import Registrations
from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.errors import InvalidTool, ToolNotFound, UnknownBundle
from toolcrib.core.events import Recorder
from toolcrib.core.metadata import NO_METADATA, ToolMetadata
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.properties import renamed
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.core.values import check_kind
from toolcrib.crib.configured_servers import ConfiguredServers
from toolcrib.crib.following import ConfigFollower
from toolcrib.crib.registered_items import RegisteredItems
from toolcrib.crib.search_knowledge import SearchKnowledge
from toolcrib.crib.top_level import top_level
from toolcrib.definitions.pins import PinStore
from toolcrib.operations.briefing import Top
from toolcrib.operations.calling import Approvals, Approver, Runner
from toolcrib.operations.catalog_operations import MAX_QUERY_CHARS
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_methods import OperationMethods
from toolcrib.operations.operation_table import DEFAULT_SET
from toolcrib.search.embedders import Embedder
from toolcrib.search.vector_store import Vectors
from toolcrib.sources.base import Condition, Source, free_name
from toolcrib.sources.definition_cache import Definitions
from toolcrib.sources.installed import installed_plugins
from toolcrib.sources.plugins import Plugin
from toolcrib.waiting import WaitingStore

if TYPE_CHECKING:
    from toolcrib.agent.session import Session
    from toolcrib.config.registrations import Kind, Registrable
    from toolcrib.sources.declared.definition import DeclaredTools
    from toolcrib.sources.functions import FunctionSource
    from toolcrib.sources.mcp.oauth.grants import GrantStore
    from toolcrib.surfaces.program import CribApp

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
        waiting: WaitingStore | None = None,
        registrations: Registrations | None = None,
        pins: PinStore | None = None,
        embedder: Embedder | None = None,
        vectors: Vectors | None = None,
        grants: GrantStore | None = None,
        record: Recorder | None = None,
    ) -> None:
        """Create a crib without tools. Every argument is optional.

        `policy` takes precedence over the policy of a configuration; a mapping is read as `toolcrib.policy` is. With
        `definitions`, a server whose definitions are cached there starts when it is first called. `approvals` stores
        permanent approvals; without it, they last as long as the program. `waiting` stores calls that need approval
        until a person answers them; without it, they are refused if the client cannot ask. `registrations` stores what
        `register` registers. The crib loads it together with a configuration, or when you enter the crib. `pins` stores
        the pinned definitions and their versions; without it, nothing is pinned, and versions are counted only while
        the program runs. `embedder` computes vectors for search and takes precedence over the embedder of a
        configuration. `vectors` caches the vectors of tools. `grants` stores the sign-ins to servers; without it, a
        server that wants a sign-in cannot be used. `record` receives every operation.

        Raises:
            InvalidConfig: `policy` is not a policy, or the mapping is invalid.
        """
        self.client: Client = NO_CLIENT
        """The client that a server of a handshake-era MCP version starts with. The server may ask it outside a call."""
        self.registry: ToolRegistry = RunnableRegistry()
        runner = Runner(approver=Approver(approvals, waiting), view_of=self.seen_by)
        recorders = [record] if record is not None else []
        self.dispatcher = Dispatcher(
            runner=runner, recorders=recorders, bundle_of=lambda asked: asked.bundle or self._following.confined_to
        )
        self._is_running = False
        self.guard = DefinitionGuard(pins)
        """Decides which definitions are shown, based on the pins."""
        self._intake = Intake(self.registry, self.guard)
        self._functions: FunctionSource | None = None
        self._servers = ConfiguredServers(self._intake, definitions, lambda: self.client, self.guard, grants)
        self.isolated_sources = self._servers.isolated_sources
        """The sources that each principal has separately."""
        self.knowledge = SearchKnowledge(self.registry, self.isolated_sources, vectors, embedder)
        """What search knows about a request in addition to its words."""
        own_policy = None if policy is None else policy_of(policy)
        self._views = ViewCache(self.registry, ALLOW_ALL if own_policy is None else own_policy, self.knowledge)
        self._following = ConfigFollower(
            self.registry,
            self._intake,
            self._servers,
            RegisteredItems(registrations),
            self._views,
            self.dispatcher,
            self.knowledge,
            self.guard,
            own_policy,
        )

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

            name = self._following.functions = free_name(FUNCTIONS, self._following.source_names)
            self._functions = FunctionSource(name)
            title = "Functions of this program"
            self.registry.register_source(SourceEntry(self._functions, SourceStatus.READY, title, trusted=True))
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
        dispatcher = self._following.plugins.dispatcher
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
        self._following.plugins.add(plugins, self._following.source_names)

    def register_declared(self, declared: DeclaredTools) -> None:
        """Register a declared source for this program, or replace the one that was registered with the same name.

        Its tools are available at once, and trusted.

        Raises:
            InvalidTool: a different source has this name.
        """
        name = declared.name
        if name not in self.declared and name in self._following.source_names:
            raise InvalidTool(f"a source named `{name}` already exists")
        self._following.declared.register(declared)

    def unregister_declared(self, name: str) -> None:
        """Unregister a source that was registered with `register_declared`. Running calls finish.

        Raises:
            ToolNotFound: no source with this name was registered with `register_declared`. Declarations of the
                configuration do not count.
        """
        self._following.declared.unregister(name)

    @property
    def declared(self) -> Mapping[str, DeclaredTools]:
        """The sources that were registered with `register_declared`, by name. Declarations of the configuration are not
        included.
        """
        return self._following.declared.registered

    def add_category(self, category: Category) -> None:
        """Add a category with its tools. Categories of the configuration claim tools first.

        Raises:
            InvalidConfig: a category with this path already exists, the category would be its own descendant, or
                `category` is not a `Category`.
        """
        check_kind(category, Category, "category")
        self._following.add_settings(CatalogSettings(categories=(category,)))

    def add_capability(self, capability: Capability) -> None:
        """Add a capability that tools may need. It replaces an earlier one with the same name.

        Raises:
            InvalidConfig: `capability` is not a `Capability`.
        """
        check_kind(capability, Capability, "capability")
        self._following.add_settings(CatalogSettings(capabilities=(capability,)))

    def add_bundle(self, bundle: ToolBundle) -> None:
        """Add a bundle that a session can be confined to. Add the bundles that it includes first.

        Raises:
            InvalidConfig: a bundle with this name already exists, one that it includes does not exist, or `bundle` is
                not a `ToolBundle`.
        """
        check_kind(bundle, ToolBundle, "bundle")
        self._following.add_settings(CatalogSettings(bundles=(bundle,)))

    def add_override(self, override: MetadataOverride) -> None:
        """Override the metadata of tools that are defined elsewhere. The last override wins.

        Raises:
            InvalidConfig: the category that it names would be its own descendant, or `override` is not a
                `MetadataOverride`.
        """
        check_kind(override, MetadataOverride, "override")
        self._following.add_settings(CatalogSettings(overrides=(override,)))

    def register(self, *things: Registrable, replacing: bool = False) -> None:
        """Register things permanently, for this program and all others that share its `registrations`.

        Either all of them are registered or none. With `replacing`, they may replace registered things with the same
        names. A function or a `Tool` cannot be registered, because it exists only in this program.

        Raises:
            InvalidConfig: one of them exists already and differs, would have no effect, or cannot be stored; or the
                store cannot be written.
        """
        self._following.register(things, replacing=replacing)

    def unregister(self, kind: Kind | str, name: str) -> None:
        """Unregister something, here and in every program that loaded it. `Kind` says what `name` is for each kind.

        Raises:
            NotFound: nothing of this kind and name is registered.
            InvalidConfig: a different registered thing needs it, or the store cannot be written.
        """
        self._following.unregister(kind, name)

    keep = renamed("keep", register)
    forget = renamed("forget", unregister)
    declare = renamed("declare", register_declared)
    withdraw = renamed("withdraw", unregister_declared)

    @property
    def registration_problems(self) -> tuple[str, ...]:
        """What is registered but not used, and why. See `RegisteredItems.problems`."""
        return self._following.registered.problems

    def with_registered(self, config: Config) -> Config:
        """Return `config` together with the registered things that apply to it."""
        return self._following.with_registered(config)

    def add_config(self, path: str | Path, wanted: Callable[[str], bool] | None = None) -> Config:
        """Add the servers, plugins and declared sources of an `mcp.json`, or those whose names are `wanted`.

        A server with an invalid entry is listed as unavailable, with the reason. A server with the same name as the
        source of this program's functions gets a number appended to its name. A plugin with the name of a server is
        unavailable.

        Raises:
            InvalidConfig: the file as a whole cannot be used, or a server or declared source has the name of an
                existing source.
        """
        return self._following.add(Path(path), wanted)

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
        await self._following.follow(config, changed, before)

    async def rejudge(self) -> None:
        """Show exactly the definitions that the current pins allow. No source is asked."""
        await self._following.rejudge()

    judge_again = renamed("judge_again", rejudge)

    @property
    def lockers(self) -> IsolatedSources[Any]:
        """The earlier name of `isolated_sources`."""
        warn("`lockers` is now `isolated_sources`", DeprecationWarning, stacklevel=2)
        return self.isolated_sources

    # -- life cycle ----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the crib has been entered."""
        return self._is_running

    async def __aenter__(self) -> Self:
        self._is_running = True
        self._following.capabilities.loop = current_token()
        self._following.enter()
        self.knowledge.resume()
        await self.isolated_sources.__aenter__()
        await self._intake.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_running = False
        self._following.capabilities.loop = None
        self.isolated_sources.close()  # first, so that all servers stop at the same time
        try:
            await self._intake.__aexit__(kind, error, traceback)
        finally:
            await self.isolated_sources.__aexit__(kind, error, traceback)
            self._servers.clear()
            self._following.plugins.clear()
            await self.knowledge.aclose()

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
                self.isolated_sources.overlay(principal)  # start them now, at the same time as the others
            listed = await self._intake.ready(None, sources)
            if principal is not None:
                listed = listed and await self.isolated_sources.ready(principal, None, sources)
            self.peek(principal or LOCAL)
            await self._following.capabilities.settled()
            return listed
        return False

    @property
    def uses_cached_definitions(self) -> bool:
        """Whether cached definitions are used in place of any server that has not started."""
        return self._servers.uses_cached_definitions

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
        """Names of the shared sources that have neither listed their tools nor failed. See also `isolated_sources`."""
        return self._intake.starting

    def condition(self, source: str) -> Condition | None:
        """The state of a shared server of the configuration. None if the source is not such a server."""
        return self._servers.condition(source)

    # -- the operations -----------------------------------------------------------------------------------------------

    def seen_by(self, context: CallContext) -> View:
        view = self.view(context.principal, context.bundle)
        return context.own.on(view) if isinstance(context.own, SessionTools) else view

    def view(self, principal: Principal = LOCAL, bundle: str | None = None) -> View:
        """Return what `principal` may see of the current catalog, within `bundle`.

        Raises:
            UnknownBundle: no bundle has this name.
        """
        isolated = self.isolated_sources
        overlay = isolated.overlay(principal) if isolated.are_configured else NO_OVERLAY
        return self._checked_view(principal, overlay, self._within(bundle, principal))

    def peek(self, principal: Principal, bundle: str | None = None) -> View:
        """Return the view of `principal` without starting its isolated sources and without counting it as active.

        Within an unknown bundle, the view is empty.
        """
        return self._checked_view(
            principal, self.isolated_sources.open_overlay(principal.id), self._within_or_nothing(bundle, principal)
        )

    def hidden_entirely(self, principal: Principal) -> int:
        """Return the number of tools if the policy hides all of them from `principal`, and 0 if it shows some.

        Only the owner may see this number. No answer to a client may depend on it.
        """
        overlay = self.isolated_sources.open_overlay(principal.id)
        is_empty = not self._views.of(principal, overlay).tools
        return len(View.of(self.registry.state, overlay=overlay).tools) if is_empty else 0

    async def prepare(self, query: str) -> None:
        if self.registry.state.index.weights.embedding:
            await self.knowledge.prepare(query[:MAX_QUERY_CHARS])

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
        self.peek(principal or LOCAL)  # so that the capabilities that its tools need are checked
        whole = View.of(
            self.registry.state, overlay=self.isolated_sources.open_overlay(principal.id) if principal else NO_OVERLAY
        )
        return self.bundles.contents(bundle).resolve(bundle, self.view(principal) if principal else whole, whole)

    @property
    def bundles(self) -> Bundles:
        """The bundles of the configuration and those that were added."""
        return self._following.bundles

    def confine(self, bundle: str) -> None:
        """Restrict the crib to `bundle` from now on, for every principal and within every other bundle.

        Raises:
            UnknownBundle: no bundle has this name.
        """
        self.bundles.contents(bundle)
        self._following.confined_to = bundle

    @property
    def differs_by_principal(self) -> bool:
        """Whether the catalog that one principal sees may be secret from others. Every policy may have this effect."""
        return self._views.policy is not ALLOW_ALL or bool(self._servers.isolated)

    def top_level(self, config: Config, principal: Principal, bundle: str | None = None) -> tuple[Top, ...]:
        """Return the top level of the catalog that `principal` may see, limited to `bundle`. See `tops`."""
        permissions = self._views.policy.permissions(principal)
        permissions = permissions_within(permissions, self._within_or_nothing(bundle, principal))
        if self._following.added.categories:
            config = replace(config, categories=self._following.with_added(config).all_categories)
        configured = {each.name for each in (*config.servers, *config.declared, *config.plugins)}
        configured |= self._following.plugins.names
        state = self.registry.state
        mine = [entry for name, entry in state.sources.items() if name not in configured]
        return top_level(config, permissions, principal, program=mine, tools=state.tools.values() if mine else ())

    def bundle_for(self, name: str, principal: Principal) -> ToolBundle:
        """Return the bundle `name`.

        Raises:
            UnknownBundle: it does not exist. The hints name only bundles in which `principal` sees a tool.
        """
        if name not in self.bundles:
            shows = partial(self._shows_something, principal=principal) if self.differs_by_principal else None
            raise self.bundles.unknown(name, shows)
        return self.bundles[name]

    def _shows_something(self, bundle: str, principal: Principal) -> bool:
        return bool(self.peek(principal, bundle).tools)

    def _within(self, bundle: str | None, principal: Principal) -> tuple[Contents, ...]:
        """The contents of every bundle that an operation of `principal` is confined to."""
        names = dict.fromkeys(name for name in (self._following.confined_to, bundle) if name is not None)
        return tuple(self.bundles.contents(self.bundle_for(name, principal).name) for name in names)

    def _within_or_nothing(self, bundle: str | None, principal: Principal) -> tuple[Contents, ...]:
        try:
            return self._within(bundle, principal)
        except UnknownBundle:
            return (NOTHING,)

    def _checked_view(self, principal: Principal, overlay: Overlay, within: tuple[Contents, ...]) -> View:
        """The view of `principal`, after checking the capabilities that its tools need."""
        if (needing := self.registry.state.needing) or overlay.needed:
            self._following.capabilities.check(needing, overlay.needed)
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

        await serve_stdio(self, self._following.current, operations)

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

        await serve_http(self, self._following.current, address, operations, auth=auth, listening=listening)

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

        return CribApp(self, self._following.current, operations, auth=auth, url=url)
