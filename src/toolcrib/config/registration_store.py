"""What was registered at run time and is to survive a restart: tools, categories, bundles and so on, as JSON texts."""

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
"""Of the tables; a file that a newer Toolcrib wrote is left alone."""

BUSY_TIMEOUT_S = 5.0
"""How long to wait for another process that is writing."""

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
    """One thing that was registered. No two of one catalog have the same kind and name."""

    kind: str
    name: str
    body: str
    """What a configuration says of it, as JSON."""
    registered_at: float = field(default=0.0, compare=False)
    """In seconds since 1970."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


T = TypeVar("T")

Change = Callable[[tuple[Registration, ...]], Iterable[Registration]]
"""Given what is registered, what is to be from now on; what it raises leaves everything as it was."""


class Registrations(Protocol):
    """A store of registrations of one catalog, which several programs may share.

    Each method raises `InvalidConfig`, naming the place, where it cannot do what it says.
    """

    def version(self) -> str | None:
        """Another one after every change of what `all` gives; None while nothing was ever kept."""
        ...

    def all(self) -> tuple[Registration, ...]:
        """In the order in which they came; one that was replaced keeps its place."""
        ...

    def update(self, change: Change) -> tuple[Registration, ...]:
        """Have what `change` makes of what is there, all of it or nothing; nobody else changes anything meanwhile.

        Gives what is there then.
        """
        ...


class RegistrationStore:
    """Registrations in one SQLite file that several processes, and several catalogs, may share."""

    def __init__(self, path: Path, catalog: Path | None = None) -> None:
        """`catalog` is the configuration whose registrations these are; None for those of no configuration."""
        self.path = path
        self._database = Database(path, Layout.of(LAYOUT, _TABLES), BUSY_TIMEOUT_S)
        self.catalog = "" if catalog is None else os.path.realpath(catalog)

    def version(self) -> str | None:
        """See `Registrations`: another one as well where the file was replaced by another."""

        def look(file: sqlite3.Connection) -> str | None:
            row = file.execute(_VERSION, (self.catalog,)).fetchone()
            return None if row is None else str(row[0])

        return self._read(look, nothing=None)

    def all(self) -> tuple[Registration, ...]:
        """See `Registrations`."""
        return self._read(self._all, nothing=())

    def update(self, change: Change) -> tuple[Registration, ...]:
        """See `Registrations`."""
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
        # Text that was damaged is an error when it is read later on; it must not hide the rest.
        file.text_factory = _text
        return tuple(Registration(*row) for row in file.execute(_ALL, (self.catalog,)))

    def _read(self, action: Callable[[sqlite3.Connection], T], *, nothing: T) -> T:
        """What `action` does with the tables; `nothing` where there are none yet."""
        try:
            with self._database.reading() as file:
                return nothing if file is None else action(file)
        except (OSError, sqlite3.Error) as error:
            raise self._failed("what is registered cannot be read", error) from error

    def _failed(self, what: str, error: Exception) -> InvalidConfig:
        return InvalidConfig(f"{self.path}: {what}: {getattr(error, 'strerror', None) or error}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
