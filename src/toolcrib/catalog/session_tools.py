"""The tools of one session, which are added to each view of the session and which no other session sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolcrib.catalog.bundles import besides
from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import NO_OVERLAY, Overlay, View, Visible
from toolcrib.core.tools import Tool


class SessionTools:
    """The tools of a session: single sources that were put in, and registries whose content can change."""

    def __init__(self) -> None:
        self._put = NO_OVERLAY
        self._registries: tuple[ToolRegistry, ...] = ()
        self._made: tuple[tuple[object, ...], Overlay] = (NO_OVERLAY,), NO_OVERLAY
        """The last overlay, and the parts from which it was made."""
        self._last: tuple[Visible, Overlay, Visible] | None = None

    @property
    def overlay(self) -> Overlay:
        """All tools and sources of the session as they are now. The object stays the same until something changes."""
        if not self._registries:
            return self._put
        states = tuple(registry.state for registry in self._registries)
        parts = (self._put, *states)
        known, made = self._made
        if len(known) != len(parts) or any(one is not other for one, other in zip(known, parts, strict=True)):
            made = self._put
            for state in states:
                made = _laid_over(made, state.tools, state.sources)
            self._made = parts, made
        return made

    def put(self, entry: SourceEntry, tools: Iterable[Tool]) -> None:
        """Set the tools of one source of this session. It takes precedence over a source of the same name."""
        rest = {tool_id: tool for tool_id, tool in self._put.tools.items() if tool.source != entry.name}
        self._put = Overlay({**rest, **{tool.id: tool for tool in tools}}, {**self._put.sources, entry.name: entry})

    def follow(self, registry: ToolRegistry) -> None:
        """Add the content of `registry` to the session, including later changes."""
        self._registries = (*self._registries, registry)

    def on(self, view: View) -> View:
        """Return `view` with the session's tools added. The visible part is reused until one of them changes."""
        overlay = self.overlay
        if not overlay.sources:
            return view
        below = view.visible
        if self._last is None or self._last[0] is not below or self._last[1] is not overlay:
            theirs = below.overlay
            whole = _laid_over(theirs, overlay.tools, overlay.sources)
            base = below if theirs is NO_OVERLAY else below.base
            permissions = besides(below.permissions, overlay.sources)
            self._last = below, overlay, Visible(below.state, permissions, whole, base=base)
        return View(self._last[2], view.principal, view.knowledge)


def _laid_over(overlay: Overlay, tools: Mapping[str, Tool], sources: Mapping[str, SourceEntry]) -> Overlay:
    return Overlay({**overlay.tools, **tools}, {**overlay.sources, **sources})
