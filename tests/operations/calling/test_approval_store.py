"""The store of approvals: it contains what was approved, and a damaged store never approves anything."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.operations.calling import approval_store
from toolcrib.operations.calling.approval_store import LAYOUT, ApprovalStore

PUSH = ("ada", "git.push", "d1")
PULL = ("ada", "git.pull", "d1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "approvals.sqlite"


def keep(store: ApprovalStore, *approved: tuple[str, str, str]) -> None:
    for each in approved:
        anyio.run(store.keep, *each)


def holds(store: ApprovalStore, approved: tuple[str, str, str] = PUSH) -> bool:
    return anyio.run(store.holds, *approved)


def numbers(store: ApprovalStore) -> list[int]:
    return [approval.number for approval in store.all()]


# -- contents ---------------------------------------------------------------------------------------------------------


def test_an_approval_persists_after_a_restart_and_applies_to_nothing_else(path: Path) -> None:
    keep(ApprovalStore(path), PUSH)
    store = ApprovalStore(path)

    assert holds(store)
    for other in (("grace", *PUSH[1:]), PULL, (*PUSH[:2], "d2"), ("", "", ""), ("%", "%", "%")):
        assert not holds(store, other)
    (approval,) = store.all()
    assert (approval.principal, approval.tool_id, approval.definition) == PUSH


def test_reading_creates_no_file_and_a_file_is_only_accessible_to_its_owner(path: Path) -> None:
    store = ApprovalStore(path)
    assert (holds(store), store.all(), store.revoke(1)) == (False, (), False)
    assert not path.parent.exists()

    keep(store, PUSH)
    assert path.stat().st_mode & 0o077 == 0


def test_a_revoked_approval_no_longer_counts_and_its_number_is_not_reused(path: Path) -> None:
    store = ApprovalStore(path)
    keep(store, PUSH, PULL)
    first, second = numbers(store)

    assert store.revoke(second)
    assert not store.revoke(second)
    assert (holds(store, PULL), holds(store, PUSH)) == (False, True)
    keep(store, PULL)
    assert numbers(store)[0] == first
    assert numbers(store)[1] not in {first, second}


def test_a_repeated_approval_is_stored_once_under_the_same_number(path: Path) -> None:
    store = ApprovalStore(path)
    keep(store, PUSH)
    before = numbers(store)
    keep(store, PUSH)
    assert numbers(store) == before


# -- several processes ------------------------------------------------------------------------------------------------

KEEPER = """
import sys
from pathlib import Path
import anyio
from toolcrib.operations.calling.approval_store import ApprovalStore

async def main():
    store = ApprovalStore(Path(sys.argv[1]))
    for number in range(50):
        await store.keep(sys.argv[2], f"git.{number}", "d")
        assert await store.holds(sys.argv[2], f"git.{number}", "d")

anyio.run(main)
"""

REVOKER = """
import sys
from pathlib import Path
from toolcrib.operations.calling.approval_store import ApprovalStore

