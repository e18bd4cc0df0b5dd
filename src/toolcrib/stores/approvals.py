"""What people approved for good: which principal may run exactly which definition of a tool."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from toolcrib.stores.private import layout_of, make_private, opened

logger = logging.getLogger(__name__)

LAYOUT = 2
"""Of the table; a file that a newer Toolcrib wrote is left alone."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait for another process that is writing."""

_OUTDATED = "DROP TABLE IF EXISTS approvals"
"""Layout 1 did not hold of which server a definition was approved: all of that is asked about anew."""

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
        self._threads = anyio.CapacityLimiter(4)
        """Of its own: a file that another process has locked holds up no functions, and they do not hold up this."""

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        """Whether this is approved; False where the file does not say so in time."""

        def look(file: sqlite3.Connection) -> bool:
            row = file.execute(_ONE, (principal, tool_id, definition)).fetchone()
            return row is not None

        return await self._do(lambda: self._read(look, nothing=False), otherwise=False)

    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        """Have it approved from now on, where the file lets itself be written."""

        def insert() -> None:
            make_private(self.path)
            with self._opened() as file:
                _lay_out(file)
                file.execute(_KEEP, (principal, tool_id, definition, time.time()))

        await self._do(insert, otherwise=None)

    def all(self) -> tuple[Approval, ...]:
        """The oldest first.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        return self._read(lambda file: tuple(Approval(*row) for row in file.execute(_ALL)), nothing=())

    def revoke(self, number: int) -> bool:
        """Whether there was one of this number; it holds no longer.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """

        def delete(file: sqlite3.Connection) -> bool:
            return file.execute("DELETE FROM approvals WHERE number = ?", (number,)).rowcount == 1

        return self._read(delete, nothing=False)

    async def _do(self, action: Callable[[], T], *, otherwise: T) -> T:
        """Beside the event loop: the file may be locked, or far away."""
        try:
            return await anyio.to_thread.run_sync(action, limiter=self._threads)
        except (OSError, sqlite3.Error, ValueError) as error:  # a text with half a surrogate pair is the last of these
            logger.warning("approvals cannot be kept, and people are asked every time: %s: %s", self.path, error)
            return otherwise

    def _read(self, action: Callable[[sqlite3.Connection], T], *, nothing: T) -> T:
        """What `action` does with the table; `nothing` where there is none yet."""
        if not self.path.exists():
            return nothing
        with self._opened() as file:
            return action(file) if layout_of(file, LAYOUT) == LAYOUT else nothing

    def _opened(self) -> AbstractContextManager[sqlite3.Connection]:
        return opened(self.path, BUSY_TIMEOUT_S)


def _lay_out(file: sqlite3.Connection) -> None:
    """Make the table, where it is not there in this layout; two processes may do so at once."""
    if layout_of(file, LAYOUT) == LAYOUT:
        return
    file.execute("BEGIN IMMEDIATE")
    if layout_of(file, LAYOUT) < LAYOUT:  # by now another may have made it
        file.execute(_OUTDATED)
        file.execute(_TABLE)
        file.execute(f"PRAGMA user_version = {LAYOUT}")
    file.execute("COMMIT")
