"""What the SDK hands to whoever answers a request, and the connection behind it."""

from __future__ import annotations

from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection

from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.traces import trace_id_of
from toolcrib.surfaces.auth import Stay

Ctx = ServerRequestContext[dict[str, Any]]

_SOLE = "principal"
_BUNDLE = "bundle"


def connection_of(ctx: Ctx) -> Connection:
    """In the handshake era it lives as long as the client stays; in the newer one, as long as the request."""
    # The session is made anew for every message.
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def state_of(principal: Principal | None, bundle: str | None = None) -> dict[str, Any]:
    """What the SDK keeps for a gateway as long as it serves: the one on whose behalf all of its clients ask, if any,
    and the bundle that all of them are kept within."""
    return {_SOLE: principal, _BUNDLE: bundle}


def principal_of(ctx: Ctx) -> Principal:
    """On whose behalf a client asks: as whom its HTTP request was let in, or the one at the other end of the pipe.

    Raises:
        RuntimeError: it is a request of nobody. None is taken for that of the person at this machine.
    """
    if ctx.request is not None:
        return ctx.request.state.principal
    principal: Principal | None = ctx.lifespan_context.get(_SOLE)
    if principal is None:
        raise RuntimeError(f"{ctx.method} came in on behalf of nobody")
    return principal


def stay_of(ctx: Ctx) -> Stay | None:
    """How long the HTTP request may last that `ctx` came with; None where it came through a pipe."""
    return None if ctx.request is None else ctx.request.state.stay


def bundle_of(ctx: Ctx) -> str | None:
    """The bundle that requests of this gateway are kept within, if any."""
    return ctx.lifespan_context.get(_BUNDLE)


def context_of(ctx: Ctx) -> CallContext:
    """Of a request as it came: on whose behalf, within which bundle, and in which trace if it says so in its `_meta`.

    Source: MCP 2026-07-28, "Trace context" (`traceparent`).
    """
    traceparent: object = (ctx.meta or {}).get("traceparent")
    trace_id = trace_id_of(traceparent if isinstance(traceparent, str) else None)
    return CallContext(principal_of(ctx), trace_id, bundle=bundle_of(ctx))


def user_of(principal: Principal) -> AuthenticatedUser:
    """`principal` as the SDK knows users: it binds sessions and sealed states to them. It does not see the token."""
    return AuthenticatedUser(
        AccessToken(token="", client_id=principal.id, subject=principal.id, scopes=sorted(principal.scopes))
    )


def principal_here() -> Principal:
    """The one for whose HTTP request this code runs, where the SDK hands over no context.

    Raises:
        RuntimeError: it runs for nobody's.
    """
    token = get_access_token()
    if token is None:
        raise RuntimeError("no HTTP request that was let in is being answered")
    return Principal(token.client_id, frozenset(token.scopes))
