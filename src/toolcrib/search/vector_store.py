"""Stores the vectors of texts, so that other processes and later starts do not compute them again."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from toolcrib.database import Layout, make, open_cache, open_private, transaction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Halves = NDArray[np.float16]

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAYOUT = 1
"""The version of the tables. A file that a newer Toolcrib wrote is not used."""

BUSY_TIMEOUT_S = 2.0
"""How long to wait while a different process writes. Vectors that cannot be written in time are not stored."""

MAX_BYTES = 512 * 1024 * 1024
"""The size of all vectors together. 100,000 tools with 384 dimensions take 77 MB."""

TOUCHED_S = 3_600
"""The precision of the time of last use: reading updates it at most this often."""

_AT_ONCE = 500
"""The number of keys in one statement."""

_CHECKED_EVERY = 16
"""The size is checked again after one part of this many parts of the space was written."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE IF NOT EXISTS vectors (model INTEGER NOT NULL, digest BLOB NOT NULL, used_at INTEGER NOT NULL,
        vector BLOB NOT NULL, PRIMARY KEY (model, digest)) WITHOUT ROWID""",
)
_LAYOUT = Layout.of(LAYOUT, _TABLES)
_LOCK = Layout.of(1, ())


class Vectors(Protocol):
    """A store of vectors. No method ever raises, because losing vectors only costs time."""

    def get_many(self, model_id: str, digests: Sequence[bytes], dim: int) -> tuple[list[int], Halves]:
        """Return the positions in `digests` of stored vectors, ascending, and the vectors: (len(positions), dim)."""
        ...

    def put_many(self, model_id: str, digests: Sequence[bytes], vectors: NDArray[Any]) -> None:
        """Store the rows of `vectors` (len(digests), dim), each under its digest."""
        ...


class VectorStore:
    """Stores vectors by model and digest of the text, in one SQLite file that several processes may share.

    Vectors are stored as float16: a cosine changes by about 0.0001, and a ranking hardly ever. Only a 16-byte digest of
    the text is stored. The file is a cache: a damaged file is moved aside and created again. Every other problem
    (read-only, full, from a newer version) is logged once, and the store then does nothing.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self.problem: str | None = None
        """Why nothing is stored. None while the file is usable."""
        self._max_bytes = max_bytes
        self._now = now
        self._using = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._written = max_bytes  # so that the first write checks the size
        self._may_begin_anew = True
        with self._using:
            self._open()

    def get_many(self, model_id: str, digests: Sequence[bytes], dim: int) -> tuple[list[int], Halves]:
        """Return the positions in `digests` of stored vectors, ascending, and the vectors: (len(positions), dim).

        A vector that is damaged or has a different dimension counts as missing.
        """
        import numpy as np  # noqa: PLC0415  a store is opened with every start, and mostly not read

        kept = self._doing(lambda file: self._read(file, model_id, digests), dict[bytes, bytes]())
        positions = [position for position, each in enumerate(digests) if len(kept.get(each, b"")) == 2 * dim]
        rows = np.frombuffer(b"".join(kept[digests[position]] for position in positions), np.float16)
        rows = rows.reshape(len(positions), dim)
        whole = np.flatnonzero(np.isfinite(rows).all(axis=1))
        return [positions[each] for each in whole.tolist()], rows[whole]

    def put_many(self, model_id: str, digests: Sequence[bytes], vectors: NDArray[Any]) -> None:
        """Store the rows of `vectors` (len(digests), dim), each under its digest."""
        bodies = [row.tobytes() for row in vectors.astype("float16")]
        self._doing(lambda file: self._write(file, model_id, list(zip(digests, bodies, strict=True))), None)

    def count(self) -> int:
        """The number of stored vectors, for all models together."""
        return self._doing(lambda file: int(file.execute("SELECT count(*) FROM vectors").fetchone()[0]), 0)

    def close(self) -> None:
        """Close the file."""
        with self._using:
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, file: sqlite3.Connection, model_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        model = file.execute("SELECT id FROM models WHERE name = ?", (model_id,)).fetchone()
        if model is None:
            return {}
        found: dict[bytes, bytes] = {}
        stale: list[bytes] = []
        oldest = int(self._now()) - TOUCHED_S
        for some in _batches(digests):
            marks = ",".join("?" * len(some))
            for digest, used_at, vector in file.execute(
                f"SELECT digest, CAST(used_at AS INTEGER), vector FROM vectors WHERE model = ? AND digest IN ({marks})",  # noqa: S608
                (*model, *some),
            ):
                if isinstance(vector, bytes):
                    found[digest] = vector
                if used_at < oldest:
                    stale.append(digest)
        if stale:
            # The file may be busy or read-only.
            with suppress(sqlite3.OperationalError), transaction(file):
                file.executemany(
                    "UPDATE vectors SET used_at = ? WHERE model = ? AND digest = ?",
                    ((int(self._now()), *model, digest) for digest in stale),
                )
        return found

    def _write(self, file: sqlite3.Connection, model_id: str, rows: list[tuple[bytes, bytes]]) -> None:
        now = int(self._now())
        with transaction(file):
            file.execute("INSERT OR IGNORE INTO models (name) VALUES (?)", (model_id,))
            model = file.execute("SELECT id FROM models WHERE name = ?", (model_id,)).fetchone()
            file.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)",
                ((*model, digest, now, body) for digest, body in rows),
            )
            self._written += sum(len(body) for _, body in rows)
            if self._written * _CHECKED_EVERY >= self._max_bytes:
                self._written = 0
                _make_room(file, self._max_bytes)

    def _doing(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Return the result of `work`, or `otherwise` if the file cannot be used."""
        with self._using:
            if self._file is None:
                return otherwise
            try:
                return work(self._file)
            except sqlite3.Error as error:
                if _is_busy(error):
                    return otherwise
                self._let_go()
                if _is_damage(error):
                    self._begin_anew(error)
                else:
                    self._set_aside(error)
                return otherwise

    def _open(self) -> None:
        try:
            self._file = _opened(self.path)
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and _is_damage(error):
                self._begin_anew(error)
            else:
                self._set_aside(error)

    def _begin_anew(self, error: sqlite3.Error) -> None:
        """Move the damaged file aside and create a new one. Only once: a disk that damages every file must be
        reported."""
        if not self._may_begin_anew:
            self._set_aside(error)
            return
        self._may_begin_anew = False
        try:
            with _alone_with(self.path):
                if _is_damaged(self.path):  # a different process may have been faster
                    logger.warning("%s was damaged (%s). Created a new file", self.path, error)
                    for end in ("-wal", "-shm"):
                        self.path.with_name(f"{self.path.name}{end}").unlink(missing_ok=True)
                    self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
        except (OSError, sqlite3.Error) as failed:
            self._set_aside(failed)
            return
        self._open()

    def _set_aside(self, error: Exception) -> None:
        self.problem = f"{self.path}: {error}"
        logger.warning("vectors are not stored between starts: %s", self.problem)
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def _make_room(file: sqlite3.Connection, max_bytes: int) -> None:
    """Delete the least recently used vectors until an eighth of the space is free. Does nothing if they fit."""
    (size,) = file.execute("SELECT coalesce(sum(length(vector)), 0) FROM vectors").fetchone()
    if size <= max_bytes:
        return
    going: list[tuple[int, bytes]] = []
    for model, digest, length in file.execute("SELECT model, digest, length(vector) FROM vectors ORDER BY used_at"):
        if size <= max_bytes * 7 // 8:
            break
        size -= length
        going.append((model, digest))
    file.executemany("DELETE FROM vectors WHERE model = ? AND digest = ?", going)
    file.execute("DELETE FROM models WHERE id NOT IN (SELECT DISTINCT model FROM vectors)")


def _opened(path: Path) -> sqlite3.Connection:
    file = open_cache(path, _LAYOUT, BUSY_TIMEOUT_S)
    try:
        for table in _TABLES:  # a lost table only costs time
            file.execute(table)
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def _alone_with(path: Path) -> Generator[None]:
    """Hold an exclusive lock (on `FILE.moving`), so that only one process moves the damaged file.

    The lock is released if the process dies.

    Raises:
        OSError, sqlite3.Error: the lock cannot be acquired.
    """
    lock_path = path.with_name(f"{path.name}.moving")
    make(lock_path, _LOCK)
    with closing(open_private(lock_path, BUSY_TIMEOUT_S)) as lock, transaction(lock, "BEGIN EXCLUSIVE"):
        yield


def _is_damaged(path: Path) -> bool:
    try:
        file = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)
        try:
            return file.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
        finally:
            file.close()
    except sqlite3.Error as error:
        return _is_damage(error)


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the content of the file is damaged, and not just inaccessible."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    return code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB} or "no such" in str(error)


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _batches(digests: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    rest = iter(digests)
    while some := tuple(islice(rest, _AT_ONCE)):
        yield some
