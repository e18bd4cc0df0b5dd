"""The audit: every operation, written to a file in the background, so that no operation feels it."""

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

from toolcrib.audit.file import MAX_AGE_S, MAX_BYTES, MAX_NAME, AuditFile, Gap, Row, reason_of
from toolcrib.audit.redaction import Redaction
from toolcrib.core.events import OperationPerformed
from toolcrib.core.shares import Shares

logger = logging.getLogger(__name__)

CAPACITY = 20_000
"""Operations that may wait to be written, while the file cannot be, before they are lost."""

CLOSE_S = 2.0
"""How long closing may take."""

GATHER_S = 0.05
"""How long events are gathered before they are written. Written at once, each would be while its answer is sent, which
the thread that writes holds up."""

ROOM_BYTES = 32 * 1024 * 1024
"""What all of them may take in memory. Principals share it: the one that takes most makes room."""

_MAX_WEIGHED = 4_000
"""Values in arguments up to which it is counted what they take; that takes some 0.3 ms."""

_UNWEIGHED_BYTES = 4 * 1024 * 1024
"""What more values than that count as, or values of a program's own types: as much as a request may be."""

_BATCH = 1_000
"""Events in one transaction; fewer where the file must stay smaller than usual, down to `_SMALL_BATCH`."""

_SMALL_BATCH = 50

_PRUNE_S = 3_600.0
"""How often the file is looked through for what is too old."""

_LOG_AGAIN_S = 3_600.0
"""A problem that was logged is not logged again within this time."""

_SOON_S = 0.05
"""Between attempts while closing, and while the file is locked and that is no problem yet."""

_MAX_NAMES = 50
"""Tool ids kept of one operation."""

_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class AuditCondition:
    """How an audit fares."""

    written: int
    """Operations, since the store was opened."""
    waiting: int
    """That are held until they can be written."""
    lost: int
    """Since the store was opened: performed, and not in the file."""
    problem: str | None
    """Why nothing can be written right now."""


class _Waiting(NamedTuple):
    """One operation that waits to be written: as an event, and later as the row of it."""

    key: int
    """They are written in the order of their keys."""
    what: OperationPerformed | Row
    at: float
    size: int
    """Bytes that it counts as."""


