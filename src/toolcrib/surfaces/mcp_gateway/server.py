"""The MCP server itself: a fixed list of operation tools, and each call passed to its operation."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

import anyio
import mcp_types
import orjson
from mcp.server import ServerRequestContext
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.crib import Toolcrib
from toolcrib.protocol.dispatch import perform
from toolcrib.protocol.rules import Top, instructions
from toolcrib.protocol.tools import OPERATIONS, OperationTool, operation_tools
from toolcrib.surfaces.mcp_gateway.results import fitted
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)

LIST_TTL_MS = 300_000
"""How long a client may keep the tool list, in milliseconds; a reload of the configuration is told at once anyway."""

FIRST_ANSWER_WAIT_S = 10.0
"""Until when after its start the gateway lets a question wait for servers that are starting, in seconds."""


_passed_on: ContextVar[list[dict[str, Any]]] = ContextVar("_passed_on")
"""Takes the upstream's answer to the request that is being handled, if it is one to pass on."""


TELLING_TIMEOUT_S = 5.0
"""How long a client may take to take a notification, in seconds; one that does not read must not hold up the others."""


class _Server(Server[dict[str, Any]]):
    """The SDK's server, which tells clients of the handshake era that its list of tools can change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # Transports ask for these themselves and hand in nothing.
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class Gateway:
    """One MCP server over one crib. Its tool list is made from the configuration: it does not move as sources start."""

    def __init__(self, crib: Toolcrib, tops: Sequence[Top]) -> None:
        self._crib = crib
        self._patient_until = anyio.current_time() + FIRST_ANSWER_WAIT_S
        self._bus = InMemorySubscriptionBus()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._listening = ListenHandler(self._bus)
        self.server = _Server(
            "toolcrib",
            version=VERSION,
            title="Toolcrib",
            on_list_tools=self._list_tools,
            on_subscriptions_listen=self._listening,
        )
        # Not `on_call_tool`: its type has no place for an upstream's answer as it came.
        self.server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        self.server.add_notification_handler(
            "notifications/initialized", mcp_types.NotificationParams, self._remember_connection
        )
        self.server.middleware.append(self._pass_on_whole)
        self._describe(tops)

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes, as the protocol does: they must not hold up a stop."""
        self._listening.close()

    async def reload(self, tops: Sequence[Top]) -> None:
        """Describe a changed configuration, and tell every client that the tool list is another."""
        self._describe(tops)
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as telling:
            for connection in [*self._connections]:
                telling.start_soon(_tell, connection)

    def _describe(self, tops: Sequence[Top]) -> None:
        self._tools = [_definition(tool) for tool in operation_tools(tops)]
        self.server.instructions = instructions(OPERATIONS, tops)

    async def _list_tools(
        self, ctx: ServerRequestContext[dict[str, Any]], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        if params is not None and params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "There is one page of tools; this cursor is not of it.")
        return mcp_types.ListToolsResult(tools=self._tools, ttl_ms=LIST_TTL_MS, cache_scope="public")

    async def _call_tool(
        self, ctx: ServerRequestContext[dict[str, Any]], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult | dict[str, Any]:
        if params.name not in OPERATIONS:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            await ctx.session.report_progress(progress, total, message)

        await self._await_sources(params.name, params.arguments or {})
        try:
            answer = await perform(
                self._crib.operations,
                self._crib.view(LOCAL),
                params.name,
                params.arguments or {},
                CallContext(LOCAL),
                progress=progress if (ctx.meta or {}).get("progress_token") is not None else None,
            )
        except ToolcribError as error:
            return _json_result(error.to_wire(), is_error=True)
        except Exception as error:
            logger.exception("%s failed", params.name)
            raise MCPError(INTERNAL_ERROR, "Toolcrib itself failed; its log says how.") from error
        if isinstance(answer, ToolResult):
            whole = fitted(answer, ctx.protocol_version)
            _passed_on.get().append(whole)
            return whole
        return _json_result(answer.to_wire(), is_error=False)

    async def _await_sources(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Wait for the starting sources that a question is about: all of them, or those of the tools it names."""
        starting = self._crib.starting
        if starting and operation in {"expand_tool", "call_tool"}:
            asked = str([arguments.get("tool_id"), arguments.get("tool_ids")])  # not validated yet: of any shape
            starting = [name for name in starting if name in asked]
        if starting and (patience_s := self._patient_until - anyio.current_time()) > 0:
            await self._crib.ready(patience_s, starting)

    async def _pass_on_whole(self, ctx: ServerRequestContext[dict[str, Any]], call_next: CallNext) -> HandlerResult:
        """Give back to an upstream's answer the fields that the SDK, which lets through only those it knows, took."""
        passed_on: list[dict[str, Any]] = []
        token = _passed_on.set(passed_on)
        try:
            shaped = await call_next(ctx)
        finally:
            _passed_on.reset(token)
        if not passed_on:
            return shaped
        envelope = cast("dict[str, Any]", shaped)
        whole = {key: value for key, value in passed_on[0].items() if key != "resultType"}
        return whole | {key: envelope[key] for key in ("resultType", "_meta") if key in envelope}

    async def _remember_connection(
        self, ctx: ServerRequestContext[dict[str, Any]], params: mcp_types.NotificationParams | None
    ) -> None:
        # The session is made anew for every message; the connection lives as long as the client stays.
        self._connections.add(ctx.session._connection)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def _tell(connection: Connection) -> None:
    try:
        with anyio.move_on_after(TELLING_TIMEOUT_S):
            await connection.send_tool_list_changed()
    except Exception as error:  # noqa: BLE001  one client that cannot be told must not cost the others
        logger.info("a client was not told that the list of tools has changed: %s", error)


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


def _json_result(value: Mapping[str, Any], *, is_error: bool) -> mcp_types.CallToolResult:
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits in somebody's schema
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=text)], structured_content=dict(value), is_error=is_error
    )
