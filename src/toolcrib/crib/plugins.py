"""The installed plugins that configurations load: the source name of each, and its settings."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace

from toolcrib.catalog.intake import Intake
from toolcrib.catalog.state import SourceEntry
from toolcrib.config.plugins import PluginConfig
from toolcrib.core.digests import digest
from toolcrib.sources.base import Source, UnavailableSource, free_name
from toolcrib.sources.plugins import PluginDispatcher


@dataclass(frozen=True, slots=True)
class PluginChange:
    """The difference between the current plugins and those of a new configuration. Nothing of it is applied yet."""

    wanted: tuple[PluginConfig, ...]
    gone: tuple[str, ...]
    """Names of the sources to remove."""
    new: tuple[tuple[str, PluginConfig], ...]
    """The plugins to add, with the names of their sources."""


class ConfiguredPlugins:
    """Adds each configured plugin as a source. A plugin whose name is taken is unavailable, with the reason."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._placed: dict[str, PluginConfig] = {}
        """The settings of each plugin, by source name."""
        self.dispatcher = PluginDispatcher()
        """The dispatcher for these plugins and for those that the program added itself."""
        self.wanted: tuple[PluginConfig, ...] = ()
        """The plugins that configurations ask for."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the sources of configured plugins."""
        return frozenset(self._placed)

    def change_to(self, plugins: Iterable[PluginConfig], taken: Collection[str]) -> PluginChange:
        """Compute the change to exactly `plugins`. `taken` has the names of all other sources.

        A plugin that was added in Python stays, and is not added a second time.
        """
        wanted = tuple({plugin.name: plugin for plugin in plugins}.values())
        theirs = [plugin for plugin in wanted if not self._is_added(plugin.name)]
        names = {plugin.name for plugin in theirs}.union(taken)
        planned = dict(_planned(plugin, taken, names) for plugin in theirs)
        gone = tuple(name for name, plugin in self._placed.items() if planned.get(name) != plugin)
        new = ((name, plugin) for name, plugin in planned.items() if name in gone or name not in self._placed)
        return PluginChange(wanted, gone, tuple(new))

    def leave(self, change: PluginChange) -> None:
        """Do the first half of a change: remove plugins at once."""
        self.wanted = change.wanted
        self._intake.remove(change.gone)
        for name in change.gone:
            del self._placed[name]
            self.dispatcher.remove(name)

    def join(self, change: PluginChange) -> None:
        """Do the second half, after the new rules apply: add plugins."""
        for name, plugin in change.new:
            self._intake.add((entry := self._entry(name, plugin)).source, entry)
            self._placed[name] = plugin

    def add(self, plugins: Iterable[PluginConfig], taken: Collection[str]) -> None:
        """Add plugins, independent of configurations. Plugins that already exist are skipped."""
        for plugin in plugins:
            if plugin.name not in self.dispatcher:
                name, planned = _planned(plugin, taken, taken)
                self._intake.add((entry := self._entry(name, planned)).source, entry)

    def clear(self) -> None:
        """Discard the state of all plugins. The intake has already removed their sources."""
        self._placed.clear()
        self.wanted = ()
        self.dispatcher = PluginDispatcher()

    def _is_added(self, name: str) -> bool:
        return name in self.dispatcher and name not in self._placed

    def _entry(self, name: str, plugin: PluginConfig) -> SourceEntry:
        return SourceEntry(
            self._source(name, plugin),
            title=plugin.title,
            summary=plugin.summary,
            trusted=plugin.trusted,
            identity=_identity(plugin),
            origin=_identity(plugin),
            address=_address(plugin),
        )

    def _source(self, name: str, plugin: PluginConfig) -> Source:
        installed = plugin.installed
        if installed.problem or installed.entry is None:
            reason = f"The plugin `{plugin.name}` cannot be used."
            return UnavailableSource(name, reason, diagnosis=f"The cause: {installed.problem}.")
        return self.dispatcher.add_late(name, installed.entry.load)


def _planned(plugin: PluginConfig, taken: Container[str], used: Container[str]) -> tuple[str, PluginConfig]:
    """Return a plugin with the name of its source.

    A usable plugin never gets a different name, because rules refer to tool ids.
    """
    if plugin.name not in taken:
        return plugin.name, plugin
    problem = "a server or a different source already has this name. Rename that one"
    return free_name(plugin.name, used), replace(plugin, installed=replace(plugin.installed, problem=problem))


def _address(plugin: PluginConfig) -> str:
    installed = plugin.installed
    return "" if installed.entry is None else f"{installed.entry.value} of {installed.distribution}"


def _identity(plugin: PluginConfig) -> str:
    installed = plugin.installed
    if installed.entry is None:
        return ""
    return digest({"plugin": plugin.name, "of": installed.distribution, "is": installed.entry.value})
