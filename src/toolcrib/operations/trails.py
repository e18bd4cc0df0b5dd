"""Which trace an operation belongs to: the search that showed a tool, its expansion and its call are one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MAX_SHOWN = 2_000
"""Tools shown to one principal that are remembered; the ones shown longest ago are forgotten first."""

MAX_PRINCIPALS = 500
"""Principals for whom that is remembered; whoever asked last longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a principal was shown of one tool."""

    trace_id: str | None
    """In which trace it was last; None once it was called."""
    handle: str | None = None
    """The one that its last expansion gave."""
    is_expanded: bool = False
    """Whether it was expanded in that trace, so that a second expansion begins another one."""


class Trails:
    """Remembers in which trace each principal was last shown a tool, and by which handle it can call the tool.

    A trace goes from what showed the tool over one expansion to the calls of it. A second expansion begins a new trace,
    for it is most likely another run of the client, unless a call failed in a way that is corrected by expanding.

    Clients send the bare id of what a search found, and keep no session. From the expansion on the handle says which
    trace it is, to any replica. Another replica does not know what is remembered here, so only the words of errors may
    depend on it, never whether a call runs.
    """

    def __init__(self) -> None:
        self._shown: OrderedDict[str, OrderedDict[str, _Shown]] = OrderedDict()
        """By principal and tool. Each principal has a share of its own: one that searches a lot costs no other one."""
        self._lock = threading.Lock()

    def remember(
        self,
        principal: str,
        tool_ids: Iterable[str],
        trace_id: str,
        handles: Mapping[str, str] | None = None,
        *,
        is_expansion: bool = False,
    ) -> None:
        """These tools were shown in this trace, and those with one of `handles` expanded.

        `is_expansion`: they were shown because their expansion was asked for.
        """
        with self._lock:
            shown = self._shown.setdefault(principal, OrderedDict())
            self._shown.move_to_end(principal)
            for tool_id in tool_ids:
                before = shown.get(tool_id)
                handle = (handles or {}).get(tool_id) or (before.handle if before is not None else None)
                shown[tool_id] = _Shown(trace_id, handle, is_expansion)
                shown.move_to_end(tool_id)
            while len(shown) > MAX_SHOWN:
                shown.popitem(last=False)
            while len(self._shown) > MAX_PRINCIPALS:
                self._shown.popitem(last=False)

    def of(self, principal: str, tool_id: str, *, expands: bool = False) -> str | None:
        """In which trace it was shown last; None where that was never, or long ago, or led to a call already.

        `expands`: it is about to be expanded. None then also where that was done already.
        """
        shown = self._last(principal, tool_id)
        return None if shown is None or (expands and shown.is_expanded) else shown.trace_id

    def handle_of(self, principal: str, tool_id: str) -> str | None:
        """The handle that the principal was last given for it; None where that was never, or long ago."""
        shown = self._last(principal, tool_id)
        return None if shown is None else shown.handle

    def holds(self, principal: str, tool_id: str) -> bool:
        """Whether it is remembered that the principal was shown it."""
        return self._last(principal, tool_id) is not None

    def end(self, principal: str, tool_id: str) -> None:
        """It was called: whoever expands it anew begins another story."""
        with self._lock:
            shown = self._shown.get(principal)
            if shown is not None and (last := shown.get(tool_id)) is not None:
                shown[tool_id] = replace(last, trace_id=None)

    def _last(self, principal: str, tool_id: str) -> _Shown | None:
        with self._lock:
            shown = self._shown.get(principal)
            return None if shown is None else shown.get(tool_id)
