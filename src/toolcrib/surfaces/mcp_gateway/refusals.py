"""Errors of ours, and those of servers behind us, as the protocol's own."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolcrib.core.errors import MAX_MESSAGE_CHARS, NotFound, ToolcribError, cut


def protocol_error(error: ToolcribError) -> MCPError:
    """What a client is told that asked for something else than a tool."""
    if (own := own_refusal(error)) is not None:
        return own
    code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
    return MCPError(code, cut(error.message, MAX_MESSAGE_CHARS), error.to_wire())


def own_refusal(error: ToolcribError) -> MCPError | None:
    """A server's own refusal as it was; None where it was not the server that refused."""
    match error.details.get("upstream"):
        case {"code": int() as code, "message": str() as message, **rest}:
            return MCPError(code, message, rest.get("data"))
        case _:
            return None