class AuditStore:
    """A `Recorder` that writes to one SQLite file, which several processes may share.

    Whatever is wrong with the file, no operation is disturbed. What cannot be written is held, up to `capacity`
    operations and `ROOM_BYTES`; where there is no room for arguments, an operation is held without them. More are
    lost, counted, and noted in the file once it can be written again. A principal that takes no more than its share of
    the room loses nothing. The file is tried for as long as anything is held.
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
        """`retry_s`: between attempts.

        `patience_s`: how long a file may be locked before that is a problem, and for how long it has to be written
        again before a problem is over.
        """
        self.path = path
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._keeps_arguments = keeps_arguments
        self._redaction = redaction or Redaction()
        self._least = ROOM_BYTES // capacity if capacity else ROOM_BYTES + 1
        """Bytes that one operation counts as at least, so that there are never more than `capacity`; 0 holds none."""
        self._retry_s = retry_s
        self._patience_s = patience_s
        self._clock = clock
        self._batch = min(_BATCH, max(_SMALL_BATCH, _BATCH * max_bytes // MAX_BYTES))

        self._changed = threading.Condition()
        # Shared, under `_changed`.
        self._waiting = Shares[int, _Waiting](ROOM_BYTES, attrgetter("size"))
        """All that waits, by key."""
        self._next_key = 0
        self._inbox: dict[int, _Waiting] = {}
        """Those that the thread has not taken in."""
        self._rows: dict[int, _Waiting] = {}
        """Those that it has, as rows."""
        self._being_written: Set[int] = frozenset()
        """Those of a write that has not ended. One of them that makes room is lost only if the write fails."""
        self._written = 0
        self._lost = 0
        self._gap: Gap | None = None
        """What was lost and is not in the file as such."""
        self._problem: str | None = None
        self._ends_at: float | None = None
        """When to give up what could not be written, on the clock of `time.monotonic`; None while the store is open."""

        # The thread's own.
        self._file: AuditFile | None = None
        self._failing_since: float | None = None
        self._retry_at = 0.0
        self._prune_at = 0.0
        self._known_time: tuple[float, float] | None = None
        """A time that has come for certain, and when that was, on the clock of `time.monotonic`."""
        self._logged: dict[str, float] = {}
        """When each kind of problem was logged last."""
        self._told = False
        """Was the problem logged, so that its end is to be?"""
        self._well_since: float | None = None
        """Since when all that came was written, on the clock of `time.monotonic`."""
        self._missing = 0
        """Operations noted as lost in the file since the last time that a problem was over."""
        # A daemon: a file system that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()

    def record(self, event: OperationPerformed) -> None:
        """Have `event` written soon; neither waits nor raises."""
        if not self._keeps_arguments and event.arguments is not None:
            event = replace(event, arguments=None, input_schema=None)  # not even held
        bare = _bytes_without_arguments(event)
        size = max(self._least, bare if event.arguments is None else bare + _bytes_of(event.arguments))
        with self._changed:
            if self._ends_at is not None:
                self._lose(event.at, 1, "the audit was closed")
                return
            if not self._waiting.can_take(event.principal, size):
                without = max(self._least, bare)
                if size == without or not self._waiting.can_take(event.principal, without):
                    self._lose(event.at, 1, self._problem or "more came than could be written")
                    return
                event, size = _without_arguments(event), without
            waiting = _Waiting(self._next_key, event, event.at, size)
            self._next_key += 1
            self._inbox[waiting.key] = waiting
            for gone in self._waiting.put(event.principal, waiting.key, waiting):
                self._make_way(gone)
            if len(self._inbox) == 1:  # it gathers from then on, and need not be woken for each
                self._changed.notify()

    def _make_way(self, gone: _Waiting) -> None:
        self._inbox.pop(gone.key, None)
        self._rows.pop(gone.key, None)
        if gone.key not in self._being_written:
            self._lose(gone.at, 1, self._problem or "more came than could be written")

    @property
    def condition(self) -> AuditCondition:
        with self._changed:
            return AuditCondition(self._written, len(self._waiting), self._lost, self._problem)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write what waits, and let go of the file, within `timeout_s` seconds; what is not written then is lost."""
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
                logger.warning("%s not in the audit: %s", _counted(left), self._problem or "writing took too long")

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
            except Exception as error:  # noqa: BLE001  the thread must outlive whatever a file does to it
                self._fail(error)
        if self._well_since is not None:
            self._tell_end()
        if self._file is not None:
            self._file.close()

    def _collect(self) -> bool:
        """Wait for something to do, and take in what is to be written; False once there is no more to be done."""
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
        """Whether the log says the truth: no problem in it is over without a word, and nothing missing untold."""
        return not (self._told or self._missing)

    def _hold(self, waiting: _Waiting) -> None:
        """Put the row of an event in its place, unless it had to make room meanwhile."""
        row = None
        if isinstance(event := waiting.what, OperationPerformed):
            try:
                row = _row(event, self._redaction)
            except Exception as error:  # noqa: BLE001  one event that is not as it should be must not cost the others
                self._log_once(type(error).__name__, "an operation cannot be written to the audit: %s", error)
        with self._changed:
            if self._inbox.pop(waiting.key, None) is None:
                return
            if row is None:
                self._waiting.pop(waiting.key)
                self._lose(waiting.at, 1, self._problem or "it could not be read")
                return
            size = min(waiting.size, max(self._least, sum(map(sys.getsizeof, row))))
            held = waiting._replace(what=row, size=size)
            self._rows[waiting.key] = held
            self._waiting.replace(waiting.key, held)

    def _write(self) -> None:
        """Write all that is held, and see to the file's size.

        Raises:
            OSError, sqlite3.Error: it cannot be done now; what is not written is held still.
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
        self._tell_end()
        if time.monotonic() >= self._prune_at and self._ends_at is None:
            self._file.forget_old(self._time(*self._known_time))
            self._prune_at = time.monotonic() + _PRUNE_S

    def _tell_end(self) -> None:
        """Log that the audit is written again, once that has lasted: a full disk takes a little at times."""
        now = time.monotonic()
        if self._well_since is None:
            self._well_since = now
        if self._is_over:
            return
        if now < self._well_since + self._patience_s and self._ends_at is None:
            return
        logger.warning("the audit is written again; %s missing from it", _counted(self._missing))
        if self._told:
            self._logged.clear()  # the next problem is another one
        self._told, self._missing = False, 0

    def _time(self, known: float, since: float) -> float:
        """The time, in seconds since 1970, as far as it can be relied on.

        A clock that is wrong and far ahead would have everything deleted. So it is believed only as far as the newest
        operation that was in the file at the start, and the time that went by since then.
        """
        return min(self._clock(), known + time.monotonic() - since)

    def _note_failed(self, batch: Sequence[_Waiting]) -> None:
        with self._changed:
            # Closing may have given them up meanwhile.
            for each in batch:
                if each.key in self._being_written and each.key not in self._waiting:
                    self._lose(each.at, 1, self._problem or "more came than could be written")
            self._being_written = frozenset()

    def _note_written(self, batch: Sequence[_Waiting], gap: Gap | None) -> None:
        for each in batch:
            with self._changed:  # each by itself, so that `record` never waits for all of them
                self._rows.pop(each.key, None)
                self._waiting.pop(each.key)
        with self._changed:
            self._being_written = frozenset()
            self._written += len(batch)
            if gap is not None and self._gap is not None:
                more = self._gap.lost - gap.lost  # that were lost while it was written
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
        self._told |= self._log_once(kind, "the audit is not written: %s", problem)

    def _log_once(self, kind: str, message: str, told: object) -> bool:
        """Warn, unless that was done for this kind of problem not long ago; says whether it was done now."""
        now = time.monotonic()
        if now - self._logged.get(kind, -_LOG_AGAIN_S) < _LOG_AGAIN_S:
            return False
        self._logged[kind] = now
        logger.warning(message, told)
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
    """What went wrong, coarsely: what a person would do about it is the same for all of a kind."""
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
    """What an event takes in memory besides its arguments, and besides what every event takes."""
    size = sum(map(sys.getsizeof, event.tool_ids))
    if event.path is not None:
        size += sum(map(sys.getsizeof, event.path))
    return size + sys.getsizeof(event.query) + sys.getsizeof(event.item)


def _bytes_of(arguments: object) -> int:
    """What arguments take in memory; a lower bound where they hold very many values, and at least what those count as.

    Nothing but JSON values of Python's own types is looked into: others may do anything when they are.
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
    """`event` with a mark in the place of its arguments, as where the redaction cuts them."""
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
    """`text` with `?` for half surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
