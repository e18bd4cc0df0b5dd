"""What the SDK hands to whoever answers a request, and the connection behind it."""

from __future__ import annotations

from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection

from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.traces import trace_id_of

Ctx = ServerRequestContext[dict[str, Any]]


def connection_of(ctx: Ctx) -> Connection:
    """In the handshake era it lives as long as the client stays; in the newer one, as long as the request."""
    # The session is made anew for every message.
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def principal_of(ctx: Ctx) -> Principal:
    """On whose behalf a client asks: as whom its HTTP request was let in; behind a pipe, the person at this machine."""
    return LOCAL if ctx.request is None else ctx.request.state.principal


def context_of(ctx: Ctx) -> CallContext:
    """Of a request as it came: on whose behalf, and in which trace if it says so in its `_meta`.

    Source: MCP 2026-07-28, "Trace context" (`traceparent`).
    """
    traceparent: object = (ctx.meta or {}).get("traceparent")
    return CallContext(principal_of(ctx), trace_id_of(traceparent if isinstance(traceparent, str) else None))


def user_of(principal: Principal) -> AuthenticatedUser:
    """`principal` as the SDK knows users: it binds sessions and sealed states to them. It does not see the token."""
    return AuthenticatedUser(
        AccessToken(token="", client_id=principal.id, subject=principal.id, scopes=sorted(principal.scopes))
    )


def principal_here() -> Principal:
    """The one for whose HTTP request this code runs, where the SDK hands over no context."""
    token = get_access_token()
    return LOCAL if token is None else Principal(token.client_id, frozenset(token.scopes))
