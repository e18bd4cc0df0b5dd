"""The installed plugins that configurations load: the source name of each, and its settings."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.intake import Intake
from toolcrib.config.configuration import PluginConfig
from toolcrib.core.digests import digest
from toolcrib.crib.configured_sources import ConfiguredSources, SourceChange
from toolcrib.sources.base import Source, UnavailableSource, free_name
from toolcrib.sources.plugins import PluginDispatcher


@dataclass(frozen=True, slots=True)
class _NamedPlugin:
    """The settings of a plugin under the name of its source."""

    plugin: PluginConfig
    is_name_taken: bool = False
    """Whether a different source has the name of the plugin. The plugin is then unavailable, under a different name."""

    @property
    def effective(self) -> PluginConfig:
        """The plugin, with a problem if its name is taken."""
        if not self.is_name_taken:
            return self.plugin
        problem = "a server or a different source already has this name. Rename that one"
        return replace(self.plugin, installed=replace(self.plugin.installed, problem=problem))


class ConfiguredPlugins(ConfiguredSources[_NamedPlugin]):
    """Adds each configured plugin as a source. A plugin whose name is taken is unavailable, with the reason."""

    def __init__(self, intake: Intake) -> None:
        super().__init__()
        self._intake = intake
        self.dispatcher = PluginDispatcher()
        """The dispatcher for these plugins and for those that the program added itself."""

    @property
    def wanted(self) -> tuple[PluginConfig, ...]:
        """The plugins that configurations ask for."""
        return tuple(settings.plugin for settings in self._settings.values())

    def change_to(self, plugins: Iterable[PluginConfig], taken: Collection[str]) -> SourceChange[_NamedPlugin]:
        """Compute the change to exactly `plugins`. `taken` has the names of all other sources.

        A plugin that was added in Python stays, and is not added a second time.
        """
        by_name = {plugin.name: plugin for plugin in plugins if not self._is_added(plugin.name)}
        return self._change_to(dict(_named(plugin, taken, {*by_name, *taken}) for plugin in by_name.values()))

    def add(self, plugins: Iterable[PluginConfig], taken: Collection[str]) -> None:
        """Add plugins, independent of configurations. Plugins that already exist are skipped."""
        for plugin in plugins:
            if plugin.name not in self.dispatcher:
                self._put(*_named(plugin, taken, taken))

    def clear(self) -> None:
        super().clear()
        self.dispatcher = PluginDispatcher()

    def _put(self, name: str, settings: _NamedPlugin) -> None:
        plugin = settings.effective
        entry = SourceEntry(
            self._source(name, plugin),
            title=plugin.title,
            summary=plugin.summary,
            trusted=plugin.trusted,
            identity=_identity(plugin),
            origin=_identity(plugin),
            address=_address(plugin),
        )
        self._intake.add(entry.source, entry)

    def _remove(self, names: Collection[str]) -> None:
        self._intake.remove(names)
        for name in names:
            self.dispatcher.remove(name)

    def _is_added(self, name: str) -> bool:
        return name in self.dispatcher and name not in self._settings

    def _source(self, name: str, plugin: PluginConfig) -> Source:
        installed = plugin.installed
        if installed.problem or installed.entry is None:
            reason = f"The plugin `{plugin.name}` cannot be used."
            return UnavailableSource(name, reason, diagnosis=f"The cause: {installed.problem}.")
        return self.dispatcher.add_late(name, installed.entry.load)


def _named(plugin: PluginConfig, taken: Container[str], used: Container[str]) -> tuple[str, _NamedPlugin]:
    """Return a plugin with the name of its source.

    A usable plugin never gets a different name, because rules refer to tool ids.
    """
    if plugin.name not in taken:
        return plugin.name, _NamedPlugin(plugin)
    return free_name(plugin.name, used), _NamedPlugin(plugin, is_name_taken=True)


def _address(plugin: PluginConfig) -> str:
    installed = plugin.installed
    return "" if installed.entry is None else f"{installed.entry.value} of {installed.distribution}"


def _identity(plugin: PluginConfig) -> str:
    installed = plugin.installed
    if installed.entry is None:
        return ""
    return digest({"plugin": plugin.name, "of": installed.distribution, "is": installed.entry.value})
