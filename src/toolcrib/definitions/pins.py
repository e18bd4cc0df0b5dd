"""Stores the pinned definitions, with person and time, and the versions of definitions."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from toolcrib.database import Database, Layout

LAYOUT = 1
"""The version of the tables. A file that a newer Toolcrib wrote is not used."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait while a different process writes."""

MAX_GONE_BYTES = 64 * 2**20
"""The size of the definitions that are kept for tools that a source no longer offers.

The limit is necessary because a source could offer new names all the time.
"""

_TABLES = (
    """
    CREATE TABLE pins (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        catalog TEXT NOT NULL, source TEXT NOT NULL, origin TEXT NOT NULL, shown TEXT NOT NULL, name TEXT NOT NULL,
        definition BLOB, version TEXT NOT NULL, at REAL NOT NULL, by TEXT NOT NULL
    )
    """,
    "CREATE INDEX pins_of_source ON pins (catalog, source, origin, name)",
    "CREATE INDEX pins_of_origin ON pins (origin)",
    """
    CREATE TABLE seen (
        source TEXT NOT NULL, origin TEXT NOT NULL, name TEXT NOT NULL,
        definition BLOB NOT NULL, version TEXT NOT NULL, since REAL NOT NULL,
        PRIMARY KEY (source, origin, name)
    )
    """,
)
"""Rows in `pins` never change. When a pin is removed, a later row without a definition is added."""

_COLUMNS = "number, catalog, source, origin, shown, name, definition, version, at, by"
_LATEST = f"""
SELECT {_COLUMNS} FROM pins
WHERE number IN (SELECT max(number) FROM pins {{where}} GROUP BY catalog, source, origin, name)
ORDER BY number
"""  # noqa: S608  only constant conditions are filled in
_LOG = f"SELECT {_COLUMNS} FROM pins WHERE catalog = ? ORDER BY number"  # noqa: S608  see above
_PUT = """
INSERT INTO pins (catalog, source, origin, shown, name, definition, version, at, by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SEEN = "SELECT name, definition, version FROM seen WHERE source = ? AND origin = ?"
_SIZES = "SELECT name, length(definition) FROM seen WHERE source = ? AND origin = ? ORDER BY since DESC"
_FORGET = "DELETE FROM seen WHERE source = ? AND origin = ? AND name = ?"
_SEE = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Pin:
    """One pin of a definition, or its removal."""

    source: str
    """The name of the source in the configuration."""
    origin: str
    """A digest of the command or URL."""
    shown: str
    """The command or URL without secrets."""
    name: str
    """The name of the tool."""
    definition: bytes | None
    """None if the pin was removed."""
    version: str
    by: str
    """The person who pinned the definition or removed the pin."""
    at: float = 0.0
    """The time in seconds since 1970. The store sets it."""
    number: int = 0
    """The number of the row in order of creation, from 1. The store sets it."""
    catalog: str = ""
    """The configuration that the pin belongs to. The store sets it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The definition of a tool that was seen last."""

    name: str
    definition: bytes
    version: str


class PinStore:
    """Stores pins in one SQLite file that several processes may share.

    The first pin creates the file. Each method raises `OSError` or `sqlite3.Error` if the file cannot be used. The pins
    are unknown then, and the caller must treat every definition as not pinned.
    """

    def __init__(self, path: Path, catalog: Path | None = None) -> None:
        """`catalog` is the configuration that the pins belong to. None means no configuration."""
        self.path = path
        self._database = Database(path, Layout.of(LAYOUT, _TABLES), BUSY_TIMEOUT_S)
        self.catalog = "" if catalog is None else os.path.realpath(catalog)

    def stamp(self) -> tuple[int, float]:
        """A value that changes with each pin, each removal, and each change of the file. `(0, 0)` if there is no
        file."""
        with self._database.reading() as file:
            if file is None:
                return 0, 0.0
            count, times = file.execute("SELECT count(*), total(at) FROM pins").fetchone()
            return int(count), float(times)

    def of(self, source: str, origin: str) -> tuple[Pin, ...]:
        """Return the pins for a source, at most one for each tool name.

        For a tool without a pin of its own, a pin of the same origin counts, even under a different source name or in a
        different configuration, because an owner may move the source. Otherwise, a pin of a different origin under this
        name counts, so that the change of the origin is reported.
        """
        with self._database.reading() as file:
            if file is None:
                return ()
            found = {
                pin.name: pin
                for where, values in (
                    ("WHERE catalog = ? AND source = ?", (self.catalog, source)),
                    ("WHERE origin = ?", (origin,)),
                    ("WHERE catalog = ? AND source = ? AND origin = ?", (self.catalog, source, origin)),
                )
                for pin in _latest(file, where, *values)
            }
            return _approved(found.values())

    def all(self) -> tuple[Pin, ...]:
        """Return the pins of this configuration, in the order in which they were made."""
        with self._database.reading() as file:
            return () if file is None else _approved(_latest(file, "WHERE catalog = ?", self.catalog))

    def log(self) -> tuple[Pin, ...]:
        """Return all pins and removals of this configuration, the oldest first."""
        with self._database.reading() as file:
            return () if file is None else tuple(_pin(row) for row in file.execute(_LOG, (self.catalog,)))

    def put(self, pins: Iterable[Pin]) -> None:
        """Store all of these pins, or none of them."""
        now = time.time()
        rows = [
            (self.catalog, pin.source, pin.origin, pin.shown, pin.name, pin.definition, pin.version, now, pin.by)
            for pin in pins
        ]
        with self._database.writing() as file:
            file.executemany(_PUT, rows)

    def seen(self, source: str, origin: str) -> tuple[Seen, ...]:
        """Return the definition of each tool of a source that was seen last."""
        with self._database.reading() as file:
            return () if file is None else tuple(Seen(*row) for row in file.execute(_SEEN, (source, origin)))

    def see(self, source: str, origin: str, seen: Iterable[Seen], offered: Collection[str]) -> None:
        """Store these definitions as the last ones seen. Other tools keep theirs, except those in `gone_for_long`.

        `offered` has the names of all tools that the source offers now.
        """
        rows = [(source, origin, each.name, each.definition, each.version, time.time()) for each in seen]
        if rows:
            with self._database.writing() as file:
                file.executemany(_SEE, rows)
                gone = gone_for_long(file.execute(_SIZES, (source, origin)).fetchall(), offered)
                file.executemany(_FORGET, [(source, origin, name) for name in gone])


def gone_for_long(sizes: Iterable[tuple[str, int]], offered: Collection[str]) -> tuple[str, ...]:
    """Return the names of the missing tools whose definitions are dropped. `sizes` has the most recent tools first."""
    found: list[str] = []
    kept = 0
    for name, size in sizes:
        if name not in offered:
            kept += size
            if kept > MAX_GONE_BYTES:
                found.append(name)
    return tuple(found)


def _latest(file: sqlite3.Connection, where: str, *values: str) -> tuple[Pin, ...]:
    """Return the last row of each tool, the oldest first."""
    return tuple(_pin(row) for row in file.execute(_LATEST.format(where=where), values))


def _approved(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    return tuple(pin for pin in pins if pin.definition is not None)


def _pin(row: tuple[int, str, str, str, str, str, bytes | None, str, float, str]) -> Pin:
    number, catalog, source, origin, shown, name, definition, version, at, by = row
    return Pin(source, origin, shown, name, definition, version, by, at, number, catalog)
