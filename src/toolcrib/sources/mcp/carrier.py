"""What it takes to reach an MCP server through a connection that somebody else holds, in no SDK's types."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class Unreachable(Exception):
    """The server cannot be reached, or nobody carries its messages any more."""

    def __init__(self, what: str, *, diagnosis: str = "", lasting: bool = False) -> None:
        """`what` the server did or is, to follow its name or `it`; any caller may read it.

        `diagnosis` is for its owner alone. `lasting`: only the owner can change it.
        """
        super().__init__(what)
        self.what = what
        self.diagnosis = diagnosis
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request whose carrier has no answer of the server's to it, and why; the words are as in `Refusal`."""

    request_id: str | int
    what: str
    diagnosis: str = ""
    ran: bool = False
    retryable: bool = False
    lasting: bool = False
    unreached: bool = False


class Channel(Protocol):
    """The messages of one MCP session: JSON-RPC objects, under the ids that the session gives and was given."""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises:
        Unreachable: nobody carries it any more.
        """
        ...

    async def receive(self) -> Mapping[str, Any] | Unanswered | None:
        """What came next; None once nothing more can come."""
        ...


class Carrier(Protocol):
    """Whoever holds the connection."""

    def open(self, server_id: str) -> AbstractAsyncContextManager[Channel]:
        """A channel to the server of this id, for the block. Waits for as long as the other side takes.

        Raises:
            Unreachable: there is no such server, or no connection.
        """
        ...
