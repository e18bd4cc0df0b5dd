"""The folders of a session. Nothing outside of them can be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolcrib.core.errors import ToolFailed

SKIPPED = frozenset({"node_modules", "__pycache__", "CVS", "_darcs"})
"""Folders that a search skips, in addition to those whose names begin with a dot."""


class Roots:
    """The folders of a session. The methods read the disk.

    `inside` follows symbolic links before it checks a path. Files are opened later without following links, so a link
    that is placed there in between has no effect.
    """

    def __init__(self, folders: Sequence[str | Path]) -> None:
        """`folders` has at least one entry. Relative paths start at the first one."""
        self.folders = tuple(Path(folder).absolute() for folder in folders)

    def inside(self, path: str) -> Path:
        """Return the real path of `path`, which need not exist.

        Raises:
            ToolFailed: the path is outside of the folders.
        """
        try:
            real = (self.folders[0] / path).resolve()
            allowed = [folder.resolve() for folder in self.folders]
        except (OSError, RuntimeError, ValueError) as error:  # a cycle of links, or a NUL
            raise ToolFailed(f"`{path}` is not a valid path.") from error
        if not any(real.is_relative_to(folder) for folder in allowed):
            raise ToolFailed(
                f"`{path}` is outside of the folders of this session.",
                hints=[f"The folders are: {', '.join(map(str, self.folders))}"],
            )
        return real

    def read(self, path: Path, most_bytes: int) -> bytes:
        """Return the content of the file at `path`, a result of `inside` or `walk`.

        Raises:
            ToolFailed: it is not a file, is larger, or cannot be read.
        """
        try:
            with os.fdopen(_opened(path, _READ), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise ToolFailed(f"`{path}` is not a file.")
                data = file.read(most_bytes + 1)
        except OSError as error:
            raise ToolFailed(f"`{path}` cannot be read: {error.strerror}.") from error
        if not _BY_PARTS and self.inside(str(path)) != path:
            raise ToolFailed(f"`{path}` was moved while it was read.")
        if len(data) > most_bytes:
            raise ToolFailed(f"`{path}` is larger than the limit of {most_bytes} bytes.")
        return data

    def start(self, path: str | None) -> tuple[Path, ...]:
        """Return where a search begins: at `path`, or at all folders.

        Raises:
            ToolFailed: `path` is outside of the folders, or does not exist.
        """
        starts = tuple(self.inside(str(folder)) for folder in self.folders) if path is None else (self.inside(path),)
        try:
            is_there = starts[0].exists()
        except OSError as error:  # a name that is longer than the file system allows
            raise ToolFailed(f"`{path}` cannot be searched: {error.strerror}.") from error
        if path is not None and not is_there:
            raise ToolFailed(f"`{path}` does not exist.")
        # A folder below a different one would be searched twice.
        return tuple(
            each for each in starts if not any(each != other and each.is_relative_to(other) for other in starts)
        )


def walk(start: Path) -> Iterator[Path | None]:
    """Yield all files below `start` in the order of their names, or `start` if it is a file; None for any other entry.

    Links, hidden folders and the folders in `SKIPPED` are not searched.
    """
    if start.is_file():
        yield start
        return
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        try:
            entries = _entries(folder)
        except OSError:  # unreadable, or deleted in the meantime
            continue
        below: list[Path] = []
        for name, is_file, is_folder in entries:
            if is_file:
                yield folder / name
                continue
            if is_folder and not name.startswith(".") and name not in SKIPPED:
                below.append(folder / name)
            yield None
        waiting += reversed(below)


_BY_PARTS = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# With `O_NONBLOCK`, opening a pipe does not block.
_READ = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# `O_PATH` requires only the right to pass through the folder, not the right to list it.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NO_LINK


def _opened(path: Path, flags: int) -> int:
    """Open `path`, a real path, without following a link in any of its parts, and return its descriptor.

    `O_NOFOLLOW` only covers the last part. A folder above it can be replaced by a link after `inside` checked it, and
    be back before the next check. So each part is opened relative to the descriptor of the previous one.

    Raises:
        OSError: the path does not exist, or a part of it is now a link.
    """
    if not _BY_PARTS:
        return os.open(path, flags)
    at = os.open(path.anchor, _STEP)
    try:
        for part in path.parts[1:-1]:
            below = os.open(part, _STEP, dir_fd=at)
            os.close(at)
            at = below
        return os.open(path.name or path.anchor, flags, dir_fd=at)
    finally:
        os.close(at)


def _entries(folder: Path) -> list[tuple[str, bool, bool]]:
    """Return the sorted names in `folder`, each with whether it is a file and whether it is a folder. A link is
    neither."""
    descriptor = _opened(folder, os.O_RDONLY | _NO_LINK) if _BY_PARTS else None
    try:
        with os.scandir(folder if descriptor is None else descriptor) as scanned:
            found = [
                (entry.name, entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False))
                for entry in scanned
            ]
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return sorted(found)
