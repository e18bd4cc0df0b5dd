"""Tests that the audit records every operation, keeps its size limit, and never blocks the program."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.auditing import entries, gaps, performed, queries, until_written
from tests.until import DEADLINE_S, until_blocking

from toolcrib.audit import store as audit
from toolcrib.audit.audit_file import APPLICATION_ID, DAY_S, FORGOTTEN, LAYOUT, AuditFile, excess_of
from toolcrib.audit.audit_reader import AuditReader, TraceFilter
from toolcrib.audit.redaction import Redaction
from toolcrib.audit.store import AuditStore
from toolcrib.core.events import OperationPerformed

FAST_S = 0.01
"""The time between two attempts to write."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit.sqlite"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("toolcrib")]


def make(path: Path) -> None:
    """Create an empty audit file."""
    AuditFile(path, max_bytes=1_000_000, max_age_s=DAY_S).close()


def in_files(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


# -- recording --------------------------------------------------------------------------------------------------------


def test_operations_are_written_in_batches_and_close_writes_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "GATHER_S", 3_600.0)
    with AuditStore(path) as store:
        for number in range(3):
            store.record(performed(number))
        assert store.condition.written == 0
    assert store.condition.written == 3
    assert sorted(filter(None, queries(path))) == ["query 0", "query 1", "query 2"]


def test_a_recorded_operation_is_read_unchanged(path: Path) -> None:
    event = performed(
        at=1_790_000_000.5,
        trace_id="00000000000000001fb260fe2d21f4fc",
        principal="ada@example.com",
        operation="search_tool_by_category",
        outcome="TOOL_ERROR",
        approval="kept",
        bundle="night",
        item="toolcrib://files/file:///{path}",
        duration_s=1.25,
        answer_bytes=4711,
        query="größte Datei",
        path=("Work", "Files"),
        tool_ids=("files.find", "files.size"),
        node_count=3,
    )
    with AuditStore(path) as store:
        store.record(event)
    (entry,) = entries(path)
    for name in entry.__slots__:
        assert name == "id" or getattr(entry, name) == getattr(event, name), name
    assert (store.condition.written, store.condition.lost, store.condition.problem) == (1, 0, None)


def test_entries_persist_after_a_restart(path: Path) -> None:
    for number in range(3):
        with AuditStore(path) as store:
            store.record(performed(number))
    assert queries(path) == ["query 0", "query 1", "query 2"]


@pytest.mark.anyio
async def test_two_thousand_concurrent_operations_are_all_recorded(path: Path) -> None:
    with AuditStore(path) as store:
        async with anyio.create_task_group() as tasks:
            for number in range(2_000):
                tasks.start_soon(anyio.to_thread.run_sync, store.record, performed(number))
        assert (await anyio.to_thread.run_sync(lambda: store.condition)).lost == 0
    assert store.condition.written == 2_000
    assert sorted(queries(path), key=str) == sorted((f"query {number}" for number in range(2_000)), key=str)


def test_the_audit_file_and_folder_are_private(path: Path) -> None:
    with AuditStore(path) as store:
        store.record(performed())
        until_written(store)
        assert {file.name for file in path.parent.iterdir()} > {path.name}
        for each in (path.parent, *path.parent.iterdir()):
            assert each.stat().st_mode & 0o077 == 0, each


def test_arguments_are_recorded_only_when_enabled(path: Path) -> None:
    call = performed(arguments={"path": "a-file", "phrase": "hunter2"}, input_schema={"properties": {}})
    with AuditStore(path) as store:
        store.record(call)
    assert b"a-file" not in in_files(path)
    with AuditStore(path, keeps_arguments=True) as store:
        store.record(call)
    assert [entry.arguments for entry in entries(path)] == [None, {"path": "a-file", "phrase": "hunter2"}]


def test_a_query_with_a_secret_is_redacted(path: Path) -> None:
    with AuditStore(path) as store:
        store.record(performed(query="use the key AKIAIOSFODNN7EXAMPLE"))
    assert queries(path) == ["[redacted]"]
    assert b"AKIA" not in in_files(path)


