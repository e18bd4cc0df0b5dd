"""Why a request has no answer, where it is the way to the server that knows, and not the server that says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData, RequestId

MAX_MESSAGE_BYTES = 32 * 2**20
"""The longest message that is read, in bytes of JSON, and the longest event of a stream. An image or a file fits well;
reading one of nothing but brackets takes under half a second and half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not answered, or whose answer was not taken."""

    what: str
    """What the server did, to follow its name: `refused with HTTP 401 Unauthorized`. Any caller may read it."""
    diagnosis: str = ""
    """For the server's owner alone: it may quote addresses and headers."""
    ran: bool = False
    """Whether it has done what was asked, so that only the answer is lost."""
    retryable: bool = False
    """Whether the same request can succeed later and certainly did nothing."""
    retry_after_s: float | None = None
    lasting: bool = False
    """Whether only its owner can change it, so that no request whatever has a chance."""
    unreached: bool = False
    """Whether nothing was sent, because nobody could be reached."""
    status: int | None = None
    """The HTTP status that it was refused with."""
    wants_sign_in: bool = False
    """Whether the server only serves clients that signed in by OAuth."""


class Refused(MCPError):
    """Raised to whoever waits for an answer that was refused to them by the transport."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(INTERNAL_ERROR, f"it {refusal.what}")
        self.refusal = refusal


class Closed(MCPError):
    """Raised to whoever waits for an answer when nothing more will come."""

    def __init__(self, exit_code: int | None = None) -> None:
        """`exit_code` is that of a program that ended by itself, negative where a signal ended it; None if unknown."""
        self.exit_code = exit_code
        # The SDK uses this code too, but a server may send it as an error of its own, and stay.
        super().__init__(CONNECTION_CLOSED, "Connection closed")


def outcome(refusal: Refusal) -> ErrorData:
    """`refusal` in the form that passes the SDK; a server cannot send one, since what it sends is JSON."""
    return ErrorData(code=INTERNAL_ERROR, message=refusal.what, data=refusal)


def refusal_in(error: MCPError) -> Refusal | None:
    """The refusal that was put into `error` by `outcome`."""
    return error.data if isinstance(error.data, Refusal) else None


class Outcomes:
    """Where a transport leaves what does not come in its stream of messages: answers that it has read, and refusals."""

    def __init__(self) -> None:
        self.deliver: Callable[[RequestId, dict[str, Any] | ErrorData], None] | None = None
        """Set by whoever knows who waits for which answer."""

    def put(self, request_id: RequestId, came: dict[str, Any] | ErrorData | Refusal) -> None:
        if self.deliver is not None:
            self.deliver(request_id, outcome(came) if isinstance(came, Refusal) else came)


def too_long(limit_bytes: int) -> Refusal:
    """Of an answer beyond the bound."""
    return Refusal(f"answered with more than {limit_bytes / 2**20:g} MiB, which was not read", ran=True)


NO_MESSAGE = Refusal("answered with what is no message of the protocol", ran=True)
OTHER_ID = Refusal("answered with the id of another request", ran=True)
