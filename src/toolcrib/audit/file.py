"""The file of the audit: its tables, how it is opened and added to, and how it is kept small."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from toolcrib.database import Layout, identity, lay_out, layout_of, make, open_private, transaction

APPLICATION_ID = 0x54435242
"""Tells an audit from any other SQLite file: "TCRB"."""

LAYOUT = 4
"""Of the tables; a file that a newer Toolcrib wrote is left alone."""

LATER: Mapping[str, int] = MappingProxyType({"approval": 2, "bundle": 3, "item": 3, "node_count": 4})
"""The columns of `events` that were not there from the first layout on, with the first that has them."""

BUSY_S = 0.25
"""How long one attempt waits for another process that is writing."""

DAY_S = 86_400

MAX_BYTES = 64 * 1024 * 1024

MAX_AGE_S = 30 * DAY_S

MAX_NAME = 200
"""Characters kept of a name: a principal, a bundle, a trace id, a tool id, a node."""

_TABLES = (
    # AUTOINCREMENT: an id is never given twice, so whoever follows the file knows what is new.
    """CREATE TABLE IF NOT EXISTS events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, trace_id TEXT NOT NULL, principal TEXT NOT NULL,
        operation TEXT NOT NULL, outcome TEXT NOT NULL, duration_s REAL NOT NULL, answer_bytes INTEGER NOT NULL,
        query TEXT, path TEXT, tool_ids TEXT NOT NULL, arguments TEXT, approval TEXT, bundle TEXT, item TEXT,
        node_count INTEGER)""",
    "CREATE INDEX IF NOT EXISTS events_by_trace ON events (trace_id, at)",
    """CREATE TABLE IF NOT EXISTS gaps (
        id INTEGER PRIMARY KEY AUTOINCREMENT, since REAL NOT NULL, until REAL NOT NULL, lost INTEGER NOT NULL,
        reason TEXT NOT NULL)""",
)


def _lay_out(file: sqlite3.Connection, earlier: int) -> None:
    for table in _TABLES:
        file.execute(table)
    for column, since in LATER.items():
        if 0 < earlier < since:
            file.execute(f"ALTER TABLE events ADD COLUMN {column}")  # without a type, it keeps values as they are
    file.execute(f"PRAGMA application_id = {APPLICATION_ID}")


_LAYOUT = Layout(LAYOUT, _lay_out, ("PRAGMA auto_vacuum = INCREMENTAL",))

FORGOTTEN = "forgotten early, because the audit takes more than `max_mb`"
"""The reason in `gaps` of operations that had to make room before they were too old."""

_DAY = "CAST(at / 86400 AS INTEGER)"

_TEXTS = (
    *("trace_id", "principal", "operation", "outcome", "query", "path"),
    *("tool_ids", "arguments", "approval", "bundle", "item"),
)

_BYTES = " + ".join(("100", *(f"IFNULL(LENGTH(CAST({each} AS BLOB)), 0)" for each in _TEXTS)))
"""About how many bytes one event takes, its numbers and its place in the index included."""

_UNITS = f"""
SELECT trace_id, principal, {_DAY} AS day, COUNT(*) AS n, SUM({_BYTES}) AS bytes, MIN(at) AS first, MAX(at) AS last,
    MAX(id) AS last_id
FROM events GROUP BY 1, 2, 3
"""  # noqa: S608  no value stands in it
"""What is forgotten as one: a principal's operations in a trace, or in one day of a trace that lasts longer."""

