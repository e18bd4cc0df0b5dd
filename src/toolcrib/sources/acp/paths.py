"""Paths on the machine of an editor, which may have a different operating system."""

from __future__ import annotations

import ntpath
import posixpath
from pathlib import PureWindowsPath


def absolute(path: str, cwd: str) -> str:
    """Return `path` as an absolute path without `.` and `..`. A relative path starts at `cwd`, which is absolute."""
    is_windows = not cwd.startswith("/") and bool(PureWindowsPath(cwd).drive)
    kind = ntpath if is_windows else posixpath
    return kind.normpath(kind.join(cwd, path))
