"""The responses of the discovery protocol, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, Self

from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.handles import Handle
from toolcrib.core.metadata import EXPANDED, NO_METADATA, ToolMetadata
from toolcrib.core.tools import Node, Path, ToolPointer


class Answer(Protocol):
    """The answer of an operation that shows the catalog."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """The ids of the tools in the answer, in order."""
        ...

    def in_trace(self, trace_id: str) -> Self:
        """Return this answer with the trace in its handles."""
        ...

    def to_wire(self) -> Mapping[str, Any]:
        """Return the answer as JSON."""
        ...


class DetailLevel(StrEnum):
    """How much a search shows of each tool. Source: the discovery plugin, `detail_level`."""

    NAME = "name"
    """The tool id."""
    SUMMARY = "summary"
    """A pointer."""
    FULL = "full"
    """The expansion, as from `expand_tool`."""


@dataclass(frozen=True, slots=True)
class NodePointer:
    """A category, with its number of tools. Source: discovery protocol v0.1, `list` and `search_nodes`."""

    node: Node
    tool_count: int
    """The number of tools in or below it."""
    confidence: float | None = None
    """The confidence of a search result, in [0, 1]; None if the category was listed."""

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
    """The sources that are missing from an answer, so that a model does not conclude that their tools do not exist."""

    starting: tuple[str, ...] = ()
    """The names of sources that have not listed their tools yet."""
    unavailable: tuple[str, ...] = ()
    """The names of sources that could not be listed."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {}
        if self.starting:
            wire["starting"] = list(self.starting)
        if self.unavailable:
            wire["unavailable"] = list(self.unavailable)
        return wire


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of the content of a path: categories first, then tools. Source: discovery protocol v0.1, `list`."""

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
    """A top-level category with ids of its tools. Source: the discovery plugin, `list_categories`."""

    node: Node
    tool_count: int
    """The number of tools in or below it."""
    tools: tuple[str, ...]
    """The ids of some of these tools, sorted. All pages together have each id once."""
    version: str | None = None
    """The version that the source reports, if the category is the category of a source."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"category": self.node.name, "path": list(self.node.path)}
        if self.node.summary:
            wire["summary"] = self.node.summary
        if self.version is not None:
            wire["version"] = self.version
        return {**wire, "tool_count": self.tool_count, "tools": list(self.tools)}


@dataclass(frozen=True, slots=True)
class CategoryPage:
    """One page of top-level categories, in the order of `list`. Source: the discovery plugin, `list_categories`."""

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
    """Everything a model needs to call one tool. Source: discovery protocol v0.1, `expand_tool`; we add `handle`."""

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
    """The version of its contract since it was first seen (major, minor and patch); None if it is not counted."""
    obstacle: str | None = None
    """Why a call would be refused or delayed; None if it would not."""
    warnings: tuple[str, ...] = ()
    """What a person should know about the definition."""
    often_next: tuple[str, ...] = ()
    """Ids of tools that past traces often called after this one, most often first."""

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
        if self.often_next:
            wire["often_next"] = [*self.often_next]
        return wire


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to try after an empty answer, in the form of an error's hints and next action."""

    hints: tuple[str, ...]
    next_action: NextAction

    def to_wire(self) -> dict[str, Any]:
        return {"hints": [*self.hints], "next_action": self.next_action.to_wire()}


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of found tools, best first."""

    results: tuple[ToolPointer, ...]
    next_cursor: str | None = None
    missing: Missing = Missing()
    detail_level: DetailLevel = DetailLevel.SUMMARY
    expansions: tuple[Expansion, ...] = ()
    """The expansions of `results`, with `DetailLevel.FULL`."""
    category_path: Path | None = None
    """The searched category; only set by `search_tool_by_category`."""
    suggestion: Suggestion | None = None
    """What to try next, if nothing fits the query well."""
    is_weak: bool = False
    """Whether none of `results` fits the query well: they are the closest ones."""

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
            **({"weak": True} if self.is_weak else {}),
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
    """The found categories, best first. Source: discovery protocol v0.1, `search_nodes`."""

    results: tuple[NodePointer, ...]
    missing: Missing = Missing()
    suggestion: Suggestion | None = None
    """What to try next, if nothing was found."""

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
    """Several expanded tools. A tool that cannot be expanded does not affect the others."""

    tools: tuple[Expansion, ...]
    errors: Mapping[str, ToolcribError]
    """The errors by the requested id. The JSON form repeats at most 200 characters of each id."""

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
    """Return the number of categories in `answer`; None for an answer without categories."""
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
    """Return the expansions in `answer`, for any operation."""
    match answer:
        case Expansion():
            return (answer,)
        case Expansions():
            return answer.tools
        case SearchPage():
            return answer.expansions
        case _:
            return ()