Row: TypeAlias = tuple[
    *tuple[float, str, str, str, str, float, int, str | None, str | None, str],
    *tuple[str | None, str | None, str | None, str | None, int | None],
]
"""One event, in the order of the columns; path, tool ids and arguments as JSON."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Operations that were performed and are not in the audit."""

    since: float
    """When the first of them began, in seconds since 1970."""
    until: float
    """Likewise the last."""
    lost: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unwanted:
    """Which traces somebody wants forgotten: those of one principal in which all that is said here is met.

    What is None does not matter; with nothing said it is all of them.
    """

    principal: str | None = None
    tool: str | None = None
    """A tool that was shown, expanded or called in it, or a source any of whose tools was."""
    query: str | None = None
    """What one of its queries holds, upper or lower case."""
    before: float | None = None
    """In seconds since 1970: its last operation began before that."""

    @property
    def is_all(self) -> bool:
        return self == Unwanted()

    def condition(self) -> tuple[str, list[object]]:
        """As an SQL condition on groups of `events`, with its values; `HOLDS` has to be a function there."""
        parts: list[tuple[str, list[object]]] = []
        if self.principal is not None:
            # As it was written down: better the traces of two are forgotten than those of neither.
            parts.append(("MAX(principal = ?)", [self.principal[:MAX_NAME]]))
        if self.tool is not None:
            source = f"{self.tool}."
            named = "EXISTS (SELECT 1 FROM json_each(tool_ids) WHERE value = ? OR SUBSTR(value, 1, ?) = ?)"
            parts.append((f"MAX({named})", [self.tool[:MAX_NAME], len(source), source]))
        if self.query is not None:
            parts.append(("MAX(HOLDS(query, ?))", [self.query]))
        if self.before is not None:
            parts.append(("MAX(at) < ?", [self.before]))
        return " AND ".join(text for text, _ in parts) or "1", [value for _, values in parts for value in values]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is forgotten as one; see `_UNITS`."""

    trace_id: str
    principal: str
    day: int
    """Since 1970."""
    count: int
    size: int
    """In bytes, about."""
    first: float
    last: float
    """When its first and last operation began."""
    last_id: int


class AuditFile:
    """An audit that is open for writing, by one thread; other processes may write it at the same time.

    Raises:
        OSError, sqlite3.Error: the file or its folder cannot be used, is no audit, or is of a newer version. So may
            every method; a file that failed otherwise than by being locked is to be closed.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S, busy_s: float = BUSY_S
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        make(path, _LAYOUT)
        if not os.access(path, os.W_OK):
            # SQLite would open it, and leave companions behind that are as read-only as it is now.
            raise PermissionError(errno.EACCES, "it may not be written")
        self._identity = identity(path)
        self._connection = open_private(path, busy_s)
        try:
            self._set_up()
        except BaseException:
            self._connection.close()
            raise

    def was_moved(self) -> bool:
        """Is this file no longer the one at its path? What is written would be lost with it."""
        return identity(self._path) != self._identity

    def add(self, rows: Sequence[Row], gap: Gap | None) -> None:
        """Write all of it or nothing."""
        with transaction(self._connection):
            self._connection.executemany(
                "INSERT INTO events (at, trace_id, principal, operation, outcome, duration_s, answer_bytes,"
                " query, path, tool_ids, arguments, approval, bundle, item, node_count)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            if gap is not None:
                self._note(gap)

    def newest(self, now: float) -> float | None:
        """When the newest operation began of those that began before `now`; None if there is none."""
        (newest,) = self._connection.execute("SELECT MAX(at) FROM events WHERE at <= ?", (now,)).fetchone()
        return newest

    def forget_old(self, now: float) -> None:
        """Delete the traces that ended too long before `now`, and give their space back."""
        oldest = now - self._max_age_s
        with transaction(self._connection):
            doomed = self._connection.execute(f"{_UNITS} HAVING last < ?", (oldest,)).fetchall()
            self._delete(_Unit(*each) for each in doomed)
            self._connection.execute("DELETE FROM gaps WHERE until < ?", (oldest,))
        self._give_back()

    def matching(self, unwanted: Unwanted) -> tuple[int, int]:
        """How many traces, and operations in them, `forget` would delete."""
        condition, values = unwanted.condition()
        counted = f"SELECT COUNT(*) AS n FROM events GROUP BY trace_id, principal HAVING {condition}"  # noqa: S608
        return self._connection.execute(f"SELECT COUNT(*), IFNULL(SUM(n), 0) FROM ({counted})", values).fetchone()  # noqa: S608

    def forget(self, unwanted: Unwanted) -> tuple[int, int]:
        """Delete these; how many traces, and operations in them, those were."""
        condition, values = unwanted.condition()
        chosen = f"SELECT trace_id, principal FROM events GROUP BY 1, 2 HAVING {condition}"  # noqa: S608
        with transaction(self._connection):
            counts = self.matching(unwanted)
            self._connection.execute(f"DELETE FROM events WHERE (trace_id, principal) IN ({chosen})", values)  # noqa: S608
            if unwanted.is_all:
                self._connection.execute("DELETE FROM gaps")
        return counts

    def scrub(self) -> bool:
        """Write the file anew, so that it holds no copy of what was deleted, anywhere.

        False where that could not be moved into it yet from the file beside it, for another process reads: what was
        deleted may then be found in that until those who have it open are done.
        """
        self._connection.execute("VACUUM")
        (is_busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy

    def make_room(self) -> None:
        """Delete traces where the files have come near to what they may take together.

        The principals whose operations take most lose their oldest traces. `gaps` then says what was deleted before it
        was too old.

        Raises:
            sqlite3.OperationalError: they take too much all the same, for another process reads what was deleted.
        """
        if self._on_disk() <= self._max_bytes * 7 // 8:
            return
        self._give_back()
        if self._in_use() > self._max_bytes * 3 // 4 and self._on_disk() > self._max_bytes * 7 // 8:
            while self._in_use() > self._max_bytes * 3 // 4 and self._forget_some():
                self._give_back()
        if self._on_disk() > self._max_bytes:
            raise sqlite3.OperationalError("it is full, and cannot be cut while another program reads it")

    def close(self) -> None:
        self._connection.close()

    def _set_up(self) -> None:
        self._connection.create_function("HOLDS", 2, _holds, deterministic=True)
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (tables,) = self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if tables and application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it is not an audit of Toolcrib")
        layout_of(self._connection, LAYOUT)  # a newer file is not changed in any way
        self._connection.execute("PRAGMA synchronous = NORMAL")
        # A temporary file would hold a copy of operations, and take a descriptor that the process may not have.
        self._connection.execute("PRAGMA temp_store = MEMORY")
        for pragma in _LAYOUT.pragmas if not tables else ():
            self._connection.execute(pragma)
        self._connection.execute("PRAGMA journal_mode = WAL")  # stays as it was where the file system cannot
        self._connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is not to be found in free pages
        wal_bytes = min(4 * 1024 * 1024, self._max_bytes // 8)
        self._connection.execute(f"PRAGMA journal_size_limit = {wal_bytes}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {wal_bytes // 4096}")
        lay_out(self._connection, _LAYOUT)

    def _forget_some(self) -> bool:
        """Delete about a sixteenth of all there is, from the principals that take most; False if there is nothing."""
        with transaction(self._connection):
            taken = dict(self._connection.execute(f"SELECT principal, SUM({_BYTES}) FROM events GROUP BY 1"))  # noqa: S608
            if not taken:
                return False
            goal = sum(taken.values()) // 16 + 1
            excess = excess_of(taken, goal)
            (newest,) = self._connection.execute("SELECT MAX(at) FROM events").fetchone()
            doomed = list[_Unit]()
            for unit in starmap(_Unit, self._connection.execute(f"{_UNITS} ORDER BY last")):
                if excess[unit.principal] <= 0:
                    continue
                is_last = unit.size == taken[unit.principal]  # the last one of its principal is cut, not deleted
                part = self._cut(unit, excess[unit.principal]) if is_last else unit
                doomed.append(part)
                excess[unit.principal] -= part.size
                taken[unit.principal] -= part.size
                goal -= part.size
                if goal <= 0:
                    break
            self._delete(doomed)
            self._note_forgotten(unit for unit in doomed if unit.last >= newest - self._max_age_s)
            self._connection.execute(
                "DELETE FROM gaps WHERE reason <> ? AND until < (SELECT MIN(at) FROM events)", (FORGOTTEN,)
            )
        return True

    def _cut(self, unit: _Unit, size: int) -> _Unit:
        """The oldest part of `unit`, which takes about `size` bytes."""
        count = max(1, unit.count * size // unit.size)
        last, last_id = self._connection.execute(
            "SELECT MAX(at), MAX(id) FROM (SELECT at, id FROM events"  # noqa: S608
            f" WHERE trace_id = ? AND principal = ? AND {_DAY} = ? ORDER BY id LIMIT ?)",
            (unit.trace_id, unit.principal, unit.day, count),
        ).fetchone()
        return replace(unit, count=count, size=unit.size * count // unit.count, last=last, last_id=last_id)

    def _delete(self, units: Iterable[_Unit]) -> None:
        self._connection.executemany(
            f"DELETE FROM events WHERE trace_id = ? AND principal = ? AND {_DAY} = ? AND id <= ?",  # noqa: S608
            ((unit.trace_id, unit.principal, unit.day, unit.last_id) for unit in units),
        )

    def _note_forgotten(self, units: Iterable[_Unit]) -> None:
        """Have `gaps` say that these were forgotten early, in one row for each day."""
        days = dict[int, Gap]()
        for unit in units:
            gap = days.get(unit.day) or Gap(unit.first, unit.last, 0, FORGOTTEN)
            since, until = min(gap.since, unit.first), max(gap.until, unit.last)
            days[unit.day] = Gap(since, until, gap.lost + unit.count, FORGOTTEN)
        for day, gap in days.items():
            noted = self._connection.execute(
                "UPDATE gaps SET since = MIN(since, ?), until = MAX(until, ?), lost = lost + ?"
                " WHERE reason = ? AND CAST(until / 86400 AS INTEGER) = ?",
                (gap.since, gap.until, gap.lost, FORGOTTEN, day),
            )
            if not noted.rowcount:
                self._note(gap)

    def _note(self, gap: Gap) -> None:
        self._connection.execute(
            "INSERT INTO gaps (since, until, lost, reason) VALUES (?, ?, ?, ?)",
            (gap.since, gap.until, gap.lost, gap.reason),
        )

    def _give_back(self) -> None:
        """Hand free space back to the file system; what another process still reads follows when it is done."""
        # A page for each row that it gives, and rows without columns, of which `execute` takes the first alone.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _in_use(self) -> int:
        """Bytes of pages that hold something."""
        sizes = [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZES]
        return (sizes[0] - sizes[1]) * sizes[2]

    def _on_disk(self) -> int:
        """Bytes of the file and of what was not yet moved into it."""
        return _size(self._path) + _size(self._path.with_name(f"{self._path.name}-wal"))


_SIZES = ("page_count", "freelist_count", "page_size")


def excess_of(taken: Mapping[str, int], goal: int) -> dict[str, int]:
    """How much each principal has to give, so that together they give `goal` and those that take most give it.

    Afterwards no principal that gave anything takes less than one that gave nothing.
    """
    sizes = sorted(taken.values(), reverse=True)
    level, above = 0, 0
    for count, size in enumerate(sizes, start=1):
        above += size
        level = (above - goal) // count
        if count == len(sizes) or level >= sizes[count]:
            break
    return {principal: max(0, size - level) for principal, size in taken.items()}


def _holds(text: str | None, part: str) -> bool:
    return text is not None and part.casefold() in text.casefold()


def reason_of(error: Exception) -> str:
    """Why a file cannot be used, in words: without the number that an `OSError` begins with."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
