"""Writes every operation to the audit file in a background thread, so that operations never wait for it."""

from __future__ import annotations

import errno
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, cast

from toolcrib.audit.audit_file import MAX_AGE_S, MAX_BYTES, MAX_NAME, AuditFile, Gap, Row, reason_of
from toolcrib.audit.redaction import Redaction
from toolcrib.core.events import OperationPerformed
from toolcrib.core.shares import Shares

logger = logging.getLogger(__name__)

CAPACITY = 20_000
"""How many operations can wait while the file cannot be written. More are lost."""

CLOSE_S = 2.0
"""How long closing may take, in seconds."""

GATHER_S = 0.05
"""How long events are collected before they are written, in seconds. Without this delay, the thread would write each
event while its response is being sent, and slow that down."""

ROOM_BYTES = 32 * 1024 * 1024
"""How much memory all waiting operations may use. Principals share it: the one that uses most loses operations."""

_MAX_WEIGHED = 4_000
"""How many values in arguments are measured at most, which takes about 0.3 ms."""

_UNWEIGHED_BYTES = 4 * 1024 * 1024
"""The assumed size of arguments with more values, or with values of custom types: the maximum size of a request."""

_BATCH = 1_000
"""How many events one transaction writes. If the file must stay small, there are fewer, but at least `_SMALL_BATCH`."""

_SMALL_BATCH = 50

_PRUNE_S = 3_600.0
"""How often old traces are deleted, in seconds."""

_LOG_AGAIN_S = 3_600.0
"""The same kind of problem is not logged again within this time, in seconds."""

_SOON_S = 0.05
"""The delay between attempts while closing, and while the file is locked for a short time, in seconds."""

_MAX_NAMES = 50
"""How many tool ids of one operation are stored."""

_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class _AuditCondition:
    """The state of an audit."""

    written: int
    """Operations that were written since the store was opened."""
    waiting: int
    """Operations that wait to be written."""
    lost: int
    """Operations since the store was opened that are not in the file."""
    problem: str | None
    """Why the file cannot be written now."""


class _Waiting(NamedTuple):
    """One operation that waits to be written: first as an event, then as its row."""

    key: int
    """Operations are written in the order of their keys."""
    what: OperationPerformed | Row
    at: float
    size: int
    """The size in bytes for sharing the memory."""


