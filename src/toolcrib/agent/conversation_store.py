"""Stores conversations of an ACP agent with an editor, so that they can be continued after a restart."""

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
"""The version of the table. A file that a newer Toolcrib wrote is not used."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait while a different process writes."""

MAX_KEPT = 500
"""The number of stored conversations. The least recently used ones are deleted."""

MAX_UNSPOKEN = 50
"""The additional number of conversations without messages. An editor creates one at every start."""

PAGE = 50
"""The number of conversations on one page of a list."""

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
"""A conversation gets a larger row id each time it is stored. Its time is not used, because the clock may be wrong."""
_LIST = f"""SELECT {_COLUMNS} FROM conversations
    WHERE title <> '' AND cwd = IFNULL(?, cwd)
    ORDER BY updated_at DESC, id LIMIT ? OFFSET ?"""  # noqa: S608

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A stored conversation, as it was after its last prompt."""

    id: str
    cwd: str
    roots: tuple[str, ...]
    """Folders in addition to `cwd` that belong to the conversation."""
    title: str
    """Empty before the first message."""
    mode: str
    updated_at: float
    """The time in seconds since 1970."""
    messages: bytes = b""
    """The messages, in the format of the caller. Empty in a list."""


class ConversationStore:
    """Stores conversations in one SQLite file that several processes may share.

    Every method raises:
        OSError, sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, Layout.of(LAYOUT, [_TABLE]), BUSY_TIMEOUT_S)
        self._threads = anyio.CapacityLimiter(2)
        """A separate limiter: a file that a different process has locked does not delay other work."""

    async def keep(self, conversation: StoredConversation) -> None:
        """Store the conversation in its current form. If there are too many, the least recently used ones are
        deleted."""

        def write() -> None:
            with self._database.writing() as file:
                each = conversation
                roots = orjson.dumps(each.roots).decode()
                row = (each.id, each.cwd, roots, each.title, each.mode, each.updated_at, each.messages)
                file.execute(_KEEP, row)
                file.executemany(_FORGET, ((False, MAX_KEPT), (True, MAX_UNSPOKEN)))

        await anyio.to_thread.run_sync(write, limiter=self._threads)

    async def get(self, conversation_id: str) -> StoredConversation | None:
        """Return the conversation with this id. None if it does not exist."""

        def query(file: sqlite3.Connection) -> StoredConversation | None:
            row = file.execute(_ONE, (conversation_id,)).fetchone()
            return None if row is None else _read(row)

        return await self._queried(query, None)

    async def list(self, cwd: str | None = None, offset: int = 0) -> tuple[StoredConversation, ...]:
        """Return one page of conversations with a title, without messages: of the folder `cwd` or all, the latest
        first."""

        def query(file: sqlite3.Connection) -> tuple[StoredConversation, ...]:
            return tuple(_read(row) for row in file.execute(_LIST, (cwd, PAGE, offset)))

        return await self._queried(query, ())

    async def _queried(self, query: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        def read() -> T:
            with self._database.reading() as file:
                return nothing if file is None else query(file)

        return await anyio.to_thread.run_sync(read, limiter=self._threads)


def _read(row: tuple[Any, ...]) -> StoredConversation:
    conversation_id, cwd, roots, *rest = row
    return StoredConversation(conversation_id, cwd, tuple(orjson.loads(roots)), *rest)
