"""How the files of caches are written, which several processes share."""

from __future__ import annotations

import sqlite3
import time

_STEP_S = 0.02


def write_ahead(file: sqlite3.Connection, timeout_s: float) -> None:
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
