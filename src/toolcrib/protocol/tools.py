"""The operations as tool definitions: what stands in a model's own tool list instead of the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.core.schema import Schema
from toolcrib.core.tools import ToolAnnotations
from toolcrib.disclosure.operations import DEFAULT_LIMIT, MAX_EXPANDED, MAX_LIMIT
from toolcrib.protocol.rules import Top, top_names

_LOOKING = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

_PATH: Mapping[str, Any] = {"type": "array", "items": {"type": "string"}}
_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_CURSOR: Mapping[str, Any] = {"type": "string", "description": "next_cursor of the page before"}


@dataclass(frozen=True)
class OperationTool:
    """One operation, as a model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    annotations: ToolAnnotations


def operation_tools(tops: Sequence[Top] = ()) -> tuple[OperationTool, ...]:
    """The four operations of the compact set; they name the top of the catalog, or models pass them by."""
    inside = f" Inside: {top_names(tops)}." if tops else ""
    return (
        OperationTool(
            "list",
            "Browse the tools behind this server: the categories and tools at a path, or at the top without one."
            + inside,
            _schema(
                {
                    "path": {**_PATH, "description": 'e.g. ["git"]'},
                    "tags": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "only what carries all of them",
                    },
                    "query": {
                        "type": "string",
                        "description": "only tools at or below the path that match, best first",
                    },
                    "limit": _LIMIT,
                    "cursor": _CURSOR,
                }
            ),
            _LOOKING,
        ),
        OperationTool(
            "search_tools",
            "Find tools by what they do, in plain words. Gives pointers, best first; expand one to call it." + inside,
            _schema(
                {
                    "query": {"type": "string", "description": "what you want done"},
                    "category": {**_PATH, "description": "only at or below this path"},
                    "limit": _LIMIT,
                    "cursor": _CURSOR,
                },
                required=["query"],
            ),
            _LOOKING,
        ),
        OperationTool(
            "expand_tool",
            "Get what a tool takes: its description, its argument and result schemas, and its handle for call_tool.",
            _schema(
                {
                    "tool_id": {"type": "string", "description": "from list or search_tools"},
                    "tool_ids": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "maxItems": MAX_EXPANDED,
                        "description": "several at once, instead of tool_id",
                    },
                }
            ),
            _LOOKING,
        ),
        OperationTool(
            "call_tool",
            "Run a tool that was expanded.",
            _schema(
                {
                    "tool_id": {"type": "string", "description": "the handle from expand_tool"},
                    "arguments": {"type": "object", "description": "what its args_schema asks for"},
                },
                required=["tool_id"],
            ),
            ToolAnnotations(),
        ),
    )


def _schema(properties: Mapping[str, Any], required: Sequence[str] = ()) -> Mapping[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


_COMPILED = {tool.name: Schema(tool.input_schema) for tool in operation_tools()}
OPERATIONS = frozenset(_COMPILED)
"""Names of all operations."""


def operation_schema(name: str) -> Schema:
    """The compiled input schema of an operation."""
    return _COMPILED[name]
