"""Responses of the discovery protocol, in the shapes it gives them on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, Self

from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.handles import Handle
from toolcrib.core.metadata import EXPANDED, NO_METADATA, ToolMetadata
from toolcrib.core.nodes import Node
from toolcrib.core.tools import Path, ToolPointer


class Answer(Protocol):
    """What an operation that shows the catalog answers."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """The tools it shows, in order."""
        ...

    def in_trace(self, trace_id: str) -> Self:
        """The same, where its handles say which trace they were given out in."""
        ...

    def to_wire(self) -> Mapping[str, Any]: ...


class DetailLevel(StrEnum):
    """How much of a tool a search tells. Source: the discovery plugin, `detail_level`."""

    NAME = "name"
    """Its id."""
    SUMMARY = "summary"
    """A pointer."""
    FULL = "full"
    """Its expansion, as `expand_tool` gives it."""


@dataclass(frozen=True, slots=True)
class NodePointer:
    """A node, and how many tools hang at or below it. Source: discovery protocol v0.1, `list` and `search_nodes`."""

    node: Node
    tool_count: int
    confidence: float | None = None
    """In [0, 1], where the node was searched for."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"name": self.node.name, "path": list(self.node.path)}
        if self.node.title and self.node.title != self.node.name:
            wire["title"] = self.node.title
        wire |= {"summary": self.node.summary, "tool_count": self.tool_count}
        if self.node.tags:
            wire["tags"] = list(self.node.tags)
        if self.confidence is not None:
            wire["confidence"] = self.confidence
        return wire


@dataclass(frozen=True, slots=True)
class Missing:
    """What an answer cannot speak of yet: said, so that its absence is not taken for an answer."""

    starting: tuple[str, ...] = ()
    """Sources that have not listed their tools yet."""
    unavailable: tuple[str, ...] = ()
    """Sources that could not be listed."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {}
        if self.starting:
            wire["starting"] = list(self.starting)
        if self.unavailable:
            wire["unavailable"] = list(self.unavailable)
        return wire


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of what stands at a path: nodes first, then tools. Source: discovery protocol v0.1, `list`."""

    path: Path
    nodes: tuple[NodePointer, ...]
    tools: tuple[ToolPointer, ...]
    next_cursor: str | None = None
    missing: Missing = Missing()

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(tool.tool_id for tool in self.tools)

    def in_trace(self, trace_id: str) -> Self:
        return self

    def to_wire(self) -> dict[str, Any]:
        return {
            "path": list(self.path),
            "nodes": [node.to_wire() for node in self.nodes],
            "tools": [tool.to_wire() for tool in self.tools],
            "next_cursor": self.next_cursor,
            **self.missing.to_wire(),
        }


