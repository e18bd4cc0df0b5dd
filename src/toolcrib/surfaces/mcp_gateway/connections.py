"""What the SDK hands to whoever answers a request, and the connection behind it."""

from __future__ import annotations

from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.connection import Connection

Ctx = ServerRequestContext[dict[str, Any]]


def connection_of(ctx: Ctx) -> Connection:
    """In the handshake era it lives as long as the client stays; in the newer one, as long as the request."""
    # The session is made anew for every message.
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
