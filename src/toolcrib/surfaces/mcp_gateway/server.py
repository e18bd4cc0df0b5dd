"""The MCP server itself: who answers what, and what each client is told of itself and of changes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcrib.config import Config
from toolcrib.core.client import SilentClient
from toolcrib.crib import Toolcrib, tops
from toolcrib.protocol.rules import instructions
from toolcrib.protocol.tools import OPERATIONS
from toolcrib.surfaces.mcp_gateway.answers import pass_on_whole
from toolcrib.surfaces.mcp_gateway.calls import Calls
from toolcrib.surfaces.mcp_gateway.clients import ANSWER_S, Clients, Ctx, StandingClient, askable
from toolcrib.surfaces.mcp_gateway.direct import DirectRequests
from toolcrib.surfaces.mcp_gateway.extras import ExtrasRequests
from toolcrib.surfaces.mcp_gateway.large import LargeResults
from toolcrib.surfaces.mcp_gateway.opening import Opening
from toolcrib.surfaces.mcp_gateway.operations import OperationRequests
from toolcrib.surfaces.mcp_gateway.telling import Telling
from toolcrib.version import VERSION


class _Server(Server[dict[str, Any]]):
    """The SDK's server, which tells clients of the handshake era that its lists can change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # Transports ask for these themselves and hand in nothing.
        changing = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(
            notification_options or changing, experimental_capabilities, extensions
        )


class Gateway:
    """One MCP server over one crib; entered for as long as it serves.

    Its list of tools is made from the configuration and does not move as sources start, unless it is to list the tools
    themselves (`direct`). Prompts and resources are those of the sources.
    """

    def __init__(self, crib: Toolcrib, config: Config, *, direct: bool = False, sole_client: bool = False) -> None:
        """`sole_client`: all requests come from one client."""
        self._crib = crib
        self._sole_client = sole_client
        self.introduced = anyio.Event()
        """Set when the one client has said what it can be asked for."""
        self.running = anyio.Event()
        """Set by whoever waited for that, once the crib has been entered."""
        self._stack = AsyncExitStack()
        self._clients = Clients(sole=sole_client)
        self._telling = Telling(crib, tools_are_listed=direct)
        large, opening = LargeResults(), Opening(crib)
        self._calls = Calls(crib, self._clients, large)
        self._operations = None if direct else OperationRequests(crib, self._calls, opening)
        self.server = _Server(
            "toolcrib", version=VERSION, title="Toolcrib", on_subscriptions_listen=self._telling.listen
        )
        (self._operations or DirectRequests(crib, self._calls, opening)).answer_on(self.server)
        ExtrasRequests(crib, self._clients, opening, large).answer_on(self.server)
        self.server.add_notification_handler(
            "notifications/initialized", mcp_types.NotificationParams, self._remember_connection
        )
        sealed = RequestStateBoundary(RequestStateSecurity.ephemeral(ttl=ANSWER_S), default_audience="toolcrib")
        # Outermost first: what is sealed is what goes out in the end.
        self.server.middleware += [self._introduce, sealed, pass_on_whole]
        self._describe(config)

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        self._clients.run_in(tasks)
        tasks.start_soon(self._telling.follow)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes: they must not hold up a stop."""
        self._telling.hang_up()

    async def reload(self, config: Config) -> None:
        """Describe a changed configuration, and tell every client that the tool list is another."""
        self._describe(config)
        await self._telling.tell_of_tools()

    def _describe(self, config: Config) -> None:
        self._calls.room = config.room
        if self._operations is not None:
            self._operations.describe(tops(config))
            self.server.instructions = instructions(OPERATIONS, tops(config))

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

    async def _remember_connection(self, ctx: Ctx, params: mcp_types.NotificationParams | None) -> None:
        self._telling.remember(_connection(ctx))


def _connection(ctx: Ctx) -> Connection:
    # The session is made anew for every message; the connection lives as long as the client stays.
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
