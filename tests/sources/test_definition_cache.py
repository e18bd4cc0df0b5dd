"""The store of cached definitions: it saves what it can, and its failures affect nothing else."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolcrib.sources.definition_cache import LAYOUT, CachedDefinitions, DefinitionStore

KEPT = CachedDefinitions(1_000.5, b'{"tools": []}')


def test_a_saved_definition_is_loaded_after_a_restart(tmp_path: Path) -> None:
    with DefinitionStore(tmp_path / "deep" / "cache.sqlite") as store:
        key = store.key({"command": "git"})
        store.save(key, KEPT)
    with DefinitionStore(tmp_path / "deep" / "cache.sqlite") as store:
        assert store.problem is None
        assert store.load(store.key({"command": "git"})) == KEPT
        store.save(key, CachedDefinitions(2_000, b"new"))
        assert store.load(key) == CachedDefinitions(2_000, b"new")
        store.forget(key)
        assert store.load(key) is None


def test_keys_differ_per_configuration_and_per_store_and_hide_secrets(tmp_path: Path) -> None:
    with DefinitionStore(tmp_path / "one") as one, DefinitionStore(tmp_path / "two") as two:
        with_token = {"url": "http://x", "headers": {"Authorization": "Bearer t"}}
        assert one.key(with_token) == one.key(dict(reversed(with_token.items())))
        assert one.key(with_token) != one.key({**with_token, "headers": {}})
        assert one.key(with_token) != two.key(with_token)
        one.save(one.key(with_token), KEPT)
    assert b"Bearer" not in (tmp_path / "one").read_bytes()
    assert (tmp_path / "one").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("left_open", [False, True])
def test_the_cache_file_and_its_folder_are_readable_by_their_owner_only(left_open: bool, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "definitions.sqlite"
    before = os.umask(0o022)  # the usual umask
    try:
        with DefinitionStore(path) as one:
            one.save("key", KEPT)
            if left_open:  # a different program, or an earlier version, may have created them like this
                for file in path.parent.iterdir():
                    file.chmod(0o644)
            with DefinitionStore(path) as store:
                store.save("key", KEPT)
                assert {file.name for file in path.parent.iterdir()} == {
                    f"{path.name}{end}" for end in ("", "-wal", "-shm")
                }
                for each in (path.parent, *path.parent.iterdir()):
                    assert each.stat().st_mode & 0o077 == 0, each
    finally:
        os.umask(before)


def test_a_damaged_file_is_left_unchanged_and_the_problem_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_bytes(b"this is no database" * 100)
    with DefinitionStore(path) as store:
        assert store.problem is not None
        assert "not a database" in store.problem
        store.save(store.key({}), KEPT)
        assert store.load(store.key({})) is None
    assert path.read_bytes().startswith(b"this is no database"), "somebody else's file was touched"


def test_a_file_of_a_newer_version_is_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    newer.close()
    before = path.read_bytes()
    with DefinitionStore(path) as store:
        assert "newer version" in (store.problem or "")
    assert path.read_bytes() == before


def test_a_folder_that_is_not_writable_is_reported_as_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with DefinitionStore(tmp_path / "file" / "cache") as store:
        assert store.problem is not None
        assert store.load("x") is None


def test_a_table_that_vanishes_only_disables_the_cache(tmp_path: Path) -> None:
    with DefinitionStore(tmp_path / "cache") as store:
        with sqlite3.connect(tmp_path / "cache") as other:
            other.execute("DROP TABLE definitions")
        other.close()
        store.save("key", KEPT)
        assert "no such table" in (store.problem or "")
        assert store.load("key") is None


def test_threads_can_share_one_store(tmp_path: Path) -> None:
    with DefinitionStore(tmp_path / "cache") as store:
        threads = [threading.Thread(target=store.save, args=(f"k{n}", CachedDefinitions(n, b"x"))) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [store.load(f"k{n}") for n in range(20)] == [CachedDefinitions(n, b"x") for n in range(20)]


WRITER = """
import sys
from pathlib import Path
from toolcrib.sources.definition_cache import DefinitionStore, CachedDefinitions
with DefinitionStore(Path(sys.argv[1])) as store:
    for number in range(100):
        store.save(store.key({"n": number}), CachedDefinitions(number, sys.argv[2].encode()))
    sys.exit(store.problem)
"""


@pytest.mark.parametrize("fresh", [True, False])
def test_two_processes_can_share_one_file(fresh: bool, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    if not fresh:
        DefinitionStore(path).close()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with DefinitionStore(path) as store:
        bodies = {kept.body for n in range(100) if (kept := store.load(store.key({"n": n})))}
        assert bodies <= {b"one", b"two"}
        assert sum(store.load(store.key({"n": n})) is not None for n in range(100)) == 100


FULL = """
import resource, signal, sys
from pathlib import Path
from toolcrib.sources.definition_cache import DefinitionStore, CachedDefinitions

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with DefinitionStore(Path(sys.argv[1])) as store:
    store.save(store.key({"command": "small"}), CachedDefinitions(1.0, b"small"))
    print(store.problem)
    store.save(store.key({"command": "large"}), CachedDefinitions(1.0, bytes(1_000_000)))
    print(store.problem is not None, store.load(store.key({"command": "small"})))
    store.save(store.key({"command": "more"}), CachedDefinitions(1.0, b"more"))
"""


def test_a_file_that_cannot_grow_only_disables_the_cache(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="a limit on the size of files is set as POSIX has it")
    path = tmp_path / "cache.sqlite"
    ended = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["None", "True None"]), ended.stderr
    assert ended.stderr.count("definitions are not cached") == 1
    with DefinitionStore(path) as store:  # the earlier entries are intact
        assert store.load(store.key({"command": "small"})) == CachedDefinitions(1.0, b"small")
        assert store.load(store.key({"command": "large"})) is None
