"""The MCP server: its handlers, its middleware, and the notifications about changes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolcrib.config import Config
from toolcrib.core.client import ANSWER_S, Client, SilentClient
from toolcrib.core.principal import Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.operation_table import ALL, DEFAULT_SET, chosen
from toolcrib.surfaces.mcp_gateway.client_logs import answer_set_level
from toolcrib.surfaces.mcp_gateway.gateway_answers import pass_on_whole
from toolcrib.surfaces.mcp_gateway.gateway_clients import Clients
from toolcrib.surfaces.mcp_gateway.gateway_operations import OperationRequests
from toolcrib.surfaces.mcp_gateway.listed_tools import ListedToolRequests
from toolcrib.surfaces.mcp_gateway.notifications import Notifications
from toolcrib.surfaces.mcp_gateway.paged_results import PagedResults
from toolcrib.surfaces.mcp_gateway.prompt_requests import PromptAndResourceRequests
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, askable, connection_of, principal_of, state_of, stay_of
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait
from toolcrib.surfaces.mcp_gateway.subscriptions import Subscriptions
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)


class _Server(Server[dict[str, Any]]):
    """The SDK's server, which announces to clients of the handshake era that its lists can change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # Transports call this without arguments.
        changing = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(
            notification_options or changing, experimental_capabilities, extensions
        )


class Gateway:
    """One MCP server over one crib. Enter it after the crib, for as long as it serves.

    Its list of tools comes from the configuration and does not change while sources start, unless it lists the tools
    themselves. Prompts and resources are those of the sources.
    """

    def __init__(
        self,
        crib: Toolcrib,
        config: Config,
        *,
        principal: Principal | None = None,
        exposed: str | Sequence[str] = DEFAULT_SET,
        bundle: str | None = None,
        startup: StartupWait | None = None,
        on_introduced: Callable[[Client], Awaitable[None]] | None = None,
    ) -> None:
        """`principal` is the principal of all clients behind a pipe. Over HTTP it is None: each request has its own.

        `exposed` is one of `SETS`, a list of operations, or `ALL` for the tools themselves. With `bundle`, only the
        contents of the bundle exist for clients. `startup` is the phase of another gateway over the same crib, which
        begins it.

        `on_introduced` is for a gateway with a single client. It is called once, before the first answer, with the
        client and its capabilities.
        """
        self._on_introduced = on_introduced
        self._introducing = anyio.Lock()
        self._stack = AsyncExitStack()
        self._clients = Clients(sole=on_introduced is not None)
        self._begins = startup is None
        self.startup = startup = startup or StartupWait(crib)
        self._results = PagedResults()
        self._results.room = config.room
        self._operations = (
            OperationRequests(
                crib, config, self._clients, self._results, startup, exposed=chosen(exposed), bundle=bundle
            )
            if exposed != ALL
            else None
        )
        requests = self._operations or ListedToolRequests(crib, self._clients, self._results, startup, bundle)
        self._notifications = Notifications(crib, requests.offered, bundle, tools_are_listed=self._operations is None)
        self._subscriptions = Subscriptions(crib, self._notifications, startup, bundle)
        self.server = _Server(
            "toolcrib",
            version=VERSION,
            title="Toolcrib",
            lifespan=lambda _: nullcontext(state_of(principal, bundle)),
            on_subscriptions_listen=self._subscriptions.listen,
        )
        requests.answer_on(self.server)
        PromptAndResourceRequests(crib, self._clients, startup, self._results).answer_on(self.server)
        self._subscriptions.answer_on(self.server)
        answer_set_level(self.server)
        self.server.add_notification_handler(
            "notifications/initialized", mcp_types.NotificationParams, self._remember_connection
        )
        sealed = RequestStateBoundary(RequestStateSecurity.ephemeral(ttl=ANSWER_S), default_audience="toolcrib")
        # Outermost first. `sealed` must wrap the final answer.
        if principal is None:
            self.server.middleware.append(_end_with_stay)
        if on_introduced is not None:
            self.server.middleware.append(self._introduce)
        self.server.middleware += [_hide_internal_errors, sealed, pass_on_whole]
        if self._operations is not None:
            self.server.middleware.append(self._operations.instruct)

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        self._clients.run_in(tasks)
        tasks.start_soon(self._notifications.follow)
        if self._on_introduced is None and self._begins:
            self.startup.begin()
        tasks.start_soon(self._subscriptions.follow)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes, so that they do not delay a stop."""
        self._notifications.hang_up()

    def reload(self, config: Config) -> None:
        """Describe the configuration that the crib just applied, and notify the clients whose lists changed."""
        self._results.room = config.room
        if self._operations is not None:
            self._operations.describe(config)
        self._notifications.compare_all()
        self._subscriptions.check_access()

    async def _introduce(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        if self._on_introduced is not None and (client := self._client_of(ctx)) is not None:
            async with self._introducing:
                if (introduced := self._on_introduced) is not None:
                    await introduced(client)
                    self._on_introduced = None
                    self.server.middleware.remove(self._introduce)
        return await call_next(ctx)

    def _client_of(self, ctx: Ctx) -> Client | None:
        """Return the client at the other end, or None until it has introduced itself."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return SilentClient(askable(ctx.session.client_capabilities))
        connection = connection_of(ctx)
        return self._clients.between_requests(connection) if connection.initialize_accepted else None

    async def _remember_connection(self, ctx: Ctx, params: mcp_types.NotificationParams | None) -> None:
        self._notifications.remember(connection_of(ctx), principal_of(ctx))


async def _end_with_stay(ctx: Ctx, call_next: CallNext) -> HandlerResult:
    """Stop the request when its stay ends, and tell the client why."""
    if (stay := stay_of(ctx)) is None:
        return await call_next(ctx)
    with stay.lasting():
        return await call_next(ctx)
    raise MCPError(
        INVALID_REQUEST, f"The request was ended. {stay.refusal.message if stay.refusal is not None else ''}"
    )


async def _hide_internal_errors(ctx: Ctx, call_next: CallNext) -> HandlerResult:
    """Hide internal errors from clients. They go to the log, because their text may contain anything."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):  # meant for clients: protocol errors and invalid parameters
        raise
    except Exception as error:
        logger.exception("%s failed", ctx.method)
        raise MCPError(INTERNAL_ERROR, "Internal error. See the gateway's log.") from error
