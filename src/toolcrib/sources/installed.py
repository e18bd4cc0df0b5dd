"""Finds installed plugins by their entry points, without importing them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolcrib.core.schema import nearest
from toolcrib.sources.base import headline, source_name

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

logger = logging.getLogger(__name__)

GROUP = "toolcrib.plugins"
"""The entry point group in which packages declare their plugins."""


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that is installed, or that was requested by name."""

    name: str
    entry: EntryPoint | None = None
    """The entry point, or None if the plugin cannot be used."""
    problem: str = ""
    """Why the plugin cannot be used, in words that any caller may read, without a full stop."""
    summary: str = ""
    """The summary of the plugin's distribution, in one line."""
    distribution: str = ""


def installed_plugins(names: Collection[str] | None = None) -> tuple[InstalledPlugin, ...]:
    """Return the plugins in `names`, or all installed ones sorted by name. A missing plugin is included with its
    problem."""
    from importlib.metadata import distributions  # noqa: PLC0415  it imports a mail parser

    found: dict[str, InstalledPlugin] = {}
    for plugin in (plugin for distribution in distributions() for plugin in _brought(distribution)):
        other = found.get(plugin.name)
        if other is None:
            found[plugin.name] = plugin
        # The same distribution can be found again later on the path.
        elif other.distribution != plugin.distribution:
            both = f"`{other.distribution}` and `{plugin.distribution}` both provide it; uninstall one of them"
            found[plugin.name] = InstalledPlugin(plugin.name, problem=both, distribution=other.distribution)
    wanted = sorted(found) if names is None else dict.fromkeys(names)
    return tuple(found.get(name) or _missing(name, found) for name in wanted)


def _brought(distribution: Distribution) -> tuple[InstalledPlugin, ...]:
    """Return the plugins of one distribution; empty if its files cannot be read, so that other plugins still load."""
    try:
        entries = [entry for entry in distribution.entry_points if entry.group == GROUP]
        return tuple(_found(entry, distribution) for entry in entries)
    except Exception:
        logger.warning("the entry points of an installed distribution cannot be read", exc_info=True)
        return ()


def _found(entry: EntryPoint, distribution: Distribution) -> InstalledPlugin:
    if _can_name(entry.name):
        metadata = distribution.metadata
        summary = metadata["Summary"] if "Summary" in metadata else ""  # noqa: SIM401  it has no `get`
        return InstalledPlugin(entry.name, entry, summary=headline(summary), distribution=distribution.name)
    name = source_name(entry.name) if re.search(r"\w", entry.name) else "plugin"
    problem = (
        f"its entry point is named `{entry.name}`; the name of a plugin must consist of letters, digits, `_` and `-`"
    )
    return InstalledPlugin(name, problem=problem, distribution=distribution.name)


def _missing(name: str, found: Collection[str]) -> InstalledPlugin:
    there = f"installed: {', '.join(sorted(found))}" if found else "no plugins are installed"
    near = nearest(name, found)
    told = f"no plugin of this name is installed ({f'did you mean `{near}`?' if near else there})"
    return InstalledPlugin(name, problem=told)


def _can_name(name: str) -> bool:
    return bool(re.search(r"\w", name)) and source_name(name) == name
