"""`toolcrib.crib.plugins`: which of the installed plugins are taken in, and what is said of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from toolcrib.config.settings import Settings
from toolcrib.sources.installed import InstalledPlugin, installed_plugins

_KEY = "plugins"

_OWN_SETTINGS = ("title", "summary", "trusted")
"""What may be said of a plugin below `toolcrib.sources`; the rest is for servers."""


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """A plugin as it stands in a file, or is taken in because it is installed."""

    installed: InstalledPlugin
    title: str | None = None
    summary: str = ""
    trusted: bool = False

    @property
    def name(self) -> str:
        return self.installed.name


def read_plugins(ours: Settings, servers: Collection[str]) -> tuple[PluginConfig, ...]:
    """Those that `ours`, the object under our key, asks for, with what its `sources` say of them.

    What is said there of one with the name of a server, one of `servers`, is about the server. A plugin that is not
    installed is kept, with its problem.

    Raises:
        InvalidConfig: it says it wrongly.
    """
    match ours.values.get(_KEY, True):
        case True:
            installed = installed_plugins()
        case False:
            return ()
        case [*_]:
            installed = installed_plugins(ours.texts(_KEY))
        case _:
            raise ours.wrong(_KEY, "true, false or a list of names is expected here")
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
