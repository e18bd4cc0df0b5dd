"""What one server asks of us and has not been answered yet: bounded, so that no server fills our memory with it."""

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
"""Requests of one server that wait at once for somebody, a person mostly; more are refused."""

MAX_ASKED_BYTES = 16 * 2**20
"""What these say together, in bytes of JSON."""

MAX_UNANSWERED = 2 * MAX_ASKED
"""Requests of one server whose answers it has not taken, those that wait among them. At this number nothing more is
read from it. Twice `MAX_ASKED`: a person who takes long to answer must not hold up the answers to calls."""

MAX_PROGRESS = 100
"""Reports of progress of one request that are being taken at once. More are dropped: the next one says more anyway."""

STUCK_S = 60.0
"""How long a server may leave that many answers unread, in seconds, before its connection is ended."""


class Backlog:
    """Counts the requests of one server."""

    def __init__(self) -> None:
        self._asked = 0
        self._asked_bytes = 0
        self._unanswered = 0
        self._taken = anyio.Event()
        """Set when the next answer is taken."""

    async def room(self) -> None:
        """Wait until one more request can be read.

        Raises:
            TimeoutError: the server has taken no answer for `STUCK_S`.
        """
        while self._unanswered >= MAX_UNANSWERED:
            self._taken = anyio.Event()
            with anyio.fail_after(STUCK_S):
                await self._taken.wait()

    @contextmanager
    def holding(self) -> Generator[None]:
        """Count a request until its answer is taken, the end of the block."""
        self._unanswered += 1
        try:
            yield
        finally:
            self._unanswered -= 1
            self._taken.set()

    @contextmanager
    def answering(self, params: Any) -> Generator[None]:
        """Count a request with these parameters until there is an answer, the end of the block.

        Raises:
            MCPError: too many wait already; the server is told.
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
    """`on_progress`, which may take its time, with at most `MAX_PROGRESS` reports under way."""
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
