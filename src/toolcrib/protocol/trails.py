"""Which trace an operation belongs to: the search that showed a tool, its expansion and its call are one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

MAX_SHOWN = 20_000
"""Tools shown to somebody that are remembered; the ones shown longest ago are forgotten first."""


class Trails:
    """Remembers in which trace each principal was last shown a tool.

    For expansions alone: clients send the bare id of what a search found, and keep no session. From the expansion on
    the handle says which trace it is, to any replica.
    """

    def __init__(self) -> None:
        self._shown: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, principal: str, tool_ids: Iterable[str], trace_id: str) -> None:
        """These tools were shown in this trace."""
        with self._lock:
            for tool_id in tool_ids:
                self._shown[principal, tool_id] = trace_id
                self._shown.move_to_end((principal, tool_id))
            while len(self._shown) > MAX_SHOWN:
                self._shown.popitem(last=False)

    def of(self, principal: str, tool_id: str) -> str | None:
        """In which trace it was shown last; None where that was never, or too long ago."""
        return self._shown.get((principal, tool_id))
