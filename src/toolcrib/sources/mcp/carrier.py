"""The protocols for an MCP server that is reached through a connection of a different component, without SDK types."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class Unreachable(Exception):
    """The server cannot be reached, or its connection has ended."""

    def __init__(self, what: str, *, diagnosis: str = "", lasting: bool = False) -> None:
        """`what` is what happened, in words that follow the server's name or `it`. Any caller may read it.

        `diagnosis` is for the server's owner only. `lasting` means that only the owner can fix the cause.
        """
        super().__init__(what)
        self.what = what
        self.diagnosis = diagnosis
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Reports that the carrier has no answer to a request, and why. The fields mean the same as in `Refusal`."""

    request_id: str | int
    what: str
    diagnosis: str = ""
    ran: bool = False
    retryable: bool = False
    lasting: bool = False
    unreached: bool = False


class Channel(Protocol):
    """The messages of one MCP session: JSON-RPC objects. Their ids are those that the session sends and receives."""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        Raises:
            Unreachable: the connection has ended.
        """
        ...

    async def receive(self) -> Mapping[str, Any] | Unanswered | None:
        """Return the next message; None if no more can come."""
        ...


class Carrier(Protocol):
    """Holds a connection that can carry the messages of several MCP servers."""

    def open(self, server_id: str) -> AbstractAsyncContextManager[Channel]:
        """Open a channel to the server with this id, for the block. Waits as long as the other side takes.

        Raises:
            Unreachable: there is no such server, or no connection.
        """
        ...
