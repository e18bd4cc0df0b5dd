"""The SQLite file of the audit: its tables, and how rows are added and deleted."""

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
"""Distinguishes an audit from other SQLite files: "TCRB"."""

LAYOUT = 4
"""The layout of the tables. A file that a newer Toolcrib wrote is not touched."""

LATER: Mapping[str, int] = MappingProxyType({"approval": 2, "bundle": 3, "item": 3, "node_count": 4})
"""Columns of `events` that the first layout did not have, with the first layout that has them."""

BUSY_S = 0.25
"""How long one attempt waits for a different process that is writing."""

DAY_S = 86_400

MAX_BYTES = 64 * 1024 * 1024

MAX_AGE_S = 30 * DAY_S

MAX_NAME = 200
"""How many characters of a name are stored: a principal, a bundle, a trace id, a tool id or a category."""

_TABLES = (
    # AUTOINCREMENT: an id is never used twice, so a program that follows the file knows what is new.
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
            file.execute(f"ALTER TABLE events ADD COLUMN {column}")  # without a type, SQLite does not convert values
    file.execute(f"PRAGMA application_id = {APPLICATION_ID}")


_LAYOUT = Layout(LAYOUT, _lay_out, ("PRAGMA auto_vacuum = INCREMENTAL",))

FORGOTTEN = "forgotten early, because the audit takes more than `max_mb`"
"""The reason in `gaps` for operations that were deleted before `max_days`, to free space."""

_DAY = "CAST(at / 86400 AS INTEGER)"

_TEXTS = (
    *("trace_id", "principal", "operation", "outcome", "query", "path"),
    *("tool_ids", "arguments", "approval", "bundle", "item"),
)

_BYTES = " + ".join(("100", *(f"IFNULL(LENGTH(CAST({each} AS BLOB)), 0)" for each in _TEXTS)))
"""The approximate size of one event in bytes, including its numbers and its index entry."""

_UNITS = f"""
SELECT trace_id, principal, {_DAY} AS day, COUNT(*) AS n, SUM({_BYTES}) AS bytes, MIN(at) AS first, MAX(at) AS last,
    MAX(id) AS last_id
FROM events GROUP BY 1, 2, 3
"""  # noqa: S608  the query contains no values
"""The units of deletion: a principal's operations in a trace, or in one day of a trace that lasts longer."""

Row: TypeAlias = tuple[
    *tuple[float, str, str, str, str, float, int, str | None, str | None, str],
    *tuple[str | None, str | None, str | None, str | None, int | None],
]
"""One event, in the order of the columns. `path`, `tool_ids` and `arguments` are JSON strings."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Operations that were performed but are not in the audit."""

    since: float
    """When the first of these operations began, in seconds since 1970."""
    until: float
    """When the last of these operations began, in seconds since 1970."""
    lost: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeletionFilter:
    """Selects traces to delete: those of one principal that match all fields.

    None matches everything, so without any value all traces are selected.
    """

    principal: str | None = None
    tool: str | None = None
    """A tool that was shown, expanded or called in the trace, or a source with such a tool."""
    query: str | None = None
    """A string that one of the trace's queries contains, in upper or lower case."""
    before: float | None = None
    """The trace's last operation began before this time, in seconds since 1970."""

    @property
    def is_all(self) -> bool:
        return self == DeletionFilter()

    def condition(self) -> tuple[str, list[object]]:
        """Return an SQL condition on groups of `events`, and its values. The SQL function `HOLDS` must be defined."""
        parts: list[tuple[str, list[object]]] = []
        if self.principal is not None:
            # Compare with the shortened name that is stored. Deleting the traces of two principals is better than of
            # none.
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
    """A unit of deletion; see `_UNITS`."""

    trace_id: str
    principal: str
    day: int
    """Days since 1970."""
    count: int
    size: int
    """The approximate size in bytes."""
    first: float
    last: float
    """When the first and the last operation began."""
    last_id: int


class AuditFile:
    """An audit that is open for writing by one thread. Other processes may write it at the same time.

    Raises:
        OSError, sqlite3.Error: the file or its folder cannot be used, is not an audit, or is of a newer version. Every
            method can raise these errors. After any error except a lock, close this object.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S, busy_s: float = BUSY_S
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        make(path, _LAYOUT)
        if not os.access(path, os.W_OK):
            # SQLite would open the file, and create companion files that are as read-only as the file.
            raise PermissionError(errno.EACCES, "the file is read-only")
        self._identity = identity(path)
        self._connection = open_private(path, busy_s)
        try:
            self._set_up()
        except BaseException:
            self._connection.close()
            raise

    def was_moved(self) -> bool:
        """Return whether the file at the path is a different one now. Then whatever is written here is lost."""
        return identity(self._path) != self._identity

    def add(self, rows: Sequence[Row], gap: Gap | None) -> None:
        """Write all rows and the gap, or nothing."""
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
        """Return when the newest operation before `now` began, or None if there are no earlier operations."""
        (newest,) = self._connection.execute("SELECT MAX(at) FROM events WHERE at <= ?", (now,)).fetchone()
        return newest

    def forget_old(self, now: float) -> None:
        """Delete the traces that ended too long before `now`, and return their space to the file system."""
        oldest = now - self._max_age_s
        with transaction(self._connection):
            doomed = self._connection.execute(f"{_UNITS} HAVING last < ?", (oldest,)).fetchall()
            self._delete(_Unit(*each) for each in doomed)
            self._connection.execute("DELETE FROM gaps WHERE until < ?", (oldest,))
        self._give_back()

    def matching(self, unwanted: DeletionFilter) -> tuple[int, int]:
        """Return how many traces, and operations in them, `forget` would delete."""
        condition, values = unwanted.condition()
        counted = f"SELECT COUNT(*) AS n FROM events GROUP BY trace_id, principal HAVING {condition}"  # noqa: S608
        return self._connection.execute(f"SELECT COUNT(*), IFNULL(SUM(n), 0) FROM ({counted})", values).fetchone()  # noqa: S608

    def forget(self, unwanted: DeletionFilter) -> tuple[int, int]:
        """Delete the matching traces. Returns how many traces, and operations in them, were deleted."""
        condition, values = unwanted.condition()
        chosen = f"SELECT trace_id, principal FROM events GROUP BY 1, 2 HAVING {condition}"  # noqa: S608
        with transaction(self._connection):
            counts = self.matching(unwanted)
            self._connection.execute(f"DELETE FROM events WHERE (trace_id, principal) IN ({chosen})", values)  # noqa: S608
            if unwanted.is_all:
                self._connection.execute("DELETE FROM gaps")
        return counts

    def scrub(self) -> bool:
        """Rewrite the file, so that it contains no copies of deleted rows.

        Returns False if a different process reads the file. Then the write-ahead log next to the file may contain
        deleted rows until all processes have closed it.
        """
        self._connection.execute("VACUUM")
        (is_busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy

    def make_room(self) -> None:
        """Delete traces if the files are close to their maximum size.

        The principals whose operations use most space lose their oldest traces. Traces that were deleted before they
        were too old are noted in `gaps`.

        Raises:
            sqlite3.OperationalError: the files are still too large, because a different process reads the deleted rows.
        """
        if self._on_disk() <= self._max_bytes * 7 // 8:
            return
        self._give_back()
        if self._in_use() > self._max_bytes * 3 // 4 and self._on_disk() > self._max_bytes * 7 // 8:
            while self._in_use() > self._max_bytes * 3 // 4 and self._forget_some():
                self._give_back()
        if self._on_disk() > self._max_bytes:
            raise sqlite3.OperationalError("the audit is full, and cannot be cut while a different program reads it")

    def close(self) -> None:
        self._connection.close()

    def _set_up(self) -> None:
        self._connection.create_function("HOLDS", 2, _holds, deterministic=True)
        tables = has_tables(self._connection)
        layout_of(self._connection, LAYOUT)  # raises before anything in a newer file is changed
        self._connection.execute("PRAGMA synchronous = NORMAL")
        # A temporary file would contain copies of operations, and needs a descriptor that may not be available.
        self._connection.execute("PRAGMA temp_store = MEMORY")
        for pragma in _LAYOUT.pragmas if not tables else ():
            self._connection.execute(pragma)
        self._connection.execute("PRAGMA journal_mode = WAL")  # has no effect if the file system does not support it
        self._connection.execute("PRAGMA secure_delete = ON")  # overwrite deleted rows, so that free pages keep no copy
        wal_bytes = min(4 * 1024 * 1024, self._max_bytes // 8)
        self._connection.execute(f"PRAGMA journal_size_limit = {wal_bytes}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {wal_bytes // 4096}")
        lay_out(self._connection, _LAYOUT)

    def _forget_some(self) -> bool:
        """Delete about a sixteenth of all rows, from the largest principals. Returns False if there are no rows."""
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
                is_last = unit.size == taken[unit.principal]  # a principal's last unit is shortened, not deleted
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
        """Return the oldest part of `unit`, of about `size` bytes."""
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
        """Record in `gaps` that these units were deleted early, in one row for each day."""
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
        """Return free space to the file system. Pages that a different process still reads follow later."""
        # The pragma frees one page per row of its result. `execute` would only fetch the first row.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _in_use(self) -> int:
        """Return the size of all pages in use, in bytes."""
        sizes = [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZES]
        return (sizes[0] - sizes[1]) * sizes[2]

    def _on_disk(self) -> int:
        """Return the size of the file and its write-ahead log, in bytes."""
        return _size(self._path) + _size(self._path.with_name(f"{self._path.name}-wal"))


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether an audit has its tables.

    Raises:
        sqlite3.DatabaseError: the file has tables, but is not an audit.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise sqlite3.DatabaseError("the file is not a Toolcrib audit")
    return bool(tables)


_SIZES = ("page_count", "freelist_count", "page_size")


def excess_of(taken: Mapping[str, int], goal: int) -> dict[str, int]:
    """Return how much each principal must give up, so that the largest ones give up `goal` together.

    After that, no principal that gave something up has less than a principal that gave up nothing.
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
    """Return why a file cannot be used, without the number at the beginning of an `OSError`."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
