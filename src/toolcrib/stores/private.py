"""Files that their owner alone may read, from the first moment on, and the databases in them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_private(path: Path) -> None:
    """Make the file at `path`, and the folder it is in; what is there already stays as it is.

    SQLite gives the files that it puts beside a database the mode of that, so none of them is ever open to others.

    Raises:
        OSError: it cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


@contextmanager
def opened(path: Path, timeout_s: float) -> Generator[sqlite3.Connection]:
    """The database at `path`, for one action, so that a file that was replaced or removed is noticed.

    It is never made here: it would be readable by others. `timeout_s` is how long to wait for whoever else writes.

    Raises:
        sqlite3.Error: it is not there, or cannot be opened.
    """
    file = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=timeout_s, isolation_level=None)
    try:
        yield file
    finally:
        file.close()


def layout_of(file: sqlite3.Connection, newest: int) -> int:
    """That of its tables, 0 where there are none yet.

    Raises:
        sqlite3.DatabaseError: it is beyond `newest`, so of a newer version.
    """
    (layout,) = file.execute("PRAGMA user_version").fetchone()
    if layout > newest:
        raise sqlite3.DatabaseError(f"a newer version of Toolcrib wrote it (layout {layout})")
    return int(layout)
