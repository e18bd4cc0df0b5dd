"""Stores the last known definitions of each source, so that a start does not wait for servers."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from toolcrib.core.digests import canonical_bytes
from toolcrib.database import Layout, open_cache

logger = logging.getLogger(__name__)

LAYOUT = 1
"""The version of the tables. A file that a newer Toolcrib wrote is not changed."""

BUSY_TIMEOUT_S = 2.0
"""How many seconds to wait for a different process that is writing."""

_TABLES = (
    "CREATE TABLE secret (key BLOB NOT NULL)",
    "INSERT INTO secret VALUES (randomblob(32))",
    "CREATE TABLE definitions (key TEXT PRIMARY KEY, listed_at REAL NOT NULL, body BLOB NOT NULL)",
)
_LAYOUT = Layout.of(LAYOUT, _TABLES)


@dataclass(frozen=True, slots=True)
class CachedDefinitions:
    """The definitions stored under one key."""

    listed_at: float
    """When the source listed the definitions, in seconds since the epoch."""
    body: bytes
    """The bytes that were passed to `save`."""


class Definitions(Protocol):
    """A store of the last known definitions. Losing it only costs time, so no method ever raises."""

    def key(self, address: Mapping[str, Any]) -> str:
        """Return the key for the JSON value `address`. The key reveals nothing of the secrets in it."""
        ...

    def load(self, key: str) -> CachedDefinitions | None:
        """Return what is stored under `key`, or None."""
        ...

    def save(self, key: str, kept: CachedDefinitions) -> None:
        """Store this under `key`, in place of an earlier value."""
        ...

    def forget(self, key: str) -> None:
        """Delete what is stored under `key`."""
        ...


class DefinitionStore:
    """Stores definitions by key in one SQLite file, which several processes may share.

    This is a cache. If the file is damaged, read-only, full or from a newer version, the store logs that once. It then
    stores nothing, and every listing comes from its source.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """Why nothing is stored; None while the file works."""
        self._using = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._file: sqlite3.Connection | None = None
        try:
            self._open()
        except (OSError, sqlite3.Error) as error:
            self._set_aside(error)

    def key(self, address: Mapping[str, Any]) -> str:
        """Return the key for the JSON value `address`.

        It is hashed with a secret of the file, so that no one can test guesses of the tokens in an address against it.
        """
        return hmac.new(self._secret, canonical_bytes(address), hashlib.sha256).hexdigest()

    def load(self, key: str) -> CachedDefinitions | None:
        """Return what is stored under `key`; None if there is nothing, or the file does not work."""
        with self._using:
            if self._file is None:
                return None
            try:
                row = self._file.execute("SELECT listed_at, body FROM definitions WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                self._set_aside(error)
                return None
        return None if row is None else CachedDefinitions(float(row[0]), bytes(row[1]))

    def save(self, key: str, kept: CachedDefinitions) -> None:
        """Store this under `key`, in place of an earlier value."""
        with self._using:
            if self._file is None:
                return
            try:
                self._file.execute(
                    "INSERT OR REPLACE INTO definitions VALUES (?, ?, ?)", (key, kept.listed_at, kept.body)
                )
            except sqlite3.Error as error:
                self._set_aside(error)

    def forget(self, key: str) -> None:
        """Delete what is stored under `key`."""
        with self._using:
            if self._file is None:
                return
            try:
                self._file.execute("DELETE FROM definitions WHERE key = ?", (key,))
            except sqlite3.Error as error:
                self._set_aside(error)

    def close(self) -> None:
        """Close the file."""
        with self._using:
            if self._file is not None:
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        file = open_cache(self.path, _LAYOUT, BUSY_TIMEOUT_S)
        try:
            (self._secret,) = file.execute("SELECT key FROM secret").fetchone() or (self._secret,)
        except BaseException:
            file.close()
            raise
        self._file = file

    def _set_aside(self, error: Exception) -> None:
        self.problem = f"{self.path}: {error}"
        logger.warning("definitions are not cached between starts: %s", self.problem)
        if self._file is not None:
            self._file.close()
        self._file = None