@dataclass(frozen=True, slots=True)
class CategoryPointer:
    """A node at the top of the catalog, and ids of tools in it. Source: the discovery plugin, `list_categories`."""

    node: Node
    tool_count: int
    """Tools at or below it."""
    tools: tuple[str, ...]
    """Ids of some of them, sorted; a walk over all pages has each once."""
    version: str | None = None
    """Which version its source says it is of, where it is a source."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"category": self.node.name, "path": list(self.node.path)}
        if self.node.summary:
            wire["summary"] = self.node.summary
        if self.version is not None:
            wire["version"] = self.version
        return {**wire, "tool_count": self.tool_count, "tools": list(self.tools)}


@dataclass(frozen=True, slots=True)
class CategoryPage:
    """One page of what stands at the top, in the order of a list. Source: the discovery plugin, `list_categories`."""

    categories: tuple[CategoryPointer, ...]
    next_cursor: str | None = None
    missing: Missing = Missing()

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tool_id for category in self.categories for tool_id in category.tools))

    def in_trace(self, trace_id: str) -> Self:
        return self

    def to_wire(self) -> dict[str, Any]:
        return {
            "categories": [category.to_wire() for category in self.categories],
            "next_cursor": self.next_cursor,
            **self.missing.to_wire(),
        }


@dataclass(frozen=True, slots=True)
class Expansion:
    """All that a model needs to call one tool. Source: discovery protocol v0.1, `expand_tool`; `handle` is ours."""

    tool_id: str
    handle: str
    path: Path
    summary: str
    description: str
    args_schema: Mapping[str, Any]
    result_schema: Mapping[str, Any] | None
    annotations: Mapping[str, bool]
    metadata: ToolMetadata = NO_METADATA
    version: str | None = None
    """Major, minor and patch of its contract since it was first seen; None where nobody counts."""
    obstacle: str | None = None
    """Why a call would be refused or put off, if it would."""
    warnings: tuple[str, ...] = ()
    """What a person should know of the definition."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return (self.tool_id,)

    def in_trace(self, trace_id: str) -> Self:
        handle = Handle.parse(self.handle)
        return self if handle is None else replace(self, handle=str(replace(handle, trace_id=trace_id)))

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "tool_id": self.tool_id,
            "handle": self.handle,
            "path": list(self.path),
            "summary": self.summary,
        }
        if self.description != self.summary:
            wire["description"] = self.description
        said = {key: value for key, value in self.metadata.to_wire().items() if key in EXPANDED}
        examples = said.pop("examples", None)
        wire |= said
        wire["args_schema"] = dict(self.args_schema)
        if self.result_schema is not None:
            wire["result_schema"] = dict(self.result_schema)
        if examples is not None:
            wire["examples"] = examples
        wire["annotations"] = dict(self.annotations)
        if self.version is not None:
            wire["version"] = self.version
        if self.obstacle is not None:
            wire["obstacle"] = self.obstacle
        if self.warnings:
            wire["warnings"] = [*self.warnings]
        return wire


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What leads on from an answer in which there is nothing, in the words of errors."""

    hints: tuple[str, ...]
    next_action: NextAction

    def to_wire(self) -> dict[str, Any]:
        return {"hints": [*self.hints], "next_action": self.next_action.to_wire()}


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of tools, best first."""

    results: tuple[ToolPointer, ...]
    next_cursor: str | None = None
    missing: Missing = Missing()
    detail_level: DetailLevel = DetailLevel.SUMMARY
    expansions: tuple[Expansion, ...] = ()
    """With `DetailLevel.FULL`, those of `results`."""
    category_path: Path | None = None
    """Where it was searched, said by `search_tool_by_category` alone."""
    suggestion: Suggestion | None = None
    """Where nothing was found for a query."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(pointer.tool_id for pointer in self.results)

    def in_trace(self, trace_id: str) -> Self:
        return replace(self, expansions=tuple(each.in_trace(trace_id) for each in self.expansions))

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {} if self.category_path is None else {"category_path": list(self.category_path)}
        return {
            **wire,
            "results": self._results(),
            "next_cursor": self.next_cursor,
            **self.missing.to_wire(),
            **(self.suggestion.to_wire() if self.suggestion is not None else {}),
        }

    def _results(self) -> list[dict[str, Any]]:
        pointers = [pointer.to_wire() for pointer in self.results]
        match self.detail_level:
            case DetailLevel.NAME:
                return [{"tool_id": pointer["tool_id"]} for pointer in pointers]
            case DetailLevel.SUMMARY:
                return pointers
            case DetailLevel.FULL:
                expanded = [expansion.to_wire() for expansion in self.expansions]
                return [{**pointer, **whole} for pointer, whole in zip(pointers, expanded, strict=True)]


@dataclass(frozen=True, slots=True)
class NodePage:
    """Nodes, best first. Source: discovery protocol v0.1, `search_nodes`."""

    results: tuple[NodePointer, ...]
    missing: Missing = Missing()
    suggestion: Suggestion | None = None
    """Where nothing was found."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return ()

    def in_trace(self, trace_id: str) -> Self:
        return self

    def to_wire(self) -> dict[str, Any]:
        wire = {"results": [node.to_wire() for node in self.results], **self.missing.to_wire()}
        return wire if self.suggestion is None else wire | self.suggestion.to_wire()


@dataclass(frozen=True, slots=True)
class Expansions:
    """Several tools expanded at once; one that could not be takes none of the others with it."""

    tools: tuple[Expansion, ...]
    errors: Mapping[str, ToolcribError]
    """By the id that was asked for, of which the wire form repeats 200 characters at most."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(tool.tool_id for tool in self.tools)

    def in_trace(self, trace_id: str) -> Self:
        return replace(self, tools=tuple(each.in_trace(trace_id) for each in self.tools))

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"tools": [tool.to_wire() for tool in self.tools]}
        if self.errors:
            wire["errors"] = [{"tool_id": asked[:200], **error.to_wire()} for asked, error in self.errors.items()]
        return wire


def node_count_of(answer: object) -> int | None:
    """How many nodes stand in `answer`; None for an answer that is not about nodes."""
    match answer:
        case ListPage():
            return len(answer.nodes)
        case CategoryPage():
            return len(answer.categories)
        case NodePage():
            return len(answer.results)
        case _:
            return None


def expanded_by(answer: Answer) -> tuple[Expansion, ...]:
    """The tools whose definitions stand in `answer`, whichever operation gave it."""
    match answer:
        case Expansion():
            return (answer,)
        case Expansions():
            return answer.tools
        case SearchPage():
            return answer.expansions
        case _:
            return ()
