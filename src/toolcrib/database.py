"""Creates, opens and lays out SQLite files that only their owner may read."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_STEP_S = 0.02
"""The interval for checking whether a different process is done, in seconds."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables of a file, as this version of Toolcrib expects them."""

    number: int
    """Larger for each later layout. A file with a larger number is not touched."""
    lay_out: Callable[[sqlite3.Connection, int], object]
    """Creates the tables, or converts those of the given earlier layout (0 for none), inside a transaction."""
    pragmas: tuple[str, ...] = ()
    """Settings that a new file needs before it has tables."""

    @classmethod
    def of(cls, number: int, tables: Iterable[str]) -> Layout:
        """Return a layout that the statements `tables` create. There are no earlier layouts to convert."""
        statements = tuple(tables)

        def make(file: sqlite3.Connection, earlier: int) -> None:
            del earlier
            for statement in statements:
                file.execute(statement)

        return cls(number, make)


class Database:
    """A private SQLite file that several threads and processes may share. It stays open after its first use.

    So it can be read even when the process has no file descriptors left. If the file is replaced or removed, this is
    noticed at the next use.

    Raises:
        OSError, sqlite3.Error: the file cannot be used. Every method can raise these errors.
    """

    def __init__(self, path: Path, layout: Layout, timeout_s: float) -> None:
        """`timeout_s` is how long to wait for a different thread or process that is writing."""
        self.path = path
        self._layout = layout
        self._timeout_s = timeout_s
        self._using = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._close: Callable[[], object] | None = None

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None]:
        """Yield the file in the state of one moment, for reading.

        Yields None if there is no file, or if it has an earlier layout. Such a file counts as empty until it is
        written.
        """
        with self._alone():
            if (file := self._opened()) is None:
                yield None
                return
            self._wait_for_tables(file)
            with transaction(file, "BEGIN"):
                found = layout_of(file, self._layout.number)
                if not found:  # a new file gets its tables before it gets its name, so this file is damaged
                    raise sqlite3.DatabaseError("the file has no tables")
                yield file if found == self._layout.number else None

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Yield the file for writing, and create it if necessary. All changes in the block are saved, or none."""
        with self._alone():
            if (file := self._opened()) is None:
                make(self.path, self._layout)
                file = self._opened()
            if file is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
            lay_out(file, self._layout)
            with transaction(file):
                yield file

    def _wait_for_tables(self, file: sqlite3.Connection) -> None:
        """Wait while a different process may be about to lay out a file that it created empty."""
        until = time.monotonic() + self._timeout_s
        while not layout_of(file, self._layout.number) and time.monotonic() < until:
            if time.time() - self.path.stat().st_mtime > self._timeout_s:
                return
            time.sleep(_STEP_S)

    @contextmanager
    def _alone(self) -> Generator[None]:
        if not self._using.acquire(timeout=self._timeout_s):
            raise sqlite3.OperationalError("database is locked")
        try:
            yield
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:
                # The file is damaged, and may be restored. The open connection would not notice that.
                self._let_go()
            raise
        finally:
            self._using.release()

    def _opened(self) -> sqlite3.Connection | None:
        """Return the connection to the file at the path, or None if there is no file."""
        now = identity(self.path)
        if self._file is None or now != self._identity:
            self._let_go()
            if now is not None:
                self._file = open_private(self.path, self._timeout_s)
                self._identity = now
                # Closes the file when this object is garbage collected, so that callers do not have to close it.
                self._close = weakref.finalize(self, self._file.close)
        return self._file

    def _let_go(self) -> None:
        if self._close is not None:
            self._close()
        self._file = self._close = None


def make(path: Path, layout: Layout) -> None:
    """Create the file at `path` with its tables, and its folders. Do nothing if the file exists.

    The file is created under a temporary name and then renamed, so that no process sees it without its tables.

    Raises:
        OSError, sqlite3.Error: the file cannot be created.
    """
    if os.path.lexists(path):
        return
    make_folder(path.parent)
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _make_empty(new)
        with closing(open_private(new, timeout_s=0.0)) as file:
            for pragma in layout.pragmas:
                file.execute(pragma)
            lay_out(file, layout)
        _give_name(new, path)
    finally:
        for each in (new, *_companions(new)):
            each.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents for their owner only. Existing folders stay as they are.

    Raises:
        OSError: a folder cannot be created.
    """
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)


