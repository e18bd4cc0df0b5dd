"""Which definitions people approved of, by whom and when, and which versions of them there were."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from toolcrib.database import Database, Layout

LAYOUT = 1
"""Of the tables; a file that a newer Toolcrib wrote is left alone."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait for another process that is writing."""

MAX_GONE_BYTES = 64 * 2**20
"""Of the definitions kept of tools that a source does not offer any more: it may give them new names all the time."""

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
"""Nothing in `pins` is ever changed: one that was taken back has a later row without a definition."""

_COLUMNS = "number, catalog, source, origin, shown, name, definition, version, at, by"
_LATEST = f"""
SELECT {_COLUMNS} FROM pins
WHERE number IN (SELECT max(number) FROM pins {{where}} GROUP BY catalog, source, origin, name)
ORDER BY number
"""  # noqa: S608  no value stands in it
_LOG = f"SELECT {_COLUMNS} FROM pins WHERE catalog = ? ORDER BY number"  # noqa: S608  likewise
_PUT = """
INSERT INTO pins (catalog, source, origin, shown, name, definition, version, at, by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SEEN = "SELECT name, definition, version FROM seen WHERE source = ? AND origin = ?"
_SIZES = "SELECT name, length(definition) FROM seen WHERE source = ? AND origin = ? ORDER BY since DESC"
_FORGET = "DELETE FROM seen WHERE source = ? AND origin = ? AND name = ?"
_SEE = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Pin:
    """One approval of a definition, or its end."""

    source: str
    """What the configuration called it."""
    origin: str
    """A digest of the command or URL."""
    shown: str
    """The same, fit to be shown."""
    name: str
    """Of the tool."""
    definition: bytes | None
    """None where the approval was taken back."""
    version: str
    by: str
    """Who approved, or took it back."""
    at: float = 0.0
    """In seconds since 1970; set when it is kept."""
    number: int = 0
    """In the order in which they came, from 1; likewise."""
    catalog: str = ""
    """The configuration for which somebody approved; likewise."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The definition of a tool that was seen last."""

    name: str
    definition: bytes
    version: str


class PinStore:
    """Pins in one SQLite file that several processes may share.

    The first approval makes the file. Each method raises `OSError` or `sqlite3.Error` if the file cannot be used: what
    was approved is not known then, and the caller has to treat nothing as approved.
    """

    def __init__(self, path: Path, catalog: Path | None = None) -> None:
        """`catalog` is the configuration for which these are; None for none."""
        self.path = path
        self._database = Database(path, Layout.of(LAYOUT, _TABLES), BUSY_TIMEOUT_S)
        self.catalog = "" if catalog is None else os.path.realpath(catalog)

    def stamp(self) -> tuple[int, float]:
        """Another one after each approval and each that is taken back, and for another file; `(0, 0)` for none."""
        with self._database.reading() as file:
            if file is None:
                return 0, 0.0
            count, times = file.execute("SELECT count(*), total(at) FROM pins").fetchone()
            return int(count), float(times)

    def of(self, source: str, origin: str) -> tuple[Pin, ...]:
        """What is approved of a source, at most one for each name of a tool.

        Of a tool of which nothing ever was: what is of the same origin under another name or in another configuration,
        for an owner may move it; or else what was approved of another origin under this name, for that is to be told.
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
        """What is approved for this configuration, in the order in which it was."""
        with self._database.reading() as file:
            return () if file is None else _approved(_latest(file, "WHERE catalog = ?", self.catalog))

    def log(self) -> tuple[Pin, ...]:
        """All that ever happened to those of this configuration, the oldest first."""
        with self._database.reading() as file:
            return () if file is None else tuple(_pin(row) for row in file.execute(_LOG, (self.catalog,)))

    def put(self, pins: Iterable[Pin]) -> None:
        """Have all of these count from now on, or none."""
        now = time.time()
        rows = [
            (self.catalog, pin.source, pin.origin, pin.shown, pin.name, pin.definition, pin.version, now, pin.by)
            for pin in pins
        ]
        with self._database.writing() as file:
            file.executemany(_PUT, rows)

    def seen(self, source: str, origin: str) -> tuple[Seen, ...]:
        """What was seen last of each tool of a source."""
        with self._database.reading() as file:
            return () if file is None else tuple(Seen(*row) for row in file.execute(_SEEN, (source, origin)))

    def see(self, source: str, origin: str, seen: Iterable[Seen], offered: Collection[str]) -> None:
        """Have these been seen last; what was seen of others stays, but for what `gone_for_long` says.

        `offered`: the names of all that the source offers by now.
        """
        rows = [(source, origin, each.name, each.definition, each.version, time.time()) for each in seen]
        if rows:
            with self._database.writing() as file:
                file.executemany(_SEE, rows)
                gone = gone_for_long(file.execute(_SIZES, (source, origin)).fetchall(), offered)
                file.executemany(_FORGET, [(source, origin, name) for name in gone])


def gone_for_long(sizes: Iterable[tuple[str, int]], offered: Collection[str]) -> tuple[str, ...]:
    """The names whose definitions, of so many bytes, are not to be kept; what was seen last comes first in `sizes`."""
    found: list[str] = []
    kept = 0
    for name, size in sizes:
        if name not in offered:
            kept += size
            if kept > MAX_GONE_BYTES:
                found.append(name)
    return tuple(found)


def _latest(file: sqlite3.Connection, where: str, *values: str) -> tuple[Pin, ...]:
    """The last row of each tool, the oldest first."""
    return tuple(_pin(row) for row in file.execute(_LATEST.format(where=where), values))


def _approved(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    return tuple(pin for pin in pins if pin.definition is not None)


def _pin(row: tuple[int, str, str, str, str, str, bytes | None, str, float, str]) -> Pin:
    number, catalog, source, origin, shown, name, definition, version, at, by = row
    return Pin(source, origin, shown, name, definition, version, by, at, number, catalog)
