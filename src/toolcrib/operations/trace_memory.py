"""Finds the trace of an operation: the search that showed a tool, its expansion and its calls share one trace.

It also remembers which tools were expanded or called in each trace.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MAX_SHOWN = 2_000
"""The most tools that are remembered for one principal. The tool that was shown longest ago is forgotten first."""

MAX_PRINCIPALS = 500
"""The most principals that are remembered. The one that has been inactive longest is forgotten first."""

MAX_TRACES = 50
"""The most traces of one principal whose tools are remembered, the latest ones."""

MAX_USED = 20
"""The most tools that are remembered as used in one trace, the latest ones."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is remembered about a tool that was shown to a principal."""

    trace_id: str | None
    """The trace in which it was last shown; None after a call."""
    handle: str | None = None
    """The handle from its last expansion."""
    is_expanded: bool = False
    """Whether it was expanded in that trace, so that a second expansion begins a new one."""


class TraceMemory:
    """Remembers in which trace each principal was last shown a tool, and by which handle it can call the tool.

    A trace contains the operation that showed the tool, one expansion and its calls. A second expansion begins a new
    trace, because it is probably a new run of the client. There is an exception: if a call failed in a way that an
    expansion corrects, the expansion continues its trace.

    After a search, clients send only the tool id and have no session. After the expansion, the handle contains the
    trace, so every replica knows it. A different replica does not know what is remembered here. So only the text of
    errors and the order of search results may depend on it, never whether a call runs.
    """

    def __init__(self) -> None:
        self._shown: OrderedDict[str, OrderedDict[str, _Shown]] = OrderedDict()
        """By principal and tool id. Each principal has its own limit, so one that searches a lot affects no other."""
        self._used: OrderedDict[str, OrderedDict[str, OrderedDict[str, None]]] = OrderedDict()
        """By principal and trace, the ids of the tools that were expanded or called. The limits are as in `_shown`."""
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
        """Remember that these tools were shown in this trace, and the new `handles` by tool id.

        `is_expansion` says that they were shown because the client asked to expand them.
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
        """Return the trace in which the tool was last shown; None if it was not, or too long ago, or was then called.

        With `expands`, the tool is about to be expanded. Then the result is also None if the trace has an expansion.
        """
        shown = self._last(principal, tool_id)
        return None if shown is None or (expands and shown.is_expanded) else shown.trace_id

    def handle_of(self, principal: str, tool_id: str) -> str | None:
        """Return the last handle of the tool that the principal received; None if it has none, or it is too old."""
        shown = self._last(principal, tool_id)
        return None if shown is None else shown.handle

    def holds(self, principal: str, tool_id: str) -> bool:
        """Return whether the tool is remembered as shown to the principal."""
        return self._last(principal, tool_id) is not None

    def end(self, principal: str, tool_id: str) -> None:
        """Remember that the tool was called, so that its next expansion begins a new trace."""
        with self._lock:
            shown = self._shown.get(principal)
            if shown is not None and (last := shown.get(tool_id)) is not None:
                shown[tool_id] = replace(last, trace_id=None)

    def use(self, principal: str, tool_ids: Iterable[str], trace_id: str) -> None:
        """Remember that these tools were expanded or called in this trace."""
        with self._lock:
            traces = self._used.setdefault(principal, OrderedDict())
            used = traces.setdefault(trace_id, OrderedDict())
            for tool_id in tool_ids:
                used[tool_id] = None
                used.move_to_end(tool_id)
            self._used.move_to_end(principal)
            traces.move_to_end(trace_id)
            for kept, most in ((used, MAX_USED), (traces, MAX_TRACES), (self._used, MAX_PRINCIPALS)):
                while len(kept) > most:
                    kept.popitem(last=False)

    def used(self, principal: str, trace_id: str) -> frozenset[str]:
        """Return the tools that this principal expanded or called in this trace."""
        with self._lock:
            traces = self._used.get(principal)
            return frozenset(traces.get(trace_id, ()) if traces is not None else ())

    def _last(self, principal: str, tool_id: str) -> _Shown | None:
        with self._lock:
            shown = self._shown.get(principal)
            return None if shown is None else shown.get(tool_id)