store = ApprovalStore(Path(sys.argv[1]))
assert all([store.revoke(approval.number) for approval in store.all()])
"""


def test_two_processes_share_one_file(path: Path) -> None:
    keepers = [subprocess.Popen([sys.executable, "-c", KEEPER, str(path), name]) for name in ("one", "two")]
    assert [keeper.wait(60) for keeper in keepers] == [0, 0]

    kept = {(approval.principal, approval.tool_id) for approval in ApprovalStore(path).all()}
    assert kept == {(name, f"git.{number}") for name in ("one", "two") for number in range(50)}


def test_creating_the_file_concurrently_preserves_approvals_of_a_different_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(sqlite3.Connection):
        """Before this connection writes, a different process has created the table and filled it."""

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):
                subprocess.run([sys.executable, "-c", KEEPER, str(path), "other"], check=True, timeout=60)
            return super().execute(sql, parameters)

    store = ApprovalStore(path)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Late))
        keep(store, PUSH)
    assert holds(store)
    assert holds(store, ("other", "git.0", "d"))


def test_an_approval_revoked_by_a_different_process_no_longer_counts(path: Path) -> None:
    store = ApprovalStore(path)
    keep(store, PUSH)
    assert holds(store)

    subprocess.run([sys.executable, "-c", REVOKER, str(path)], check=True, timeout=60)
    assert not holds(store)


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def locked(path: Path) -> Generator[sqlite3.Connection]:
    """A file with one approval that is locked by a different connection."""
    keep(ApprovalStore(path), PUSH)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield other
    other.close()


def test_a_file_that_stays_locked_approves_nothing(
    path: Path, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(approval_store, "BUSY_TIMEOUT_S", 0.0)
    store = ApprovalStore(path)

    assert not holds(store)
    keep(store, PULL)
    assert "people are asked every time" in caplog.text
    locked.execute("ROLLBACK")
    assert holds(store)
    assert not holds(store, PULL)


def test_waiting_for_a_locked_file_does_not_block_the_event_loop(path: Path, locked: sqlite3.Connection) -> None:
    """The lock is released on the event loop. If the store blocked the loop, the lock would never be released."""
    told: list[bool] = []
    store = ApprovalStore(path)

    async def look() -> None:
        told.append(await store.holds(*PUSH))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await anyio.lowlevel.checkpoint()
            locked.execute("ROLLBACK")

    anyio.run(main)
    assert told == [True]


@pytest.mark.parametrize("damage", ["garbage", "truncated", "a different table", "no table", "a folder"])
def test_a_damaged_file_approves_nothing_and_is_not_modified(
    damage: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ApprovalStore(path)
    keep(store, PUSH)
    match damage:
        case "garbage":
            path.write_bytes(b"this is no database" * 100)
        case "truncated":
            path.write_bytes(path.read_bytes()[:5_000])
        case "a folder":
            path.unlink()
            path.mkdir()
        case _:
            with sqlite3.connect(path) as other:
                other.execute("DROP TABLE approvals")
                if damage == "a different table":
                    other.execute("CREATE TABLE approvals (something)")
            other.close()
    before = None if damage == "a folder" else path.read_bytes()

    assert not holds(store)
    keep(store, PUSH)
    assert not holds(store)
    assert "approvals cannot be stored" in caplog.text
    with pytest.raises((OSError, sqlite3.Error)):
        store.all()
    assert before is None or path.read_bytes() == before


def test_a_file_of_a_newer_version_approves_nothing_and_is_not_modified(path: Path) -> None:
    store = ApprovalStore(path)
    keep(store, PUSH)
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    newer.close()
    before = path.read_bytes()

    assert not holds(store)
    keep(store, PULL)
    for asked in (store.all, lambda: store.revoke(1)):
        with pytest.raises(sqlite3.DatabaseError, match="newer version"):
            asked()
    assert path.read_bytes() == before


def test_approvals_from_before_servers_were_distinguished_no_longer_count(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as older:
        older.execute("CREATE TABLE approvals (principal, tool_id, definition, approved_at)")
        older.execute("INSERT INTO approvals VALUES (?, ?, ?, 0)", PUSH)
        older.execute("PRAGMA user_version = 1")
    older.close()
    store = ApprovalStore(path)

    assert (holds(store), store.all()) == (False, ())
    keep(store, PULL)
    assert (holds(store), holds(store, PULL)) == (False, True)


def test_a_string_that_cannot_be_encoded_is_not_approved(path: Path) -> None:
    store = ApprovalStore(path)
    keep(store, PUSH, ("ada", "git.\ud800", "d1"))
    assert holds(store)
    assert not holds(store, ("ada", "git.\ud800", "d1"))


UNPRIVILEGED = """
import os, sys
from pathlib import Path
import anyio
from toolcrib.operations.calling.approval_store import ApprovalStore

async def main():
    store = ApprovalStore(Path(sys.argv[1]))
    await anyio.to_thread.run_sync(int)  # load what a thread needs while the process may still read it
    if os.geteuid() == 0:
        os.setuid(65534)
    await store.keep("ada", "git.pull", "d1")
    print(await store.holds("ada", "git.push", "d1"), await store.holds("ada", "git.pull", "d1"))

anyio.run(main)
"""


def output_of_unprivileged_process(path: Path) -> str:
    """The output of an unprivileged process that first tries to store a different approval."""
    command = [sys.executable, "-c", UNPRIVILEGED, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.mark.parametrize(
    ("mode", "told"), [(0o400, "True False"), (0o000, "False False")], ids=["read-only", "unreadable"]
)
def test_a_read_only_file_can_be_read_and_an_unreadable_file_approves_nothing(mode: int, told: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "approvals.sqlite"
        keep(ApprovalStore(path), PUSH)
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, 65534, -1)
        Path(folder).chmod(0o555)
        assert output_of_unprivileged_process(path) == told
        Path(folder).chmod(0o700)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="gives a file to another user")
def test_a_world_readable_file_of_a_different_user_approves_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "approvals.sqlite"
        keep(ApprovalStore(path), PUSH)
        path.chmod(0o644)
        Path(folder).chmod(0o755)
        assert output_of_unprivileged_process(path) == "False False"
        assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_without_permission_approves_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "approvals.sqlite"
        keep(ApprovalStore(path), PUSH)
        Path(folder).chmod(0o000)
        assert output_of_unprivileged_process(path) == "False False"
        Path(folder).chmod(0o700)
