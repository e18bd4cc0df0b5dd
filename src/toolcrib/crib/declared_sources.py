"""The declared sources in the catalog: those of configurations, and those that the program registered itself."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.errors import ToolNotFound
from toolcrib.crib.configured_sources import ConfiguredSources, SourceChange
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity, LimitedSource

if TYPE_CHECKING:
    from toolcrib.sources.declared.declared_source import DeclaredSource
    from toolcrib.sources.declared.definition import DeclaredTools


@dataclass(frozen=True)
class _Declared:
    """A declared source, and how many calls it runs at once."""

    declared: DeclaredTools
    capacity: Capacity = DEFAULT_CAPACITY


@dataclass(frozen=True)
class _Running:
    source: DeclaredSource
    capacity: Capacity
    limited: LimitedSource
    """`source` with its limits, as the catalog holds it."""


class DeclaredSources(ConfiguredSources[_Declared]):
    """Adds declared sources to the catalog and removes them. This takes effect at once: nothing has to start."""

    def __init__(self, registry: ToolRegistry, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._registry = registry
        self._environ = environ
        self._running: dict[str, _Running] = {}
        self._registered: dict[str, DeclaredTools] = {}

    @property
    def registered(self) -> Mapping[str, DeclaredTools]:
        """The sources that the program registered itself, by name. They do not belong to a configuration."""
        return self._registered

    def register(self, declared: DeclaredTools) -> None:
        """Add a source for the program, or replace the one with the same name."""
        self._put(declared.name, _Declared(declared))
        self._registered[declared.name] = declared

    def unregister(self, name: str) -> None:
        """Remove a source that was added with `register`. Running calls finish.

        Raises:
            ToolNotFound: the program registered no source with this name.
        """
        if name not in self._registered:
            raise ToolNotFound(f"no source `{name}` was added with `register_declared()`")
        del self._registered[name]
        self._remove((name,))

    def change_to(
        self, wanted: Iterable[DeclaredTools], capacity: Capacity = DEFAULT_CAPACITY
    ) -> SourceChange[_Declared]:
        """Compute the change to exactly these sources. `capacity` limits the calls that a source runs at once."""
        return self._change_to({declared.name: _Declared(declared, capacity) for declared in wanted})

    def leave(self, change: SourceChange[_Declared]) -> None:
        """Remove old tools, and old versions of tools. Unchanged tools of a changed source stay."""
        for name in change.gone:
            if name not in change.new:
                del self._settings[name]
                self._remove((name,))
                continue
            settings = self._settings[name]
            tools = settings.declared.tools
            left = tuple(each for each in tools if each in change.new[name].declared.tools)
            if left != tools:
                self._put(name, replace(settings, declared=replace(settings.declared, tools=left)))

    def _put(self, name: str, settings: _Declared) -> None:
        running = self._running.get(name)
        if running is None or running.capacity != settings.capacity:
            from toolcrib.sources.declared.declared_source import DeclaredSource  # noqa: PLC0415  most programs declare nothing

            source = DeclaredSource(settings.declared, self._environ)
            running = _Running(source, settings.capacity, LimitedSource(source, settings.capacity))
            self._running[name] = running
        else:
            running.source.put(settings.declared)
        listing = running.source.listing
        entry = SourceEntry(
            running.limited,
            SourceStatus.READY,
            title=listing.title,
            summary=listing.summary,
            trusted=True,
            set_aside=listing.set_aside,
            listed_in_s=0.0,
        )
        self._registry.register_source(entry, listing.tools)

    def _remove(self, names: Collection[str]) -> None:
        for name in names:
            del self._running[name]
            self._registry.unregister_source(name)
