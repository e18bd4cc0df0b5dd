"""What people approved for good: which principal may run exactly which definition of a tool."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from toolcrib.database import Database, Layout

logger = logging.getLogger(__name__)

LAYOUT = 2
"""Of the table; a file that a newer Toolcrib wrote is left alone."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait for another process that is writing."""

_TABLE = """
CREATE TABLE approvals (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL, tool_id TEXT NOT NULL, definition TEXT NOT NULL, approved_at REAL NOT NULL,
    UNIQUE (principal, tool_id, definition)
)
"""
"""No number is ever given twice, so that whoever revokes by it means what it saw."""

_ONE = "SELECT 1 FROM approvals WHERE principal = ? AND tool_id = ? AND definition = ?"
_KEEP = "INSERT OR IGNORE INTO approvals (principal, tool_id, definition, approved_at) VALUES (?, ?, ?, ?)"
_ALL = "SELECT number, principal, tool_id, definition, approved_at FROM approvals ORDER BY approved_at, number"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approval:
    """One of them."""

    number: int
    """By which it is revoked."""
    principal: str
    tool_id: str
    definition: str
    """A digest of the tool's definition and of its server; another is asked about anew."""
    approved_at: float
    """In seconds since 1970."""


class ApprovalStore:
    """Approvals in one SQLite file that several processes may share; another's revocation holds from the next call.

    In a call, whatever is wrong with the file is logged, and nothing counts as approved: a person is asked again. What
    is approved then lasts for the one call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, Layout(LAYOUT, _lay_out), BUSY_TIMEOUT_S)
        self._threads = anyio.CapacityLimiter(4)
        """Of its own: a file that another process has locked holds up no functions, and they do not hold up this."""

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        """Whether this is approved; False where the file does not say so in time."""

        def look() -> bool:
            with self._database.reading() as file:
                return file is not None and file.execute(_ONE, (principal, tool_id, definition)).fetchone() is not None

        return await self._do(look, otherwise=False)

    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        """Have it approved from now on, where the file lets itself be written."""

        def insert() -> None:
            with self._database.writing() as file:
                file.execute(_KEEP, (principal, tool_id, definition, time.time()))

        await self._do(insert, otherwise=None)

    def all(self) -> tuple[Approval, ...]:
        """The oldest first.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with self._database.reading() as file:
            return () if file is None else tuple(Approval(*row) for row in file.execute(_ALL))

    def revoke(self, number: int) -> bool:
        """Whether there was one of this number; it holds no longer.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """

        if not self.path.exists():  # writing would make it
            return False
        with self._database.writing() as file:
            return file.execute("DELETE FROM approvals WHERE number = ?", (number,)).rowcount == 1

    async def _do(self, action: Callable[[], T], *, otherwise: T) -> T:
        """Beside the event loop: the file may be locked, or far away."""
        try:
            return await anyio.to_thread.run_sync(action, limiter=self._threads)
        except (OSError, sqlite3.Error, ValueError) as error:  # a text with half a surrogate pair is the last of these
            logger.warning("approvals cannot be kept, and people are asked every time: %s: %s", self.path, error)
            return otherwise


def _lay_out(file: sqlite3.Connection, earlier: int) -> None:
    if earlier:  # layout 1 did not say which server a definition came from: people are asked again
        file.execute("DROP TABLE approvals")
    file.execute(_TABLE)
