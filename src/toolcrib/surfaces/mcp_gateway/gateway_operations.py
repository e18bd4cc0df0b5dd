"""The operations as the gateway's list of tools. The list is fixed and made from the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import mcp_types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.catalog.view import View
from toolcrib.config import Config
from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext, Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.briefing import Briefing, OperationTool, Top, briefing
from toolcrib.operations.catalog_operations import MAX_EXPANDED
from toolcrib.operations.next_actions import answer_within, leading_within
from toolcrib.operations.operation_table import CALLS, MAX_NAME_CHARS
from toolcrib.sources.base import ProgressListener
from toolcrib.surfaces.mcp_gateway.gateway_answers import LISTING, as_json_result
from toolcrib.surfaces.mcp_gateway.gateway_clients import Clients
from toolcrib.surfaces.mcp_gateway.paged_results import PagedResults
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, context_of, principal_of
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait

LIST_TTL_MS = 300_000
"""How long clients may cache the tool list, in milliseconds. A reload of the configuration notifies them earlier."""

MAX_BRIEFINGS = 1_000
"""How many tool lists are cached. A list depends on the top-level categories that a principal can see."""

_ABOUT_TOOLS: Collection[str] = {"expand_tool", *CALLS}


class OperationRequests:
    """Answers `tools/list` with the exposed operations, and performs calls of them."""

    def __init__(
        self,
        crib: Toolcrib,
        config: Config,
        clients: Clients,
        results: PagedResults,
        startup: StartupWait,
        *,
        exposed: Sequence[str],
        bundle: str | None = None,
    ) -> None:
        self._crib = crib
        self._config = config
        self._exposed = exposed
        self._clients = clients
        self._results = results
        self._startup = startup
        self._bundle = bundle
        self._briefings: dict[tuple[Top, ...], Briefing] = {}

    def answer_on(self, server: Server[dict[str, Any]]) -> None:
        """Register the handlers."""
        # Not as arguments of `Server`: their types cannot return an upstream answer unchanged.
        server.add_request_handler("tools/list", mcp_types.PaginatedRequestParams, self._list_tools)
        server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        server.get_tool_input_schema = _no_headers

    def describe(self, config: Config) -> None:
        """Describe the catalog of this configuration from now on."""
        self._config = config
        self._briefings = {}

    def offered(self, view: View) -> Mapping[str, object]:
        """Return the categories that change a principal's list of tools, as `Notifications` uses them.

        They belong to no source.
        """
        return {"": self._crib.top_level(self._config, view.principal, self._bundle)}

    async def instruct(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Add instructions with the visible top-level categories to the description of the server (middleware)."""
        answer = await call_next(ctx)
        if ctx.method in {"initialize", "server/discover"} and isinstance(answer, dict):
            answer["instructions"] = self._briefing(principal_of(ctx)).instructions
        return answer

    def _briefing(self, principal: Principal) -> Briefing:
        tops = self._crib.top_level(self._config, principal, self._bundle)
        if (told := self._briefings.get(tops)) is None:
            if len(self._briefings) >= MAX_BRIEFINGS:
                self._briefings = {}
            told = self._briefings[tops] = briefing(self._exposed, tops)
        return told

    async def _list_tools(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        if params.cursor is not None:
            raise MCPError(
                INVALID_PARAMS,
                "Invalid cursor: the list of tools has only one page. Send the request again without `cursor`.",
            )
        tools = [_definition(tool) for tool in self._briefing(principal_of(ctx)).tools]
        return mcp_types.ListToolsResult(
            tools=tools,
            ttl_ms=LIST_TTL_MS,
            cache_scope="private" if self._crib.differs_by_principal else "public",
        )

    async def _call_tool(self, ctx: Ctx, params: mcp_types.CallToolRequestParams) -> HandlerResult:
        if params.name not in self._exposed:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = params.arguments or {}
        await self._startup.wait(principal_of(ctx), asked_about(params.name, arguments))

        async def run_tool(context: CallContext, progress: ProgressListener | None) -> Mapping[str, Any]:
            return (await self._crib.perform(params.name, arguments, context=context, progress=progress)).to_wire()

        try:
            if params.name in CALLS:
                return self._results.answer_to(ctx, await self._clients.carry(ctx, run_tool))
            answer = await self._crib.perform(params.name, arguments, context=context_of(ctx))
        except ToolcribError as error:
            return as_json_result(leading_within(error, self._exposed, LISTING).to_wire(), is_error=True)
        return as_json_result(answer_within(answer, self._exposed, LISTING).to_wire(), is_error=False)


def _no_headers(name: str) -> None:
    """Return None, because no operation has an argument that travels as a header.

    Without this function, the SDK would list all tools for each call.
    """


def asked_about(operation: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the arguments that can contain names of sources, or None if the operation concerns all sources."""
    if operation not in _ABOUT_TOOLS:
        return None
    several = arguments.get("tool_ids")  # not validated yet: any type and size
    asked = [
        arguments.get("tool_id"),
        *(cast("list[object]", several)[:MAX_EXPANDED] if isinstance(several, list) else []),
    ]
    return str([each[:MAX_NAME_CHARS] for each in asked if isinstance(each, str)])


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
