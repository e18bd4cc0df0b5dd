"""All pages of a server's tools, read into a listing."""

from __future__ import annotations

import anyio
from mcp_types import PaginatedRequestParams

from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, SetAside, headline
from toolcrib.sources.definitions import read_definitions
from toolcrib.sources.mcp.connection import Connection

MAX_PAGES = 1_000
MAX_DEFINITIONS = 100_000
"""Pages and definitions read of one listing; a server that goes on beyond either is not followed for ever."""


async def list_all(connection: Connection, source: str, *, page_timeout_s: float) -> Listing:
    """What the server offers now, as tools of `source`.

    Raises:
        TimeoutError: a page did not come within `page_timeout_s`.
        MCPError, pydantic.ValidationError: the server refused, or answered with what is no page of tools.
    """
    session, listed = connection.session, connection.dispatcher.listed
    listed.clear()
    kept: set[str] = set()
    cursors: set[str] = set()
    warnings: list[str] = []
    ttl_ms: int | None = None
    cursor: str | None = None
    while True:
        with anyio.fail_after(page_timeout_s):
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        kept.update(tool.name for tool in page.tools)
        if "ttl_ms" in page.model_fields_set:
            ttl_ms = page.ttl_ms if ttl_ms is None else min(ttl_ms, page.ttl_ms)
        cursor = page.next_cursor
        if not cursor:
            break
        if cursor in cursors or len(cursors) >= MAX_PAGES or len(listed) >= MAX_DEFINITIONS:
            warnings.append(f"its list of tools does not end; {len(listed)} definitions were read")
            break
        cursors.add(cursor)
    tools, set_aside = read_definitions(source, listed)
    if connection.over_http:
        tools, refused = _with_fit_headers(tools, kept | connection.dispatcher.odd)
        set_aside = (*set_aside, *refused)
    info = session.server_info
    return Listing(
        tools=tools,
        title=(info.title or info.name) if info is not None else None,
        summary=headline(session.instructions) or headline(info.description if info is not None else None),
        set_aside=set_aside,
        warnings=tuple(warnings),
        ttl_s=ttl_ms / 1000 if ttl_ms else None,  # 0 is what servers say that have not thought of it
    )


def _with_fit_headers(tools: tuple[Tool, ...], fit: set[str]) -> tuple[tuple[Tool, ...], list[SetAside]]:
    """Set aside what the SDK dropped for its headers, as a client over HTTP must.

    Source: MCP 2026-07-28, "Tools", `x-mcp-header`.
    """
    refused = [
        SetAside(tool.name, "its `x-mcp-header` is not fit for a header") for tool in tools if tool.name not in fit
    ]
    return tuple(tool for tool in tools if tool.name in fit), refused
