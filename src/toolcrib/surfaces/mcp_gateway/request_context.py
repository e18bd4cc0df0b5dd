"""The SDK's request context: a request's connection, principal and bundle, and what its client can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from pydantic import BaseModel

from toolcrib.core.client import LOG_LEVELS
from toolcrib.core.errors import ToolFailed
from toolcrib.core.principal import CallContext, Principal, trace_id_of
from toolcrib.surfaces.auth import Stay

Ctx = ServerRequestContext[dict[str, Any]]

_SOLE = "principal"
_BUNDLE = "bundle"

MAX_ROUNDS = 10
"""How often one request may ask for input. The clients of the SDKs have the same limit."""

ASKED: Mapping[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "elicitation/create": (mcp_types.ElicitRequest, mcp_types.ElicitResult),
    "roots/list": (mcp_types.ListRootsRequest, mcp_types.ListRootsResult),
    "sampling/createMessage": (mcp_types.CreateMessageRequest, mcp_types.CreateMessageResultWithTools),
}
"""The methods that a client can be asked with, and the types of their requests and results."""

LOG_LEVEL = "toolcrib/log-level"
"""The key under which a connection of the handshake era stores the log level that its client set."""


def connection_of(ctx: Ctx) -> Connection:
    """Return the connection.

    In the handshake era it lasts while the client stays; in the newer era, for one request.
    """
    # The SDK creates the session object anew for every message, so it cannot identify a client.
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def state_of(principal: Principal | None, bundle: str | None = None) -> dict[str, Any]:
    """Return the SDK's lifespan state of a gateway.

    `principal` is the one principal of all clients, if there is only one. All requests are limited to `bundle`.
    """
    return {_SOLE: principal, _BUNDLE: bundle}


def principal_of(ctx: Ctx) -> Principal:
    """Return the principal of a client: of its admitted HTTP request, or of the process at the other end of the pipe.

    Raises:
        RuntimeError: the request has no principal. Such a request is never treated as local.
    """
    if ctx.request is not None:
        return ctx.request.state.principal
    principal: Principal | None = ctx.lifespan_context.get(_SOLE)
    if principal is None:
        raise RuntimeError(f"the request {ctx.method} has no principal")
    return principal


def stay_of(ctx: Ctx) -> Stay | None:
    """Return the stay of the HTTP request that carried `ctx`, or None if it came through a pipe."""
    return None if ctx.request is None else ctx.request.state.stay


def bundle_of(ctx: Ctx) -> str | None:
    """Return the bundle that requests of this gateway are limited to, if there is one."""
    return ctx.lifespan_context.get(_BUNDLE)


def context_of(ctx: Ctx) -> CallContext:
    """Return the call context of a request: its principal, its bundle, and its trace if `_meta` names one.

    Source: MCP 2026-07-28, "Trace context" (`traceparent`).
    """
    traceparent: object = (ctx.meta or {}).get("traceparent")
    trace_id = trace_id_of(traceparent) if isinstance(traceparent, str) else None
    return CallContext(principal_of(ctx), trace_id, bundle=bundle_of(ctx))


def user_of(principal: Principal) -> AuthenticatedUser:
    """Return `principal` as a user of the SDK, which binds sessions and sealed states to users.

    It never sees the token.
    """
    return AuthenticatedUser(
        AccessToken(token="", client_id=principal.id, subject=principal.id, scopes=sorted(principal.scopes))
    )


def principal_here() -> Principal:
    """Return the principal of the current HTTP request, for code to which the SDK passes no context.

    Raises:
        RuntimeError: no admitted HTTP request is being answered.
    """
    token = get_access_token()
    if token is None:
        raise RuntimeError("no admitted HTTP request is being answered")
    return Principal(token.client_id, frozenset(token.scopes))


def askable(capabilities: mcp_types.ClientCapabilities | None) -> Mapping[str, Any]:
    """Return the client's capabilities that a source may use."""
    if capabilities is None:
        return {}
    return capabilities.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"elicitation", "roots", "sampling"}
    )


def check_askable(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """Check that a client with these `capabilities` can answer this request.

    Raises:
        ToolFailed: the client does not support the method, or not in this mode.

    Source: MCP 2025-11-25 and 2026-07-28, "Elicitation" (modes; `{}` means forms) and "Sampling" (`tools`).
    """
    kind = method.partition("/")[0]
    if method not in ASKED or kind not in capabilities:
        raise ToolFailed(f"The tool needs {method}, which this client does not support.")
    declared: Mapping[str, Any] = capabilities[kind] or {}
    if kind == "elicitation":
        mode = params.get("mode", "form")
        if mode not in (declared or ("form",)):
            raise ToolFailed(f"The tool needs {method} in the mode `{mode}`, which this client does not support.")
    if kind == "sampling" and params.get("tools") and "tools" not in declared:
        raise ToolFailed(f"The tool needs {method} with tools, which this client does not support.")


def level_set(connection: Connection) -> str | None:
    """Return the level that a client of the handshake era set with `logging/setLevel`, or None if it set none.

    Without a level, the client receives what servers of its own era send by default, as if it were connected to them.
    """
    return connection.state.get(LOG_LEVEL)


def level_of_request(ctx: Ctx) -> str | None:
    """Return the level that a client of the newer era asks for in this request, or None."""
    level = (ctx.meta or {}).get(mcp_types.LOG_LEVEL_META_KEY)
    return level if level in LOG_LEVELS else None
