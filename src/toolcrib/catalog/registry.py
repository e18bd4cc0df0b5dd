"""The one place where the catalog changes: each change publishes a new state, then tells the listeners."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from toolcrib.catalog.categories import Categories
from toolcrib.catalog.state import CatalogState, SourceEntry
from toolcrib.catalog.view import document_of
from toolcrib.core.errors import InvalidTool, ToolNotFound
from toolcrib.core.events import CatalogPublished, Event, Listener, ToolRegistered, ToolReplaced, ToolUnregistered
from toolcrib.core.tools import Tool

logger = logging.getLogger(__name__)

_Change = tuple[CatalogState, Sequence[Event]]
"""A state that follows another, and what happened between them."""


class ToolRegistry:
    """Holds the current `CatalogState`. Readers take `state` and never wait; writers queue behind one lock.

    Listeners are told after publication, in the order of the publications, outside the lock: one may read, register or
    unsubscribe itself. Source: ADR-001, `ToolRegistry`.
    """

    def __init__(self) -> None:
        self._state = CatalogState()
        self._writing = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._untold: deque[tuple[Event, tuple[Listener, ...]]] = deque()
        self._telling = threading.Lock()

    @property
    def state(self) -> CatalogState:
        return self._state

    def register(self, tool: Tool) -> None:
        """Take in one tool.

        Raises:
            InvalidTool: a tool of this id is there already.
        """

        def add(state: CatalogState) -> _Change:
            if tool.id in state.tools:
                raise InvalidTool(f"`{tool.id}` is registered already")
            return self._with(state, put=(tool,))

        self._publish(add)

    def replace(self, tool: Tool) -> None:
        """Put `tool` in the place of the one with its id, or take it in where there is none."""
        self._publish(lambda state: self._with(state, put=(tool,)))

    def unregister(self, tool_id: str) -> None:
        """Let one tool go.

        Raises:
            ToolNotFound: there is none of this id.
        """

        def drop(state: CatalogState) -> _Change:
            if tool_id not in state.tools:
                raise ToolNotFound(f"`{tool_id}` is not registered")
            return self._with(state, drop=(tool_id,))

        self._publish(drop)

    def put_source(self, entry: SourceEntry, tools: Iterable[Tool] | None = None) -> None:
        """Publish what is known of a source and, unless `tools` is None, exactly these as all of its tools."""
        offered = None if tools is None else tuple(tools)

        def put(state: CatalogState) -> _Change:
            known = state.sources.get(entry.name)
            # What a source is called and said to be for is among its tools' words.
            renamed = known is not None and (known.title, known.summary) != (entry.title, entry.summary)
            state = replace(state, sources={**state.sources, entry.name: entry})
            if offered is None:
                return state, ()
            mine = {tool_id for tool_id, tool in state.tools.items() if tool.source == entry.name}
            gone = mine.difference(tool.id for tool in offered)
            moved = offered if renamed else tuple(tool for tool in offered if not _same(state.tools.get(tool.id), tool))
            return self._with(state, put=moved, drop=gone)

        self._publish(put)

    def drop_source(self, name: str) -> None:
        """Forget a source and its tools; no error where it is not known."""

        def drop(state: CatalogState) -> _Change:
            if name not in state.sources:
                return state, ()
            rest = {key: entry for key, entry in state.sources.items() if key != name}
            gone = [tool_id for tool_id, tool in state.tools.items() if tool.source == name]
            return self._with(replace(state, sources=rest), drop=gone)

        self._publish(drop)

    def set_categories(self, categories: Categories) -> None:
        """Let tools hang in exactly these categories, besides below their sources."""

        def change(state: CatalogState) -> _Change:
            if state.categories.digest == categories.digest:
                return state, ()
            # What its categories are called is among a tool's words; those of most tools stay as they are.
            before = state.categories
            moved = [tool for tool in state.tools.values() if before.places(tool) != categories.places(tool)]
            state = replace(state, categories=categories)
            return self._with(state, put=moved) if moved else (state, ())

        self._publish(change)

    def subscribe(self, listener: Listener) -> None:
        """Tell `listener` of every event from the next publication on."""
        with self._writing:
            self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Tell it no more; no error where it was not subscribed."""
        with self._writing:
            # Not `is not`: a method is another object each time it is taken from its owner.
            self._listeners = tuple(known for known in self._listeners if known != listener)

    @staticmethod
    def _with(state: CatalogState, *, put: Iterable[Tool] = (), drop: Iterable[str] = ()) -> _Change:
        put, drop = tuple(put), tuple(drop)
        if not put and not drop:
            return state, ()
        tools, fingerprint, events = dict(state.tools), state.fingerprint, list[Event]()
        for tool_id in drop:
            gone = tools.pop(tool_id)
            fingerprint -= gone.fingerprint
            events.append(ToolUnregistered(gone))
        for tool in put:
            before = tools.get(tool.id)
            tools[tool.id] = tool
            fingerprint += tool.fingerprint
            if before is None:
                events.append(ToolRegistered(tool))
            else:
                fingerprint -= before.fingerprint
                events += () if _same(before, tool) else (ToolReplaced(before, tool),)
        documents = (document_of(state.sources, state.categories, tool) for tool in put)
        index = state.index.updated(added=documents, removed=drop)
        return replace(state, tools=tools, index=index, fingerprint=fingerprint), events

    def _publish(self, change: Callable[[CatalogState], _Change]) -> None:
        with self._writing:
            old = self._state
            new, events = change(old)
            if new is old:
                return
            self._state = new = replace(new, version=old.version + 1)
            self._untold.extend((event, self._listeners) for event in (*events, CatalogPublished(new.version)))
        self._tell()

    def _tell(self) -> None:
        """Drain the queue of events; whoever finds another at it leaves its events to that one."""
        while self._untold and self._telling.acquire(blocking=False):
            try:
                while self._untold:
                    event, listeners = self._untold.popleft()
                    for listener in listeners:
                        if listener not in self._listeners:
                            continue  # it unsubscribed meanwhile
                        try:
                            listener(event)
                        except Exception:
                            logger.exception("a catalog listener raised on %s", type(event).__name__)
            finally:
                self._telling.release()


def _same(one: Tool | None, other: Tool) -> bool:
    """Whether two definitions tell the same; Python's `==` alone takes `true` for `1`."""
    return one is not None and one.fingerprint == other.fingerprint and one == other
