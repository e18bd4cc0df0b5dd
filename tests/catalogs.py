"""Small catalogs for tests: real registries with scripted sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import Principal
from toolcrib.core.tools import Path, Tool
from toolcrib.search.index.weights import WEIGHTS, Weights
from toolcrib.testing.scripted_source import ScriptedSource


def tool(
    tool_id: str,
    description: str = "",
    *,
    category: Path = (),
    tags: tuple[str, ...] = (),
    properties: Mapping[str, Any] | None = None,
    required: tuple[str, ...] = (),
) -> Tool:
    """Return a tool that its source places in `category`. With `properties`, the tool accepts nothing else."""
    source, _, name = tool_id.partition(".")
    metadata = ToolMetadata(tags=tags)
    if properties is None:
        return Tool(source, name, description, metadata=metadata, own_path=category)
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(source, name, description, schema, metadata=metadata, own_path=category)


def registry_of(*tools: Tool) -> ToolRegistry:
    """Return a registry in which the source of every tool is ready."""
    registry = ToolRegistry()
    for name in dict.fromkeys(tool.source for tool in tools):
        mine = [tool for tool in tools if tool.source == name]
        registry.register_source(SourceEntry(ScriptedSource(name, mine), SourceStatus.READY), mine)
    return registry


def view_of(*tools: Tool, principal: str = "local", weights: Weights = WEIGHTS) -> View:
    registry = registry_of(*tools)
    registry.set_weights(weights)
    return View.of(registry.state, Principal(principal))


def source_of(view: View, name: str) -> ScriptedSource:
    source = view.sources[name].source
    assert isinstance(source, ScriptedSource)
    return source
