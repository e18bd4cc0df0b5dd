"""The operations as the gateway's list of tools: fixed, and made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.crib import Toolcrib
from toolcrib.protocol.rules import Top
from toolcrib.protocol.tools import OPERATIONS, OperationTool, operation_tools
from toolcrib.surfaces.mcp_gateway.calls import Calls
from toolcrib.surfaces.mcp_gateway.connections import Ctx
from toolcrib.surfaces.mcp_gateway.opening import Opening
from toolcrib.surfaces.mcp_gateway.results import as_json_result

LIST_TTL_MS = 300_000
"""How long a client may keep the tool list, in milliseconds; a reload of the configuration is told at once anyway."""


class OperationRequests:
    """Answers `tools/list` with the operations, and calls of them."""

    def __init__(self, crib: Toolcrib, calls: Calls, opening: Opening) -> None:
        self._crib = crib
        self._calls = calls
        self._opening = opening
        self._tools: list[mcp_types.Tool] = []

    def answer_on(self, server: Server[dict[str, Any]]) -> None:
        """Register the handlers."""
        # Not as arguments: their types have no place for an upstream's answer as it came.
        server.add_request_handler("tools/list", mcp_types.PaginatedRequestParams, self._list_tools)
        server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        server.get_tool_input_schema = _no_headers

    def describe(self, tops: Sequence[Top]) -> None:
        """Say what the catalog holds from now on."""
        self._tools = [_definition(tool) for tool in operation_tools(tops)]

    async def _list_tools(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "There is one page of tools; this cursor is not of it.")
        return mcp_types.ListToolsResult(tools=self._tools, ttl_ms=LIST_TTL_MS, cache_scope="public")

    async def _call_tool(self, ctx: Ctx, params: mcp_types.CallToolRequestParams) -> HandlerResult:
        if params.name not in OPERATIONS:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = params.arguments or {}
        await self._opening.wait(_asked_about(params.name, arguments))
        try:
            if params.name == "call_tool":
                return await self._calls.call(ctx, arguments)
            answer = await self._crib.perform(params.name, arguments, context=CallContext(LOCAL))
        except ToolcribError as error:
            return as_json_result(error.to_wire(), is_error=True)
        return as_json_result(answer.to_wire(), is_error=False)


def _no_headers(name: str) -> None:
    """None of the operations has an argument that travels as a header; not told so, the SDK lists all for each call."""


def _asked_about(operation: str, arguments: Mapping[str, Any]) -> str | None:
    """Where the names of sources would stand in the arguments of an operation; None where it is about all of them."""
    if operation not in {"expand_tool", "call_tool"}:
        return None
    return str([arguments.get("tool_id"), arguments.get("tool_ids")])  # not validated yet: of any shape


def _definition(tool: OperationTool) -> mcp_types.Tool:
    hints = tool.annotations
    return mcp_types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )
