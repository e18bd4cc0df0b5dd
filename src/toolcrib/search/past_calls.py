"""Reads from the audit, in the background, what principals searched for and then called successfully."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolcrib.audit.audit_file import DAY_S, MAX_NAME, reason_of
from toolcrib.audit.audit_reader import CALLING, AuditEntry, AuditReader, NoAudit
from toolcrib.audit.redaction import REDACTED
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import Principal
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.query import Query

logger = logging.getLogger(__name__)

POLL_S = 2.0
"""Seconds between two checks of the audit."""

_REST = 20
"""After each check, the thread pauses this many times as long as the check took, to limit its share of the CPU."""

MOST = 10_000
"""How many confirmed requests of one group are remembered, the latest ones."""

_MOST_TRACES = 5_000
"""How many traces keep their searches while they wait for a call, the latest ones."""

_MOST_SEARCHES = 50
"""How many searches of one trace are remembered, the latest ones."""

_AT_ONCE = 2_000
"""How many operations are read at once. Readers keep SQLite from freeing space."""

CLOSING_S = 2.0
"""How long closing may take. A file system that hangs must not keep the program from ending."""

_EXPIRE_S = 3_600.0
"""Seconds between two checks for outdated calls."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The known histories, by group."""

    config: HistoryConfig | None = None
    histories: Mapping[tuple[int, str], History] = field(default_factory=dict[tuple[int, str], History])


_NOTHING = _Known()


