"""Conversion of Toolcrib's errors, and of upstream refusals, to MCP errors."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolcrib.core.errors import MAX_MESSAGE_CHARS, NotFound, ToolcribError, cut


def protocol_error(error: ToolcribError) -> MCPError:
    """Return the MCP error for a failed request that was not a tool call."""
    if (own := own_refusal(error)) is not None:
        return own
    code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
    return MCPError(code, cut(error.message, MAX_MESSAGE_CHARS), error.to_wire())


def own_refusal(error: ToolcribError) -> MCPError | None:
    """Return the unchanged refusal of an upstream server, or None if the server did not cause the error."""
    match error.details.get("upstream"):
        case {"code": int() as code, "message": str() as message, **rest}:
            return MCPError(code, message, rest.get("data"))
        case _:
            return None
