"""Tests for the registration store: several processes share it, and every change is atomic and durable."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib.config import registration_store as registrations
from toolcrib.config.registration_store import LAYOUT, Registration, RegistrationStore
from toolcrib.core.errors import InvalidConfig

DISK = Registration("tool", "ops.disk", '{"command":["df"]}')
LOAD = Registration("tool", "ops.load", '{"command":["uptime"]}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "registrations.sqlite"


def put(store: RegistrationStore, *rows: Registration) -> None:
    store.update(lambda before: (*before, *rows))


# -- stored data ------------------------------------------------------------------------------------------------------


def test_registrations_persist_in_order_after_a_restart(path: Path) -> None:
    put(RegistrationStore(path), LOAD)
    put(RegistrationStore(path), DISK)
    assert RegistrationStore(path).all() == (LOAD, DISK)


def test_reading_creates_no_file_and_a_file_is_private(path: Path) -> None:
    store = RegistrationStore(path)
    assert (store.version(), store.all()) == (None, ())
    assert not path.parent.exists()

    put(store, DISK)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_registrations_are_separate_per_catalog_and_links_are_resolved(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "mcp.json")
    mine = RegistrationStore(path, tmp_path / "mcp.json")
    put(mine, DISK)
    version = mine.version()
    put(RegistrationStore(path, tmp_path / "other.json"), LOAD)

    assert RegistrationStore(path, tmp_path / "link.json").all() == (DISK,)
    assert RegistrationStore(path).all() == ()
    assert mine.version() == version


def test_a_replaced_registration_keeps_its_position(path: Path) -> None:
    store = RegistrationStore(path)
    put(store, DISK, LOAD)
    newer = Registration("tool", "ops.disk", '{"command":["du"]}')
    assert store.update(lambda _: (LOAD, newer)) == (newer, LOAD)
    assert store.update(lambda _: (LOAD,)) == (LOAD,)
    assert RegistrationStore(path).all() == (LOAD,)


def test_the_version_changes_only_with_a_change(path: Path) -> None:
    store = RegistrationStore(path)
    seen = {store.version()}
    for change in ((DISK,), (DISK, LOAD), (LOAD,), (), (DISK,)):
        store.update(lambda _, change=change: change)
        assert store.version() not in seen
        seen.add(store.version())
    before = store.version()
    store.update(lambda rows: rows)
    assert store.version() == RegistrationStore(path).version() == before


def test_a_refused_update_changes_nothing(path: Path) -> None:
    store = RegistrationStore(path)
    put(store, DISK)
    version = store.version()

    def refuse(rows: tuple[Registration, ...]) -> tuple[Registration, ...]:
        raise InvalidConfig(f"{len(rows)} is enough")

    with pytest.raises(InvalidConfig, match="1 is enough"):
        store.update(refuse)
    with pytest.raises(InvalidConfig, match="nothing was registered or removed"):
        store.update(lambda _: (LOAD, Registration("tool", "ops.\ud800", "{}")))
    assert (store.all(), store.version()) == ((DISK,), version)


# -- several processes ------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from toolcrib.config.registration_store import Registration, RegistrationStore

store = RegistrationStore(Path(sys.argv[1]))
for number in range(30):
    store.update(lambda rows: (*rows, Registration("tool", f"{sys.argv[2]}.{number}", "{}")))
"""


