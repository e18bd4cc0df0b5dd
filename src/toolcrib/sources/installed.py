"""The plugins that are installed beside Toolcrib, found by their entry points and not imported."""

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

GROUP = "toolcrib.crib.plugins"
"""Where packages name their plugins."""


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that is installed, or was asked for."""

    name: str
    entry: EntryPoint | None = None
    """None where it cannot be used."""
    problem: str = ""
    """Why not, in words that any caller may read, without a full stop."""
    summary: str = ""
    """What its distribution says of itself, in a line."""
    distribution: str = ""


def installed_plugins(names: Collection[str] | None = None) -> tuple[InstalledPlugin, ...]:
    """Those of `names`, or all that are installed, by name; one that is not there is kept with its problem."""
    from importlib.metadata import distributions  # noqa: PLC0415  it takes a mail parser along

    found: dict[str, InstalledPlugin] = {}
    for plugin in (plugin for distribution in distributions() for plugin in _brought(distribution)):
        other = found.get(plugin.name)
        if other is None:
            found[plugin.name] = plugin
        elif other.distribution != plugin.distribution:  # else the same one further down the path
            both = f"`{other.distribution}` and `{plugin.distribution}` both bring it; remove one of them"
            found[plugin.name] = InstalledPlugin(plugin.name, problem=both, distribution=other.distribution)
    wanted = sorted(found) if names is None else dict.fromkeys(names)
    return tuple(found.get(name) or _missing(name, found) for name in wanted)


def _brought(distribution: Distribution) -> tuple[InstalledPlugin, ...]:
    """The plugins of one distribution; none where its own files cannot be read, which is nobody else's matter."""
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
    problem = f"its entry point is called `{entry.name}`; letters, digits, `_` and `-` can name a plugin"
    return InstalledPlugin(name, problem=problem, distribution=distribution.name)


def _missing(name: str, found: Collection[str]) -> InstalledPlugin:
    there = f"there are: {', '.join(sorted(found))}" if found else "there are none"
    near = nearest(name, found)
    told = f"no plugin of this name is installed ({f'did you mean `{near}`?' if near else there})"
    return InstalledPlugin(name, problem=told)


def _can_name(name: str) -> bool:
    return bool(re.search(r"\w", name)) and source_name(name) == name
