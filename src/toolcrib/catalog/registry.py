"""The one place where the catalog changes: each change publishes a new state, then tells the listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.catalog.capabilities import Findings
from toolcrib.catalog.categories import Categories
from toolcrib.catalog.listeners import Listeners
from toolcrib.catalog.overrides import Overrides
from toolcrib.catalog.state import CatalogState, SourceEntry
from toolcrib.catalog.view import document_of
from toolcrib.core.checks import check_tool
from toolcrib.core.errors import InvalidTool, ToolNotFound
from toolcrib.core.events import CatalogPublished, Event, Listener, ToolRegistered, ToolReplaced, ToolUnregistered
from toolcrib.core.metadata import Optionality, ToolMetadata, read_optionality
from toolcrib.core.tools import Path, Tool
from toolcrib.core.values import read_path
from toolcrib.search.index.weights import Weights
from toolcrib.sources.base import EditableSource

MAX_TOLD = 20
"""Of what keeps tools from being taken in, in one error."""

_Change = tuple[CatalogState, Sequence[Event]]
"""A state that follows another, and what happened between them."""


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool in words. Source: ADR-001, `ToolDescription`."""

    tool_id: str
    description: str
    path: Path
    """Where it hangs, primarily."""
    metadata: ToolMetadata


class ToolRegistry:
    """Holds the current `CatalogState`. Readers take `state` and never wait; writers queue behind one lock.

    Listeners are told after publication, in the order of the publications, outside the lock: one may read, register or
    unsubscribe itself. Source: ADR-001, `ToolRegistry`.
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
        """The tool of this id; None where there is none."""
        return self._state.tools.get(tool_id)

    def list(self) -> tuple[Tool, ...]:
        """All tools, by id."""
        return _by_id(self._state.tools.values())

    def list_by_category(self, category: str | Sequence[str]) -> tuple[Tool, ...]:
        """The tools that hang at or below a node, given by its path, of which a string is read as `A/B`; by id.

        None where there is no such node.
        """
        state = self._state
        path = (category,) if isinstance(category, str) else tuple(category)
        branch = state.ontology.find(path) or state.ontology.find(read_path(category, "category"))
        return () if branch is None else _by_id(state.tools[tool_id] for tool_id in state.ontology.within(branch))

    def list_by_optionality(self, optionality: Optionality | str) -> tuple[Tool, ...]:
        """The tools that an agent depends on to this degree, by id.

        Raises:
            InvalidTool: `optionality` is not the value of a member of `Optionality`.
        """
        optionality = read_optionality(optionality)
        return _by_id(tool for tool in self._state.tools.values() if tool.metadata.optionality is optionality)

    def descriptions(self) -> tuple[ToolDescription, ...]:
        """What a model is told of each tool, by id. Everything that is registered: what one may see is a `View`'s."""
        state = self._state
        return tuple(
            ToolDescription(tool.id, tool.description, state.categories.places(tool)[0], tool.metadata)
            for tool in _by_id(state.tools.values())
        )

    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """The input schema of each tool, by id; likewise."""
        return {tool.id: tool.input_schema for tool in _by_id(self._state.tools.values())}

    # -- how it changes -----------------------------------------------------------------------------------------------

    def register(self, tool: Tool) -> None:
        """Take in one tool.

        Raises:
            InvalidTool: a tool of this id is there already, or what is said of it cannot be so; see `check_tool`.
        """
        self.merge((tool,))

    def merge(self, tools: Iterable[Tool] | ToolRegistry) -> None:
        """Take in several tools at once, or all of another registry with its sources: all of them, or nothing.

        What the other one has been told of categories and overrides stays with it.

        Raises:
            InvalidTool: some are there already, or cannot be taken; the message names each of the first of them.
        """
        other = tools.state if isinstance(tools, ToolRegistry) else CatalogState()
        offered = _all_offered(other) if isinstance(tools, ToolRegistry) else tuple(tools)
        problems = [*_problems(offered)]

        def add(state: CatalogState) -> _Change:
            taken = [f"`{tool.id}` is registered already" for tool in offered if tool.id in state.tools]
            taken += [
                f"another source is called `{name}`"
                for name, entry in other.sources.items()
                if name in state.sources and state.sources[name].source is not entry.source
            ]
            if found := [*problems, *taken]:
                raise InvalidTool(_told(found))
            new = {name: entry for name, entry in other.sources.items() if name not in state.sources}
            reworded = [tool for entry in new.values() for tool in _reworded(state, entry)]
            state = replace(state, sources={**state.sources, **new}) if new else state
            return self._with(state, put=(*offered, *reworded))

        self._publish(add)

    def replace(self, tool: Tool) -> None:
        """Put `tool` in the place of the one with its id, or take it in where there is none.

        Calls of the one before that are under way finish; a handle of it is stale from now on.

        Raises:
            InvalidTool: what is said of it cannot be so; see `check_tool`.
        """
        check_tool(tool)
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

    def clone(self) -> ToolRegistry:
        """Another registry that holds the same now and goes its own way; nobody is subscribed to it."""
        clone = ToolRegistry()
        clone._state = self._state
        return clone

    def put_source(self, entry: SourceEntry, tools: Iterable[Tool] | None = None) -> None:
        """Publish what is known of a source and, unless `tools` is None, exactly these as all of its tools."""
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
            moved = [
                state.offered.get(tool_id, tool)
                for tool_id, tool in state.tools.items()
                if before.places(tool) != categories.places(tool)
            ]
            return self._with(replace(state, categories=categories), put=moved)

        self._publish(change)

    def set_weights(self, weights: Weights) -> None:
        """Have searches weigh the signals so."""

        def change(state: CatalogState) -> _Change:
            is_so = state.index.weights == weights
            return state if is_so else replace(state, index=state.index.weighted(weights)), ()

        self._publish(change)

    def set_overrides(self, overrides: Overrides) -> None:
        """Have exactly these said of tools, besides what their sources say."""

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
        """Have exactly this known of capabilities."""
        self._publish(lambda state: (state if state.findings == findings else replace(state, findings=findings), ()))

    def subscribe(self, listener: Listener) -> None:
        """Tell `listener` of every event from the next publication on.

        Raises:
            RuntimeError: it is async, and no event loop is running here for it.
            TypeError: it can neither be called nor has the methods of `CatalogListener`.
        """
        with self._writing:
            self._listeners.add(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Tell it no more; no error where it was not subscribed."""
        self._listeners.remove(listener)

    @staticmethod
    def _with(state: CatalogState, *, put: Iterable[Tool] = (), drop: Iterable[str] = ()) -> _Change:
        """`put`: tools as their sources have them."""
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
        self._listeners.tell()


class RunnableRegistry(ToolRegistry):
    """A registry of tools that can be called: each belongs to a source that is there. A `Toolcrib` has one."""

    def merge(self, tools: Iterable[Tool] | ToolRegistry) -> None:
        """Take in tools as `ToolRegistry.merge` does.

        Raises:
            InvalidTool: also where no source could run one of them.
        """
        if isinstance(tools, ToolRegistry):
            self._check_sources(tools.list(), {**self.state.sources, **tools.state.sources})
        else:
            tools = tuple(tools)
            self._check_sources(tools, self.state.sources)
        super().merge(tools)

    def replace(self, tool: Tool) -> None:
        """Put `tool` in the place of the one with its id as `ToolRegistry.replace` does.

        Raises:
            InvalidTool: also where no source could run it.
        """
        self._check_sources((tool,), self.state.sources)
        super().replace(tool)

    def unregister(self, tool_id: str) -> None:
        """Let one tool go as `ToolRegistry.unregister` does, and have a source of functions let go of it as well."""
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
                problems.append(f"`{tool.id}`: there is no source `{tool.source}` that could run it")
            elif isinstance(source, EditableSource) and not source.holds(tool.name):
                problems.append(f"`{tool.id}`: `{tool.source}` has no such function")
        if problems:
            raise InvalidTool(
                f"{_told(problems)}. A definition alone cannot be called: use `crib.add` with a function or a "
                "`plain_tool`, `crib.declare` for a command or an endpoint, or `crib.add_source`"
            )


def _offered(state: CatalogState, tool_id: str) -> Tool | None:
    """The tool of this id as its source has it."""
    return state.offered.get(tool_id) or state.tools.get(tool_id)


def _all_offered(state: CatalogState) -> tuple[Tool, ...]:
    """All tools as their sources have them."""
    return tuple(state.offered.get(tool_id, tool) for tool_id, tool in state.tools.items())


def _reworded(state: CatalogState, entry: SourceEntry) -> tuple[Tool, ...]:
    """The tools among whose words is what `entry` newly says: what a source is called, and said to be for."""
    known = state.sources.get(entry.name)
    if (entry.title, entry.summary) == ((known.title, known.summary) if known is not None else (None, "")):
        return ()
    return tuple(state.offered.get(i, tool) for i, tool in state.tools.items() if tool.source == entry.name)


class _Needing:
    """Which tools need which capability, while some of them change; copies what changes, and that once."""

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
    """Why some of these cannot be taken in."""
    seen = set[str]()
    for tool in tools:
        if tool.id in seen:
            yield f"`{tool.id}` is there twice"
        seen.add(tool.id)
        try:
            check_tool(tool)
        except InvalidTool as error:
            yield error.message


def _told(problems: list[str]) -> str:
    left = len(problems) - MAX_TOLD
    return "; ".join(problems[:MAX_TOLD]) + (f"; and {left} more" if left > 0 else "")


def _by_id(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(sorted(tools, key=lambda tool: tool.id))


def _same(one: Tool | None, other: Tool) -> bool:
    """Whether two definitions tell the same; Python's `==` alone takes `true` for `1`."""
    return one is not None and one.fingerprint == other.fingerprint and one == other