def open_private(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Open the existing file at `path`, and remove the permissions of other users.

    Any thread may use the connection, but only one at a time. `timeout_s` is how long to wait for a process that
    writes.

    Raises:
        OSError: other users can read the file, and that cannot be changed.
        sqlite3.Error: the file does not exist, or cannot be opened.
    """
    keep_private(path)
    # Do not use `Path.as_uri`: from Python 3.13 on it imports a module when it is called, and that may fail by that
    # time.
    place = path.absolute().as_posix()
    uri = f"file://{quote(place if place.startswith('/') else f'/{place}', safe='/:')}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)


def keep_private(path: Path) -> None:
    """Remove the permissions of other users for the file at `path` and for the files that SQLite puts next to it.

    The target of a symbolic link is never changed: it must be private already.

    Raises:
        OSError: other users can read one of the files, and that cannot be changed.
    """
    if os.name == "nt":  # on Windows, modes do not say who can read a file
        return
    is_link, real = path.is_symlink(), Path(os.path.realpath(path))
    for each in (real, *_companions(real)):
        try:
            mode = each.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(mode) or not mode & 0o077:
            continue
        try:
            if is_link:
                raise PermissionError
            # Do not open a descriptor for this: closing it would release all locks that this process has on the file.
            each.chmod(stat.S_IMODE(mode) & 0o700, follow_symlinks=False)
        except (OSError, NotImplementedError) as error:
            told = f"other users can read it, and its mode cannot be changed here (run `chmod 600 {each}`)"
            raise PermissionError(errno.EACCES, told) from error


def lay_out(file: sqlite3.Connection, layout: Layout) -> None:
    """Bring the tables of `file` to `layout`, all or nothing. Several processes may do this at the same time.

    Raises:
        sqlite3.Error: the file is of a newer version or of a different program, or cannot be written.
    """
    if layout_of(file, layout.number) == layout.number:
        return
    with transaction(file):
        found = layout_of(file, layout.number)
        if found == layout.number:  # a different process was faster
            return
        if not found and file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() != (0,):
            raise sqlite3.DatabaseError("the file was written by a different program")
        layout.lay_out(file, found)
        file.execute(f"PRAGMA user_version = {layout.number}")


def layout_of(file: sqlite3.Connection, newest: int) -> int:
    """Return the number of the layout of `file`, or 0 if it has no tables yet.

    Raises:
        sqlite3.DatabaseError: the number is larger than `newest`, so a newer version wrote the file.
    """
    (number,) = file.execute("PRAGMA user_version").fetchone()
    if number > newest:
        raise sqlite3.DatabaseError(f"the file was written by a newer version of Toolcrib (layout {number})")
    return int(number)


@contextmanager
def transaction(file: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
    """Save all changes of the block, or none. With the default `begin`, no other process can write at the same time."""
    file.execute(begin)
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:  # SQLite rolls back by itself after some errors
            with suppress(sqlite3.Error):
                file.execute("ROLLBACK")
        raise


def identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies the file at `path` among all files that exist or are open, or None if there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _give_name(new: Path, path: Path) -> None:
    """Give the file at `new` the name `path`, unless a file has that name already."""
    # SQLite must not use companion files that an earlier file left here. For an empty file, it deletes them itself.
    if not any(each.exists() for each in _companions(path)):
        try:
            os.link(new, path)
        except FileExistsError:  # a different process was faster
            return
        except OSError:  # the file system does not support hard links
            pass
        else:
            return
    with suppress(FileExistsError):
        _make_empty(path)  # the first process that writes the file lays it out


def _companions(path: Path) -> list[Path]:
    """Return the paths of the files that SQLite creates next to the one at `path`."""
    return [path.with_name(f"{path.name}{end}") for end in ("-journal", "-wal", "-shm")]


def _make_empty(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def open_cache(path: Path, layout: Layout, timeout_s: float) -> sqlite3.Connection:
    """Open the cache at `path` with a write-ahead log, and create it if necessary.

    Several processes share the file and write it often. A power failure may lose the last writes. `timeout_s` is how
    long to wait for other processes.

    Raises:
        OSError, sqlite3.Error: the file cannot be used.
    """
    make(path, layout)
    file = open_private(path, timeout_s)
    try:
        layout_of(file, layout.number)  # raises before the journal of a newer file is changed
        _write_ahead(file, timeout_s)
        file.execute("PRAGMA synchronous = NORMAL")
        lay_out(file, layout)
    except BaseException:
        file.close()
        raise
    return file


def _write_ahead(file: sqlite3.Connection, timeout_s: float) -> None:
    """Switch the file to a write-ahead log. SQLite does not wait if a different process does the same, so wait here.

    Raises:
        sqlite3.OperationalError: it took longer than `timeout_s`, or cannot be done.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(_STEP_S)
        else:
            return
