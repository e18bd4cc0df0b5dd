"""The MCP server itself: a fixed list of operation tools, and each call passed to its operation."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import anyio
import mcp_types
import orjson
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcrib.catalog.shelf import Item
from toolcrib.catalog.view import View
from toolcrib.config import Config
from toolcrib.core.client import SilentClient
from toolcrib.core.errors import NotFound, ToolcribError
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.crib import Toolcrib, tops
from toolcrib.protocol.dispatch import perform
from toolcrib.protocol.rules import instructions
from toolcrib.protocol.tools import OPERATIONS, OperationTool, operation_tools
from toolcrib.sources.base import NO_EXTRAS
from toolcrib.surfaces.mcp_gateway.clients import ANSWER_S, Clients, Ctx, Send, StandingClient, askable
from toolcrib.surfaces.mcp_gateway.direct import definition, direct_error, find
from toolcrib.surfaces.mcp_gateway.large import PAGE_SCHEME, LargeResults
from toolcrib.surfaces.mcp_gateway.pages import page_of
from toolcrib.surfaces.mcp_gateway.results import fits, fitted
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)

LIST_TTL_MS = 300_000
"""How long a client may keep the tool list, in milliseconds; a reload of the configuration is told at once anyway."""

CATALOG_TTL_MS = 60_000
"""How long a client may keep a list of what the sources offer, in milliseconds; changes are told."""

TELL_AGAIN_S = 0.5
"""Changes that follow each other are told of together, after this long in seconds."""

_ENVELOPE = ("resultType", "_meta")
"""What the SDK says of an answer; everything else is the source's."""

FIRST_ANSWER_WAIT_S = 10.0
"""Until when after its start the gateway lets a question wait for servers that are starting, in seconds."""


_passed_on: ContextVar[list[dict[str, Any]]] = ContextVar("_passed_on")
"""Takes the upstream's answer to the request that is being handled, if it is one to pass on."""


TELLING_TIMEOUT_S = 5.0
"""How long a client may take to take a notification, in seconds; one that does not read must not hold up the others."""


