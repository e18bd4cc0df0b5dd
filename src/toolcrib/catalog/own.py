"""Tools that belong to one session: laid over whatever view it asks through, and seen by nobody else."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.catalog.state import SourceEntry
from toolcrib.catalog.view import NO_OVERLAY, Overlay, View, Visible
from toolcrib.core.tools import Tool


class OwnTools:
    """Belongs to one task at a time."""

    def __init__(self) -> None:
        self.overlay: Overlay = NO_OVERLAY
        self._last: tuple[Visible, Overlay, Visible] | None = None

    def put(self, entry: SourceEntry, tools: Iterable[Tool]) -> None:
        """Have exactly these be the tools of a source of this session; it stands before one of its name."""
        rest = {tool_id: tool for tool_id, tool in self.overlay.tools.items() if tool.source != entry.name}
        self.overlay = Overlay(
            {**rest, **{tool.id: tool for tool in tools}}, {**self.overlay.sources, entry.name: entry}
        )

    def on(self, view: View) -> View:
        """`view`, with what belongs to the session; the same as long as neither changes."""
        if self.overlay is NO_OVERLAY:
            return view
        below = view.visible
        if self._last is None or self._last[0] is not below or self._last[1] is not self.overlay:
            theirs = below.overlay
            overlay = Overlay({**theirs.tools, **self.overlay.tools}, {**theirs.sources, **self.overlay.sources})
            base = below if theirs is NO_OVERLAY else below.base
            self._last = below, self.overlay, Visible(below.state, below.permissions, overlay, base=base)
        return View(self._last[2], view.principal, view.insight)