class Histories:
    """The past calls of each principal, or of each group that shares them, from an audit.

    New operations in the audit are followed, also those of other gateways. Deleted operations are discarded a few
    seconds later. All work is done in a separate thread, so asking for a history costs nothing and never fails. If the
    audit cannot be read, the last known histories stay.
    """

    def __init__(self, audit: Path, *, poll_s: float = POLL_S, clock: Callable[[], float] = time.time) -> None:
        """Read the audit that `AuditStore` writes at `audit`. The audit does not have to exist yet."""
        self._path = audit
        self._poll_s = poll_s
        self._clock = clock
        self._changed = threading.Condition()
        # These attributes are shared, and protected by `_changed`.
        self._config: HistoryConfig | None = None
        self._known = _NOTHING
        self._looked_for: HistoryConfig | None = None
        """The configuration with which the audit was last read."""
        self._has_ended = False
        self._thread: threading.Thread | None = None
        # These attributes belong to the thread.
        self._reading: _Reading | None = None
        self._problem: str | None = None

    def apply(self, config: HistoryConfig | None) -> None:
        """Apply `config` from now on. None discards everything."""
        with self._changed:
            if config == self._config or self._has_ended:
                return
            self._config, self._known = config, _NOTHING  # discard at once what is no longer shared
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="history", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def history_for(self, principal: Principal) -> History | None:
        """Return the past calls that count for `principal`. None if there is no past call.

        Returns the same object until something changes.
        """
        known = self._known
        # The audit truncates longer names, so entries with this name may belong to a different principal.
        if known.config is None or len(principal.id) >= MAX_NAME:
            return None
        return known.histories.get(known.config.group_of(principal.id))

    def settle(self, timeout_s: float) -> bool:
        """Wait until the current content of the audit is read, or cannot be read. Returns False if that takes
        longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._looked_for == self._config or self._has_ended, timeout_s)

    def close(self, wait_s: float = CLOSING_S) -> None:
        """Stop reading, and discard everything. Waits at most `wait_s` for a running check."""
        with self._changed:
            self._has_ended, self._config, self._known = True, None, _NOTHING
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(wait_s)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._has_ended:
            began, config = time.monotonic(), self._config
            if config is not None:
                self._look(config)
            elif self._reading is not None:
                self._let_go()
            pause_s = max(self._poll_s, _REST * (time.monotonic() - began))
            with self._changed:
                self._looked_for = config
                self._changed.notify_all()
                if self._config == config and not self._has_ended:
                    self._changed.wait(pause_s if config is not None else None)
        self._let_go()

    def _look(self, config: HistoryConfig) -> None:
        try:
            histories = self._read(config)
        except NoAudit:
            self._let_go()
            histories = {}
        except Exception as error:  # noqa: BLE001  the thread must survive any content of the file
            self._let_go()
            self._note(error)
            return
        self._problem = None
        if histories is not None:
            with self._changed:
                if self._config == config:
                    self._known = _Known(config, histories)

    def _read(self, config: HistoryConfig) -> dict[tuple[int, str], History] | None:
        """Return the current histories. None if nothing is new.

        Raises:
            NoAudit, OSError, sqlite3.Error: see `AuditReader`.
        """
        reading = self._reading
        if reading is None or reading.config != config or not reading.read_on():
            self._let_go()
            reading = self._reading = _Reading(self._path, config, self._clock)
            reading.read_on()
        return reading.histories()

    def _let_go(self) -> None:
        if self._reading is not None:
            reading, self._reading = self._reading, None
            reading.close()

    def _note(self, error: Exception) -> None:
        problem = reason_of(error) if isinstance(error, OSError | sqlite3.Error) else repr(error)
        if problem != self._problem:
            self._problem = problem
            logger.warning("past calls cannot be read from %s: %s", self._path, problem)


class _Reading:
    """One audit file, from its start to the last read operation."""

    def __init__(self, path: Path, config: HistoryConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self._clock = clock
        self._reader = AuditReader(path)
        self._version: int | None = None
        self._seen = 0
        """The id of the last operation that was read or skipped."""
        self._count = 0
        """The number of operations up to that one."""
        self._past = _Past(config)
        self._is_told = False
        """Whether the histories were returned before."""
        self._expire_at = 0.0

    def read_on(self) -> bool:
        """Read new operations. Returns False if the file was replaced, or if operations that were read are gone."""
        if self._reader.was_moved():
            return False
        now = self._clock()
        oldest = now - self.config.max_days * DAY_S
        # Read the version before the content: changes in between are then read next time.
        version = self._reader.version()
        if version != self._version:
            with self._reader.snapshot():
                last, count = self._reader.last_id(), self._reader.count()
                # Some of the operations that were read are gone, so everything is read again.
                if count - self._reader.count(after=self._seen) != self._count:
                    return False
            while steps := self._reader.steps(self._seen, last, oldest, _AT_ONCE):
                for step in steps:
                    self._past.take(step)
                self._seen = steps[-1].id
            self._version, self._seen, self._count = version, last, count
        if now >= self._expire_at:
            self._past.forget_before(oldest)
            self._expire_at = now + _EXPIRE_S
        return True

    def histories(self) -> dict[tuple[int, str], History] | None:
        """Return all histories. None if none has changed since the last call."""
        if self._is_told and not self._past.changed:
            return None
        self._is_told = True
        return self._past.histories()

    def close(self) -> None:
        self._reader.close()


@dataclass(slots=True)
class _Search:
    """A search that a call may still follow."""

    entry: AuditEntry
    query: Query
    called: dict[str, int] = field(default_factory=dict[str, int])
    """The tools that were already called after this search, with the ids of these calls."""


class _Past:
    """Operations in order, and the confirmed requests: calls of tools that the last matching search of the trace
    showed.

    If the trace then searches again in similar words, and calls a different tool, the first call is doubted: the model
    did not get what it wanted. The same words again mean that the request needs several tools.

    Traces of different principals are kept apart, because a trace id is only a claim of the client.
    """

    def __init__(self, config: HistoryConfig) -> None:
        self._config = config
        self._searches = OrderedDict[tuple[str, str], deque[_Search]]()
        self._confirmed = defaultdict[tuple[int, str], OrderedDict[int, Confirmed]](OrderedDict)
        """By group, the confirmed requests by the ids of their calls."""
        self._histories: dict[tuple[int, str], History] = {}
        self.changed = set[tuple[int, str]]()
        """Groups whose history has changed."""

    def take(self, entry: AuditEntry) -> None:
        if len(entry.principal) >= MAX_NAME:
            return
        trace = entry.trace_id, entry.principal
        if entry.operation not in CALLING:
            if entry.tool_ids and entry.query != REDACTED:
                self._searches.setdefault(trace, deque(maxlen=_MOST_SEARCHES)).append(
                    _Search(entry, Query.parse(entry.query or ""))
                )
                self._searches.move_to_end(trace)
                if len(self._searches) > _MOST_TRACES:
                    self._searches.popitem(last=False)
            return
        for search in reversed(self._searches.get(trace, ())):
            if search.entry.at <= entry.at and entry.tool_ids[0] in search.entry.tool_ids:
                if entry.tool_ids[0] not in search.called:
                    search.called[entry.tool_ids[0]] = entry.id
                    self._confirm(entry, search)
                return

    def _confirm(self, call: AuditEntry, search: _Search) -> None:
        group, tool_id = self._config.group_of(call.principal), call.tool_ids[0]
        confirmed = self._confirmed[group]
        confirmed[call.id] = Confirmed(search.query, tool_id, call.at, (call.principal, call.trace_id))
        if len(confirmed) > MOST:
            confirmed.popitem(last=False)
        for earlier in self._searches[call.trace_id, call.principal]:
            if _is_reworded(earlier.query, search.query):
                for key in (key for other, key in earlier.called.items() if other != tool_id):
                    if (doubted := confirmed.get(key)) is not None and doubted.at <= search.entry.at:
                        confirmed[key] = replace(doubted, replaced_by=doubted.replaced_by | {tool_id})
        self.changed.add(group)

    def forget_before(self, oldest: float) -> None:
        for group, confirmed in self._confirmed.items():
            if any(each.at < oldest for each in confirmed.values()):
                kept = OrderedDict((key, each) for key, each in confirmed.items() if each.at >= oldest)
                self._confirmed[group] = kept
                self.changed.add(group)

    def histories(self) -> dict[tuple[int, str], History]:
        """Return the history of each group. Only changed ones are computed again."""
        for group in self.changed:
            self._histories[group] = History.of(self._confirmed[group].values())
        self.changed.clear()
        return {group: history for group, history in self._histories.items() if len(history)}


@dataclass(frozen=True, slots=True)
class PastSearch:
    """A search in the audit that led to successful calls, as it can be searched again."""

    id: str
    principal: str
    at: float
    attempts: tuple[str, ...]
    """The queries of its trace since the last successful call before it. The last one is its own."""
    used: frozenset[str]
    """The tools that were called with success before in its trace."""
    called: frozenset[str]
    """The tools that were called with success for this search."""


@dataclass(frozen=True)
class Replay:
    """An audit in two parts by time: past calls to learn from, and searches to try with what was learned."""

    config: HistoryConfig
    histories: Mapping[tuple[int, str], History]
    learned: int
    """The number of searches in the first part that led to a successful call."""
    tried: tuple[PastSearch, ...]
    """The searches of the second part that led to a successful call, oldest first."""

    def history_for(self, principal: Principal) -> History | None:
        return self.histories.get(self.config.group_of(principal.id))


LEAST_TRIED = 10
"""How many searches that led to a successful call each part of a replayed audit must have."""


def replay(path: Path, config: HistoryConfig) -> Replay:
    """Read the audit at `path` for a replay. Half of the searches that led to a successful call are in each part.

    Raises:
        InvalidConfig: there is no audit, it cannot be read, it keeps no queries, or it has too few calls.
    """
    try:
        with AuditReader(path) as reader, reader.snapshot():
            steps = reader.steps(0, reader.last_id(), 0.0, -1)
    except NoAudit:
        raise InvalidConfig(f"there is no audit at {path} yet") from None
    except (OSError, sqlite3.Error) as error:
        raise InvalidConfig(f"the audit at {path} cannot be read: {reason_of(error)}") from error
    searches = [step for step in steps if step.operation not in CALLING]
    if searches and all(step.query == REDACTED for step in searches):
        raise InvalidConfig(f"the audit at {path} keeps no queries: all of them are redacted")
    found = _past_searches(steps)
    if len(found) < 2 * LEAST_TRIED:
        raise InvalidConfig(
            f"a replay needs {2 * LEAST_TRIED} searches that led to a successful call, and the audit at {path} has "
            f"{len(found)}",
            hints=["Use Toolcrib for longer, or write requests to a file and pass it as --queries."],
        )
    middle = len(found) // 2
    past = _Past(config)
    for step in steps:
        if step.at < found[middle].at:
            past.take(step)
    return Replay(config, past.histories(), middle, tuple(found[middle:]))


def _past_searches(steps: Iterable[AuditEntry]) -> list[PastSearch]:
    """Return the searches that led to a successful call, oldest first."""
    traces = defaultdict[tuple[str, str], list[AuditEntry]](list)
    for step in sorted(steps, key=lambda step: (step.at, step.id)):
        if len(step.principal) < MAX_NAME and step.query != REDACTED:
            traces[step.trace_id, step.principal].append(step)
    found: list[PastSearch] = []
    for (_, principal), entries in traces.items():
        used, called = frozenset[str](), defaultdict[int, set[str]](set)
        attempts, made = list[str](), dict[int, tuple[float, tuple[str, ...], frozenset[str]]]()
        shown = list[AuditEntry]()
        for entry in entries:
            if entry.operation not in CALLING:
                if entry.tool_ids:
                    shown.append(entry)
                attempts.append(entry.query or "")
                made[entry.id] = entry.at, tuple(attempts), used
                continue
            by = next((each for each in reversed(shown) if entry.tool_ids[0] in each.tool_ids), None)
            if by is not None:
                called[by.id].add(entry.tool_ids[0])
            used, attempts = used | {entry.tool_ids[0]}, []
        found += [PastSearch(str(key), principal, *made[key], frozenset(tools)) for key, tools in called.items()]
    return sorted(found, key=lambda search: (search.at, int(search.id)))


def _is_reworded(one: Query, other: Query) -> bool:
    """Whether two requests have different words, but at least half of all their words in common."""
    first, second = {*one.terms}, {*other.terms}
    return first != second and 2 * len(first & second) >= len(first | second)
