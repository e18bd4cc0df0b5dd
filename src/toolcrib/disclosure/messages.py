"""Responses of the discovery protocol, in the shapes it gives them on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.catalog.ontology import Node
from toolcrib.core.errors import ToolcribError
from toolcrib.core.tools import Path, ToolExample, ToolPointer


@dataclass(frozen=True, slots=True)
class NodePointer:
    """A node, and how many tools hang at or below it. Source: discovery protocol v0.1, `list`."""

    node: Node
    tool_count: int

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "name": self.node.name,
            "path": list(self.node.path),
            "summary": self.node.summary,
            "tool_count": self.tool_count,
        }
        if self.node.tags:
            wire["tags"] = list(self.node.tags)
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

    def to_wire(self) -> dict[str, Any]:
        return {
            "path": list(self.path),
            "nodes": [node.to_wire() for node in self.nodes],
            "tools": [tool.to_wire() for tool in self.tools],
            "next_cursor": self.next_cursor,
            **self.missing.to_wire(),
        }


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of tools, best first."""

    results: tuple[ToolPointer, ...]
    next_cursor: str | None = None
    missing: Missing = Missing()

    def to_wire(self) -> dict[str, Any]:
        return {
            "results": [pointer.to_wire() for pointer in self.results],
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
    usage_hint: str | None = None
    examples: tuple[ToolExample, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "tool_id": self.tool_id,
            "handle": self.handle,
            "path": list(self.path),
            "summary": self.summary,
        }
        if self.description != self.summary:
            wire["description"] = self.description
        if self.usage_hint:
            wire["usage_hint"] = self.usage_hint
        wire["args_schema"] = dict(self.args_schema)
        if self.result_schema is not None:
            wire["result_schema"] = dict(self.result_schema)
        if self.examples:
            wire["examples"] = [
                {"description": e.description, "input": dict(e.input)} | ({"output": e.output} if e.output else {})
                for e in self.examples
            ]
        wire["annotations"] = dict(self.annotations)
        return wire


@dataclass(frozen=True, slots=True)
class Expansions:
    """Several tools expanded at once; one that could not be takes none of the others with it."""

    tools: tuple[Expansion, ...]
    errors: Mapping[str, ToolcribError]
    """By the id that was asked for, of which the wire form repeats 200 characters at most."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"tools": [tool.to_wire() for tool in self.tools]}
        if self.errors:
            wire["errors"] = [{"tool_id": asked[:200], **error.to_wire()} for asked, error in self.errors.items()]
        return wire
