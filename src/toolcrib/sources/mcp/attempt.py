"""One connection attempt to a server, from its start to its end, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError

from toolcrib.core.errors import SourceUnavailable, ToolcribError, ToolFailed
from toolcrib.core.placeholders import Problem
from toolcrib.sources.base import Listing
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.exchanges import Verbosity
from toolcrib.sources.mcp.listing import LateExtras
from toolcrib.sources.mcp.refused_requests import Closed, RequestRefused
from toolcrib.sources.mcp.server_failures import bottom, garbled_line, remedy, telling, unavailable
from toolcrib.sources.mcp.server_output import LastWords, Secrets
from toolcrib.sources.mcp.server_spec import AnyServer
from toolcrib.sources.mcp.watching import Upkeep

MAX_GARBAGE_LINES = 3


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt to use the server: first the start, then the connection, then its end."""

    name: str
    """The server's name."""
    mark: int
    """The breaker's mark from before the start."""
    verbosity: Verbosity
    extras: LateExtras
    server: AnyServer
    secrets: Secrets
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is known whether the server can be used."""
    connection: Connection | None = None
    upkeep: Upkeep | None = None
    """The subscriptions on the connection, if there is one."""
    failure: SourceUnavailable | None = None
    listing: Listing | None = None
    """What the server offered when it connected, until the first listing takes it."""
    said: LastWords = field(default_factory=LastWords)
    garbage: list[str] = field(default_factory=list[str])
    """The first few lines that are not protocol messages."""
    used: anyio.Event = field(default_factory=anyio.Event)
    """Set whenever a call has ended."""
    is_stopped: bool = False
    """Whether we ended the connection."""

    def note_garbage(self, error: Exception) -> None:
        """Record a line of the server that is not a protocol message."""
        if len(self.garbage) < MAX_GARBAGE_LINES:
            self.garbage.append(self.secrets.hidden(garbled_line(error)))

    def unavailable(
        self, what: str, error: BaseException | None = None, *, retryable: bool = True
    ) -> SourceUnavailable:
        """Return the error `{name} {what}`, with the cause from the server's output and a remedy for its owner."""
        cause = bottom(error) if error is not None else None
        if isinstance(cause, Closed):
            error = cause = Closed(self.said.exit_code)
        heard: list[str] = []
        if self.connection is not None and (why := self.connection.dispatcher.ended_because):
            heard.append(f"Its connection was ended because it {why}.")
        if self.garbage:
            heard.append(f"It wrote something to standard output that is not an MCP message: {self.garbage[0]!r}.")
        lines = self.said.lines(self.secrets)
        if isinstance(cause, RequestRefused) and cause.refusal.status is not None:
            lines = []  # the earlier statuses belong to other ways of speaking to the server
        if told := " / ".join(telling(lines)):
            heard.append(f"It wrote: {told}")
        way_out = remedy(self.server, cause, lines)
        # A `Problem` contains no values, and it names a file that can also be the value of a variable.
        hidden = str if isinstance(cause, Problem) else self.secrets.hidden
        return unavailable(self.name, what, error, retryable=retryable, heard=heard, remedy=way_out, hidden=hidden)

    def refused(self, connection: Connection, what: str, error: MCPError) -> ToolcribError:
        """Return what `error` means for a request. `what` says what the server did, if the error is the server's own.

        A connection that is not usable any more is given up, so that an immediate retry does not find it.
        """
        if connection.forgotten.is_set() and not isinstance(error, Closed):
            connection.give_up()
            return self.unavailable("was restarted and did not run the request; the next call opens a new session")
        match error:
            case Closed():
                connection.give_up()
                return self.unavailable("stopped before it answered", retryable=False)
            case RequestRefused(refusal=refusal) if refusal.ran:
                return ToolFailed(f"`{self.name}` {refusal.what}.")
            case RequestRefused(refusal=refusal):
                return self.unavailable(refusal.what, error, retryable=refusal.retryable)
            case _:
                details: dict[str, Any] = {"upstream": error.error.model_dump(mode="json", exclude_none=True)}
                return ToolFailed(f"`{self.name}` {what}: {error.message}", details=details)
