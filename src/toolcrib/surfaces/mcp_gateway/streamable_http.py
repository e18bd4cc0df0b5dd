"""The gateway over streamable HTTP: without sessions for clients of the newer era, with sessions for older ones."""

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
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.surfaces.mcp_gateway.request_context import user_of

PATH = "/mcp"

BUNDLE_PATH = f"{PATH}/b/{{bundle}}"
"""The path of the endpoint for one bundle, with a placeholder for the name of the bundle."""


MAX_SESSIONS = 10_000
"""The maximum number of sessions of the handshake era at one endpoint, for all principals together."""

MAX_SESSIONS_EACH = 100
"""The maximum number of sessions of one principal. Each of its clients needs one."""


class _Sessions(StreamableHTTPSessionManager):
    """The SDK's sessions, with a different limit: if there are too many, the session that was idle longest is closed.

    The SDK refuses new sessions instead, so one principal that opens the maximum would block everyone else.
    """

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        owners = {name: _id_of(owner) for name, owner in self._session_owners.items()}
        counts = Counter(owners.values())
        whose = _id_of(requestor)
        if counts[whose] < MAX_SESSIONS_EACH:
            if len(self._server_instances) < MAX_SESSIONS:
                return super()._admit_session(requestor)
            whose, _ = counts.most_common(1)[0]
        # An idle session has a deadline. A session with a running request has none.
        ends_at = {
            name: transport.idle_scope.deadline
            for name, transport in self._server_instances.items()
            if owners.get(name) == whose and transport.idle_scope is not None
        }
        oldest = min(ends_at, key=ends_at.__getitem__, default=None)
        if oldest is None or math.isinf(ends_at[oldest]):
            return None  # the SDK then answers 503
        self._session_owners.pop(oldest, None)
        if (scope := self._server_instances.pop(oldest).idle_scope) is not None:
            scope.cancel()  # the same happens at its deadline
        return super()._admit_session(requestor)


def _id_of(owner: AuthorizationContext | None) -> str | None:
    return None if owner is None else owner["client_id"]


class Endpoint:
    """An ASGI application that answers MCP. The caller has admitted the requests and set `request.state.principal`.

    A session belongs to the principal that began it.
    """

    def __init__(self, gateway: Gateway) -> None:
        # The SDK's own check of hosts and origins is off: `NameCheck` did that before.
        self._sessions = _Sessions(gateway.server, max_sessions=MAX_SESSIONS)
        self._as_user = AuthContextMiddleware(self._sessions.asgi_app)

    def run(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests are answered. Enter it once."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["user"] = user_of(Request(scope).state.principal)
        await self._as_user(scope, receive, send)


class BundleEndpoints:
    """An ASGI application that answers MCP within the bundle that the path names. Enter it like a gateway.

    Each bundle has a separate gateway with separate sessions. The first request for a bundle creates them.
    """

    def __init__(self, crib: Toolcrib, make: Callable[[str], Gateway]) -> None:
        """`make` creates the gateway of an existing bundle."""
        self._crib = crib
        self._make = make
        self._gateways: dict[str, Gateway] = {}
        self._endpoints: dict[str, Endpoint] = {}
        """The endpoints by bundle.

        Those of a removed bundle are kept but unreachable, because the bundle may return.
        """
        self._reloaded: Config | None = None
        """The configuration that was applied last, if any."""
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
        """Answer a request. Raises `UnknownBundle` if the bundle does not exist."""
        bundle = self._crib.bundle_for(scope["path_params"]["bundle"], Request(scope).state.principal).name
        await (await self._endpoint(bundle))(scope, receive, send)

    def reload(self, config: Config) -> None:
        """Apply `config` to every gateway, see `Gateway.reload`. Streams of removed bundles are ended."""
        self._reloaded = config
        for bundle, gateway in self._gateways.items():
            gateway.reload(config)
            if bundle not in self._crib.bundles:
                gateway.hang_up()

    def hang_up(self) -> None:
        """End the streams of every gateway, see `Gateway.hang_up`."""
        for gateway in self._gateways.values():
            gateway.hang_up()

    async def _endpoint(self, bundle: str) -> Endpoint:
        async with self._opening:
            if bundle not in self._endpoints:
                if self._tasks is None:
                    raise RuntimeError("BundleEndpoints was not entered")
                await self._tasks.start(self._run, bundle, name=f"gateway within {bundle}")
            return self._endpoints[bundle]

    async def _run(self, bundle: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        made_after = self._reloaded
        gateway = self._make(bundle)
        endpoint = Endpoint(gateway)
        async with gateway, endpoint.run():
            if self._reloaded is not None and self._reloaded is not made_after:  # changed while the gateway was entered
                gateway.reload(self._reloaded)
            self._gateways[bundle], self._endpoints[bundle] = gateway, endpoint
            task_status.started()
            await anyio.sleep_forever()
