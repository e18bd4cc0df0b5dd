"""Permanent approvals: which principal may run which definition of a tool without a question."""

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
"""The version of the table. A file that a newer Toolcrib wrote is not changed."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait while a different process writes, in seconds."""

_TABLE = """
CREATE TABLE approvals (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL, tool_id TEXT NOT NULL, definition TEXT NOT NULL, approved_at REAL NOT NULL,
    UNIQUE (principal, tool_id, definition)
)
"""
"""AUTOINCREMENT: a number is never reused, so that a person always revokes the approval that the list showed."""

_ONE = "SELECT 1 FROM approvals WHERE principal = ? AND tool_id = ? AND definition = ?"
_KEEP = "INSERT OR IGNORE INTO approvals (principal, tool_id, definition, approved_at) VALUES (?, ?, ?, ?)"
_ALL = "SELECT number, principal, tool_id, definition, approved_at FROM approvals ORDER BY approved_at, number"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approval:
    """One permanent approval."""

    number: int
    """The number by which it is revoked."""
    principal: str
    tool_id: str
    definition: str
    """A digest of the tool's definition and its server. For a different definition, a person is asked again."""
    approved_at: float
    """The time of the approval, in seconds since 1970."""


class ApprovalStore:
    """Approvals in one SQLite file, which several processes can share. A revocation applies to the next call.

    If the file cannot be used during a call, the problem is logged and nothing counts as approved: a person is asked
    again. An approval then only lasts for that call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, Layout(LAYOUT, _lay_out), BUSY_TIMEOUT_S)
        self._threads = anyio.CapacityLimiter(4)
        """A separate limiter, so that a locked file does not block functions in threads, or the other way round."""

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        """Return whether this is approved. Return False if the file cannot be read in time."""

        def look() -> bool:
            with self._database.reading() as file:
                return file is not None and file.execute(_ONE, (principal, tool_id, definition)).fetchone() is not None

        return await self._do(look, otherwise=False)

    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        """Store an approval, if the file can be written."""

        def insert() -> None:
            with self._database.writing() as file:
                file.execute(_KEEP, (principal, tool_id, definition, time.time()))

        await self._do(insert, otherwise=None)

    def all(self) -> tuple[Approval, ...]:
        """Return all approvals, oldest first.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with self._database.reading() as file:
            return () if file is None else tuple(Approval(*row) for row in file.execute(_ALL))

    def revoke(self, number: int) -> bool:
        """Revoke the approval with this number, and return whether it existed.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """

        if not self.path.exists():  # `writing` would create the file
            return False
        with self._database.writing() as file:
            return file.execute("DELETE FROM approvals WHERE number = ?", (number,)).rowcount == 1

    async def _do(self, action: Callable[[], T], *, otherwise: T) -> T:
        """Run `action` in a thread, because the file can be locked or on a slow network drive."""
        try:
            return await anyio.to_thread.run_sync(action, limiter=self._threads)
        except (OSError, sqlite3.Error, ValueError) as error:  # ValueError: a string with half a surrogate pair
            logger.warning("approvals cannot be stored, so people are asked every time: %s: %s", self.path, error)
            return otherwise


def _lay_out(file: sqlite3.Connection, earlier: int) -> None:
    if earlier:  # layout 1 did not store the server of a definition, so people must approve again
        file.execute("DROP TABLE approvals")
    file.execute(_TABLE)
