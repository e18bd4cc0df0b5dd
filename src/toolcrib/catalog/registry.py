"""The registry of tools, the only place where the catalog changes. Each change publishes a new state and its events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.catalog.capabilities import Findings
from toolcrib.catalog.catalog_state import CatalogState, SourceEntry
from toolcrib.catalog.categories import Categories
from toolcrib.catalog.listeners import Listeners
from toolcrib.catalog.overrides import Overrides
from toolcrib.catalog.view import document_of
from toolcrib.core.errors import InvalidTool, ToolNotFound
from toolcrib.core.events import CatalogPublished, Event, Listener, ToolRegistered, ToolReplaced, ToolUnregistered
from toolcrib.core.metadata import Optionality, ToolMetadata, read_optionality
from toolcrib.core.tools import Path, Tool, check_tool
from toolcrib.core.values import read_path
from toolcrib.search.index.weights import Weights
from toolcrib.sources.base import EditableSource

MAX_LISTED = 20
"""How many problems one error lists."""

_Change = tuple[CatalogState, Sequence[Event]]
"""A new state, and the events that lead to it."""


@dataclass(frozen=True, slots=True)
class _ToolDescription:
    """The description of a tool for a model. Source: ADR-001, `_ToolDescription`."""

    tool_id: str
    description: str
    path: Path
    """The primary path of the tool."""
    metadata: ToolMetadata


class ToolRegistry:
    """Holds the current `CatalogState`. Readers take `state` and never wait; writers wait for one lock.

    Listeners receive events after publication, in the order of the publications, outside of the lock. So a listener can
    read, register tools or unsubscribe itself. Source: ADR-001, `ToolRegistry`.
    """

    def __init__(self) -> None:
        self._state = CatalogState()
        self._writing = threading.Lock()
        self._listeners = Listeners()

    @property
    def state(self) -> CatalogState:
        return self._state

    # -- what there is ------------------------------------------------------------------------------------------------

    def get(self, tool_id: str) -> Tool | None:
        """Return the tool with this id, or None."""
        return self._state.tools.get(tool_id)

    def list(self) -> tuple[Tool, ...]:
        """Return all tools, sorted by id."""
        return _by_id(self._state.tools.values())

    def list_by_category(self, category: str | Sequence[str]) -> tuple[Tool, ...]:
        """Return the tools in or below a category, sorted by id; none if there is no such category.

        `category` is a path, or a string such as `A/B`.
        """
        state = self._state
        path = (category,) if isinstance(category, str) else tuple(category)
        branch = state.ontology.find(path) or state.ontology.find(read_path(category, "category"))
        return () if branch is None else _by_id(state.tools[tool_id] for tool_id in state.ontology.within(branch))

    def list_by_optionality(self, optionality: Optionality | str) -> tuple[Tool, ...]:
        """Return the tools with this optionality, sorted by id.

        Raises:
            InvalidTool: `optionality` is not a value of `Optionality`.
        """
        optionality = read_optionality(optionality)
        return _by_id(tool for tool in self._state.tools.values() if tool.metadata.optionality is optionality)

    def descriptions(self) -> tuple[_ToolDescription, ...]:
        """Return the description of each registered tool, sorted by id. For what a principal can see, use a `View`."""
        state = self._state
        return tuple(
            _ToolDescription(tool.id, tool.description, state.categories.places(tool)[0], tool.metadata)
            for tool in _by_id(state.tools.values())
        )

    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the input schema of each registered tool, by id. For what a principal can see, use a `View`."""
        return {tool.id: tool.input_schema for tool in _by_id(self._state.tools.values())}

    # -- how it changes -----------------------------------------------------------------------------------------------

    def register(self, tool: Tool) -> None:
        """Register one tool.

        Raises:
            InvalidTool: a tool with this id is already registered, or the definition is invalid; see `check_tool`.
        """
        self.merge((tool,))

    def merge(self, tools: Iterable[Tool] | ToolRegistry) -> None:
        """Register several tools, or all tools and sources of a different registry: either all of them or nothing.

        Categories and overrides of the other registry are not copied.

        Raises:
            InvalidTool: some tools are already registered or invalid; the message has the first `MAX_LISTED` problems.
        """
        other = tools.state if isinstance(tools, ToolRegistry) else CatalogState()
        offered = _all_offered(other) if isinstance(tools, ToolRegistry) else tuple(tools)
        problems = [*_problems(offered)]

        def add(state: CatalogState) -> _Change:
            taken = [f"`{tool.id}` is already registered" for tool in offered if tool.id in state.tools]
            taken += [
                f"a different source is already named `{name}`"
                for name, entry in other.sources.items()
                if name in state.sources and state.sources[name].source is not entry.source
            ]
            if found := [*problems, *taken]:
                raise InvalidTool(_listed(found))
            new = {name: entry for name, entry in other.sources.items() if name not in state.sources}
            reworded = [tool for entry in new.values() for tool in _reworded(state, entry)]
            state = replace(state, sources={**state.sources, **new}) if new else state
            return self._with(state, put=(*offered, *reworded))

        self._publish(add)

    def replace(self, tool: Tool) -> None:
        """Replace the tool with the same id, or register `tool` if that id is new.

        Running calls of the old tool finish. Handles of the old tool become stale.

        Raises:
            InvalidTool: the definition is invalid; see `check_tool`.
        """
        check_tool(tool)
        self._publish(lambda state: self._with(state, put=(tool,)))

    def unregister(self, tool_id: str) -> None:
        """Unregister one tool.

        Raises:
            ToolNotFound: no tool has this id.
        """

        def drop(state: CatalogState) -> _Change:
            if tool_id not in state.tools:
                raise ToolNotFound(f"`{tool_id}` is not registered")
            return self._with(state, drop=(tool_id,))

        self._publish(drop)

    def clone(self) -> ToolRegistry:
        """Return a new registry with the same state, which changes independently and has no listeners."""
        clone = ToolRegistry()
        clone._state = self._state
        return clone

    def register_source(self, entry: SourceEntry, tools: Iterable[Tool] | None = None) -> None:
        """Publish the entry of a source. Unless `tools` is None, they replace all tools of the source."""
        offered = None if tools is None else tuple(tools)

        def put(state: CatalogState) -> _Change:
            before = {tool.id: tool for tool in _reworded(state, entry)}
            state = replace(state, sources={**state.sources, entry.name: entry})
            if offered is None:
                return self._with(state, put=before.values())
            mine = {tool_id for tool_id, tool in state.tools.items() if tool.source == entry.name}
            gone = mine.difference(tool.id for tool in offered)
            moved = (tool for tool in offered if tool.id in before or not _same(_offered(state, tool.id), tool))
            return self._with(state, put=moved, drop=gone)

        self._publish(put)

    def unregister_source(self, name: str) -> None:
        """Remove a source and its tools. This is not an error if the source is not known."""

        def drop(state: CatalogState) -> _Change:
            if name not in state.sources:
                return state, ()
            rest = {key: entry for key, entry in state.sources.items() if key != name}
            gone = [tool_id for tool_id, tool in state.tools.items() if tool.source == name]
            return self._with(replace(state, sources=rest), drop=gone)

        self._publish(drop)

    def set_categories(self, categories: Categories) -> None:
        """Set the configured categories. Tools always stay in the categories of their sources, too."""

        def change(state: CatalogState) -> _Change:
            if state.categories.digest == categories.digest:
                return state, ()
            # The names of its categories are among a tool's searched words. Only index the tools whose places changed.
            before = state.categories
            moved = [
                state.offered.get(tool_id, tool)
                for tool_id, tool in state.tools.items()
                if before.places(tool) != categories.places(tool)
            ]
            return self._with(replace(state, categories=categories), put=moved)

        self._publish(change)

    def set_weights(self, weights: Weights) -> None:
        """Set the weights of the search signals."""

        def change(state: CatalogState) -> _Change:
            is_so = state.index.weights == weights
            return state if is_so else replace(state, index=state.index.weighted(weights)), ()

        self._publish(change)

    def set_overrides(self, overrides: Overrides) -> None:
        """Set the metadata overrides, and apply them to all tools."""

        def change(state: CatalogState) -> _Change:
            if state.overrides.digest == overrides.digest:
                return state, ()
            said_before = state.offered
            moved = [
                said_before.get(tool_id, tool)
                for tool_id, tool in state.tools.items()
                if tool_id in said_before or overrides.said_of(tool) is not None
            ]
            return self._with(replace(state, overrides=overrides), put=moved)

        self._publish(change)

    def set_findings(self, findings: Findings) -> None:
        """Set what is known about capabilities."""
        self._publish(lambda state: (state if state.findings == findings else replace(state, findings=findings), ()))

    def subscribe(self, listener: Listener) -> None:
        """Send every event from the next publication on to `listener`.

        Raises:
            RuntimeError: the listener is async, and no event loop is running here.
            TypeError: the listener is not callable and does not have the methods of `CatalogListener`.
        """
        with self._writing:
            self._listeners.add(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Stop sending events to `listener`. This is not an error if it is not subscribed."""
        self._listeners.remove(listener)

    @staticmethod
    def _with(state: CatalogState, *, put: Iterable[Tool] = (), drop: Iterable[str] = ()) -> _Change:
        """Return `state` with tools added, replaced and dropped. `put` holds definitions without overrides."""
        put, drop = tuple(put), tuple(drop)
        if not put and not drop:
            return state, ()
        tools, offered, needing = dict(state.tools), state.offered, _Needing(state.needing)
        fingerprint, events = state.fingerprint, list[Event]()
        for tool_id in drop:
            gone = tools.pop(tool_id)
            fingerprint -= gone.fingerprint
            needing.change(gone, None)
            events.append(ToolUnregistered(gone))
        applied = [state.overrides.applied(tool) for tool in put] if state.overrides else put
        for tool in applied:
            before = tools.get(tool.id)
            tools[tool.id] = tool
            fingerprint += tool.fingerprint
            needing.change(before, tool)
            if before is None:
                events.append(ToolRegistered(tool))
            else:
                fingerprint -= before.fingerprint
                events += () if _same(before, tool) else (ToolReplaced(before, tool),)
        if offered or applied is not put:
            touched = {*drop, *(tool.id for tool in put)}
            left = {tool_id: tool for tool_id, tool in offered.items() if tool_id not in touched}
            offered = left | {tool.id: tool for tool, now in zip(put, applied, strict=True) if now is not tool}
        documents = (document_of(state.sources, state.categories, tool) for tool in applied)
        index = state.index.updated(added=documents, removed=drop)
        return replace(
            state, tools=tools, index=index, offered=offered, needing=needing.by_name, fingerprint=fingerprint
        ), events

    def _publish(self, change: Callable[[CatalogState], _Change]) -> None:
        with self._writing:
            old = self._state
            new, events = change(old)
            if new is old:
                return
            self._state = new = replace(new, version=old.version + 1)
            self._listeners.put((*events, CatalogPublished(new.version)))
        self._listeners.notify()


class RunnableRegistry(ToolRegistry):
    """A registry in which every tool can be called, because its source exists. A `Toolcrib` has one."""

    def merge(self, tools: Iterable[Tool] | ToolRegistry) -> None:
        """Register tools as `ToolRegistry.merge` does.

        Raises:
            InvalidTool: `ToolRegistry.merge` refuses the tools, or no source can run one of them.
        """
        if isinstance(tools, ToolRegistry):
            self._check_sources(tools.list(), {**self.state.sources, **tools.state.sources})
        else:
            tools = tuple(tools)
            self._check_sources(tools, self.state.sources)
        super().merge(tools)

    def replace(self, tool: Tool) -> None:
        """Replace a tool as `ToolRegistry.replace` does.

        Raises:
            InvalidTool: `ToolRegistry.replace` refuses the tool, or no source can run it.
        """
        self._check_sources((tool,), self.state.sources)
        super().replace(tool)

    def unregister(self, tool_id: str) -> None:
        """Unregister a tool as `ToolRegistry.unregister` does, and remove it from a source of functions."""
        super().unregister(tool_id)
        name, _, tool_name = tool_id.partition(".")
        source = self.state.sources[name].source if name in self.state.sources else None
        if isinstance(source, EditableSource) and source.holds(tool_name):
            source.remove(tool_name)

    @staticmethod
    def _check_sources(tools: Iterable[Tool], sources: Mapping[str, SourceEntry]) -> None:
        problems: list[str] = []
        for tool in tools:
            source = sources[tool.source].source if tool.source in sources else None
            if source is None:
                problems.append(f"`{tool.id}`: no source `{tool.source}` exists that could run it")
            elif isinstance(source, EditableSource) and not source.holds(tool.name):
                problems.append(f"`{tool.id}`: `{tool.source}` has no such function")
        if problems:
            raise InvalidTool(
                f"{_listed(problems)}. A definition alone cannot be called: use `crib.add` with a function or a "
                "`plain_tool`, `crib.register_declared` for a command or an endpoint, or `crib.add_source`"
            )


def _offered(state: CatalogState, tool_id: str) -> Tool | None:
    """Return the definition without overrides of the tool with this id."""
    return state.offered.get(tool_id) or state.tools.get(tool_id)


def _all_offered(state: CatalogState) -> tuple[Tool, ...]:
    """Return the definitions of all tools without overrides."""
    return tuple(state.offered.get(tool_id, tool) for tool_id, tool in state.tools.items())


def _reworded(state: CatalogState, entry: SourceEntry) -> tuple[Tool, ...]:
    """Return the tools whose searched words change, because `entry` has a new title or summary."""
    known = state.sources.get(entry.name)
    if (entry.title, entry.summary) == ((known.title, known.summary) if known is not None else (None, "")):
        return ()
    return tuple(state.offered.get(i, tool) for i, tool in state.tools.items() if tool.source == entry.name)


class _Needing:
    """The tools that need each capability, while some tools change. Each set is copied once, when it first changes."""

    def __init__(self, before: Mapping[str, frozenset[str]]) -> None:
        self._before = before
        self._changed: dict[str, set[str]] = {}

    def change(self, before: Tool | None, now: Tool | None) -> None:
        if before is not None:
            for name in before.metadata.requires_capabilities:
                self._ids(name).discard(before.id)
        if now is not None:
            for name in now.metadata.requires_capabilities:
                self._ids(name).add(now.id)

    @property
    def by_name(self) -> Mapping[str, frozenset[str]]:
        if not self._changed:
            return self._before
        after = {**self._before, **{name: frozenset(ids) for name, ids in self._changed.items()}}
        return {name: ids for name, ids in after.items() if ids}

    def _ids(self, name: str) -> set[str]:
        if name not in self._changed:
            self._changed[name] = set(self._before.get(name, ()))
        return self._changed[name]


def _problems(tools: Iterable[Tool]) -> Iterator[str]:
    """Yield why some of these tools cannot be registered."""
    seen = set[str]()
    for tool in tools:
        if tool.id in seen:
            yield f"`{tool.id}` is given twice"
        seen.add(tool.id)
        try:
            check_tool(tool)
        except InvalidTool as error:
            yield error.message


def _listed(problems: list[str]) -> str:
    left = len(problems) - MAX_LISTED
    return "; ".join(problems[:MAX_LISTED]) + (f"; and {left} more" if left > 0 else "")


def _by_id(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(sorted(tools, key=lambda tool: tool.id))


def _same(one: Tool | None, other: Tool) -> bool:
    """Return whether two definitions are equal. Python's `==` alone is not enough: it takes `true` for `1`."""
    return one is not None and one.fingerprint == other.fingerprint and one == other
