"""The installed plugins that configurations take in: under which name each stands in the catalog, and as what."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace

from toolcrib.catalog.intake import Intake
from toolcrib.catalog.state import SourceEntry
from toolcrib.config.plugins import PluginConfig
from toolcrib.core.digests import digest
from toolcrib.sources.base import Source, free_name
from toolcrib.sources.plugins import PluginDispatcher
from toolcrib.sources.unavailable import UnavailableSource


@dataclass(frozen=True, slots=True)
class PluginChange:
    """What another configuration makes of the plugins there are; nothing of it counts yet."""

    wanted: tuple[PluginConfig, ...]
    gone: tuple[str, ...]
    """Names of the sources that are left."""
    new: tuple[tuple[str, PluginConfig], ...]
    """What comes, by the name of its source."""


class ConfiguredPlugins:
    """Each is a source of the intake. One whose name is taken stands beside that as unavailable, with the reason."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._placed: dict[str, PluginConfig] = {}
        """By the name of its source."""
        self.dispatcher = PluginDispatcher()
        """Of these plugins and those that were added one by one."""
        self.wanted: tuple[PluginConfig, ...] = ()
        """Those that configurations ask for."""

    @property
    def names(self) -> frozenset[str]:
        """Of their sources."""
        return frozenset(self._placed)

    def change_to(self, plugins: Iterable[PluginConfig], taken: Collection[str]) -> PluginChange:
        """What it takes to have exactly these; `taken` are the names of all other sources.

        A plugin that was added in Python stays, and is not taken in once more.
        """
        wanted = tuple({plugin.name: plugin for plugin in plugins}.values())
        theirs = [plugin for plugin in wanted if not self._is_added(plugin.name)]
        names = {plugin.name for plugin in theirs}.union(taken)
        planned = dict(_planned(plugin, taken, names) for plugin in theirs)
        gone = tuple(name for name, plugin in self._placed.items() if planned.get(name) != plugin)
        new = ((name, plugin) for name, plugin in planned.items() if name in gone or name not in self._placed)
        return PluginChange(wanted, gone, tuple(new))

    def leave(self, change: PluginChange) -> None:
        """The first half of a change: what goes is out of sight at once."""
        self.wanted = change.wanted
        self._intake.remove(change.gone)
        for name in change.gone:
            del self._placed[name]
            self.dispatcher.remove(name)

    def join(self, change: PluginChange) -> None:
        """The second half, when what goes by names of sources counts."""
        for name, plugin in change.new:
            self._intake.add((entry := self._entry(name, plugin)).source, entry)
            self._placed[name] = plugin

    def add(self, plugins: Iterable[PluginConfig], taken: Collection[str]) -> None:
        """Take in more, whatever configurations ask for; those that are there already are passed over."""
        for plugin in plugins:
            if plugin.name not in self.dispatcher:
                name, planned = _planned(plugin, taken, taken)
                self._intake.add((entry := self._entry(name, planned)).source, entry)

    def clear(self) -> None:
        """Forget all of them, which were left."""
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
    """A plugin with the name of its source. Its tools are never called otherwise: rules are written by their ids."""
    if plugin.name not in taken:
        return plugin.name, plugin
    problem = "a server or another source has its name; call that otherwise"
    return free_name(plugin.name, used), replace(plugin, installed=replace(plugin.installed, problem=problem))


def _address(plugin: PluginConfig) -> str:
    installed = plugin.installed
    return "" if installed.entry is None else f"{installed.entry.value} of {installed.distribution}"


def _identity(plugin: PluginConfig) -> str:
    installed = plugin.installed
    if installed.entry is None:
        return ""
    return digest({"plugin": plugin.name, "of": installed.distribution, "is": installed.entry.value})
