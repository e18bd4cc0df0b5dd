"""A store of what waits for a person. It survives restarts, and several processes can share it."""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from toolcrib.core.digests import digest
from toolcrib.core.errors import RateLimited
from toolcrib.database import Database, Layout
from toolcrib.secrets.sealing import Seal, SealBroken

logger = logging.getLogger(__name__)

WAITS_S = 24 * 3_600.0
"""How long an item waits for an answer, in seconds."""

ANSWERED_S = 3_600.0
"""How long an answered item waits for the principal to come back, in seconds."""

MOST_OF_ONE = 100
"""The most items of one principal that wait at the same time."""

MOST = 10_000
"""The most items that are stored at the same time."""

MOST_BYTES = 256_000_000
"""The most bytes of all stored items, sealed."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait while a different process writes, in seconds."""

Kind: TypeAlias = Literal["call"]
Answer: TypeAlias = Literal["granted", "refused"]

_TABLE = """
CREATE TABLE waiting (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, bound TEXT NOT NULL, is_answered INTEGER NOT NULL,
    expires_at REAL NOT NULL, sealed BLOB NOT NULL
)
"""
_INSERT = "INSERT INTO waiting (id, principal, bound, is_answered, expires_at, sealed) VALUES (?, ?, ?, 0, ?, ?)"
_EXPIRED = "DELETE FROM waiting WHERE expires_at <= ?"
_COUNTS = """
SELECT COUNT(*), COALESCE(SUM(LENGTH(sealed)), 0), COALESCE(SUM(principal = ? AND is_answered = 0), 0) FROM waiting
"""
_BOUND = "SELECT id, CAST(sealed AS BLOB) FROM waiting WHERE bound = ? AND is_answered = ? AND expires_at > ?"
_BY_ID = "SELECT id, CAST(sealed AS BLOB) FROM waiting WHERE id = ? AND expires_at > ?"
_ALL = "SELECT id, CAST(sealed AS BLOB) FROM waiting WHERE expires_at > ? ORDER BY rowid"
_ANSWER = "UPDATE waiting SET is_answered = 1, expires_at = ?, sealed = ? WHERE id = ?"
_REMOVE = "DELETE FROM waiting WHERE id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingItem:
    """Something that a person must answer before it happens.

    The answer holds for one principal, subject, definition and arguments, and for one time.
    """

    kind: Kind
    principal: str
    """The id of the principal that asked."""
    subject: str
    """The tool id, or a description of a prompt or resource."""
    definition: str
    """A digest of the definition and its server. Empty if there is no definition."""
    server: str = ""
    """What identifies the server, if `definition` is empty."""
    arguments: str
    """A digest of the arguments."""
    body: Mapping[str, Any]
    """What the person is shown, as JSON."""
    id: str = field(default_factory=lambda: secrets.token_hex(5))
    asked_at: float = field(default_factory=time.time)
    """In seconds since 1970."""
    expires_at: float = 0.0
    """In seconds since 1970. The store sets it. From this time on, the item does not exist."""
    answer: Answer | None = None

    @property
    def bound(self) -> str:
        """A digest of what the answer holds for."""
        return digest([self.kind, self.principal, self.subject, self.definition or self.server, self.arguments])


