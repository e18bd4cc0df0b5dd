"""Conversations of an agent with an editor, so that they can be gone on with after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import orjson

from toolcrib.database import Database, Layout

LAYOUT = 1
"""Of the table; a file that a newer Toolcrib wrote is left alone."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait for another process that is writing."""

MAX_KEPT = 500
"""Conversations; those that were touched last stay."""

MAX_UNSPOKEN = 50
"""Of those in which nothing was said yet, besides: an editor begins one whenever it starts."""

PAGE = 50
"""Conversations on one page of a list."""

_TABLE = """
CREATE TABLE conversations (
    id TEXT PRIMARY KEY, cwd TEXT NOT NULL, roots TEXT NOT NULL, title TEXT NOT NULL, mode TEXT NOT NULL,
    updated_at REAL NOT NULL, messages BLOB NOT NULL
)
"""

_COLUMNS = "id, cwd, roots, title, mode, updated_at"
_ONE = f"SELECT {_COLUMNS}, messages FROM conversations WHERE id = ?"  # noqa: S608
_KEEP = f"INSERT OR REPLACE INTO conversations ({_COLUMNS}, messages) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_FORGET = """DELETE FROM conversations WHERE rowid IN
    (SELECT rowid FROM conversations WHERE (title = '') = ? ORDER BY rowid DESC LIMIT -1 OFFSET ?)"""
"""A conversation gets a larger row id each time it is kept. Its time does not count: the clock may have been wrong."""
_LIST = f"""SELECT {_COLUMNS} FROM conversations
    WHERE title <> '' AND cwd = IFNULL(?, cwd)
    ORDER BY updated_at DESC, id LIMIT ? OFFSET ?"""  # noqa: S608

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """One of them, as it was after its last prompt."""

    id: str
    cwd: str
    roots: tuple[str, ...]
    """Folders besides `cwd` that belong to it."""
    title: str
    """Empty before anything was said."""
    mode: str
    updated_at: float
    """In seconds since 1970."""
    messages: bytes = b""
    """As whoever keeps it writes them; empty in a list."""


class ConversationStore:
    """Conversations in one SQLite file that several processes may share.

    Raises, in every method:
        OSError, sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, Layout.of(LAYOUT, [_TABLE]), BUSY_TIMEOUT_S)
        self._threads = anyio.CapacityLimiter(2)
        """Of its own: a file that another process has locked holds up nobody else."""

    async def keep(self, conversation: KeptConversation) -> None:
        """Have it be there from now on as it is; where there are too many, those not touched for longest go."""

        def write() -> None:
            with self._database.writing() as file:
                each = conversation
                roots = orjson.dumps(each.roots).decode()
                row = (each.id, each.cwd, roots, each.title, each.mode, each.updated_at, each.messages)
                file.execute(_KEEP, row)
                file.executemany(_FORGET, ((False, MAX_KEPT), (True, MAX_UNSPOKEN)))

        await anyio.to_thread.run_sync(write, limiter=self._threads)

    async def get(self, conversation_id: str) -> KeptConversation | None:
        """The one of this id; None where there is none."""

        def look(file: sqlite3.Connection) -> KeptConversation | None:
            row = file.execute(_ONE, (conversation_id,)).fetchone()
            return None if row is None else _read(row)

        return await self._looking(look, None)

    async def list(self, cwd: str | None = None, offset: int = 0) -> tuple[KeptConversation, ...]:
        """Those with a title, of the folder `cwd` or all, without messages: a page from `offset`, latest first."""

        def look(file: sqlite3.Connection) -> tuple[KeptConversation, ...]:
            return tuple(_read(row) for row in file.execute(_LIST, (cwd, PAGE, offset)))

        return await self._looking(look, ())

    async def _looking(self, look: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        def read() -> T:
            with self._database.reading() as file:
                return nothing if file is None else look(file)

        return await anyio.to_thread.run_sync(read, limiter=self._threads)


def _read(row: tuple[Any, ...]) -> KeptConversation:
    conversation_id, cwd, roots, *rest = row
    return KeptConversation(conversation_id, cwd, tuple(orjson.loads(roots)), *rest)
