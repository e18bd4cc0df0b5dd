"""SQLite files that only their owner may read: how they are made, opened, laid out and kept open."""

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
"""How often it is looked whether another process is done."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables of a file, as one version of Toolcrib expects them."""

    number: int
    """Larger for each later layout. A file with a larger number is left alone."""
    lay_out: Callable[[sqlite3.Connection, int], object]
    """Make the tables, or change those of the earlier layout that is given (0 for none), in a transaction."""
    pragmas: tuple[str, ...] = ()
    """Settings that a new file needs before it has tables."""

    @classmethod
    def of(cls, number: int, tables: Iterable[str]) -> Layout:
        """A layout without earlier ones, made by the statements `tables`."""
        statements = tuple(tables)

        def make(file: sqlite3.Connection, earlier: int) -> None:
            del earlier
            for statement in statements:
                file.execute(statement)

        return cls(number, make)


class Database:
    """A private SQLite file that several threads and processes may share. It stays open from its first use on.

    So it can be read while the process has no descriptor left to open a file with. A file that was replaced or removed
    is noticed at the next use.

    Every method raises `OSError` or `sqlite3.Error` if the file cannot be used.
    """

    def __init__(self, path: Path, layout: Layout, timeout_s: float) -> None:
        """`timeout_s` is how long to wait for another thread or process that is writing."""
        self.path = path
        self._layout = layout
        self._timeout_s = timeout_s
        self._using = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._close: Callable[[], object] | None = None

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None]:
        """The file as it is at one moment.

        None if there is no file, or one of an earlier layout, which counts as empty until it is written.
        """
        with self._alone():
            if (file := self._opened()) is None:
                yield None
                return
            self._wait_for_tables(file)
            with transaction(file, "BEGIN"):
                found = layout_of(file, self._layout.number)
                if not found:  # whoever makes a file lays it out, so this one was damaged
                    raise sqlite3.DatabaseError("there are no tables in it")
                yield file if found == self._layout.number else None

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """The file, made and laid out if need be. Of what is done with it, all counts or nothing."""
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
        """Wait while another process may be about to lay out a file that was made empty."""
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
            if (
                type(error) is sqlite3.DatabaseError
            ):  # it is damaged, and may be restored: this connection would not see
                self._let_go()
            raise
        finally:
            self._using.release()

    def _opened(self) -> sqlite3.Connection | None:
        """The file at the path; None if there is none."""
        now = identity(self.path)
        if self._file is None or now != self._identity:
            self._let_go()
            if now is not None:
                self._file = open_private(self.path, self._timeout_s)
                self._identity = now
                # Closes the file when this object is no longer used; nobody has to remember to.
                self._close = weakref.finalize(self, self._file.close)
        return self._file

    def _let_go(self) -> None:
        if self._close is not None:
            self._close()
        self._file = self._close = None


def make(path: Path, layout: Layout) -> None:
    """Make the file at `path` with its tables, and the folders it is in; nothing happens if it is there already.

    It is made under another name and then given its own, so that no process sees it without its tables.

    Raises:
        OSError, sqlite3.Error: it cannot be made.
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
    """Make `folder`, and those it is in, for their owner alone; those that are there stay as they are.

    Raises:
        OSError: it cannot be made.
    """
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)


def open_private(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Open the file at `path`, which is never made here, and take away what others may do with it.

    Any thread may use the connection, one at a time. `timeout_s` is how long to wait for another process that writes.

    Raises:
        OSError: others may read it, and that cannot be changed.
        sqlite3.Error: it is not there, or cannot be opened.
    """
    keep_private(path)
    # Not `Path.as_uri`: from Python 3.13 on it imports a module when it is called, which may then be out of reach.
    place = path.absolute().as_posix()
    uri = f"file://{quote(place if place.startswith('/') else f'/{place}', safe='/:')}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)


def keep_private(path: Path) -> None:
    """Take away what others may do with the file at `path`, and with the files that SQLite puts next to it.

    What a link leads to is never changed: it has to be private already.

    Raises:
        OSError: others may read one of them, and that cannot be changed.
    """
    if os.name == "nt":  # modes there say nothing about who may read a file
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
            # No descriptor is opened for it: closing one would end the locks that this process has on the file.
            each.chmod(stat.S_IMODE(mode) & 0o700, follow_symlinks=False)
        except (OSError, NotImplementedError) as error:
            told = f"other users can read it, and its mode cannot be changed here (`chmod 600 {each}` does it)"
            raise PermissionError(errno.EACCES, told) from error


def lay_out(file: sqlite3.Connection, layout: Layout) -> None:
    """Bring the tables of `file` to `layout`, all or nothing; several processes may do so at once.

    Raises:
        sqlite3.Error: it is of a newer version or of another program, or cannot be written.
    """
    if layout_of(file, layout.number) == layout.number:
        return
    with transaction(file):
        found = layout_of(file, layout.number)
        if found == layout.number:  # another process was faster
            return
        if not found and file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() != (0,):
            raise sqlite3.DatabaseError("another program wrote it")
        layout.lay_out(file, found)
        file.execute(f"PRAGMA user_version = {layout.number}")


def layout_of(file: sqlite3.Connection, newest: int) -> int:
    """The number of the layout of `file`, 0 if it has no tables yet.

    Raises:
        sqlite3.DatabaseError: it is beyond `newest`, so of a newer version.
    """
    (number,) = file.execute("PRAGMA user_version").fetchone()
    if number > newest:
        raise sqlite3.DatabaseError(f"a newer version of Toolcrib wrote it (layout {number})")
    return int(number)


@contextmanager
def transaction(file: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
    """All of the block counts or nothing; unless `begin` says otherwise, no other process writes meanwhile."""
    file.execute(begin)
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:  # SQLite ends some by itself
            with suppress(sqlite3.Error):
                file.execute("ROLLBACK")
        raise


def identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at `path` from every other file that is open somewhere; None if there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _give_name(new: Path, path: Path) -> None:
    """Have the file at `new` be at `path` as well, unless one is there."""
    # What SQLite left of an earlier file there must not be taken for this one's. It removes that from an empty file.
    if not any(each.exists() for each in _companions(path)):
        try:
            os.link(new, path)
        except FileExistsError:  # another process was faster
            return
        except OSError:  # the file system has no links
            pass
        else:
            return
    with suppress(FileExistsError):
        _make_empty(path)  # the first process that writes it lays it out


def _companions(path: Path) -> list[Path]:
    """Where SQLite puts files of its own next to the one at `path`."""
    return [path.with_name(f"{path.name}{end}") for end in ("-journal", "-wal", "-shm")]


def _make_empty(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def open_cache(path: Path, layout: Layout, timeout_s: float) -> sqlite3.Connection:
    """Open the cache at `path`, which is made and laid out if need be, with a write-ahead log.

    Several processes share it and write it often. A power cut may take the last writes with it. `timeout_s` is how long
    to wait for other processes.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    make(path, layout)
    file = open_private(path, timeout_s)
    try:
        layout_of(file, layout.number)  # in a file of a newer version not even the journal is changed
        _write_ahead(file, timeout_s)
        file.execute("PRAGMA synchronous = NORMAL")
        lay_out(file, layout)
    except BaseException:
        file.close()
        raise
    return file


def _write_ahead(file: sqlite3.Connection, timeout_s: float) -> None:
    """Switch the file's journal; SQLite does not wait for another process that is about the same, so we do.

    Raises:
        sqlite3.OperationalError: that took longer than `timeout_s`, or it cannot be done.
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
