"""Paths on the machine of an editor, which need not be of the kind that paths have here."""

from __future__ import annotations

import ntpath
import posixpath
from pathlib import PureWindowsPath


def absolute(path: str, cwd: str) -> str:
    """`path` as an absolute one without `.` and `..`; a relative one is taken from `cwd`, which is absolute."""
    is_windows = not cwd.startswith("/") and bool(PureWindowsPath(cwd).drive)
    kind = ntpath if is_windows else posixpath
    return kind.normpath(kind.join(cwd, path))
