"""Stores what is registered at run time (tools, categories, bundles and others) as JSON strings in a SQLite file."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from toolcrib.core.errors import InvalidConfig
from toolcrib.database import Database, Layout

LAYOUT = 1
"""The layout of the tables. A file that a newer Toolcrib wrote is not touched."""

BUSY_TIMEOUT_S = 5.0
"""How long to wait for a different process that is writing."""

_TABLES = (
    """
    CREATE TABLE registrations (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        catalog TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, registered_at REAL NOT NULL,
        UNIQUE (catalog, kind, name)
    )
    """,
    "CREATE TABLE catalogs (catalog TEXT PRIMARY KEY, version TEXT NOT NULL)",
)

_ALL = "SELECT kind, name, CAST(body AS TEXT), registered_at FROM registrations WHERE catalog = ? ORDER BY number"
_PUT = (
    "INSERT INTO registrations (catalog, kind, name, body, registered_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET body = excluded.body, registered_at = excluded.registered_at"
)
_DROP = "DELETE FROM registrations WHERE catalog = ? AND kind = ? AND name = ?"
_VERSION = "SELECT version FROM catalogs WHERE catalog = ?"
_NEW_VERSION = "INSERT OR REPLACE INTO catalogs VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class Registration:
    """One registered item. Within a catalog, each pair of kind and name is unique."""

    kind: str
    name: str
    body: str
    """The item as JSON, as in a configuration."""
    registered_at: float = field(default=0.0, compare=False)
    """When it was registered, in seconds since 1970."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


T = TypeVar("T")

Change = Callable[[tuple[Registration, ...]], Iterable[Registration]]
"""Returns the new registrations for the current ones. If it raises, nothing changes."""


class Registrations(Protocol):
    """A store of the registrations of one catalog, which several programs may share.

    Each method raises `InvalidConfig` with the path if it fails.
    """

    def version(self) -> str | None:
        """Return a string that changes with every change of the registrations. None if there never were any."""
        ...

    def all(self) -> tuple[Registration, ...]:
        """Return the registrations, oldest first. An item that was replaced keeps its position."""
        ...

    def update(self, change: Change) -> tuple[Registration, ...]:
        """Replace the current registrations by the result of `change`, all or nothing. Returns the new ones.

        No other program can change the registrations at the same time.
        """
        ...


class RegistrationStore:
    """Registrations in one SQLite file, which several processes and several catalogs may share."""

    def __init__(self, path: Path, catalog: Path | None = None) -> None:
        """`catalog` is the path of the configuration that the registrations belong to, or None for no configuration."""
        self.path = path
        self._database = Database(path, Layout.of(LAYOUT, _TABLES), BUSY_TIMEOUT_S)
        self.catalog = "" if catalog is None else os.path.realpath(catalog)

    def version(self) -> str | None:
        """Return the version; see `Registrations`. It also changes if the file was replaced by a different one."""

        def look(file: sqlite3.Connection) -> str | None:
            row = file.execute(_VERSION, (self.catalog,)).fetchone()
            return None if row is None else str(row[0])

        return self._read(look, nothing=None)

    def all(self) -> tuple[Registration, ...]:
        """Return all registrations; see `Registrations`."""
        return self._read(self._all, nothing=())

    def update(self, change: Change) -> tuple[Registration, ...]:
        """Change the registrations; see `Registrations`."""
        try:
            with self._database.writing() as file:
                self._apply(file, change)
                return self._all(file)
        except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
            raise self._failed("nothing was registered or removed", error) from error

    def _apply(self, file: sqlite3.Connection, change: Change) -> None:
        before = {each.key: each for each in self._all(file)}
        after = {each.key: each for each in change(tuple(before.values()))}
        gone = [key for key in before if key not in after]
        new = [each for key, each in after.items() if before.get(key) != each]
        for kind, name in gone:
            file.execute(_DROP, (self.catalog, kind, name))
        for each in new:
            file.execute(_PUT, (self.catalog, each.kind, each.name, each.body, time.time()))
        if gone or new:
            file.execute(_NEW_VERSION, (self.catalog, secrets.token_hex(8)))

    def _all(self, file: sqlite3.Connection) -> tuple[Registration, ...]:
        # Replace invalid UTF-8: a damaged item is reported later when it is parsed, and must not hide the others.
        file.text_factory = _text
        return tuple(Registration(*row) for row in file.execute(_ALL, (self.catalog,)))

    def _read(self, action: Callable[[sqlite3.Connection], T], *, nothing: T) -> T:
        """Run `action` on the tables. Returns `nothing` if there are no tables yet."""
        try:
            with self._database.reading() as file:
                return nothing if file is None else action(file)
        except (OSError, sqlite3.Error) as error:
            raise self._failed("cannot read the registrations", error) from error

    def _failed(self, what: str, error: Exception) -> InvalidConfig:
        return InvalidConfig(f"{self.path}: {what}: {getattr(error, 'strerror', None) or error}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