class AuditStore:
    """A `Recorder` that writes to one SQLite file, which several processes may share.

    Problems with the file never disturb operations. Operations that cannot be written wait in memory, up to `capacity`
    operations and `ROOM_BYTES`. If there is no room for the arguments, an operation waits without them. Further
    operations are lost. They are counted, and noted in the file when it can be written again. A principal that uses no
    more than its share of the memory loses nothing. The store keeps trying to write while any operation waits.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        keeps_arguments: bool = False,
        redaction: Redaction | None = None,
        capacity: int = CAPACITY,
        retry_s: float = 1.0,
        patience_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`retry_s` is the delay between attempts.

        `patience_s` is how long a file may be locked before that counts as a problem. It is also how long writing must
        succeed before a problem counts as over.
        """
        self.path = path
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._keeps_arguments = keeps_arguments
        self._redaction = redaction or Redaction()
        self._least = ROOM_BYTES // capacity if capacity else ROOM_BYTES + 1
        """The minimum size of one operation, so that at most `capacity` fit. With a `capacity` of 0, none fits."""
        self._retry_s = retry_s
        self._patience_s = patience_s
        self._clock = clock
        self._batch = min(_BATCH, max(_SMALL_BATCH, _BATCH * max_bytes // MAX_BYTES))

        self._changed = threading.Condition()
        # Shared between threads, protected by `_changed`.
        self._waiting = Shares[int, _Waiting](ROOM_BYTES, attrgetter("size"))
        """All waiting operations, by key."""
        self._next_key = 0
        self._inbox: dict[int, _Waiting] = {}
        """Waiting operations that the thread has not seen."""
        self._rows: dict[int, _Waiting] = {}
        """Waiting operations that the thread has converted to rows."""
        self._being_written: Set[int] = frozenset()
        """Keys of a write that has not ended. An operation that is dropped meanwhile is lost only if the write
        fails."""
        self._written = 0
        self._lost = 0
        self._gap: Gap | None = None
        """Lost operations that are not yet noted in the file."""
        self._problem: str | None = None
        self._ends_at: float | None = None
        """When to give up writing, on the clock of `time.monotonic`. None while the store is open."""

        # Only used by the thread.
        self._file: AuditFile | None = None
        self._failing_since: float | None = None
        self._retry_at = 0.0
        self._prune_at = 0.0
        self._known_time: tuple[float, float] | None = None
        """A trusted time, and when it was read, on the clock of `time.monotonic`."""
        self._logged: dict[str, float] = {}
        """When each kind of problem was last logged."""
        self._has_logged_problem = False
        """Whether a problem was logged, so that its end must be logged as well."""
        self._well_since: float | None = None
        """Since when all operations were written, on the clock of `time.monotonic`."""
        self._missing = 0
        """Operations noted as lost in the file since the last problem was over."""
        # A daemon thread, so that a file system that hangs cannot keep the program from exiting.
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()

    def record(self, event: OperationPerformed) -> None:
        """Queue `event` for writing. Neither waits nor raises."""
        if not self._keeps_arguments and event.arguments is not None:
            event = replace(event, arguments=None, input_schema=None)  # do not keep them in memory either
        bare = _bytes_without_arguments(event)
        size = max(self._least, bare if event.arguments is None else bare + _bytes_of(event.arguments))
        with self._changed:
            if self._ends_at is not None:
                self._lose(event.at, 1, "the audit was closed")
                return
            if not self._waiting.can_take(event.principal, size):
                without = max(self._least, bare)
                if size == without or not self._waiting.can_take(event.principal, without):
                    self._lose(event.at, 1, self._problem or "there were more operations than could be written")
                    return
                event, size = _without_arguments(event), without
            waiting = _Waiting(self._next_key, event, event.at, size)
            self._next_key += 1
            self._inbox[waiting.key] = waiting
            for gone in self._waiting.put(event.principal, waiting.key, waiting):
                self._make_way(gone)
            if len(self._inbox) == 1:  # from here on the thread collects events, and does not need to be woken for each
                self._changed.notify()

    def _make_way(self, gone: _Waiting) -> None:
        self._inbox.pop(gone.key, None)
        self._rows.pop(gone.key, None)
        if gone.key not in self._being_written:
            self._lose(gone.at, 1, self._problem or "there were more operations than could be written")

    @property
    def condition(self) -> _AuditCondition:
        with self._changed:
            return _AuditCondition(self._written, len(self._waiting), self._lost, self._problem)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write what waits, and close the file, within `timeout_s` seconds. What is not written in time is lost."""
        with self._changed:
            if self._ends_at is None:
                self._ends_at = time.monotonic() + timeout_s
                self._changed.notify()
        self._thread.join(timeout_s + 2 * _SOON_S)
        with self._changed:
            left = len(self._waiting) + sum(key not in self._waiting for key in self._being_written)
            self._being_written = frozenset()
            self._waiting = Shares[int, _Waiting](ROOM_BYTES, attrgetter("size"))
            self._inbox, self._rows = {}, {}
            if left:
                self._lose(self._clock(), left, self._problem or "writing took too long")
                logger.warning(
                    "%s missing from the audit: %s", _counted(left), self._problem or "writing took too long"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._collect():
            if self._retry_at > time.monotonic() and self._ends_at is None:
                continue
            try:
                self._write()
            except Exception as error:  # noqa: BLE001  no problem with the file may end the thread
                self._fail(error)
        if self._well_since is not None:
            self._log_end()
        if self._file is not None:
            self._file.close()

    def _collect(self) -> bool:
        """Wait for work, and convert new events to rows. Returns False when the thread is to end."""
        with self._changed:
            if not self._inbox:
                self._changed.wait(self._pause_s())
            if self._inbox:
                self._changed.wait_for(lambda: self._ends_at is not None, GATHER_S)
            ends_at = self._ends_at
            events = [*self._inbox.values()]
        for each in events:
            self._hold(each)
        if ends_at is None:
            return True
        return (bool(self._rows) or self._gap is not None) and time.monotonic() < ends_at

    def _pause_s(self) -> float:
        now = time.monotonic()
        if self._ends_at is not None:
            return _SOON_S if self._failing_since is not None else 0.0
        if self._failing_since is not None or self._rows or self._file is None:
            return max(0.0, self._retry_at - now)
        over_at = math.inf if self._well_since is None or self._is_over else self._well_since + self._patience_s
        return max(0.0, min(self._prune_at, over_at) - now)

    @property
    def _is_over(self) -> bool:
        """Whether everything was logged: the end of each logged problem, and all missing operations."""
        return not (self._has_logged_problem or self._missing)

    def _hold(self, waiting: _Waiting) -> None:
        """Replace an event by its row, unless it was dropped in the meantime."""
        row = None
        if isinstance(event := waiting.what, OperationPerformed):
            try:
                row = _row(event, self._redaction)
            except Exception as error:  # noqa: BLE001  one invalid event must not affect the others
                self._log_once(type(error).__name__, "an operation cannot be written to the audit: %s", error)
        with self._changed:
            if self._inbox.pop(waiting.key, None) is None:
                return
            if row is None:
                self._waiting.pop(waiting.key)
                self._lose(waiting.at, 1, self._problem or "the operation could not be converted")
                return
            size = min(waiting.size, max(self._least, sum(map(sys.getsizeof, row))))
            held = waiting._replace(what=row, size=size)
            self._rows[waiting.key] = held
            self._waiting.replace(waiting.key, held)

    def _write(self) -> None:
        """Write all rows, and limit the size of the file.

        Raises:
            OSError, sqlite3.Error: the file cannot be written now. Rows that were not written keep waiting.
        """
        if self._file is not None and self._file.was_moved():
            self._let_go()
        if self._file is None:
            self._file = AuditFile(self.path, max_bytes=self._max_bytes, max_age_s=self._max_age_s)
        if self._known_time is None:
            newest = self._file.newest(self._clock())
            self._known_time = self._clock() if newest is None else newest, time.monotonic()
        while self._rows or self._gap is not None:
            self._file.make_room()
            with self._changed:
                gap = self._gap
                batch = [*islice(self._rows.values(), self._batch)]
                self._being_written = {each.key for each in batch}
            try:
                self._file.add([each.what for each in batch if not isinstance(each.what, OperationPerformed)], gap)
            except Exception:
                self._note_failed(batch)
                raise
            self._note_written(batch, gap)
            self._missing += 0 if gap is None else gap.lost
        self._file.make_room()
        self._failing_since = None
        with self._changed:
            self._problem = None
        self._log_end()
        if time.monotonic() >= self._prune_at and self._ends_at is None:
            self._file.forget_old(self._time(*self._known_time))
            self._prune_at = time.monotonic() + _PRUNE_S

    def _log_end(self) -> None:
        """Log that the audit is written again, after this has lasted: a full disk accepts small writes now and then."""
        now = time.monotonic()
        if self._well_since is None:
            self._well_since = now
        if self._is_over:
            return
        if now < self._well_since + self._patience_s and self._ends_at is None:
            return
        logger.warning("the audit is being written again; %s missing from it", _counted(self._missing))
        if self._has_logged_problem:
            self._logged.clear()  # log the next problem even if it is of the same kind
        self._has_logged_problem, self._missing = False, 0

    def _time(self, known: float, since: float) -> float:
        """Return the time in seconds since 1970, as far as the clock can be trusted.

        A wrong clock far in the future would delete all traces. So the time is at most that of the newest operation in
        the file at the start, plus the time since then.
        """
        return min(self._clock(), known + time.monotonic() - since)

    def _note_failed(self, batch: Sequence[_Waiting]) -> None:
        with self._changed:
            # While this wrote, `close` may have counted these operations as lost.
            for each in batch:
                if each.key in self._being_written and each.key not in self._waiting:
                    self._lose(each.at, 1, self._problem or "there were more operations than could be written")
            self._being_written = frozenset()

    def _note_written(self, batch: Sequence[_Waiting], gap: Gap | None) -> None:
        for each in batch:
            with self._changed:  # one lock for each row, so that `record` never waits for the whole batch
                self._rows.pop(each.key, None)
                self._waiting.pop(each.key)
        with self._changed:
            self._being_written = frozenset()
            self._written += len(batch)
            if gap is not None and self._gap is not None:
                more = self._gap.lost - gap.lost  # operations that were lost during this write
                self._gap = replace(self._gap, since=gap.until, lost=more) if more else None

    def _fail(self, error: Exception) -> None:
        now = time.monotonic()
        self._well_since = None
        if self._failing_since is None:
            self._failing_since = now
        kind = _kind(error)
        if kind == "SQLITE_BUSY":
            if now - self._failing_since < self._patience_s:
                self._retry_at = now + _SOON_S
                return
        else:
            self._let_go()
        self._retry_at = now + self._retry_s
        problem = f"{self.path}: {reason_of(error)}"
        with self._changed:
            self._problem = problem
        self._has_logged_problem |= self._log_once(kind, "cannot write the audit: %s", problem)

    def _log_once(self, kind: str, message: str, detail: object) -> bool:
        """Log a warning, unless this kind of problem was logged recently. Returns whether it was logged."""
        now = time.monotonic()
        if now - self._logged.get(kind, -_LOG_AGAIN_S) < _LOG_AGAIN_S:
            return False
        self._logged[kind] = now
        logger.warning(message, detail)
        return True

    def _let_go(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _lose(self, at: float, count: int, reason: str) -> None:
        self._lost += count
        gap = self._gap
        self._gap = (
            Gap(at, at, count, reason)
            if gap is None
            else replace(gap, since=min(gap.since, at), until=max(gap.until, at), lost=gap.lost + count)
        )


def _kind(error: Exception) -> str:
    """Return the general kind of an error. A person would react in the same way to all errors of a kind."""
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0, "OSError")
    name: object = getattr(error, "sqlite_errorname", None)  # SQLITE_IOERR_WRITE
    return "_".join(name.split("_")[:2]) if isinstance(name, str) else type(error).__name__


def _counted(operations: int) -> str:
    match operations:
        case 0:
            return "nothing is"
        case 1:
            return "1 operation is"
        case _:
            return f"{operations:,} operations are"


def _bytes_without_arguments(event: OperationPerformed) -> int:
    """Return the memory that an event uses, without its arguments and without the fixed size of an event."""
    size = sum(map(sys.getsizeof, event.tool_ids))
    if event.path is not None:
        size += sum(map(sys.getsizeof, event.path))
    return size + sys.getsizeof(event.query) + sys.getsizeof(event.item)


def _bytes_of(arguments: object) -> int:
    """Return the memory that arguments use. With very many values, this is a lower bound, and at least a fixed size.

    Only JSON values of built-in types are measured, because measuring other types could run any code.
    """
    size, seen = 0, 0
    waiting = [arguments]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            members = cast("dict[object, object]", value)
            below = [members, members.values()]
            seen += 2 * len(members)
        elif kind is list or kind is tuple:
            items = cast("Sequence[object]", value)
            below = [items]
            seen += len(items)
        elif kind in _PLAIN:
            below = []
        else:
            return max(size, _UNWEIGHED_BYTES)
        size += sys.getsizeof(value)
        if seen > _MAX_WEIGHED:
            return max(size, _UNWEIGHED_BYTES)
        for each in below:
            waiting.extend(each)
    return size


def _without_arguments(event: OperationPerformed) -> OperationPerformed:
    """Return `event` with a mark instead of its arguments, like the mark where the redaction shortens them."""
    given = event.arguments
    more = f"{len(given):,} more" if isinstance(given, dict) else "more"
    return replace(event, arguments={"…": more}, input_schema=None)


def _row(event: OperationPerformed, redaction: Redaction) -> Row:
    arguments = None if event.arguments is None else redaction.arguments(event.arguments, event.input_schema)
    return (
        event.at,
        _name(event.trace_id),
        _name(event.principal),
        _name(event.operation),
        _name(event.outcome),
        event.duration_s,
        event.answer_bytes,
        None if event.query is None else _storable(redaction.text(event.query)),
        None if event.path is None else _names(event.path),
        _names(event.tool_ids),
        None if arguments is None else _storable(json.dumps(arguments, ensure_ascii=False)),
        event.approval,
        None if event.bundle is None else _name(event.bundle),
        None if event.item is None else _storable(redaction.text(event.item)),
        event.node_count,
    )


def _names(names: Sequence[str]) -> str:
    return json.dumps([_name(name) for name in names[:_MAX_NAMES]], ensure_ascii=False)


def _name(text: str) -> str:
    return _storable(text[:MAX_NAME])


def _storable(text: str) -> str:
    """Replace half surrogate pairs by `?`: JSON can contain them, but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
