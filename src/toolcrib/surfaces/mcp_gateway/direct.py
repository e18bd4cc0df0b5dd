"""The tools themselves as the gateway's list of tools, for clients that search and defer by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_types import methods as surfaces
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from toolcrib.catalog.view import View
from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.tools import Tool

_NOT_OURS = ("execution",)
"""Fields of a definition that promise what the gateway does not do: running a call as a task."""


def definition(tool: Tool, name: str) -> dict[str, Any]:
    """`tool` as its source sent it, under the `name` it has here; what no client would take is left out."""
    wire = {key: value for key, value in tool.wire.items() if key not in _NOT_OURS} | {"name": name}
    if _is_acceptable(wire):
        return wire
    return {"name": name, "description": tool.description, "inputSchema": dict(tool.input_schema)}


def find(view: View, name: str) -> Tool | None:
    """The visible tool that is listed as `name`."""
    tool = view.find(name)
    return tool if tool is not None and view.names.get(tool.id) == name else None


def direct_error(error: ToolcribError, view: View) -> dict[str, Any]:
    """The object of `error` for a client that has the tools and none of the operations."""
    wire = error.to_wire()
    match error.next_action:
        case NextAction("call_tool", {"tool_id": str() as handle, "arguments": arguments}):
            name = view.names.get(handle.rpartition("@")[0])
            if name is not None:
                wire["error"]["next_action"] = {"operation": name, "arguments": arguments}
                return wire
        case _:
            pass
    wire["error"].pop("next_action", None)
    return wire


def _is_acceptable(wire: Mapping[str, Any]) -> bool:
    page = {"tools": [wire], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    try:
        surfaces.validate_server_result("tools/list", LATEST_MODERN_VERSION, page)
    except ValidationError:
        return False
    return True
