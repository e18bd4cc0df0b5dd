"""Reads the lists of a server: tools; and prompts, resources and templates, which may be read in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import islice
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import mcp_types
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import RootModel, ValidationError

from toolcrib.core.tools import Tool
from toolcrib.sources.aside import aside
from toolcrib.sources.base import NO_EXTRAS, Extras, Listing, SetAside, server_summary
from toolcrib.sources.mcp.connection import AT_ONCE, MAX_DEFINITIONS, WHOLE, Connection, walk
from toolcrib.sources.mcp.shapes import LIST_KEYS, is_definition
from toolcrib.sources.tool_definitions import read_definitions

logger = logging.getLogger(__name__)

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


_ListMethod = Literal["prompts/list", "resources/list", "resources/templates/list"]

_NAMES: Mapping[_ListMethod, str] = {
    "prompts/list": "name",
    "resources/list": "uri",
    "resources/templates/list": "uriTemplate",
}
"""The field that identifies a definition, by method."""


class WholeResult(RootModel[dict[str, Any]]):
    """A result as the session returns it, with the fields that the SDK's models would drop."""


class WireRequest(mcp_types.Request[dict[str, Any], str]):
    """A request with its parameters unchanged, including fields that the SDK does not know."""


async def list_extras(connection: Connection, *, page_timeout_s: float) -> tuple[Extras, tuple[str, ...]]:
    """Return what the server offers besides tools, and warnings. A list that the server refuses is empty, with a
    warning.

    Raises:
        MCPError: the connection has ended.
    """
    capabilities = connection.session.server_capabilities
    if capabilities is None or (capabilities.prompts is None and capabilities.resources is None):
        return NO_EXTRAS, ()
    warnings: list[str] = []

    async def listed(method: _ListMethod) -> tuple[Mapping[str, Any], ...]:
        try:
            definitions, odd = await _list(connection, method, page_timeout_s)
        except TimeoutError:
            warnings.append(f"it did not answer {method} within {page_timeout_s:g} s")
            return ()
        except MCPError as error:
            if not connection.is_open:
                raise
            # Many servers declare resources but do not support templates.
            if error.code != mcp_types.METHOD_NOT_FOUND:
                warnings.append(f"it refused {method}: {error.message}")
            return ()
        except ValidationError:
            warnings.append(f"it answered {method} with something that is not a list")
            return ()
        warnings.extend(odd)
        return definitions

    prompts = await listed("prompts/list") if capabilities.prompts is not None else ()
    with_resources = capabilities.resources is not None
    resources = await listed("resources/list") if with_resources else ()
    templates = await listed("resources/templates/list") if with_resources else ()
    return Extras(prompts, resources, templates), tuple(warnings)


async def _list(
    connection: Connection, method: _ListMethod, page_timeout_s: float
) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """Return all usable definitions, the first of those with the same name, and a warning about the others."""
    name = _NAMES[method]
    kept: dict[str, Mapping[str, Any]] = {}
    read, odd = 0, 0

    async def page(cursor: str | None) -> object:
        nonlocal read, odd
        request = WireRequest(method=method, params={"cursor": cursor} if cursor else {})
        with anyio.fail_after(page_timeout_s):
            result = (await connection.session.send_request(request, WholeResult)).root[WHOLE]
        wires = result.get(LIST_KEYS[method])
        for wire in islice(cast("list[object]", wires) if isinstance(wires, list) else (), MAX_DEFINITIONS - read):
            read += 1
            if read % AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            if is_definition(wire, method, LATEST_MODERN_VERSION):
                kept.setdefault(cast("dict[str, str]", wire)[name], cast("dict[str, Any]", wire))
            else:
                odd += 1
        return result.get("nextCursor")

    ends = await walk(page, lambda: read)
    warnings = [] if ends else [f"its answers to {method} do not end; {read} definitions were read"]
    if odd:
        warnings.append(f"{odd} of the definitions in its answers to {method} are invalid")
    return tuple(kept.values()), warnings


EXTRAS_WAIT_S = 2.0
"""How long the tools of a server wait for its prompts and resources, in seconds."""

InBackground = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Runs a coroutine in the background."""


class LateExtras:
    """The prompts and resources of one connection. Tools do not wait for them, and late ones are reported as a
    change."""

    def __init__(
        self, name: str, *, page_timeout_s: float, in_background: InBackground, came: Callable[[], None]
    ) -> None:
        """`name` is the server's. `came` is called when late prompts and resources are there for the next listing."""
        self._name = name
        self._page_timeout_s = page_timeout_s
        self._in_background = in_background
        self._came = came
        self._late: tuple[Extras, tuple[str, ...]] | None = None
        """What arrived after the tools were listed, until the next listing takes it."""
        self._is_waiting = False

    async def list(self, connection: Connection) -> tuple[Extras, tuple[str, ...]]:
        """Return what the server offers besides tools, and warnings about it, if it comes soon; otherwise nothing for
        now.

        Raises:
            MCPError: the connection has ended.
        """
        if self._late is not None:
            late, self._late = self._late, None
            return late
        with anyio.move_on_after(EXTRAS_WAIT_S):
            return await list_extras(connection, page_timeout_s=self._page_timeout_s)
        if not self._is_waiting:
            self._is_waiting = True
            self._in_background(partial(self._wait, connection))
        return NO_EXTRAS, ()

    async def _wait(self, connection: Connection) -> None:
        try:
            self._late = await list_extras(connection, page_timeout_s=self._page_timeout_s)
        except MCPError as error:
            logger.info(
                "source %s: the connection ended before it listed its prompts and resources: %s", self._name, error
            )
        else:
            self._came()
        finally:
            self._is_waiting = False