class Raising(Mapping[str, Any]):
    """Arguments that raise an error when they are read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


def test_a_uri_with_a_secret_is_redacted(path: Path) -> None:
    uris = ["memo://1", "db://ada:hunter2@host/x", "https://host/?access_token=hunter2", "memo://2?customer=hunter2"]
    with AuditStore(path, redaction=Redaction(["customer"])) as store:
        for number, uri in enumerate(uris):
            store.record(performed(number, item=uri, arguments={"uri": "hunter2"}))
    assert [entry.item for entry in entries(path)] == ["memo://1", *["[redacted]"] * 3]
    assert b"hunter2" not in in_files(path)


def test_an_operation_that_cannot_be_written_affects_no_other(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AuditStore(path, keeps_arguments=True) as store:
        store.record(performed(0, arguments=Raising()))
        store.record(performed(1, arguments=Raising()))
        store.record(performed(2, query="half a pair \ud800", principal="\udfff", arguments={"\ud800": "\ud800"}))
        store.record(performed(3, tool_ids=("x" * 10_000,) * 1_000, query="x" * 100_000))
    half, long = entries(path)
    assert (half.query, half.principal, half.arguments) == ("half a pair ?", "?", {"?": "?"})
    assert len(long.query or "") < 1_000
    assert sum(map(len, long.tool_ids)) <= 10_000
    assert store.condition.lost == 2
    assert sum("cannot be written" in warning for warning in warnings(caplog)) == 1


EARLIEST = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, trace_id TEXT NOT NULL, principal TEXT NOT NULL,
    operation TEXT NOT NULL, outcome TEXT NOT NULL, duration_s REAL NOT NULL, answer_bytes INTEGER NOT NULL,
    query TEXT, path TEXT, tool_ids TEXT NOT NULL, arguments TEXT);
CREATE TABLE gaps (
    id INTEGER PRIMARY KEY AUTOINCREMENT, since REAL NOT NULL, until REAL NOT NULL, lost INTEGER NOT NULL,
    reason TEXT NOT NULL);
INSERT INTO events (at, trace_id, principal, operation, outcome, duration_s, answer_bytes, query, tool_ids)
    VALUES (unixepoch(), 't', 'local', 'search_tools', 'ok', 0.1, 1, 'before', '[]');
PRAGMA user_version = 1;
"""
SECOND = f"{EARLIEST} ALTER TABLE events ADD COLUMN approval TEXT; PRAGMA user_version = 2;"
THIRD = f"""{SECOND} ALTER TABLE events ADD COLUMN bundle TEXT; ALTER TABLE events ADD COLUMN item TEXT;
PRAGMA user_version = 3;"""
EARLIER = {1: EARLIEST, 2: SECOND, 3: THIRD}
"""Audit files of earlier versions, by layout number."""


