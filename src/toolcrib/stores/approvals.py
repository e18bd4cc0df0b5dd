"""What people approved for good: which principal may run exactly which definition of a tool."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

LAYOUT = 1
"""Of the table; a file that a newer Toolcrib wrote is left alone."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait for another process that is writing."""

_TABLE = """
CREATE TABLE IF NOT EXISTS approvals (
    principal TEXT NOT NULL, tool_id TEXT NOT NULL, definition TEXT NOT NULL, approved_at REAL NOT NULL,
    PRIMARY KEY (principal, tool_id, definition)
)
"""

_ONE = "SELECT 1 FROM approvals WHERE principal = ? AND tool_id = ? AND definition = ?"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approval:
    """One of them."""

    number: int
    """By which it is revoked."""
    principal: str
    tool_id: str
    definition: str
    """The wire digest of the tool; another definition is asked about anew."""
    approved_at: float
    """In seconds since 1970."""


class ApprovalStore:
    """Approvals in one SQLite file that several processes may share; another's revocation holds from the next call.

    Whatever is wrong with the file is logged, and nothing counts as approved: a person is asked again. What is approved
    then lasts for the one call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._using = threading.Lock()

    def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        def look(file: sqlite3.Connection) -> bool:
            row = file.execute(_ONE, (principal, tool_id, definition)).fetchone()
            return row is not None

        return self.path.exists() and self._do(look, default=False)

    def keep(self, principal: str, tool_id: str, definition: str) -> None:
        def insert(file: sqlite3.Connection) -> None:
            row = (principal, tool_id, definition, time.time())
            file.execute("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?)", row)

        self._do(insert, default=None)

    def all(self) -> tuple[Approval, ...]:
        """The oldest first.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        if not self.path.exists():
            return ()
        with self._using, self._opened() as file:
            rows = file.execute("SELECT rowid, * FROM approvals ORDER BY approved_at, rowid").fetchall()
        return tuple(Approval(*row) for row in rows)

    def revoke(self, number: int) -> bool:
        """Whether there was one of this number; it holds no longer.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """
        with self._using, self._opened() as file:
            return file.execute("DELETE FROM approvals WHERE rowid = ?", (number,)).rowcount == 1

    def _do(self, action: Callable[[sqlite3.Connection], T], *, default: T) -> T:
        try:
            with self._using, self._opened() as file:
                return action(file)
        except (OSError, sqlite3.Error) as error:
            logger.warning("approvals cannot be kept, and people are asked every time: %s: %s", self.path, error)
            return default

    @contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        """Open for one action: approving is rare, and a file that was replaced or removed is noticed."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S)
        try:
            (layout,) = file.execute("PRAGMA user_version").fetchone()
            if layout > LAYOUT:
                raise sqlite3.DatabaseError(f"a newer version of Toolcrib wrote it (layout {layout})")
            if layout < LAYOUT:
                self.path.chmod(0o600)
                file.execute(_TABLE)
                file.execute(f"PRAGMA user_version = {LAYOUT}")
            with file:
                yield file
        finally:
            file.close()
