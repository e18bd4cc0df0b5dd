"""Stores secrets by name, sealed, in one SQLite file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from toolcrib.database import Database, Layout
from toolcrib.secrets import keys
from toolcrib.secrets.sealing import Seal

LAYOUT = 1
"""The version of the table. A file that a newer Toolcrib wrote is not changed."""

BUSY_TIMEOUT_S = 5.0
"""How long to wait while a different process writes, in seconds."""

MAX_VALUE_BYTES = 64 * 1024
"""The longest value, in bytes of UTF-8. Keys and certificates are shorter; larger values are mistakes."""

_TABLE = """
CREATE TABLE secrets (
    config TEXT NOT NULL, name TEXT NOT NULL, sealed BLOB NOT NULL, set_at REAL NOT NULL, PRIMARY KEY (config, name)
)
"""
_SET = "INSERT OR REPLACE INTO secrets (config, name, sealed, set_at) VALUES (?, ?, ?, ?)"
_ONE = "SELECT sealed FROM secrets WHERE config = ? AND name = ?"
_ALL = "SELECT config, name, set_at FROM secrets ORDER BY config, name"


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What is known about a secret without opening it."""

    name: str
    config: Path | None
    """The configuration whose input this is the value of. None for a secret that every configuration can use."""
    set_at: float
    """When the value was stored, in seconds since 1970."""


class SecretStore:
    """Secrets in one private SQLite file, which several processes can share. Names and dates are not sealed.

    A secret belongs either to all configurations, as `${keyring:NAME}`, or to one configuration, as the value of its
    `${input:NAME}`. A value that is copied to a different row of the table cannot be opened.

    Raises:
        OSError, sqlite3.Error: the file cannot be used. Every method can raise these errors.
    """

    def __init__(self, path: Path | None = None, seal: Callable[[], Seal] = keys.seal) -> None:
        """`path` defaults to a file in the folder of Toolcrib's state. `seal` is called when a value is needed."""
        self.path = path or platformdirs.user_state_path("toolcrib") / "secrets.sqlite"
        self._seal = seal
        self._database = Database(self.path, Layout.of(LAYOUT, [_TABLE]), BUSY_TIMEOUT_S)

    def set(self, name: str, value: str, config: Path | None = None) -> None:
        """Store `value` under `name`, in place of an earlier value.

        Raises:
            ValueError: the value is empty, too long, or contains a NUL character or half a surrogate pair.
            KeyUnavailable: there is no key to seal it with.
        """
        try:
            plain = value.encode()
        except UnicodeEncodeError:
            raise ValueError("the value is not valid Unicode") from None  # the cause would show the value
        if not plain or len(plain) > MAX_VALUE_BYTES:
            raise ValueError("the value is empty" if not plain else f"the value is longer than {MAX_VALUE_BYTES} bytes")
        if "\0" in value:
            raise ValueError("the value contains a NUL character")
        scope = _scope(config)
        sealed = self._seal().seal(plain, _bound(scope, name))
        with self._database.writing() as file:
            file.execute(_SET, (scope, name, sealed, time.time()))

    def get(self, name: str, config: Path | None = None) -> str | None:
        """Return the value, or None if nothing is stored under this name.

        Raises:
            KeyUnavailable: the key cannot be read.
            SealBroken: the key is a different one, or the value was changed.
        """
        scope = _scope(config)
        with self._database.reading() as file:
            row = None if file is None else file.execute(_ONE, (scope, name)).fetchone()
        return None if row is None else self._seal().unseal(row[0], _bound(scope, name)).decode()

    def all(self) -> tuple[StoredSecret, ...]:
        """Return what is stored, by configuration and name. This needs no key."""
        with self._database.reading() as file:
            rows = [] if file is None else file.execute(_ALL).fetchall()
        return tuple(StoredSecret(name, Path(config) if config else None, set_at) for config, name, set_at in rows)

    def remove(self, name: str, config: Path | None = None) -> bool:
        """Remove a secret, and return whether it existed. This needs no key."""
        if not self.path.exists():  # `writing` would create the file
            return False
        with self._database.writing() as file:
            file.execute("PRAGMA secure_delete = ON")
            return (
                file.execute("DELETE FROM secrets WHERE config = ? AND name = ?", (_scope(config), name)).rowcount == 1
            )


def _scope(config: Path | None) -> str:
    """Return the name of a configuration in the table. Links are resolved, so all paths of a file have one name."""
    return "" if config is None else os.path.realpath(config)


def _bound(scope: str, name: str) -> str:
    return json.dumps(["secret", scope, name])
