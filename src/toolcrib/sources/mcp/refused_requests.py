"""The reasons why a request has no answer, if the transport to the server knows them and not the server itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData, RequestId

MAX_MESSAGE_BYTES = 32 * 2**20
"""The longest message that is read, in bytes of JSON, and the longest event of a stream. An image or a file fits well.
Reading a message of nothing but brackets takes under half a second and half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not answered, or why its answer was not accepted."""

    what: str
    """What the server did, in words that follow its name: `answered HTTP 401 Unauthorized`. Any caller may read it."""
    diagnosis: str = ""
    """Details for the server's owner only. They may quote addresses and headers."""
    ran: bool = False
    """Whether the server did what was asked, so that only the answer is lost."""
    retryable: bool = False
    """Whether the same request can succeed later and certainly had no effect."""
    retry_after_s: float | None = None
    lasting: bool = False
    """Whether only the owner can fix the cause, so that no other request can succeed either."""
    unreached: bool = False
    """Whether nothing was sent, because the server could not be reached."""
    status: int | None = None
    """The HTTP status of the answer."""
    wants_sign_in: bool = False
    """Whether only a sign-in with OAuth helps."""
    login: str = ""
    """The command by which a person signs in. Empty if Toolcrib has no place for the tokens here."""


class RequestRefused(MCPError):
    """Raised to the caller of a request that the transport refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(INTERNAL_ERROR, f"it {refusal.what}")
        self.refusal = refusal


class Closed(MCPError):
    """Raised to the caller of a request when the connection has ended."""

    def __init__(self, exit_code: int | None = None) -> None:
        """`exit_code` is that of a program that ended by itself, negative after a signal; None if unknown."""
        self.exit_code = exit_code
        # The SDK uses this code too, but a server may send it as its own error and stay connected.
        super().__init__(CONNECTION_CLOSED, "Connection closed")


def outcome(refusal: Refusal) -> ErrorData:
    """Return `refusal` in a form that passes through the SDK. A server cannot send it, because a server sends JSON."""
    return ErrorData(code=INTERNAL_ERROR, message=refusal.what, data=refusal)


def refusal_in(error: MCPError) -> Refusal | None:
    """Return the refusal that `outcome` put into `error`, or None."""
    return error.data if isinstance(error.data, Refusal) else None


class Outcomes:
    """Receives what a transport does not put into its message stream: answers that it has read itself, and refusals."""

    def __init__(self) -> None:
        self.deliver: Callable[[RequestId, dict[str, Any] | ErrorData], None] | None = None
        """Set by the dispatcher, which knows the callers of all requests."""

    def put(self, request_id: RequestId, came: dict[str, Any] | ErrorData | Refusal) -> None:
        if self.deliver is not None:
            self.deliver(request_id, outcome(came) if isinstance(came, Refusal) else came)


def too_long(limit_bytes: int) -> Refusal:
    """Return the refusal for an answer that is too long."""
    return Refusal(f"answered with more than {limit_bytes / 2**20:g} MiB, which Toolcrib did not read", ran=True)


NO_MESSAGE = Refusal("answered with something that is not an MCP message", ran=True)
OTHER_ID = Refusal("answered with the id of a different request", ran=True)
