"""The gateway over streamable HTTP: stateless for clients of the newer era, with sessions for older ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolcrib.config import Config
from toolcrib.crib.crib import Toolcrib
from toolcrib.surfaces.mcp_gateway.connections import user_of
from toolcrib.surfaces.mcp_gateway.server import Gateway

PATH = "/mcp"

BUNDLE_PATH = f"{PATH}/b/{{bundle}}"
"""Where the endpoint within a bundle stands, with the name of that in its place."""


MAX_SESSIONS = 10_000
"""Sessions of the handshake era at one endpoint, for all principals together."""

MAX_SESSIONS_EACH = 100
"""Of one principal, which are more than its clients need: each client has one."""


class _Sessions(StreamableHTTPSessionManager):
    """The SDK's sessions. Where there are too many, the one that has been idle for longest makes room for a new one.

    The SDK refuses new ones instead, for everybody as soon as one principal has opened all that there may be.
    """

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        owners = {name: _id_of(owner) for name, owner in self._session_owners.items()}
        counts = Counter(owners.values())
        whose = _id_of(requestor)
        if counts[whose] < MAX_SESSIONS_EACH:
            if len(self._server_instances) < MAX_SESSIONS:
                return super()._admit_session(requestor)
            whose, _ = counts.most_common(1)[0]
        # An idle session ends at its deadline. One with a request under way has none.
        ends_at = {
            name: transport.idle_scope.deadline
            for name, transport in self._server_instances.items()
            if owners.get(name) == whose and transport.idle_scope is not None
        }
        oldest = min(ends_at, key=ends_at.__getitem__, default=None)
        if oldest is None or math.isinf(ends_at[oldest]):
            return None  # which the SDK answers with 503
        self._session_owners.pop(oldest, None)
        if (scope := self._server_instances.pop(oldest).idle_scope) is not None:
            scope.cancel()  # as at its deadline
        return super()._admit_session(requestor)


def _id_of(owner: AuthorizationContext | None) -> str | None:
    return None if owner is None else owner["client_id"]


class Endpoint:
    """An ASGI application that answers MCP. Whoever routes requests here has let them in, and says as whom: in
    `request.state.principal`. A session belongs to the principal that began it."""

    def __init__(self, gateway: Gateway) -> None:
        # Which hosts and origins may ask was looked at before.
        self._sessions = _Sessions(gateway.server, max_sessions=MAX_SESSIONS)
        self._as_user = AuthContextMiddleware(self._sessions.asgi_app)

    def run(self) -> AbstractAsyncContextManager[None]:
        """What has to be entered, once, for as long as requests are answered."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["user"] = user_of(Request(scope).state.principal)
        await self._as_user(scope, receive, send)


class BundleEndpoints:
    """An ASGI application that answers MCP within the bundle that stands in the path; entered as a gateway is.

    Each bundle has a gateway and sessions of its own, begun by the first request.
    """

    def __init__(self, crib: Toolcrib, make: Callable[[str], Gateway]) -> None:
        """`make` makes the gateway of a bundle that there is."""
        self._crib = crib
        self._make = make
        self._gateways: dict[str, Gateway] = {}
        self._endpoints: dict[str, Endpoint] = {}
        """By bundle. Where one leaves the configuration they stay, for it may come back; nobody reaches them then."""
        self._reloaded: Config | None = None
        """The configuration that was taken over last, if any was."""
        self._opening = anyio.Lock()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `UnknownBundle` where there is no such bundle."""
        bundle = self._crib.bundle_for(scope["path_params"]["bundle"], Request(scope).state.principal).name
        await (await self._endpoint(bundle))(scope, receive, send)

    def reload(self, config: Config) -> None:
        """See `Gateway.reload`; streams within a bundle that is gone are ended."""
        self._reloaded = config
        for bundle, gateway in self._gateways.items():
            gateway.reload(config)
            if bundle not in self._crib.bundles:
                gateway.hang_up()

    def hang_up(self) -> None:
        """See `Gateway.hang_up`."""
        for gateway in self._gateways.values():
            gateway.hang_up()

    async def _endpoint(self, bundle: str) -> Endpoint:
        async with self._opening:
            if bundle not in self._endpoints:
                if self._tasks is None:
                    raise RuntimeError("it was not entered")
                await self._tasks.start(self._run, bundle, name=f"gateway within {bundle}")
            return self._endpoints[bundle]

    async def _run(self, bundle: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        made_after = self._reloaded
        gateway = self._make(bundle)
        endpoint = Endpoint(gateway)
        async with gateway, endpoint.run():
            if self._reloaded is not None and self._reloaded is not made_after:  # while it was entered
                gateway.reload(self._reloaded)
            self._gateways[bundle], self._endpoints[bundle] = gateway, endpoint
            task_status.started()
            await anyio.sleep_forever()
