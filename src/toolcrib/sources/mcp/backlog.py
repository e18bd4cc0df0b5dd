"""Counts the unanswered requests of one server, and limits them so that no server can fill our memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from pydantic_core import to_json

MAX_ASKED = 100
"""How many requests of one server may wait for an answer at once, usually from a person. More are refused."""

MAX_ASKED_BYTES = 16 * 2**20
"""The maximum total size of these requests, in bytes of JSON."""

MAX_UNANSWERED = 2 * MAX_ASKED
"""How many requests of one server may lack an answer that the server has read, including those that wait. At this
number Toolcrib reads nothing more from the server. The number is twice `MAX_ASKED`, because a person who answers slowly
must not delay the answers to calls."""

MAX_PROGRESS = 100
"""How many progress reports of one request are handled at once. More are dropped, because the next report supersedes
them."""

STUCK_S = 60.0
"""How long a server may leave that many answers unread, in seconds, before its connection ends."""


class Backlog:
    """Counts the unanswered requests of one server."""

    def __init__(self) -> None:
        self._asked = 0
        self._asked_bytes = 0
        self._unanswered = 0
        self._taken = anyio.Event()
        """Set when the server reads the next answer."""

    async def room(self) -> None:
        """Wait until there is room for one more request.

        Raises:
            TimeoutError: the server has read no answer for `STUCK_S`.
        """
        while self._unanswered >= MAX_UNANSWERED:
            self._taken = anyio.Event()
            with anyio.fail_after(STUCK_S):
                await self._taken.wait()

    @contextmanager
    def holding(self) -> Generator[None]:
        """Count a request until the server has read the answer, which is the end of the block."""
        self._unanswered += 1
        try:
            yield
        finally:
            self._unanswered -= 1
            self._taken.set()

    @contextmanager
    def answering(self, params: Any) -> Generator[None]:
        """Count a request with these parameters until it is answered, which is the end of the block.

        Raises:
            MCPError: too many requests wait already. The server gets this error.
        """
        size = len(to_json(params)) if params else 0
        if self._asked >= MAX_ASKED or self._asked_bytes + size > MAX_ASKED_BYTES:
            raise MCPError(INVALID_REQUEST, f"Toolcrib answers at most {MAX_ASKED} requests of one server at once.")
        self._asked += 1
        self._asked_bytes += size
        try:
            yield
        finally:
            self._asked -= 1
            self._asked_bytes -= size


def bounded(on_progress: ProgressFnT) -> ProgressFnT:
    """Return `on_progress` with at most `MAX_PROGRESS` reports handled at once, because it may be slow."""
    under_way = 0

    async def take(progress: float, total: float | None, message: str | None) -> None:
        nonlocal under_way
        if under_way >= MAX_PROGRESS:
            return
        under_way += 1
        try:
            await on_progress(progress, total, message)
        finally:
            under_way -= 1

    return take
