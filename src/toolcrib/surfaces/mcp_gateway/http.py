"""The gateway over streamable HTTP: stateless for clients of the newer era, with sessions for older ones."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolcrib.surfaces.mcp_gateway.connections import user_of
from toolcrib.surfaces.mcp_gateway.server import Gateway

PATH = "/mcp"


class Endpoint:
    """An ASGI application that answers MCP. Whoever routes requests here has let them in, and says as whom: in
    `request.state.principal`. A session belongs to the principal that began it."""

    def __init__(self, gateway: Gateway) -> None:
        # Which hosts and origins may ask was looked at before.
        self._sessions = StreamableHTTPSessionManager(gateway.server)
        self._as_user = AuthContextMiddleware(self._sessions.asgi_app)

    def run(self) -> AbstractAsyncContextManager[None]:
        """What has to be entered, once, for as long as requests are answered."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["user"] = user_of(Request(scope).state.principal)
        await self._as_user(scope, receive, send)
