"""Takes configurations over: a file that is added, a file that changes, and items that are registered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from toolcrib.catalog.access import ALLOW_ALL, Policy
from toolcrib.catalog.bundles import Bundles, ToolBundle
from toolcrib.catalog.capabilities import Capabilities
from toolcrib.catalog.catalog_settings import CatalogSettings, Reserved
from toolcrib.catalog.categories import Categories
from toolcrib.catalog.definition_guard import DefinitionGuard
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.overrides import Overrides
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view_cache import ViewCache
from toolcrib.config import Config, read_config
from toolcrib.config.search_settings import DEFAULT_SEARCH
from toolcrib.core.errors import InvalidConfig, ToolcribError
from toolcrib.crib.configured_plugins import ConfiguredPlugins
from toolcrib.crib.configured_servers import ConfiguredServers, refuse_own_file
from toolcrib.crib.configured_sources import SourceChange
from toolcrib.crib.declared_sources import DeclaredSources
from toolcrib.crib.registered_items import RegisteredItems
from toolcrib.crib.search_knowledge import SearchKnowledge
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.sources.base import free_name

if TYPE_CHECKING:
    from toolcrib.config.registrations import Kind, Registrable

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""Seconds between two checks of a followed configuration file."""

_PARTS: Mapping[str, Callable[[Config], object]] = {
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


@dataclass
class ConfigFollower:
    """The configuration of a crib: what is in effect, and how a different one takes effect.

    Every change is checked as a whole before any of it applies.
    """

    registry: ToolRegistry
    intake: Intake
    servers: ConfiguredServers
    registered: RegisteredItems
    views: ViewCache
    dispatcher: Dispatcher
    knowledge: SearchKnowledge
    guard: DefinitionGuard
    policy: Policy | None
    """Takes precedence over the policy of a configuration."""
    added: CatalogSettings = field(default_factory=CatalogSettings)
    """What the program itself added one by one."""
    confined_to: str | None = None
    """The only bundle that is visible, for every principal. None if the crib is not confined to a bundle."""
    functions: str | None = None
    """The name of the source for the functions of the program. None if there is no such source."""

    def __post_init__(self) -> None:
        self.plugins = ConfiguredPlugins(self.intake)
        self.declared = DeclaredSources(self.registry)
        self.bundles = Bundles()
        """The bundles of the configuration and those that the program added."""
        self.capabilities = Capabilities(self.registry.set_findings)
        self._configured = CatalogSettings()
        self._written = _NO_CONFIG
        """The last configuration as its file says, with the declarations of the configurations before it, but without
        registered items.
        """
        self._last_with_policy: Config | None = None
        """The last configuration that had a policy."""

    @property
    def current(self) -> Config:
        """The configuration that was added last, together with registered items."""
        return self.registered.joined(self._written, self._reserved(changing=False))

    @property
    def source_names(self) -> frozenset[str]:
        """The names of all sources, including servers that are about to be added."""
        return self.servers.names.union(self.registry.state.sources)

    def with_registered(self, config: Config) -> Config:
        """Return `config` together with the registered items that apply to it."""
        return self.registered.joined(config, self._reserved(changing=True))

    def with_added(self, config: Config) -> CatalogSettings:
        """Return the catalog settings of `config` together with those that the program added."""
        return CatalogSettings.of((config.catalog_settings, self.added))

    # -- one by one ---------------------------------------------------------------------------------------------------

    def add_settings(self, settings: CatalogSettings) -> None:
        """Add settings of the program.

        Raises:
            InvalidConfig: they do not fit the other settings.
        """
        self._set(self._configured, CatalogSettings.of((self.added, settings)))

    def register(self, things: Iterable[Registrable], *, replacing: bool) -> None:
        """Register all these things in the store, or none of them; see `Toolcrib.register`."""
        from toolcrib.config.registrations import Registering, rows_of  # noqa: PLC0415  most programs register nothing

        registering, new = Registering(self._written, self._reserved(changing=False)), rows_of(things)
        self.registered.change(lambda rows: registering.added(rows, new, replacing=replacing))
        self._read_registered()

    def unregister(self, kind: Kind | str, name: str) -> None:
        """Unregister a thing in the store; see `Toolcrib.unregister`."""
        from toolcrib.config.registrations import Kind, Registering  # noqa: PLC0415  see `register`

        if kind == Kind.BUNDLE and name == self.confined_to:
            raise InvalidConfig(f"the bundle `{name}` is being served, so it cannot be unregistered here")
        registering = Registering(self._written, self._reserved(changing=False))
        self.registered.change(lambda rows: registering.removed(rows, [(kind, name)]))
        self._read_registered()

    # -- a whole configuration ----------------------------------------------------------------------------------------

    def add(self, path: Path, wanted: Callable[[str], bool] | None = None) -> Config:
        """Add a configuration to those before it; see `Toolcrib.add_config`."""
        refuse_own_file(path)
        written = self._read(path)
        servers = [server for server in written.enabled if wanted is None or wanted(server.name)]
        declared = [each for each in written.declared if wanted is None or wanted(each.name)]
        earlier = {each.name for each in self._written.declared}
        self._check_free(path, [each.name for each in (*servers, *declared)], self.declared.names - earlier)
        written = self._joined_with_earlier(replace(written, declared=tuple(declared)))
        self.registered.read()
        config = self.registered.joined(written, self._reserved(changing=False))
        self._check_settings(config)
        plugins = [plugin for plugin in config.plugins if wanted is None or wanted(plugin.name)]
        changes = (
            self.servers.change_to(servers, path, adding=True),
            self.plugins.change_to([*self.plugins.wanted, *plugins], self._other_names(config, servers=True)),
            self.declared.change_to(config.declared, config.capacity),
        )
        self._put_in_effect(config, written, changes)
        return config

    async def follow(
        self,
        config: Config | None,
        changed: Callable[[Config], None] | None,
        before: Callable[[Config], None] | None,
    ) -> None:
        """Apply changes of the file of `config`, of the registrations and of the pins; see `Toolcrib.follow`."""
        seen, known = _stamp(config), self.registered.version
        while True:
            await anyio.sleep(POLL_S)
            now = _stamp(config)
            if self.registered.has_store:
                await to_thread.run_sync(self.registered.read, abandon_on_cancel=True)
            counts = None
            if config is not None and now != seen:
                counts = _unless_refused(partial(self._reread, config.path, before), "the previous configuration")
            if counts is None and self.registered.version != known:
                counts = _unless_refused(self._take_registered, "the previous set of registrations")
            seen, known = now, self.registered.version
            if await self.guard.has_changed():
                await self.rejudge()
            if counts is not None and changed is not None:
                changed(counts)

    async def rejudge(self) -> None:
        """Show exactly the definitions that the current pins allow. No source is asked."""
        await self.intake.rejudge()
        await self.servers.isolated_sources.rejudge()

    def enter(self) -> None:
        """Load the registered items, unless a configuration was added, because then they are already loaded."""
        if self._written is _NO_CONFIG and self.registered.read():
            self._take_registered()

    def _read_registered(self) -> None:
        """Apply the registrations as they are in the store now."""
        self.registered.read()
        self._take_registered()

    # -- taking over --------------------------------------------------------------------------------------------------

    def _read(self, path: Path) -> Config:
        return self._kept_closed(self._with_free_names(read_config(path)))

    def _reread(self, path: Path, before: Callable[[Config], None] | None) -> Config:
        """Apply exactly what the file at `path` says now, and the registered items.

        Returns the configuration that is now in effect.

        Raises:
            ToolcribError: nothing was changed.
        """
        written, earlier = self._read(path), self._written
        config = self.with_registered(written)
        if self.confined_to not in earlier.bundles:  # it was registered
            config = self._still_confined(config)
        servers = self.servers.change_to(config.enabled, path)
        declared = [each.name for each in config.declared]
        self._check_free(path, [*servers.added, *declared], {*servers.gone, *self.declared.names})
        self._check_not_truncated(config)
        changes = (
            servers,
            self.plugins.change_to(config.plugins, self._other_names(config, servers=False)),
            self.declared.change_to(config.declared, config.capacity),
        )
        self._check_settings(config)
        if before is not None:
            before(config)
        self._put_in_effect(config, written, changes)
        summary = [f"servers {servers.summary}"] if servers.summary else []
        summary += [f"{name} changed" for name, part in _PARTS.items() if part(earlier) != part(written)]
        logger.info("applied %s: %s", path, "; ".join(summary) or "no changes")
        return config

    def _take_registered(self) -> Config:
        """Apply the registrations that were read last to the current configuration.

        Returns the configuration that is now in effect.

        Raises:
            ToolcribError: nothing was changed.
        """
        config = self._still_confined(self.current)
        self._check_settings(config)
        change = self.declared.change_to(config.declared, config.capacity)
        change.leave()
        self._set(config.catalog_settings, self.added)
        change.join()
        return config

    def _put_in_effect(self, config: Config, written: Config, changes: Iterable[SourceChange[Any]]) -> None:
        """Apply `config`, which is `written` together with registered items. `SourceChange` says why in this order."""
        for change in changes:
            change.leave()
        # Rules refer to categories, so the old rules must never apply to the new categories alone, nor the reverse.
        with self.views.turning_to(self._policy_of(config)):
            self._set(config.catalog_settings, self.added)
        self.dispatcher.runner.limits.rate = config.rate
        self.dispatcher.lookups.rate = config.lookup_rate
        self.servers.isolated_sources.most = config.max_isolated_principals
        self.registry.set_weights(config.search.weights)
        self.knowledge.apply(config)
        self.guard.policy = config.pins
        self._written = written
        last = self._last_with_policy
        if written.policy is not None and (last is None or written.policy is not last.policy):
            self._last_with_policy = written
        for change in changes:
            change.join()

    def _set(self, configured: CatalogSettings, added: CatalogSettings) -> None:
        whole = CatalogSettings.of((configured, added))
        categories, bundles = whole.all_categories, whole.all_bundles  # raises here, before anything has changed
        for catalog in (self.registry, self.servers.isolated_sources):
            catalog.set_overrides(whole.all_overrides)
            catalog.set_categories(categories)
        self.bundles = bundles
        self.capabilities.set_up(whole.capabilities)
        self._configured, self.added = configured, added

    def _policy_of(self, config: Config) -> Policy:
        # Compare with None: a policy that a program defines may be false in Python, like an empty container.
        given = (policy for policy in (self.policy, config.policy) if policy is not None)
        return next(given, ALLOW_ALL)

    # -- what stays from the configurations before --------------------------------------------------------------------

    def _joined_with_earlier(self, config: Config) -> Config:
        """Return `config` together with the settings of the configurations before it, except their servers."""
        before = self._written
        return replace(
            _with_rules_of(before, config),
            declared=(*before.declared, *config.declared),
            bundles=Bundles([*before.bundles.given, *config.bundles.given]),
            capabilities=(*before.capabilities, *config.capabilities),
            search=before.search if config.search == DEFAULT_SEARCH else config.search,
            said_of_pins=before.said_of_pins if config.said_of_pins is None else config.said_of_pins,
        )

    def _kept_closed(self, config: Config) -> Config:
        """Return `config` with the last policy if it has none, so that a truncated file does not open what was closed.

        The setting for definitions that are not pinned is kept in the same way. The kept policy also keeps its
        categories and overrides, because its rules may refer to them.
        """
        last, pins = self._last_with_policy, self._written.said_of_pins
        if pins is not None and config.said_of_pins is None:
            logger.warning(
                "%s: `pins` is no longer set; the previous setting stays in force until the next start",
                config.path,
            )
            config = replace(config, said_of_pins=pins)
        if self.policy is not None or config.policy is not None or last is None:
            return config
        logger.warning(
            "%s: `policy` is no longer set; the previous policy and its categories stay in force until the next start "
            '(set it to {"otherwise": "allow"} to allow everything)',
            config.path,
        )
        return replace(_with_rules_of(last, config), policy=last.policy)

    def _still_confined(self, config: Config) -> Config:
        """Return `config` with the confining bundle as it was, in case a different program unregistered it."""
        name = self.confined_to
        if name is None or name in self.with_added(config).all_bundles:
            return config
        logger.warning(
            "the bundle `%s` is no longer registered; it stays the only bundle served until the next start",
            name,
        )
        was = self.bundles.contents(name)
        bundle = ToolBundle(name, required=was.required, optional=was.optional)
        return replace(config, bundles=Bundles([*config.bundles.given, bundle]))

    # -- names --------------------------------------------------------------------------------------------------------

    def _with_free_names(self, config: Config) -> Config:
        """Return `config` without the source name of the program's own functions, because handles with that name are in
        use.
        """
        mine = self.functions
        if mine is None:
            return config
        other = free_name(mine, {mine, *(server.name for server in config.servers)})
        servers = (replace(server, name=other) if server.name == mine else server for server in config.servers)
        return replace(config, servers=tuple(servers))

    def _reserved(self, *, changing: bool) -> Reserved:
        """The names that registered items must not take.

        With `changing`, the sources that the configuration starts are excluded, because they are checked separately.
        """
        started = self.servers.names | self.plugins.names
        own = self.registry.state.sources.keys() - self.declared.names - started
        return Reserved(self.added, frozenset(own if changing else own | started))

    def _other_names(self, config: Config, *, servers: bool) -> frozenset[str]:
        """Names of all sources that are not configured plugins, once `config` is in effect.

        With `servers`, the names of the current servers and configured declarations are included.
        """
        mine = self.servers.names | self.declared.names
        others = self.registry.state.sources.keys() - mine - self.plugins.names
        theirs = {each.name for each in (*config.enabled, *config.declared)}
        return frozenset(theirs | others | (mine if servers else frozenset()))

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check_free(self, path: Path, names: Iterable[str], going: Collection[str] = ()) -> None:
        """Raise unless all `names` are free. The names of sources that are `going` and of plugins are free."""
        taken = (self.registry.state.sources.keys() - self.plugins.names | self.servers.names).difference(going)
        for name in names:
            if name in taken:
                raise InvalidConfig(f"{path}: a source named `{name}` already exists")

    def _check_settings(self, config: Config) -> None:
        whole = self.with_added(config)
        _ = whole.all_categories
        if self.confined_to is not None and self.confined_to not in whole.all_bundles:
            raise InvalidConfig(
                f"{config.path}: the bundle `{self.confined_to}` is being served, but it is no longer defined"
            )

    def _check_not_truncated(self, config: Config) -> None:
        """Raise if the file may be truncated: if it would share an isolated server, give it to principals that did not
        have it, or add every installed plugin.
        """
        for server in config.enabled:
            was, is_shared = server.name in self.servers.isolated, server.isolation == "shared"
            if was and is_shared and not server.is_expressly_shared:
                raise InvalidConfig(
                    f'{config.path}: server `{server.name}` was isolated. To share it, set `"isolation": "shared"`'
                )
            if server.name in self.servers.for_some and not is_shared and server.principals is None:
                raise InvalidConfig(
                    f"{config.path}: only some principals had server `{server.name}`. "
                    'To give it to every principal, set `"principals": {"*": {}}`'
                )
        if self._written.chooses_plugins and not config.chooses_plugins:
            raise InvalidConfig(
                f'{config.path}: `plugins` is no longer set. To add all installed plugins, set `"plugins": true`'
            )


def _with_rules_of(earlier: Config, config: Config) -> Config:
    """Return `config` with the categories and overrides of an `earlier` configuration in front of its own."""
    more = (category for category in config.categories.given if category.path not in earlier.categories)
    return replace(
        config,
        categories=Categories([*earlier.categories.given, *more]),
        overrides=Overrides((*earlier.overrides.given, *config.overrides.given)),
    )


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