def test_concurrent_registrations_of_two_processes_are_all_stored(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    kept = {row.name for row in RegistrationStore(path).all()}
    assert kept == {f"{name}.{number}" for name in ("one", "two") for number in range(30)}


DYING = """
import os, signal, sys
from pathlib import Path
from toolcrib.config import registration_store as registrations
from toolcrib.config.registration_store import Registration, RegistrationStore

class Dying(registrations.sqlite3.Connection):
    '''Is killed when so much of a change is in the file, and not all.'''
    def execute(self, sql, parameters=(), /):
        if sql.startswith(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        done = super().execute(sql, parameters)
        if sql.startswith("BEGIN"):
            super().execute("PRAGMA cache_spill = 1")
            super().execute("PRAGMA cache_size = 1")
        return done

connect = registrations.sqlite3.connect
registrations.sqlite3.connect = lambda *args, **options: connect(*args, factory=Dying, **options)
more = [Registration("tool", f"ops.{number}", '"' + "x" * 5000 + '"') for number in range(200)]
RegistrationStore(Path(sys.argv[1])).update(lambda rows: more)
"""


@pytest.mark.parametrize("at", ["INSERT OR REPLACE INTO catalogs", "COMMIT"])
def test_a_process_killed_during_an_update_changes_nothing(path: Path, at: str) -> None:
    store = RegistrationStore(path)
    put(store, DISK)
    version = store.version()
    ended = subprocess.run([sys.executable, "-c", DYING, str(path), at], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL

    assert (store.all(), store.version()) == ((DISK,), version)
    put(store, LOAD)
    assert store.all() == (DISK, LOAD)


def test_a_locked_store_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "BUSY_TIMEOUT_S", 0.0)
    store = RegistrationStore(path)
    put(store, DISK)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for ask in (store.version, store.all, lambda: put(store, LOAD)):
        with pytest.raises(InvalidConfig, match="locked"):
            ask()
    other.close()
    assert store.all() == (DISK,)


# -- damaged stores ---------------------------------------------------------------------------------------------------


def asked(store: RegistrationStore) -> list[Callable[[], object]]:
    return [store.version, store.all, lambda: put(store, LOAD)]


@pytest.mark.parametrize("damage", ["garbage", "truncated", "a different table", "a folder"])
def test_a_damaged_store_is_reported_and_left_unchanged(damage: str, path: Path) -> None:
    store = RegistrationStore(path)
    put(store, DISK)
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
                other.execute("DROP TABLE registrations")
                other.execute("DROP TABLE catalogs")
                other.execute("CREATE TABLE registrations (something)")
            other.close()
    before = None if damage == "a folder" else path.read_bytes()

    for ask in asked(store):
        with pytest.raises(InvalidConfig, match=r"registrations\.sqlite"):
            ask()
    assert before is None or path.read_bytes() == before


def test_a_store_of_a_newer_version_is_reported_and_left_unchanged(path: Path) -> None:
    store = RegistrationStore(path)
    put(store, DISK)
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    newer.close()
    before = path.read_bytes()
    for ask in asked(store):
        with pytest.raises(InvalidConfig, match="newer version"):
            ask()
    assert path.read_bytes() == before


def test_a_damaged_row_does_not_affect_other_rows(path: Path) -> None:
    store = RegistrationStore(path)
    put(store, DISK, LOAD)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE registrations SET body = CAST(x'ff00fe' AS TEXT) WHERE name = 'ops.disk'")
    other.close()
    damaged, good = store.all()
    assert (damaged.name, good) == ("ops.disk", LOAD)
    put(store, Registration("bundle", "b", "{}"))
    with sqlite3.connect(path) as other:
        (body,) = other.execute("SELECT CAST(body AS BLOB) FROM registrations WHERE name = 'ops.disk'").fetchone()
    other.close()
    assert body == b"\xff\x00\xfe", "the unreadable row was changed"


AS_NOBODY = """
import os, sys
from pathlib import Path
from toolcrib.core.errors import InvalidConfig
from toolcrib.config.registration_store import Registration, RegistrationStore

store = RegistrationStore(Path(sys.argv[1]))
if os.geteuid() == 0:
    os.setuid(65534)
print([row.name for row in store.all()])
try:
    store.update(lambda rows: (*rows, Registration("tool", "a.b", "{}")))
except InvalidConfig as error:
    print(error.message)
"""


def test_a_read_only_store_is_readable_but_refuses_updates() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "registrations.sqlite"
        put(RegistrationStore(path), DISK)
        path.chmod(0o400)
        if os.geteuid() == 0:
            os.chown(path, 65534, -1)
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", AS_NOBODY, str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        Path(folder).chmod(0o700)
    there, told = ended.stdout.splitlines()
    assert there == "['ops.disk']"
    assert told.startswith(f"{path}: nothing was registered or removed: ")


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="nothing was registered or removed: "):
        put(RegistrationStore(tmp_path / "file" / "registrations.sqlite"), DISK)
