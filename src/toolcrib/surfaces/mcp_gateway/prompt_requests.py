"""Requests of clients for prompts, resources and completions of the sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolcrib.catalog.prompts_and_resources import Item, PromptsAndResources
from toolcrib.core.errors import ToolcribError
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.mcp.shapes import fits
from toolcrib.surfaces.mcp_gateway.gateway_answers import page_of, protocol_error, whole
from toolcrib.surfaces.mcp_gateway.gateway_clients import Clients, Send
from toolcrib.surfaces.mcp_gateway.paged_results import PAGE_SCHEME, PagedResults
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, bundle_of, principal_of
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait


class PromptAndResourceRequests:
    """Answers requests for prompts and resources. Pages of large results are resources too."""

    def __init__(self, crib: Toolcrib, clients: Clients, startup: StartupWait, results: PagedResults) -> None:
        self._crib = crib
        self._clients = clients
        self._startup = startup
        self._results = results

    def answer_on(self, server: Server[dict[str, Any]]) -> None:
        """Register the handlers."""
        # Not as arguments of `Server`: their types cannot return an upstream answer unchanged.
        server.add_request_handler("prompts/list", mcp_types.PaginatedRequestParams, self._list_prompts)
        server.add_request_handler("prompts/get", mcp_types.GetPromptRequestParams, self._get_prompt)
        server.add_request_handler("resources/list", mcp_types.PaginatedRequestParams, self._list_resources)
        server.add_request_handler("resources/templates/list", mcp_types.PaginatedRequestParams, self._list_templates)
        server.add_request_handler("resources/read", mcp_types.ReadResourceRequestParams, self._read_resource)
        server.add_request_handler("completion/complete", mcp_types.CompleteRequestParams, self._complete)

    async def _list_prompts(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        return _page("prompts", (await self._offered(ctx)).prompts, params.cursor)

    async def _list_resources(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        return _page("resources", (await self._offered(ctx)).resources, params.cursor)

    async def _list_templates(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        return _page("resourceTemplates", (await self._offered(ctx)).templates, params.cursor)

    async def _offered(self, ctx: Ctx) -> PromptsAndResources:
        await self._startup.wait(principal_of(ctx))
        return self._crib.view(principal_of(ctx), bundle_of(ctx)).prompts_and_resources

    async def _get_prompt(self, ctx: Ctx, params: mcp_types.GetPromptRequestParams) -> HandlerResult:
        await self._startup.wait(principal_of(ctx), params.name)
        return await self._fetched(
            ctx, lambda context, _: self._crib.get_prompt(params.name, params.arguments, context=context)
        )

    async def _read_resource(self, ctx: Ctx, params: mcp_types.ReadResourceRequestParams) -> HandlerResult:
        uri = str(params.uri)
        if uri.startswith(PAGE_SCHEME):
            page = self._results.page(uri, principal_of(ctx))
            if page is None:
                raise MCPError(INVALID_PARAMS, "This page has expired. Call the tool again.", {"uri": uri})
            return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **page}
        await self._startup.wait(principal_of(ctx), uri)
        return await self._fetched(ctx, lambda context, _: self._crib.read_resource(uri, context=context))

    async def _complete(self, ctx: Ctx, params: mcp_types.CompleteRequestParams) -> HandlerResult:
        wire = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        await self._startup.wait(principal_of(ctx), str(wire.get("ref")))
        return await self._fetched(ctx, lambda context, _: self._crib.complete(wire, context=context))

    async def _fetched(self, ctx: Ctx, send: Send) -> HandlerResult:
        try:
            answer = await self._clients.carry(ctx, send)
        except ToolcribError as error:
            raise protocol_error(error) from error
        if answer.get("resultType") == "input_required":
            return dict(answer)
        answer = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer}
        if not fits(answer, ctx.method, ctx.protocol_version):
            raise MCPError(INTERNAL_ERROR, f"The server's answer to {ctx.method} is not a valid result.")
        return whole(answer)


def _page(key: str, items: Mapping[str, Item], cursor: str | None) -> dict[str, Any]:
    return page_of(key, items, lambda name: items[name].wire, cursor)