@pytest.mark.parametrize("layout", EARLIER)
def test_an_audit_of_an_earlier_version_can_be_read_and_extended(layout: int, path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as earlier:
        earlier.executescript(EARLIER[layout] + f"PRAGMA application_id = {APPLICATION_ID}")
    earlier.close()
    with AuditReader(path) as reader:  # open during all writes
        assert [(entry.query, entry.approval) for entry in reader.entries(TraceFilter())] == [("before", None)]
        assert reader.entries(TraceFilter(bundle="night")) == reader.traces(TraceFilter(bundle="night"), 1) == []
        for number in range(2):
            with AuditStore(path) as store:
                store.record(performed(number, approval="once", bundle="night", item="plan", node_count=2))
        assert [
            (entry.query, entry.approval, entry.bundle, entry.item, entry.node_count)
            for entry in reader.entries(TraceFilter())
        ] == [
            ("before", None, None, None, None),
            ("query 0", "once", "night", "plan", 2),
            ("query 1", "once", "night", "plan", 2),
        ]
        assert len(reader.entries(TraceFilter(bundle="night"))) == 2


# -- size -------------------------------------------------------------------------------------------------------------


def test_a_full_file_deletes_the_oldest_complete_traces(path: Path) -> None:
    megabyte = 1024 * 1024
    some = random.Random(1)
    with AuditStore(path, max_bytes=megabyte) as store:
        ids = [f"{some.getrandbits(128):032x}" for _ in range(1_000)]
        for number in range(1_002):
            for step in range(3):  # from three interleaved traces
                if 0 <= number - step < 1_000:
                    query = f"{number - step}.{step} {'x' * 400}"
                    store.record(performed(trace_id=ids[number - step], query=query, at=time.time()))
        until_written(store)
        assert sum(file.stat().st_size for file in path.parent.glob("audit.sqlite*")) < 2 * megabyte
    assert path.stat().st_size <= megabyte
    assert store.condition.lost == 0
    left = Counter(int(str(query).split(".")[0]) for query in queries(path))
    assert 0 < min(left) < 900
    assert left == dict.fromkeys(range(min(left), 1_000), 3)


def test_a_single_trace_that_fills_the_file_loses_its_oldest_operations(path: Path) -> None:
    with AuditStore(path, max_bytes=1024 * 1024) as store:
        for number in range(4_000):
            store.record(performed(number, trace_id="one", query=f"{number} {'x' * 400}"))
        until_written(store)
    assert path.stat().st_size <= 1024 * 1024
    left = [int(str(query).split()[0]) for query in queries(path)]
    assert left == [*range(left[0], 4_000)]
    assert left[0] > 0


def test_entries_of_a_busy_principal_do_not_evict_those_of_others(path: Path) -> None:
    with AuditStore(path, max_bytes=1024 * 1024) as store:
        for number in range(20):
            store.record(performed(number, principal="boss", operation="call_tool", query=None))
        until_written(store)
        for number in range(20, 12_020):
            store.record(performed(number, principal="intern", query=f"{number} payslips"))
        until_written(store)
        assert store.condition.lost == 0
    left = entries(path)
    assert [int(entry.trace_id, 16) - 1 for entry in left if entry.principal == "boss"] == [*range(20)]
    of_intern = [entry for entry in left if entry.principal == "intern"]
    assert of_intern[-1].query == "12019 payslips"
    assert 0 < len(of_intern) < 9_000
    noted = gaps(path)
    assert {gap.reason for gap in noted} == {FORGOTTEN}
    assert sum(gap.lost for gap in noted) == 12_000 - len(of_intern)
    assert len(noted) <= 2, "one row for each day"
    assert max(gap.until for gap in noted) < of_intern[0].at


def test_reusing_the_trace_id_of_a_principal_does_not_evict_its_entries(path: Path) -> None:
    with AuditStore(path, max_bytes=1024 * 1024) as store:
        for principal, count in (("boss", 20), ("intern", 6_000)):
            for number in range(count):
                store.record(performed(principal=principal, query=f"{number} {'x' * 400}"))
            until_written(store)
    kept = Counter(entry.principal for entry in entries(path))
    assert kept["boss"] == 20
    assert kept["intern"] < 5_000


def test_evicting_expired_entries_is_not_recorded_as_a_gap(path: Path) -> None:
    now = time.time()
    with AuditStore(path) as store:
        for number in range(4_000):
            store.record(performed(number, at=now - 4_000.0 + number, query="x" * 400))
        until_written(store)
    with AuditStore(path, max_bytes=1024 * 1024, max_age_s=3_600.0, clock=lambda: now) as store:
        until_blocking(lambda: path.stat().st_size <= 1024 * 1024, "there is room")
    forgotten = 4_000 - len(entries(path))
    assert forgotten > 1_000
    assert sum(gap.lost for gap in gaps(path)) == forgotten - 399, "the others were older than an hour"


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1_000), min_size=1), st.data())
def test_eviction_reduces_the_largest_principals_to_the_same_size(taken: dict[str, int], data: st.DataObject) -> None:
    goal = data.draw(st.integers(1, sum(taken.values())))
    excess = excess_of(taken, goal)
    assert goal <= sum(excess.values()) < goal + len(taken)
    left = {principal: size - excess[principal] for principal, size in taken.items()}
    givers = [left[principal] for principal, size in excess.items() if size]
    assert max(givers) == min(givers)
    assert all(left[principal] <= max(givers) + 1 for principal, size in excess.items() if not size)


