"""The vector store saves what it can, and its failures never affect its users."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib.search.vector_store import LAYOUT, TOUCHED_S, VectorStore

DIM = 8


def key(each: object) -> bytes:
    return blake2b(str(each).encode(), digest_size=16).digest()


def keys(some: Sequence[object]) -> list[bytes]:
    return [key(each) for each in some]


def rows(count: int, dim: int = DIM, seed: int = 0) -> NDArray[np.float32]:
    made = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def test_stored_vectors_are_available_after_a_restart(tmp_path: Path) -> None:
    vectors = rows(3)
    with VectorStore(tmp_path / "deep" / "vectors.sqlite") as store:
        store.put_many("m", keys("abc"), vectors)
    with VectorStore(tmp_path / "deep" / "vectors.sqlite") as store:
        assert store.problem is None
        positions, found = store.get_many("m", keys("xcya"), DIM)
        assert positions == [1, 3]
        np.testing.assert_allclose(found, vectors[[2, 0]], atol=1e-3)
        store.put_many("m", keys("c"), vectors[:1])
        np.testing.assert_allclose(store.get_many("m", keys("c"), DIM)[1], vectors[:1], atol=1e-3)
        assert store.count() == 3


def test_storing_half_precision_changes_cosines_by_at_most_a_thousandth(tmp_path: Path) -> None:
    vectors = rows(200, 384)
    with VectorStore(tmp_path / "v") as store:
        store.put_many("m", keys(range(200)), vectors)
        _, found = store.get_many("m", keys(range(200)), 384)
    np.testing.assert_allclose(found.astype(np.float32) @ vectors.T, vectors @ vectors.T, atol=1e-3)


def test_models_and_dimensions_are_kept_separate(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "v") as store:
        store.put_many("one", keys("a"), rows(1))
        store.put_many("two", keys("a"), rows(1, seed=1))
        assert (store.get_many("one", keys("a"), DIM)[1] != store.get_many("two", keys("a"), DIM)[1]).any()
        assert store.get_many("three", keys("a"), DIM)[0] == []
        positions, found = store.get_many("one", keys("a"), DIM + 1)
        assert (positions, found.shape) == ([], (0, DIM + 1))


def test_thousands_of_vectors_are_written_and_read_in_one_call(tmp_path: Path) -> None:
    vectors = rows(5_000)
    with VectorStore(tmp_path / "v") as store:
        store.put_many("m", keys(range(5_000)), vectors)
        positions, found = store.get_many("m", keys(range(-1, 5_000)), DIM)
    assert positions == [*range(1, 5_001)]
    np.testing.assert_allclose(found, vectors, atol=1e-3)


def test_only_digests_of_texts_are_stored_and_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "vectors.sqlite"
    before = os.umask(0o022)  # the usual umask
    try:
        with VectorStore(path) as store:
            store.put_many("m", keys(["a secret tool"]), rows(1))
            for each in (path.parent, *path.parent.iterdir()):
                assert each.stat().st_mode & 0o077 == 0, each
    finally:
        os.umask(before)
    assert b"secret" not in path.read_bytes()


def test_the_least_recently_used_vectors_are_evicted(tmp_path: Path) -> None:
    now = [1_000_000.0]
    size = 2 * DIM
    with VectorStore(tmp_path / "v", max_bytes=100 * size, now=lambda: now[0]) as store:
        store.put_many("m", keys(range(50)), rows(50))
        now[0] += 2 * TOUCHED_S
        store.put_many("m", keys(range(50, 100)), rows(50))
        now[0] += 2 * TOUCHED_S
        store.get_many("m", keys(range(25)), DIM)  # these were the oldest, and are used again
        now[0] += 2 * TOUCHED_S
        store.put_many("m", keys(range(100, 120)), rows(20))
        assert store.count() * size <= 100 * size
        there, _ = store.get_many("m", keys(range(120)), DIM)
    assert {*range(25)} < {*there}
    assert {*range(100, 120)} < {*there}
    assert not {*range(25, 50)} & {*there}


def test_the_file_size_stays_bounded_when_models_change(tmp_path: Path) -> None:
    path = tmp_path / "v"
    with VectorStore(path, max_bytes=200 * 2 * DIM) as store:
        sizes: list[int] = []
        for turn in range(20):
            store.put_many(f"model {turn}", keys(range(100)), rows(100))
            assert store.count() <= 200 + 100  # the limit may be exceeded by one batch
            sizes.append(path.stat().st_size)
        assert sizes[-1] == sizes[9]
    with sqlite3.connect(path) as file:
        (models,) = file.execute("SELECT count(*) FROM models").fetchone()
    file.close()
    assert models <= 3


@pytest.mark.parametrize("damage", ["no database", "pages", "truncated"])
def test_a_damaged_file_is_moved_aside_and_replaced(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "v"
    with VectorStore(path) as store:
        store.put_many("m", keys(range(2_000)), rows(2_000))
    whole = path.read_bytes()
    broken = {
        "no database": b"this is no database" * 1_000,
        "pages": whole[:4096] + b"\xff" * (len(whole) - 4096),
        "truncated": whole[: len(whole) // 2],
    }[damage]
    path.write_bytes(broken)
    with VectorStore(path) as store:
        store.get_many("m", keys(range(2_000)), DIM)
        store.put_many("m", keys(range(2_000)), rows(2_000))  # the damage is noticed here at the latest
        store.put_many("m", keys("a"), rows(1))
        assert store.problem is None
        assert store.get_many("m", keys("a"), DIM)[0] == [0]
    assert path.with_name("v.damaged").read_bytes()[100:4096] == broken[100:4096]  # except for its counters
    assert path.with_name("v.damaged").stat().st_mode & 0o077 == 0


def test_a_damaged_vector_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "v"
    with VectorStore(path) as store:
        store.put_many("m", keys("abcd"), rows(4))
    with sqlite3.connect(path) as file:
        nan = np.full(DIM, np.nan, np.float16).tobytes()
        for digest, body in ((key("a"), nan), (key("b"), b"short"), (key("c"), "x" * 2 * DIM)):
            file.execute("UPDATE vectors SET vector = ? WHERE digest = ?", (body, digest))
    file.close()
    with VectorStore(path) as store:
        assert store.get_many("m", keys("abcd"), DIM)[0] == [3]
        assert store.problem is None


def test_missing_tables_are_created_again(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "v") as store:
        with sqlite3.connect(tmp_path / "v") as other:
            other.execute("DROP TABLE vectors")
        other.close()
        store.put_many("m", keys("a"), rows(1))
        store.put_many("m", keys("b"), rows(1))
        assert store.problem is None
        assert store.get_many("m", keys("ab"), DIM)[0] == [1]


def test_tables_of_a_different_form_disable_the_store(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "v") as other:
        other.execute("CREATE TABLE vectors (something TEXT)")
    other.close()
    with VectorStore(tmp_path / "v") as store:
        store.put_many("m", keys("a"), rows(1))
        assert store.get_many("m", keys("a"), DIM)[0] == []
        store.put_many("m", keys("a"), rows(1))
        assert store.problem is not None
        assert store.count() == 0


def test_a_file_of_a_newer_version_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "v"
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    newer.close()
    before = path.read_bytes()
    with VectorStore(path) as store:
        assert "newer version" in (store.problem or "")
        store.put_many("m", keys("a"), rows(1))
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with VectorStore(tmp_path / "file" / "v") as store:
        assert store.problem is not None
        assert store.get_many("m", keys("a"), DIM)[0] == []


def test_vectors_are_skipped_while_the_database_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.search.vector_store.BUSY_TIMEOUT_S", 0.01)
    with VectorStore(tmp_path / "v") as store:
        store.put_many("m", keys("a"), rows(1))
        other = sqlite3.connect(tmp_path / "v", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.put_many("m", keys("b"), rows(1))
        assert store.get_many("m", keys("ab"), DIM)[0] == [0]
        other.execute("COMMIT")
        other.close()
        store.put_many("m", keys("b"), rows(1))
        assert store.get_many("m", keys("ab"), DIM)[0] == [0, 1]


def test_threads_can_share_a_store(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "v") as store:
        threads = [
            threading.Thread(target=store.put_many, args=("m", keys([(n, m) for m in range(50)]), rows(50)))
            for n in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.count() == 500


WRITER = """
import sys
import numpy as np
from pathlib import Path
from toolcrib.search.vector_store import VectorStore
sys.stdin.readline()
with VectorStore(Path(sys.argv[1])) as store:
    for number in range(100):
        store.put_many(sys.argv[2], [number.to_bytes(16, "little")], np.ones((1, 8)))
    sys.exit(store.problem)
"""


@pytest.mark.parametrize("before", ["nothing", "a store", "damage"])
def test_processes_can_share_one_file(before: str, tmp_path: Path) -> None:
    path = tmp_path / "v"
    if before == "a store":
        VectorStore(path).close()
    elif before == "damage":
        path.write_bytes(b"this is no database" * 1_000)
    names = ("one", "two", "three")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE, text=True)
        for name in names
    ]
    for writer in writers:  # start all at once, after each has finished its imports
        print("go", file=writer.stdin, flush=True)
    assert [writer.communicate(timeout=60) and writer.returncode for writer in writers] == [0, 0, 0]
    with VectorStore(path) as store:
        digests = [number.to_bytes(16, "little") for number in range(100)]
        found = [len(store.get_many(name, digests, DIM)[0]) for name in names]
        # A process that was still writing to the damaged file when it was moved loses only that write.
        assert found == [100, 100, 100] if before != "damage" else max(found) == 100
