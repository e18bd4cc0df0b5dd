"""The tools of the catalog as the gateway's own list of tools, for clients that search tools themselves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import mcp_types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.catalog.access import NOTHING_CLAIMED
from toolcrib.catalog.view import View
from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.suggestions import not_found
from toolcrib.sources.base import ProgressListener
from toolcrib.sources.mcp.shapes import is_definition
from toolcrib.surfaces.mcp_gateway.gateway_answers import LISTING, as_json_result, own_refusal, page_of
from toolcrib.surfaces.mcp_gateway.gateway_clients import Clients
from toolcrib.surfaces.mcp_gateway.paged_results import PagedResults
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, principal_here, principal_of
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait

logger = logging.getLogger(__name__)

METADATA_KEY = "toolcrib/metadata"
"""The key in a definition's `_meta` for the owner's metadata, in the form of `ToolMetadata.to_wire`.

Intents are left out, because they are never shown.
"""

_NOT_OURS = ("execution",)
"""Fields of a definition that promise something the gateway does not support: calls as tasks."""


class ListedToolRequests:
    """Answers `tools/list` with every visible tool, and calls them. Listed tools need not be expanded before a call."""

    def __init__(
        self,
        crib: Toolcrib,
        clients: Clients,
        results: PagedResults,
        startup: StartupWait,
        bundle: str | None = None,
    ) -> None:
        self._crib = crib
        self._clients = clients
        self._results = results
        self._startup = startup
        self._bundle = bundle

    def answer_on(self, server: Server[dict[str, Any]]) -> None:
        """Register the handlers."""
        server.add_request_handler("tools/list", mcp_types.PaginatedRequestParams, self._list_tools)
        server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        server.get_tool_input_schema = self._input_schema

    def offered(self, view: View) -> Mapping[str, object]:
        """Return a value for each source that changes if the principal's list of tools changes. See `Notifications`."""
        sums: dict[str, int] = {}
        for tool in view.tools.values():
            # A sum, because it does not depend on the order.
            sums[tool.source] = sums.get(tool.source, 0) + hash((tool.fingerprint, view.names[tool.id]))
        return sums

    async def _list_tools(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        await self._startup.wait(principal_of(ctx))
        view = self._crib.view(principal_of(ctx), self._bundle)
        tools = {name: view.tools[tool_id] for tool_id, name in view.names.items()}
        version = ctx.protocol_version
        return page_of("tools", tools, lambda name: _definition(tools[name], name, version), params.cursor)

    async def _call_tool(self, ctx: Ctx, params: mcp_types.CallToolRequestParams) -> HandlerResult:
        await self._startup.wait(principal_of(ctx), params.name)
        view = self._crib.view(principal_of(ctx), self._bundle)
        tool = _find(view, params.name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS, f"Unknown tool: {params.name}", _direct_error(not_found(view, params.name), view)
            )
        call = {"tool_id": tool.handle, "arguments": params.arguments or {}}

        async def run_tool(context: CallContext, progress: ProgressListener | None) -> Mapping[str, Any]:
            return (await self._crib.perform("call_tool", call, context=context, progress=progress)).to_wire()

        try:
            result = await self._clients.carry(ctx, run_tool)
            return self._results.answer_to(ctx, result, keeps_structure=tool.output_schema is not None)
        except ToolcribError as error:
            if (own := own_refusal(error)) is not None:  # clients of the tool itself get its own error
                raise own from error
            again = NextAction(params.name, params.arguments or {}) if error.retryable else LISTING
            return as_json_result(_direct_error(error, view, again), is_error=True)

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema that the SDK compares with the headers of a call."""
        tool = _find(self._crib.view(principal_here(), self._bundle), name)
        return tool.input_schema if tool is not None else None


def _definition(tool: Tool, name: str, version: str) -> dict[str, Any] | None:
    """Return `tool` as its source sent it, under the `name` it has here.

    Fields that `version` does not know are removed. Returns None if no valid definition remains. One invalid definition
    would make a client reject the whole list.
    """
    sent = tool.wire or _written(tool)
    wire = {key: value for key, value in sent.items() if key not in _NOT_OURS} | {"name": name} | _meta(tool)
    without_results = {key: value for key, value in wire.items() if key != "outputSchema"}
    needed = {
        "name": name,
        "description": tool.description,
        # Arguments are always an object, whatever `type` the schema has. The protocol requires the word.
        "inputSchema": {**tool.input_schema, "type": "object"},
        **_meta(tool),
    }
    for shown in (wire, without_results, needed):
        if is_definition(shown, "tools/list", version):
            return shown
    logger.warning("%s is not listed: its definition is not valid in protocol version %s", tool.id, version)
    return None


def _written(tool: Tool) -> dict[str, Any]:
    """Return the definition of a tool that did not come over MCP."""
    wire: dict[str, Any] = {"description": tool.description, "inputSchema": tool.input_schema}
    if tool.title is not None:
        wire["title"] = tool.title
    if tool.output_schema is not None:
        wire["outputSchema"] = tool.output_schema
    if tool.annotations != NOTHING_CLAIMED:
        wire["annotations"] = tool.annotations.to_wire()
    return wire


def _meta(tool: Tool) -> dict[str, Any]:
    """Return `_meta` with the owner's metadata. A value that the source sent under the same key is removed."""
    sent = tool.wire.get("_meta")
    told = dict(cast("dict[str, Any]", sent)) if isinstance(sent, dict) else {}
    told.pop(METADATA_KEY, None)
    if said := replace(tool.metadata, intents=()).to_wire():
        told[METADATA_KEY] = said
    return {"_meta": told} if told or sent is not None else {}


def _find(view: View, name: str) -> Tool | None:
    """Return the visible tool that is listed as `name`."""
    tool = view.find(name)
    return tool if tool is not None and view.names.get(tool.id) == name else None


def _direct_error(error: ToolcribError, view: View, otherwise: NextAction = LISTING) -> dict[str, Any]:
    """Return the error object of `error` for a client that has the tools but not the operations.

    Its next action is a call of a tool by its listed name, or else `otherwise`.
    """
    step = otherwise
    match error.next_action:
        case NextAction("call_tool", {"tool_id": str() as handle, "arguments": arguments}):
            if (name := view.names.get(handle.rpartition("@")[0])) is not None:
                step = NextAction(name, arguments)
        case _:
            pass
    return error.leading_to(step).to_wire()