def test_entries_are_not_deleted_by_a_single_start_with_a_wrong_clock(
    path: Path,
) -> None:
    now = time.time()
    with AuditStore(path) as store:
        for number in range(3):
            store.record(performed(number, at=now - 60.0))
    ahead = now + 40 * DAY_S
    with AuditStore(path, clock=lambda: ahead) as store:
        store.record(performed(3, at=ahead))
        until_written(store)
    assert len(queries(path)) == 4
    with AuditStore(path, clock=lambda: now) as store:  # the clock is right again
        store.record(performed(4, at=now))
        until_written(store)
    assert len(queries(path)) == 5
    with AuditStore(path, clock=lambda: ahead + 60.0) as store:  # the first clock was right
        store.record(performed(5, at=ahead + 60.0))
        until_blocking(lambda: queries(path) == ["query 3", "query 5"], "old entries are deleted")


def test_a_trace_is_deleted_when_its_last_operation_is_too_old(path: Path) -> None:
    now = 1_790_000_000.0 // DAY_S * DAY_S + DAY_S / 2

    def days_ago(days: float, trace_id: str) -> OperationPerformed:
        return performed(at=now - days * DAY_S, trace_id=trace_id, query=f"{days} days ago")

    with AuditStore(path, max_age_s=1_000 * DAY_S, clock=lambda: now) as store:
        for days, trace_id in [
            (31.2, "old"),
            (31.1, "old"),
            (30.1, "just"),
            (29.9, "just"),
            (300, "long"),
            (1, "long"),
        ]:
            store.record(days_ago(days, trace_id))
    with AuditStore(path, max_age_s=30 * DAY_S, clock=lambda: now) as store:
        store.record(days_ago(0, "new"))
        until_written(store)
    for forgotten in (b"31.2 days", b"31.1 days", b"300 days"):
        assert forgotten not in in_files(path), "it was deleted but its bytes are still in the file"
    # A trace over many days is deleted day by day, because it may never end.
    assert queries(path) == ["30.1 days ago", "29.9 days ago", "1 days ago", "0 days ago"]


def test_deleted_entries_free_disk_space(path: Path) -> None:
    with AuditStore(path, max_age_s=time.time()) as store:
        for number in range(500):
            store.record(performed(number, at=1_000.0, query="x" * 400))
        store.record(performed(500))
        until_written(store)
    before = path.stat().st_size
    with AuditStore(path):
        until_blocking(lambda: queries(path) == ["query 500"], "all old entries are deleted")
    assert path.stat().st_size < before // 4


# -- write failures ---------------------------------------------------------------------------------------------------

HOLDER = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Runs a process that locks the file for the block."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield


