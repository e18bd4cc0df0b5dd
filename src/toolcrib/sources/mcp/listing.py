"""Reads all pages of a server's tools into a listing."""

from __future__ import annotations

from functools import partial

import anyio
from mcp_types import PaginatedRequestParams

from toolcrib.core.tools import Tool
from toolcrib.sources.aside import aside
from toolcrib.sources.base import Listing, SetAside, server_summary
from toolcrib.sources.definitions import read_definitions
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.pages import walk

SLOW_PAGES = 10
"""The whole list may take as long as this many pages may. A longer list must arrive faster per page."""


async def list_all(connection: Connection, source: str, *, page_timeout_s: float) -> Listing:
    """Return what the server offers now, as tools of `source`.

    Raises:
        TimeoutError: a page did not come within `page_timeout_s`.
        MCPError, pydantic.ValidationError: the server refused, or answered with something that is not a page of tools.
    """
    session, listed = connection.session, connection.dispatcher.listed
    listed.clear()
    kept: set[str] = set()
    times_ms: list[int] = []
    began, is_slow = anyio.current_time(), False

    async def page(cursor: str | None) -> object:
        nonlocal is_slow
        if is_slow := cursor is not None and anyio.current_time() > began + SLOW_PAGES * page_timeout_s:
            return None
        with anyio.fail_after(page_timeout_s):
            shown = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        kept.update(tool.name for tool in shown.tools)
        if "ttl_ms" in shown.model_fields_set:
            times_ms.append(shown.ttl_ms)
        return shown.next_cursor

    ends = await walk(page, lambda: len(listed)) and not is_slow
    ttl_ms = min(times_ms, default=0)
    # Their number says little about their size, so all of them are read in a thread.
    tools, set_aside = await aside(partial(read_definitions, source, [*listed]))
    tools, as_tasks = _without_tasks(tools)
    set_aside = (*set_aside, *as_tasks)
    if connection.over_http:
        tools, refused = _with_fit_headers(tools, kept | connection.dispatcher.odd)
        set_aside = (*set_aside, *refused)
    info = session.server_info
    return Listing(
        tools=tools,
        title=(info.title or info.name) if info is not None else None,
        summary=server_summary(session.instructions, info.description if info is not None else None),
        version=(info.version or None) if info is not None else None,
        set_aside=set_aside,
        warnings=() if ends else (f"its list of tools does not end; {len(listed)} definitions were read",),
        ttl_s=ttl_ms / 1000 if ttl_ms else None,  # servers that set no lifetime send 0
    )


def _without_tasks(tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], list[SetAside]]:
    """Ignore tools that can only run as a task. Source: MCP 2025-11-25, "Tasks", `execution.taskSupport`."""

    def needs_task(tool: Tool) -> bool:
        match tool.wire.get("execution"):
            case {"taskSupport": "required"}:
                return True
            case _:
                return False

    told = "it only runs as an MCP task, which Toolcrib does not support"
    aside = [SetAside(tool.name, told) for tool in tools if needs_task(tool)]
    return tuple(tool for tool in tools if not needs_task(tool)), aside


def _with_fit_headers(tools: tuple[Tool, ...], fit: set[str]) -> tuple[tuple[Tool, ...], list[SetAside]]:
    """Ignore tools that the SDK dropped because of their headers, as an HTTP client must.

    Source: MCP 2026-07-28, "Tools", `x-mcp-header`.
    """
    refused = [
        SetAside(tool.name, "its `x-mcp-header` is not a valid header name") for tool in tools if tool.name not in fit
    ]
    return tuple(tool for tool in tools if tool.name in fit), refused
