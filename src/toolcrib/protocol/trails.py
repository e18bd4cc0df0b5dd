"""Which trace an operation belongs to: the search that showed a tool, its expansion and its call are one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

MAX_SHOWN = 2_000
"""Tools shown to one principal that are remembered; the ones shown longest ago are forgotten first."""

MAX_PRINCIPALS = 500
"""Principals for whom that is remembered; whoever asked last longest ago is forgotten first."""


class Trails:
    """Remembers in which trace each principal was last shown a tool.

    For expansions alone: clients send the bare id of what a search found, and keep no session. From the expansion on
    the handle says which trace it is, to any replica.
    """

    def __init__(self) -> None:
        self._shown: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        """Traces by tool, by principal. Each has a share of its own: one that searches a lot costs nobody a trail."""
        self._lock = threading.Lock()

    def remember(self, principal: str, tool_ids: Iterable[str], trace_id: str) -> None:
        """These tools were shown in this trace."""
        with self._lock:
            shown = self._shown.setdefault(principal, OrderedDict())
            self._shown.move_to_end(principal)
            for tool_id in tool_ids:
                shown[tool_id] = trace_id
                shown.move_to_end(tool_id)
            while len(shown) > MAX_SHOWN:
                shown.popitem(last=False)
            while len(self._shown) > MAX_PRINCIPALS:
                self._shown.popitem(last=False)

    def of(self, principal: str, tool_id: str) -> str | None:
        """In which trace it was shown last; None where that was never, or long ago, or led to a call already."""
        with self._lock:
            shown = self._shown.get(principal)
            return None if shown is None else shown.get(tool_id)

    def end(self, principal: str, tool_id: str) -> None:
        """It was called: whoever expands it anew begins another story."""
        with self._lock:
            if (shown := self._shown.get(principal)) is not None:
                shown.pop(tool_id, None)
