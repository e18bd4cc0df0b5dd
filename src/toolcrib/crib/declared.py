"""The declared sources in the catalog: those of configurations, and those that the program declared itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.core.errors import ToolNotFound
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity, LimitedSource

if TYPE_CHECKING:
    from toolcrib.sources.declared.declared_source import DeclaredSource
    from toolcrib.sources.declared.definition import DeclaredTools


@dataclass(frozen=True)
class _Placed:
    """A declared source that is in the catalog."""

    declared: DeclaredTools
    capacity: Capacity
    is_configured: bool
    source: DeclaredSource
    limited: LimitedSource
    """`source` with its limits, as the catalog holds it."""


class Declarations:
    """Adds declared sources to the catalog and removes them. This takes effect at once: nothing has to start."""

    def __init__(self, registry: ToolRegistry, environ: Mapping[str, str] = os.environ) -> None:
        self._registry = registry
        self._environ = environ
        self._placed: dict[str, _Placed] = {}

    @property
    def configured(self) -> frozenset[str]:
        """Names of the sources that configurations declare."""
        return frozenset(name for name, placed in self._placed.items() if placed.is_configured)

    @property
    def added(self) -> Mapping[str, DeclaredTools]:
        """The sources that the program declared itself, by name."""
        return {name: placed.declared for name, placed in self._placed.items() if not placed.is_configured}

    def put(self, declared: DeclaredTools) -> None:
        """Add a source for the program, or replace the one with the same name."""
        self._put(declared, DEFAULT_CAPACITY, is_configured=False)

    def drop(self, name: str) -> None:
        """Remove a source that was added with `put`. Running calls finish.

        Raises:
            ToolNotFound: the program declared no source with this name.
        """
        if name not in self.added:
            raise ToolNotFound(f"no source `{name}` was added with `declare()`")
        self._drop(name)

    def leave(self, wanted: Iterable[DeclaredTools]) -> None:
        """Do the first half of changing the configured sources to `wanted`: remove old tools, and old versions of
        tools.
        """
        by_name = {declared.name: declared for declared in wanted}
        for name in self.configured:
            if name not in by_name:
                self._drop(name)
                continue
            before = self._placed[name]
            left = tuple(each for each in before.declared.tools if each in by_name[name].tools)
            if left != before.declared.tools:
                self._put(replace(before.declared, tools=left), before.capacity, is_configured=True)

    def join(self, wanted: Iterable[DeclaredTools], capacity: Capacity = DEFAULT_CAPACITY) -> None:
        """Do the second half, after the new rules apply: add new tools. `capacity` limits the calls that a source runs
        at once.
        """
        for declared in wanted:
            placed = self._placed.get(declared.name)
            if placed is None or (placed.declared, placed.capacity) != (declared, capacity):
                self._put(declared, capacity, is_configured=True)

    def _put(self, declared: DeclaredTools, capacity: Capacity, *, is_configured: bool) -> None:
        placed = self._placed.get(declared.name)
        if placed is None or placed.capacity != capacity:
            from toolcrib.sources.declared.declared_source import DeclaredSource  # noqa: PLC0415  most programs declare nothing

            source = DeclaredSource(declared, self._environ)
            placed = _Placed(declared, capacity, is_configured, source, LimitedSource(source, capacity))
        else:
            placed.source.put(declared)
        self._placed[declared.name] = replace(placed, declared=declared)
        listing = placed.source.listing
        entry = SourceEntry(
            placed.limited,
            SourceStatus.READY,
            title=listing.title,
            summary=listing.summary,
            trusted=True,
            set_aside=listing.set_aside,
            listed_in_s=0.0,
        )
        self._registry.put_source(entry, listing.tools)

    def _drop(self, name: str) -> None:
        del self._placed[name]
        self._registry.drop_source(name)
