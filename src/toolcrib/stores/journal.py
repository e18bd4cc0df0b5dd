"""How the files of caches are opened, which several processes share and often write."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from toolcrib.database import Layout, lay_out, layout_of, make, open_private

_STEP_S = 0.02


def open_cache(path: Path, layout: Layout, timeout_s: float) -> sqlite3.Connection:
    """Open the file at `path`, which is made and laid out if need be, with a write-ahead log.

    A power cut may take the last writes with it. `timeout_s` is how long to wait for other processes.

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
