"""Reads traces and operations from an audit file, also while it is being written."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

from toolcrib.audit.audit_file import LATER, LAYOUT, Gap, has_tables
from toolcrib.core.events import OK
from toolcrib.database import identity, layout_of

_PATIENCE_S = 5.0
"""How long to wait for a process that has locked the file."""

_COLUMNS = "id, at, trace_id, principal, operation, outcome, duration_s, answer_bytes, query, path, tool_ids, arguments"

NAMING = ("list", "list_categories", "search_tools", "search_tool_by_category", "search_nodes")
"""Operations whose results only name tools."""

CALLING = ("call_tool", "call_read_only_tool")
"""Operations that run a tool."""

SHOWING_NODES = ("list", "list_categories", "search_nodes")
"""Operations whose results contain categories."""

AT_THE_TOP = ("list", "list_categories")
"""Operations that show the top of the catalog if they have no path."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One operation in the audit; see `OperationPerformed`."""

    id: int
    """A number that is larger for operations that were written later."""
    at: float
    trace_id: str
    principal: str
    operation: str
    outcome: str
    duration_s: float
    answer_bytes: int
    query: str | None
    path: tuple[str, ...] | None
    tool_ids: tuple[str, ...]
    arguments: dict[str, Any] | None
    approval: str | None
    bundle: str | None
    item: str | None
    node_count: int | None

    @property
    def is_ok(self) -> bool:
        return self.outcome == OK

    def to_wire(self) -> dict[str, Any]:
        """Convert to a JSON object. Fields without a value are left out."""
        wire = {
            "at": utc(self.at),
            "trace_id": self.trace_id,
            "principal": self.principal,
            "bundle": self.bundle,
            "operation": self.operation,
            "outcome": self.outcome,
            "approval": self.approval,
            "duration_s": round(self.duration_s, 6),
            "answer_bytes": self.answer_bytes,
            "query": self.query,
            "path": None if self.path is None else list(self.path),
            "tool_ids": list(self.tool_ids),
            "node_count": self.node_count,
            "item": self.item,
            "arguments": self.arguments,
        }
        return {key: value for key, value in wire.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Trace:
    """The operations of one principal with the same trace id, in the order in which they began. There is at least one.

    A client that knows the id of a trace can send operations with it, but they never mix with a different principal's.
    """

    entries: tuple[AuditEntry, ...]


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Selects operations. None matches everything."""

    trace: str | None = None
    """The beginning of the trace id, without leading zeros: half of Toolcrib's ids is zeros, and handles omit them."""
    principal: str | None = None
    tool: str | None = None
    """A tool that was expanded or called, or a source with such a tool."""
    since: float | None = None
    """The earliest time, in seconds since 1970."""
    failed: bool = False
    bundle: str | None = None
    """The name of the bundle in which the operation ran."""

    def condition(self, layout: int) -> tuple[str, list[object]]:
        """Return an SQL condition on `events` in this layout, and its values."""
        parts: list[tuple[str, list[object]]] = []
        if self.trace is not None:
            start = self.trace.lstrip("0")
            parts.append(("SUBSTR(LTRIM(trace_id, '0'), 1, ?) = ?", [len(start), start]))
        if self.principal is not None:
            parts.append(("principal = ?", [self.principal]))
        if self.bundle is not None:
            parts.append(("bundle = ?", [self.bundle]) if layout >= LATER["bundle"] else ("0", []))
        if self.tool is not None:
            source = f"{self.tool}."
            named = "EXISTS (SELECT 1 FROM json_each(tool_ids) WHERE value = ? OR SUBSTR(value, 1, ?) = ?)"
            shown = ", ".join("?" * len(NAMING))
            parts.append((f"operation NOT IN ({shown}) AND {named}", [*NAMING, self.tool, len(source), source]))
        if self.since is not None:
            parts.append(("at >= ?", [self.since]))
        if self.failed:
            parts.append(("outcome <> ?", [OK]))
        return " AND ".join(text for text, _ in parts) or "1", [value for _, values in parts for value in values]


def _began(entry: AuditEntry) -> tuple[float, int]:
    return entry.at, entry.id


class NoAudit(Exception):
    """There is no audit file, or it has no tables yet."""


class AuditReader:
    """An audit that is open for reading, while other processes may write it.

    Raises:
        NoAudit: there is no file, or it has no tables yet.
        OSError, sqlite3.Error: the file cannot be read, or is not an audit. Every method can raise these errors.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = identity(path)
        if self._identity is None:
            raise NoAudit
        if path.is_dir():  # SQLite would only report "disk I/O error"
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        self._connection = _opened(path)
        try:
            if not has_tables(self._connection):
                raise NoAudit
            layout_of(self._connection, LAYOUT)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Read everything in this block from the same state of the file."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def was_moved(self) -> bool:
        """Return whether the file at the path is a different one now."""
        return identity(self._path) != self._identity

    def traces(self, wanted: TraceFilter, limit: int) -> list[Trace]:
        """Return the newest `limit` traces with a matching operation, complete, in the order of their last operations.

        Call this in a `snapshot`, because a different process may delete a trace in between. A negative `limit` means
        no limit.
        """
        condition, values = wanted.condition(layout_of(self._connection, LAYOUT))
        newest = self._connection.execute(
            f"SELECT trace_id, principal FROM events WHERE {condition} GROUP BY 1, 2 ORDER BY MAX(id) DESC LIMIT ?",  # noqa: S608
            [*values, limit],
        ).fetchall()
        found = [sorted(self._entries("trace_id = ? AND principal = ?", [*ids]), key=_began) for ids in newest]
        return [
            Trace(tuple(entries)) for entries in sorted(found, key=lambda entries: max(each.id for each in entries))
        ]

    def entries(self, wanted: TraceFilter, after: int = 0) -> list[AuditEntry]:
        """Return the matching operations with ids greater than `after`, in the order in which they were written."""
        condition, values = wanted.condition(layout_of(self._connection, LAYOUT))
        return [*self._entries(f"{condition} AND id > ?", [*values, after])]

    def gaps(self, since: float = 0.0, after: int = 0) -> list[tuple[int, Gap]]:
        """Return gaps that end after `since`, with ids greater than `after`, in the order in which they were noted."""
        rows = self._connection.execute(
            "SELECT id, since, until, lost, reason FROM gaps WHERE until >= ? AND id > ? ORDER BY id", (since, after)
        )
        return [(row[0], Gap(*row[1:])) for row in rows.fetchall()]

    def last_id(self) -> int:
        """Return the id of the operation that was written last, or 0 if the audit is empty."""
        (last,) = self._connection.execute("SELECT MAX(id) FROM events").fetchone()
        return last or 0

    def steps(self, after: int, up_to: int, since: float, limit: int) -> list[AuditEntry]:
        """Return successful searches that had a query, and successful calls, from `since` on.

        Returns at most `limit` operations with ids greater than `after` and up to `up_to`, in the order of writing.
        """
        calling = ", ".join("?" * len(CALLING))
        condition = (
            f"id > ? AND id <= ? AND at >= ? AND outcome = ? AND (query IS NOT NULL OR operation IN ({calling}))"
        )
        return [*self._entries(condition, [after, up_to, since, OK, *CALLING], limit)]

    def count(self, after: int = 0) -> int:
        """Return the number of operations with ids greater than `after`."""
        where = f"WHERE id > {int(after)}" if after else ""  # without it, only the smallest index is read
        (count,) = self._connection.execute(f"SELECT COUNT(*) FROM events {where}").fetchone()  # noqa: S608
        return count

    def version(self) -> int:
        """Return a number that changes when a different connection has written the file."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return version

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _entries(self, condition: str, values: list[object], limit: int = -1) -> Iterable[AuditEntry]:
        # Check the layout each time: a newer Toolcrib may have changed the tables since the last read.
        layout = layout_of(self._connection, LAYOUT)
        later = ", ".join(column if layout >= since else "NULL" for column, since in LATER.items())
        rows = self._connection.execute(
            f"SELECT {_COLUMNS}, {later} FROM events WHERE {condition} ORDER BY id LIMIT ?",  # noqa: S608
            [*values, limit],
        )
        # Fetch all rows at once: an open query of a slow reader would keep deleted space from being freed.
        return map(_entry, rows.fetchall())


def gap_wire(gap: Gap) -> dict[str, Any]:
    """Convert a gap to a JSON object."""
    return {"lost": gap.lost, "since": utc(gap.since), "until": utc(gap.until), "reason": gap.reason}


def utc(at: float) -> str:
    """Format a time as ISO 8601 in UTC, with milliseconds."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):  # the clock was far off when this was written
        return str(at)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _opened(path: Path) -> sqlite3.Connection:
    """Open the file read-only. SQLite cannot lock in a read-only folder: there, assume that the file never changes."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_PATIENCE_S, isolation_level=None
    )
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if getattr(error, "sqlite_errorname", "") not in {"SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY"}:
            raise
        return sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True, isolation_level=None)
    except BaseException:
        connection.close()
        raise
    return connection


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    *plain, path, tool_ids, arguments, approval, bundle, item, node_count = row
    return AuditEntry(
        *plain,
        path=None if path is None else _texts(path),
        tool_ids=_texts(tool_ids),
        arguments=None if arguments is None else cast("dict[str, Any]", json.loads(arguments)),
        approval=approval,
        bundle=bundle,
        item=item,
        node_count=node_count,
    )


def _texts(text: str) -> tuple[str, ...]:
    return tuple(map(str, cast("list[object]", json.loads(text))))