class _Server(Server[dict[str, Any]]):
    """The SDK's server, which tells clients of the handshake era that its lists can change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # Transports ask for these themselves and hand in nothing.
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class Gateway:
    """One MCP server over one crib; entered for as long as it serves.

    Its list of tools is made from the configuration and does not move as sources start, unless it is to list the tools
    themselves (`direct`). Prompts and resources are those of the sources.
    """

    def __init__(self, crib: Toolcrib, config: Config, *, direct: bool = False, sole_client: bool = False) -> None:
        """`sole_client`: all requests come from one client."""
        self._crib = crib
        self._direct = direct
        self._sole_client = sole_client
        self.introduced = anyio.Event()
        """Set when the one client has said what it can be asked for."""
        self.running = anyio.Event()
        """Set by whoever waited for that, once the crib has been entered."""
        self._patient_until = anyio.current_time() + FIRST_ANSWER_WAIT_S
        self._bus = InMemorySubscriptionBus()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._listening = ListenHandler(self._bus)
        self._large = LargeResults()
        self._stack = AsyncExitStack()
        self.server = _Server(
            "toolcrib",
            version=VERSION,
            title="Toolcrib",
            on_subscriptions_listen=self._listening,
            get_tool_input_schema=self._input_schema,
        )
        # Not as arguments: their types have no place for an upstream's answer as it came.
        answer = self.server.add_request_handler
        answer("tools/list", mcp_types.PaginatedRequestParams, self._list_tools)
        answer("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        answer("prompts/list", mcp_types.PaginatedRequestParams, self._list_prompts)
        answer("prompts/get", mcp_types.GetPromptRequestParams, self._get_prompt)
        answer("resources/list", mcp_types.PaginatedRequestParams, self._list_resources)
        answer("resources/templates/list", mcp_types.PaginatedRequestParams, self._list_templates)
        answer("resources/read", mcp_types.ReadResourceRequestParams, self._read_resource)
        answer("completion/complete", mcp_types.CompleteRequestParams, self._complete)
        self.server.add_notification_handler(
            "notifications/initialized", mcp_types.NotificationParams, self._remember_connection
        )
        # Outermost first: what is sealed is what goes out in the end.
        sealed = RequestStateSecurity.ephemeral(ttl=ANSWER_S)
        self.server.middleware += [
            self._introduce,
            RequestStateBoundary(sealed, default_audience="toolcrib"),
            self._pass_on_whole,
        ]
        self._describe(config)

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        self._clients = Clients(tasks, sole=self._sole_client)
        tasks.start_soon(self._tell_of_changes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes, as the protocol does: they must not hold up a stop."""
        self._listening.close()

    async def reload(self, config: Config) -> None:
        """Describe a changed configuration, and tell every client that the tool list is another."""
        self._describe(config)
        await self._tell(ToolsListChanged(), Connection.send_tool_list_changed)

    def _describe(self, config: Config) -> None:
        top = tops(config)
        self._room = config.room
        self._tools = [] if self._direct else [_definition(tool) for tool in operation_tools(top)]
        self.server.instructions = None if self._direct else instructions(OPERATIONS, top)

    # -- tools --------------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        if self._direct:
            await self._await_sources(None)
            view = self._crib.view(LOCAL)
            tools = {name: view.tools[tool_id] for tool_id, name in view.names.items()}
            page, cursor = page_of(tools, params.cursor)
            return _list_of("tools", [definition(tools[name], name) for name in page], cursor)
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "There is one page of tools; this cursor is not of it.")
        return mcp_types.ListToolsResult(tools=self._tools, ttl_ms=LIST_TTL_MS, cache_scope="public")

    async def _call_tool(self, ctx: Ctx, params: mcp_types.CallToolRequestParams) -> HandlerResult:
        arguments = params.arguments or {}
        if self._direct:
            await self._await_sources(params.name)
        elif params.name not in OPERATIONS:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        else:
            await self._await_sources(_asked_about(params.name, arguments))
        view = self._crib.view(LOCAL)
        try:
            if self._direct:
                return await self._run(ctx, view, params.name, arguments)
            if params.name == "call_tool":
                return await self._pass_on(
                    ctx, lambda context: self._perform(ctx, view, "call_tool", arguments, context)
                )
            answer = await self._perform(ctx, view, params.name, arguments, CallContext(LOCAL))
        except ToolcribError as error:
            if not self._direct:
                return _json_result(error.to_wire(), is_error=True)
            if (own := _own_refusal(error)) is not None:  # who sees the tool itself is told what it told
                raise own from error
            return _json_result(direct_error(error, view), is_error=True)
        except MCPError:
            raise
        except Exception as error:
            logger.exception("%s failed", params.name)
            raise MCPError(INTERNAL_ERROR, "Toolcrib itself failed; its log says how.") from error
        return _json_result(answer, is_error=False)

    async def _run(self, ctx: Ctx, view: View, name: str, arguments: Mapping[str, Any]) -> HandlerResult:
        """A call of a tool that is listed itself: its client has seen what it takes."""
        tool = find(view, name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name}")
        call = {"tool_id": tool.handle, "arguments": arguments}
        return await self._pass_on(
            ctx,
            lambda context: self._perform(ctx, view, "call_tool", call, context),
            keeps_structure=tool.output_schema is not None,
        )

    async def _perform(
        self, ctx: Ctx, view: View, operation: str, arguments: Mapping[str, Any], context: CallContext
    ) -> Mapping[str, Any]:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            await ctx.session.report_progress(progress, total, message)

        wants_progress = (ctx.meta or {}).get("progress_token") is not None
        answer = await perform(
            self._crib.operations,
            view,
            operation,
            arguments,
            context,
            limits=self._crib.limits,
            progress=progress if wants_progress else None,
        )
        return answer.wire if isinstance(answer, ToolResult) else answer.to_wire()

    async def _pass_on(self, ctx: Ctx, send: Send, *, keeps_structure: bool = False) -> dict[str, Any]:
        """An answer to `tools/call` from whom it is passed to, made to fit the client."""
        answer = await self._clients.carry(ctx, send)
        if answer.get("resultType") == "input_required":
            return dict(answer)
        answer = self._large.fitted(answer, self._room, LOCAL, keeps_structure=keeps_structure)
        whole = fitted(answer, ctx.protocol_version)
        _passed_on.get().append(whole)
        return whole

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """What the SDK compares the headers of a call with. None of the operations has an argument that travels so."""
        tool = find(self._crib.view(LOCAL), name) if self._direct else None
        return tool.input_schema if tool is not None else None

    async def _await_sources(self, about: str | None) -> None:
        """Wait for the starting sources that a question is about: all of them, or those whose names are in `about`."""
        starting = self._crib.starting
        if starting and about is not None:
            starting = [name for name in starting if name in about]
        if starting and (patience_s := self._patient_until - anyio.current_time()) > 0:
            await self._crib.ready(patience_s, starting)

    # -- prompts and resources ----------------------------------------------------------------------------------------

    async def _list_prompts(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        await self._await_sources(None)
        return _items("prompts", self._crib.view(LOCAL).shelf.prompts, params.cursor)

    async def _list_resources(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        await self._await_sources(None)
        return _items("resources", self._crib.view(LOCAL).shelf.resources, params.cursor)

    async def _list_templates(self, ctx: Ctx, params: mcp_types.PaginatedRequestParams) -> HandlerResult:
        await self._await_sources(None)
        return _items("resourceTemplates", self._crib.view(LOCAL).shelf.templates, params.cursor)

    async def _get_prompt(self, ctx: Ctx, params: mcp_types.GetPromptRequestParams) -> HandlerResult:
        await self._await_sources(params.name)
        return await self._fetched(
            ctx, lambda context: self._crib.get_prompt(params.name, params.arguments, context=context)
        )

    async def _read_resource(self, ctx: Ctx, params: mcp_types.ReadResourceRequestParams) -> HandlerResult:
        uri = str(params.uri)
        if uri.startswith(PAGE_SCHEME):
            page = self._large.page(uri, LOCAL)
            if page is None:
                raise MCPError(INVALID_PARAMS, "This page is kept no longer; call the tool again.", {"uri": uri})
            return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **page}
        await self._await_sources(uri)
        return await self._fetched(ctx, lambda context: self._crib.read_resource(uri, context=context))

    async def _complete(self, ctx: Ctx, params: mcp_types.CompleteRequestParams) -> HandlerResult:
        wire = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        await self._await_sources(str(wire.get("ref")))
        return await self._fetched(ctx, lambda context: self._crib.complete(wire, context=context))

    async def _fetched(self, ctx: Ctx, send: Send) -> dict[str, Any]:
        try:
            answer = await self._clients.carry(ctx, send)
        except ToolcribError as error:
            raise _protocol_error(error) from error
        if answer.get("resultType") == "input_required":
            return dict(answer)
        whole = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer}
        if not fits(whole, ctx.method, ctx.protocol_version):
            raise MCPError(INTERNAL_ERROR, f"The server answered {ctx.method} with what is no result of that.")
        _passed_on.get().append(whole)
        return whole

    # -- clients ------------------------------------------------------------------------------------------------------

    async def _introduce(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Learn from the one client what it can be asked for, before any server is told."""
        if self._sole_client and not self.introduced.is_set() and ctx.method != "initialize":
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                self._crib.client = SilentClient(askable(ctx.session.client_capabilities))
            else:
                self._crib.client = StandingClient(_connection(ctx))
            self.introduced.set()
            await self.running.wait()
        return await call_next(ctx)

    async def _pass_on_whole(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
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
        whole = {key: value for key, value in passed_on[0].items() if key not in _ENVELOPE}
        return whole | {key: envelope[key] for key in _ENVELOPE if key in envelope}

    async def _remember_connection(self, ctx: Ctx, params: mcp_types.NotificationParams | None) -> None:
        # The session is made anew for every message; the connection lives as long as the client stays.
        self._connections.add(_connection(ctx))

    async def _tell_of_changes(self) -> None:
        """Tell clients when what the sources offer has changed: prompts, resources, and tools that are listed."""
        changed = anyio.Event()

        def listener(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                changed.set()

        told = self._offered()
        self._crib.registry.subscribe(listener)
        try:
            while True:
                await changed.wait()
                changed = anyio.Event()
                now = self._offered()
                if now.prompts != told.prompts:
                    await self._tell(PromptsListChanged(), Connection.send_prompt_list_changed)
                if now.resources != told.resources:
                    await self._tell(ResourcesListChanged(), Connection.send_resource_list_changed)
                if now.tools != told.tools:
                    await self._tell(ToolsListChanged(), Connection.send_tool_list_changed)
                told = now
                await anyio.sleep(TELL_AGAIN_S)
        finally:
            self._crib.registry.unsubscribe(listener)

    def _offered(self) -> _Offered:
        state = self._crib.registry.state
        extras = {name: entry.extras for name, entry in state.sources.items() if entry.extras != NO_EXTRAS}
        return _Offered(
            prompts={name: each.prompts for name, each in extras.items()},
            resources={name: (each.resources, each.templates) for name, each in extras.items()},
            tools=self._crib.view(LOCAL).fingerprint if self._direct else "",
        )

    async def _tell(self, event: ServerEvent, tell: Callable[[Connection], Awaitable[None]]) -> None:
        await self._bus.publish(event)
        async with anyio.create_task_group() as telling:
            for connection in [*self._connections]:
                telling.start_soon(_tell, connection, tell)


class _Offered(NamedTuple):
    """What clients have been told of."""

    prompts: Mapping[str, Any]
    resources: Mapping[str, Any]
    tools: str


def _connection(ctx: Ctx) -> Connection:
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _asked_about(operation: str, arguments: Mapping[str, Any]) -> str | None:
    """Where the names of sources would stand in the arguments of an operation; None where it is about all of them."""
    if operation not in {"expand_tool", "call_tool"}:
        return None
    return str([arguments.get("tool_id"), arguments.get("tool_ids")])  # not validated yet: of any shape


def _items(key: str, items: Mapping[str, Item], cursor: str | None) -> dict[str, Any]:
    page, following = page_of(items, cursor)
    return _list_of(key, [items[name].wire for name in page], following)


def _list_of(key: str, wires: Sequence[Mapping[str, Any]], cursor: str | None) -> dict[str, Any]:
    page: dict[str, Any] = {key: wires, "resultType": "complete", "ttlMs": CATALOG_TTL_MS, "cacheScope": "private"}
    return page if cursor is None else {**page, "nextCursor": cursor}


def _protocol_error(error: ToolcribError) -> MCPError:
    """What a client is told that asked for a prompt or a resource."""
    if (own := _own_refusal(error)) is not None:
        return own
    code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
    return MCPError(code, error.message, error.to_wire())


def _own_refusal(error: ToolcribError) -> MCPError | None:
    """A server's own refusal as it was; None where it was not the server that refused."""
    match error.details.get("upstream"):
        case {"code": int() as code, "message": str() as message, **rest}:
            return MCPError(code, message, rest.get("data"))
        case _:
            return None


async def _tell(connection: Connection, tell: Callable[[Connection], Awaitable[None]]) -> None:
    try:
        with anyio.move_on_after(TELLING_TIMEOUT_S):
            await tell(connection)
    except Exception as error:  # noqa: BLE001  one client that cannot be told must not cost the others
        logger.info("a client was not told that a list has changed: %s", error)


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