def test_a_short_lock_of_the_file_is_no_problem(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AuditStore(path, patience_s=3_600) as store:
        until_written(store)
        with locked(path):
            store.record(performed(1))
            store.record(performed(2))
            assert store.condition.waiting == 2
        until_written(store)
    assert queries(path) == ["query 1", "query 2"]
    assert warnings(caplog) == []


def test_entries_lost_during_a_lock_are_counted_and_recorded_as_a_gap(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with AuditStore(path, capacity=3, retry_s=FAST_S, patience_s=0.0) as store:
        store.record(performed(0))
        until_written(store)
        with locked(path):
            store.record(performed(1))
            until_blocking(lambda: store.condition.problem, "the lock is reported as a problem")
            for number in range(2, 10):
                store.record(performed(number, at=1_000.0 + number))
            condition = store.condition
            assert "database is locked" in str(condition.problem)
            assert (condition.written, condition.waiting, condition.lost) == (1, 3, 6)
        until_written(store)
        store.record(performed(10))
    assert queries(path) == ["query 0", "query 1", "query 2", "query 3", "query 10"]
    (gap,) = gaps(path)
    assert (gap.since, gap.until, gap.lost) == (1_004.0, 1_009.0, 6)
    assert "database is locked" in gap.reason
    assert (store.condition.written, store.condition.lost) == (5, 6)
    (first, second) = warnings(caplog)
    assert first.startswith("cannot write the audit: ")
    assert second == "the audit is being written again; 6 operations are missing from it"


@pytest.mark.parametrize("capacity", [0, 1, 7])
def test_the_queue_holds_exactly_its_capacity(capacity: int, path: Path) -> None:
    path.mkdir(parents=True)  # a folder at the path of the file
    with AuditStore(path, capacity=capacity, retry_s=FAST_S, patience_s=0.0) as store:
        for number in range(10):
            store.record(performed(number))
        condition = store.condition
        assert (condition.waiting, condition.lost) == (capacity, 10 - capacity)


def test_a_principal_that_fills_the_queue_loses_only_its_own_entries(path: Path) -> None:
    with AuditStore(path, capacity=10, retry_s=FAST_S, patience_s=0.0) as store:
        store.record(performed(0))
        until_written(store)
        with locked(path):
            store.record(performed(1, principal="eve"))
            until_blocking(lambda: store.condition.problem, "the lock is reported as a problem")
            for number in range(2, 31):
                store.record(performed(number, principal="eve"))
            for number in range(31, 34):
                store.record(performed(number, principal="ada"))
            # The writer may hold an entry for a moment, while it tries again.
            until_blocking(lambda: (store.condition.waiting, store.condition.lost) == (10, 23), "the queue is full")
        until_written(store)
    by_principal = Counter(entry.principal for entry in entries(path))
    assert by_principal == {"local": 1, "eve": 7, "ada": 3}
    assert (store.condition.written, store.condition.lost) == (11, 23)
    assert sum(gap.lost for gap in gaps(path)) == 23


@pytest.mark.parametrize("fails", [False, True], ids=["write succeeds", "write fails"])
def test_entries_evicted_during_a_write_are_lost_only_if_it_fails(
    fails: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = AuditFile.add
    begun, go_on = threading.Event(), threading.Event()

    def slow(file: AuditFile, *given: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(DEADLINE_S)
            if fails:
                raise sqlite3.OperationalError
        add(file, *given)

    monkeypatch.setattr(AuditFile, "add", slow)
    with AuditStore(path, capacity=4, retry_s=FAST_S, patience_s=0.0) as store:
        for number in range(4):
            store.record(performed(number, principal="eve"))
        assert begun.wait(DEADLINE_S)
        store.record(performed(4, principal="ada"))
        assert (store.condition.waiting, store.condition.lost) == (4, 0)
        go_on.set()
        until_written(store)
    lost = int(fails)
    assert queries(path) == [f"query {number}" for number in range(lost, 5)]
    assert (store.condition.written, store.condition.lost) == (5 - lost, lost)
    assert sum(gap.lost for gap in gaps(path)) == lost


LARGE = {
    "a long string": ({"text": "x" * 1_000_000}, 5),
    "more values than are counted": ({"rows": [0] * 10_000}, 1),
    "values deep inside": ({"rows": [[0] * 100 for _ in range(100)]}, 1),
    "values of a program's own types": ({"rows": range(3)}, 1),
}
"""Arguments, and for how many operations they fit into the queue while the writer is blocked."""


@pytest.mark.parametrize(("arguments", "fit"), LARGE.values(), ids=LARGE)
def test_waiting_arguments_beyond_the_memory_limit_are_omitted(
    arguments: dict[str, Any], fit: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ROOM_BYTES", 10_000_000)
    hanging = threading.Event()
    reached = threading.Event()

    class Hanging(Raising):
        def __iter__(self) -> Iterator[str]:
            reached.set()
            hanging.wait(DEADLINE_S)
            raise RuntimeError

    with AuditStore(path, keeps_arguments=True) as store:
        store.record(performed(0, arguments=Hanging()))
        assert reached.wait(DEADLINE_S)
        for number in range(1, 21):
            store.record(performed(number, arguments={**arguments}, input_schema={}))
        hanging.set()
        until_written(store)
    left_out = {"…": "1 more"}
    whole = [entry.query for entry in entries(path) if entry.arguments != left_out]
    assert whole == [f"query {number}" for number in range(1, 1 + fit)]
    assert (store.condition.written, store.condition.lost) == (20, 1)


def test_closing_drops_unwritable_entries_and_logs_their_number(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = AuditStore(path, retry_s=FAST_S, patience_s=0.0)
    store.record(performed(0))
    until_written(store)
    with locked(path):
        store.record(performed(1))
        store.record(performed(2))
        store.close(0.3)
        assert (store.condition.waiting, store.condition.lost) == (0, 2)
        store.record(performed(3))
        store.close(0.3)
        assert store.condition.lost == 3
    assert any("2 operations are missing from the audit" in warning for warning in warnings(caplog))
    assert queries(path) == ["query 0"]


def foreign(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def another_program(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE letters (text)")
    file.close()


def newer(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE events (everything)")
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    file.close()


def a_folder(path: Path) -> None:
    path.mkdir()


def damaged(path: Path) -> None:
    with AuditStore(path) as store:
        for number in range(500):
            store.record(performed(number, trace_id=f"{random.Random(number).getrandbits(128):032x}"))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 8192) + whole[-4096:])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (foreign, "not a database"),
        (another_program, "not a Toolcrib audit"),
        (newer, "newer version"),
        (a_folder, "unable to open"),
        (damaged, "malformed"),
    ],
)
def test_an_unusable_file_is_left_unchanged_until_it_is_moved(
    spoil: Any, reason: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    with AuditStore(path, capacity=2, retry_s=FAST_S) as store:
        for number in range(1_000, 1_005):
            store.record(performed(number))
        until_blocking(lambda: reason in str(store.condition.problem), f"it is {reason}")
        assert (store.condition.written, store.condition.waiting, store.condition.lost) == (0, 2, 3)
        assert before is None or path.read_bytes() == before
        path.rename(path.with_name("aside"))
        until_written(store)
    assert queries(path) == ["query 1000", "query 1001"]
    assert sum(gap.lost for gap in gaps(path)) == 3
    assert sum("cannot write the audit" in warning for warning in warnings(caplog)) == 1


def test_a_folder_that_cannot_be_created_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "deep" / "audit.sqlite"
    with AuditStore(path, retry_s=FAST_S) as store:
        store.record(performed(1))
        until_blocking(lambda: store.condition.problem, "a file exists at the path of the folder")
        (tmp_path / "file").unlink()
        until_written(store)
    assert queries(path) == ["query 1"]
    (first, second) = warnings(caplog)
    assert first == f"cannot write the audit: {path}: Not a directory: {path.parent}"
    assert second == "the audit is being written again; nothing is missing from it"


def test_a_removed_file_or_folder_is_created_again(path: Path) -> None:
    with AuditStore(path, retry_s=FAST_S) as store:
        store.record(performed(1))
        until_written(store)
        aside = path.parent.rename(path.parent.with_name("aside")) / path.name
        store.record(performed(2))
        until_written(store)
        path.unlink()
        store.record(performed(3))
        until_written(store)
    assert (queries(aside), queries(path)) == (["query 1"], ["query 3"])


def test_a_dropped_table_is_logged_once_and_counts_losses(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AuditStore(path, capacity=1, retry_s=FAST_S) as store:
        store.record(performed(0))
        until_written(store)
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE events")
        other.close()
        store.record(performed(1))
        until_blocking(lambda: "no such table" in str(store.condition.problem), "the missing table is reported")
        store.close(0.1)
    assert store.condition.lost == 1
    assert sum("cannot write the audit" in warning for warning in warnings(caplog)) == 1


# -- other processes --------------------------------------------------------------------------------------------------

COMMON = """
import sys, time
from pathlib import Path
from toolcrib.core.events import OperationPerformed
from toolcrib.audit import store as audit
from toolcrib.audit.store import AuditStore

path = Path(sys.argv[1])

def performed(number):
    return OperationPerformed(time.time(), f"{sys.argv[2]}{number}", "local", "list", "ok", 0.1, 1, query="x" * 100)

def until(happened):
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, store.condition
        time.sleep(0.01)
"""

WRITER = """
with AuditStore(path, retry_s=0.01) as store:
    for number in range(2_000):
        store.record(performed(number))
    until(lambda: store.condition.written == 2_000)
sys.exit(store.condition.lost)
"""


def script(text: str, path: Path, name: str = "one") -> list[str]:
    return [sys.executable, "-c", COMMON + text, str(path), name]


@pytest.mark.parametrize("fresh", [True, False])
def test_two_processes_can_write_to_one_file(fresh: bool, path: Path) -> None:
    if not fresh:
        make(path)
    writers = [subprocess.Popen(script(WRITER, path, name)) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    written = [entry.trace_id for entry in entries(path)]
    assert sorted(written) == sorted(f"{name}{number}" for name in ("one", "two") for number in range(2_000))


KILLED = """
store = AuditStore(path)
number = 0
while True:
    for _ in range(10):
        store.record(performed(number))
        number += 1
    until(lambda: store.condition.waiting == 0)
    print(number, flush=True)
"""


def test_written_entries_survive_a_killed_process(path: Path) -> None:
    with subprocess.Popen(script(KILLED, path), stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(20)][-1]
        writer.kill()
    written = [entry.trace_id for entry in entries(path)]
    assert written == [f"one{number}" for number in range(len(written))]
    assert len(written) >= told
    with AuditStore(path) as store:
        store.record(performed(7))
    assert len(entries(path)) == len(written) + 1


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
with AuditStore(path, capacity=3_000, retry_s=0.01) as store:
    store.record(performed(0))
    until(lambda: store.condition.written == 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    for number in range(1, 4_001):
        store.record(performed(number))
    until(lambda: store.condition.problem)
    print(store.condition.problem)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    until(lambda: store.condition.problem is None and not store.condition.waiting)
    print(store.condition.written + store.condition.lost)
"""


def test_a_full_disk_loses_only_entries_beyond_the_queue(path: Path) -> None:
    pytest.importorskip("resource", reason="a limit on the size of files is set as POSIX has it")
    ended = subprocess.run(script(FULL, path), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    problem, total = ended.stdout.splitlines()
    assert "disk" in problem
    assert total == "4001"
    assert ended.stderr.count("cannot write the audit") == 1
    assert len(entries(path)) + sum(gap.lost for gap in gaps(path)) == 4_001


FULL_AT_TIMES = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
numbers = iter(range(100_000))

def record(count):
    for _ in range(count):
        store.record(performed(next(numbers)))

def fill():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    record(1_000)
    until(lambda: store.condition.problem)

def make_space():
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    until(lambda: store.condition.problem is None and not store.condition.waiting)

with AuditStore(path, retry_s=0.01, patience_s=float(sys.argv[2])) as store:
    record(1)
    make_space()
    fill()
    make_space()
    fill()
    if sys.argv[2] == "3600":
        make_space()
    store.close(0.2)
"""


def test_a_disk_that_fills_up_again_is_logged_again(path: Path) -> None:
    pytest.importorskip("resource", reason="a limit on the size of files is set as POSIX has it")
    ended = subprocess.run(script(FULL_AT_TIMES, path, "0"), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    full, again, full_again, given_up = ended.stderr.splitlines()
    assert full.startswith("cannot write the audit: ")
    assert again == "the audit is being written again; nothing is missing from it"
    assert full_again == full
    assert given_up.startswith("1,000 operations are missing from the audit: ")


def test_an_alternately_full_disk_is_logged_as_one_problem(path: Path) -> None:
    pytest.importorskip("resource", reason="a limit on the size of files is set as POSIX has it")
    ended = subprocess.run(script(FULL_AT_TIMES, path, "3600"), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    full, again = ended.stderr.splitlines()
    assert full.startswith("cannot write the audit: ")
    assert again == "the audit is being written again; nothing is missing from it"
    assert len(entries(path)) == 2_001


READ_ONLY = """
import ctypes, os
if os.geteuid() == 0:  # root ignores file modes unless it drops this capability
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
target = path if sys.argv[2] == "file" else path.parent
mode = target.stat().st_mode
target.chmod(0o400 if sys.argv[2] == "file" else 0o500)
with AuditStore(path, capacity=2, retry_s=0.01) as store:
    for number in range(5):
        store.record(performed(number))
    until(lambda: store.condition.problem)
    print(store.condition.problem)
    target.chmod(mode)
    until(lambda: store.condition.problem is None and not store.condition.waiting)
    print(store.condition.written, store.condition.lost)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="gives up rights as Linux has it")
@pytest.mark.parametrize(
    ("what", "reason"), [("file", "sqlite: the file is read-only"), ("folder", "attempt to write a readonly database")]
)
def test_a_read_only_file_or_folder_is_retried_until_writable(what: str, reason: str, path: Path) -> None:
    make(path)
    ended = subprocess.run(script(READ_ONLY, path, what), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    problem, counts = ended.stdout.splitlines()
    assert problem.endswith(reason)
    assert "Errno" not in problem
    assert counts == "2 3"
    assert ended.stderr.count("cannot write the audit") == 1
    assert [entry.trace_id for entry in entries(path)] == [f"{what}0", f"{what}1"]


# -- reading ----------------------------------------------------------------------------------------------------------


def test_reading_a_snapshot_does_not_block_writing(path: Path) -> None:
    with AuditStore(path, max_bytes=1024 * 1024, patience_s=0.0) as store:
        store.record(performed(0))
        until_written(store)
        with AuditReader(path) as reader, reader.snapshot():
            assert len(reader.entries(TraceFilter())) == 1
            for number in range(1, 100):
                store.record(performed(number))
            until_written(store)
            assert len(reader.entries(TraceFilter())) == 1, "a snapshot is of one moment"
    assert len(entries(path)) == 100


def test_an_endless_reader_cannot_grow_the_file_without_limit(path: Path) -> None:
    most = 1024 * 1024
    with AuditStore(path, max_bytes=most, capacity=20_000, retry_s=FAST_S) as store:
        store.record(performed(0))
        until_written(store)
        with AuditReader(path) as reader, reader.snapshot():
            reader.entries(TraceFilter())
            for number in range(1, 10_000):
                store.record(performed(number, trace_id=f"{random.Random(number).getrandbits(128):032x}"))
            until_blocking(lambda: "full" in str(store.condition.problem), "the file is full")
            size = sum(file.stat().st_size for file in path.parent.iterdir())
        until_written(store)
    assert size < 4 * most
    assert path.stat().st_size <= most
    assert queries(path)[-1] == "query 9999"


def test_a_hanging_writer_does_not_block_closing(path: Path) -> None:
    hanging = threading.Event()

    class Hanging(Raising):
        def __len__(self) -> int:
            return int(hanging.wait(30))

    store = AuditStore(path, keeps_arguments=True)
    store.record(performed(1, arguments=Hanging()))
    before = time.monotonic()
    store.close(0.1)
    assert time.monotonic() - before < 30, "it waited for the end"
    assert store.condition.lost == 1
    hanging.set()