class WaitingStore:
    """Waiting items in one SQLite file.

    The items are sealed, so a person who copies the file cannot read the arguments of calls, and cannot add an
    answer without the key. The methods block, so a server calls them in a thread.

    Raises:
        OSError, sqlite3.Error, KeyUnavailable: the file or the key cannot be used. Every method can raise these errors.
    """

    def __init__(self, path: Path, seal: Callable[[], Seal], *, now: Callable[[], float] = time.time) -> None:
        """`seal` returns what seals the items. It is called at the first use."""
        self.path = path
        self._seal = cache(seal)
        self._now = now
        self._database = Database(path, Layout.of(1, [_TABLE]), BUSY_TIMEOUT_S)

    def put(self, item: WaitingItem) -> WaitingItem:
        """Store `item`, and return it. If an equal item waits already, nothing is stored and that one is returned.

        If an equal item was answered since the last `take`, it is removed and returned.

        Raises:
            RateLimited: too many items wait, of this principal or in all.
            RecursionError: the body is nested too deeply.
        """
        now = self._now()
        item = replace(item, expires_at=now + WAITS_S)
        sealed = self._sealed(item)
        with self._database.writing() as file:
            file.execute(_EXPIRED, (now,))
            if (taken := self._taken(file, item)) is not None:
                return taken
            for row in file.execute(_BOUND, (self._bound(item), 0, now)):
                if (there := self._read(*row)) is not None and there.bound == item.bound:
                    return there
            stored, stored_bytes, of_principal = file.execute(_COUNTS, (item.principal,)).fetchone()
            _check_room(stored, stored_bytes + len(sealed), of_principal)
            file.execute(_INSERT, (item.id, item.principal, self._bound(item), item.expires_at, sealed))
        return item

    def take(self, item: WaitingItem) -> WaitingItem | None:
        """Remove the answered item for the same request as `item`, and return it. Only one caller gets it."""
        if not self.path.exists():  # without a file there may be no key yet
            return None
        bound = self._bound(item)
        with self._database.reading() as file:  # most calls have no answer, so do not lock the file for them
            if file is None or file.execute(_BOUND, (bound, 1, self._now())).fetchone() is None:
                return None
        with self._writing() as file:
            return self._taken(file, item)

    def answer(self, item_id: str, answer: Answer) -> WaitingItem | None:
        """Answer an item, and return it. None if no item with this id waits for an answer.

        `refused` also replaces `granted`, until the item is taken. No other answer can be changed.
        """
        now = self._now()
        with self._writing() as file:
            row = file.execute(_BY_ID, (item_id, now)).fetchone()
            if row is None or (found := self._read(*row)) is None:
                return None
            if found.answer is not None and (found.answer, answer) != ("granted", "refused"):
                return None
            answered = replace(found, answer=answer, expires_at=now + ANSWERED_S)
            file.execute(_ANSWER, (answered.expires_at, self._sealed(answered), item_id))
        return answered

    def withdraw(self, item_id: str) -> WaitingItem | None:
        """Remove an item that waits for an answer, and return it. Only one caller gets it."""
        with self._writing() as file:
            row = file.execute(_BY_ID, (item_id, self._now())).fetchone()
            if row is None or (found := self._read(*row)) is None or found.answer is not None:
                return None
            file.execute(_REMOVE, (item_id,))
        return found

    def all(self) -> tuple[WaitingItem, ...]:
        """Return all items, the oldest first."""
        with self._database.reading() as file:
            rows = [] if file is None else file.execute(_ALL, (self._now(),)).fetchall()
        return tuple(item for row in rows if (item := self._read(*row)) is not None)

    def _taken(self, file: sqlite3.Connection, item: WaitingItem) -> WaitingItem | None:
        taken = None
        for row in file.execute(_BOUND, (self._bound(item), 1, self._now())).fetchall():
            file.execute(_REMOVE, row[:1])
            found = self._read(*row)
            if found is not None and found.bound == item.bound and found.answer is not None:
                taken = found
        return taken

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open the file for writing, after the key was read.

        A person may have to unlock the key first. Meanwhile, no process could write to a locked file.
        """
        self._seal()
        return self._database.writing()

    def _bound(self, item: WaitingItem) -> str:
        """Return what finds the items that are bound to the same. A reader of the file cannot guess arguments by it."""
        return self._seal().digest(item.bound)

    def _sealed(self, item: WaitingItem) -> bytes:
        # `asdict` would copy the body, which fails for deep arguments.
        values = {each.name: getattr(item, each.name) for each in fields(item)}
        return self._seal().seal(json.dumps(values).encode(), item.id)

    def _read(self, item_id: str, sealed: bytes) -> WaitingItem | None:
        """Return the item of a row, or None if the row was changed or is of a newer version. Then it does not count."""
        try:
            item = WaitingItem(**json.loads(self._seal().unseal(sealed, item_id)))
        except SealBroken:
            logger.warning("a waiting item was changed or sealed with a different key, and is ignored: %s", item_id)
            return None
        except TypeError:
            logger.warning("a newer version of Toolcrib stored a waiting item, which is ignored: %s", item_id)
            return None
        return item if item.expires_at > self._now() else None


def _check_room(stored: int, stored_bytes: int, of_principal: int) -> None:
    """Raises `RateLimited` if one more item may not wait. `stored_bytes` includes this item."""
    if of_principal >= MOST_OF_ONE:
        raise RateLimited(
            f"{of_principal} of your calls already wait for a person. Nothing ran.",
            retry_after_s=60.0,
            hints=["Ask your user to answer them, or use tools that need no approval."],
        )
    if stored >= MOST or stored_bytes > MOST_BYTES:
        raise RateLimited("Too many calls already wait for a person. Nothing ran.", retry_after_s=60.0)
