"""Reads `toolcrib.plugins`: which of the installed plugins are loaded, and their settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from toolcrib.config.settings import Settings
from toolcrib.sources.installed import InstalledPlugin, installed_plugins

_KEY = "plugins"

_OWN_SETTINGS = ("title", "summary", "trusted")
"""The keys below `toolcrib.sources` that a plugin can have. The others are only for servers."""


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """A plugin that a file names, or that is loaded because it is installed."""

    installed: InstalledPlugin
    title: str | None = None
    summary: str = ""
    trusted: bool = False

    @property
    def name(self) -> str:
        return self.installed.name


def read_plugins(ours: Settings, servers: Collection[str]) -> tuple[PluginConfig, ...]:
    """Read the plugins that `ours`, the object under `toolcrib`, asks for, with their settings from `sources`.

    If a plugin has the name of one of `servers`, the settings in `sources` are those of the server. A plugin that is
    not installed is kept, with its problem.

    Raises:
        InvalidConfig: a setting is invalid.
    """
    match ours.values.get(_KEY, True):
        case True:
            installed = installed_plugins()
        case False:
            return ()
        case [*_]:
            installed = installed_plugins(ours.texts(_KEY))
        case _:
            raise ours.wrong(_KEY, "must be true, false or a list of names")
    sources = ours.settings("sources")
    return tuple(
        _read(plugin, sources.settings(plugin.name))
        if plugin.name in sources and plugin.name not in servers
        else PluginConfig(plugin)
        for plugin in installed
    )


def _read(plugin: InstalledPlugin, settings: Settings) -> PluginConfig:
    settings.only(_OWN_SETTINGS)
    return PluginConfig(
        plugin,
        title=settings.text("title") or None,
        summary=settings.text("summary"),
        trusted=settings.flag("trusted"),
    )
