"""The folders that a session works in, and nothing outside of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolcrib.core.errors import ToolFailed

SKIPPED = frozenset({"node_modules", "__pycache__", "CVS", "_darcs"})
"""Folders that are not searched, besides those whose names begin with a dot."""


class Roots:
    """The folders of a session. Its methods read the disk.

    `inside` follows symbolic links before it judges a path. What is opened later is opened without following any, so a
    link that is put there in between leads nowhere.
    """

    def __init__(self, folders: Sequence[str | Path]) -> None:
        """At least one; relative paths are taken from the first."""
        self.folders = tuple(Path(folder).absolute() for folder in folders)

    def inside(self, path: str) -> Path:
        """The real path that `path` leads to, which need not exist.

        Raises:
            ToolFailed: it lies outside.
        """
        try:
            real = (self.folders[0] / path).resolve()
            allowed = [folder.resolve() for folder in self.folders]
        except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a NUL
            raise ToolFailed(f"`{path}` is no path that can be followed.") from error
        if not any(real.is_relative_to(folder) for folder in allowed):
            raise ToolFailed(
                f"`{path}` lies outside of the folders of this session.",
                hints=[f"These are: {', '.join(map(str, self.folders))}"],
            )
        return real

    def read(self, path: Path, most_bytes: int) -> bytes:
        """What stands in the file at `path`, which `inside` gave or `walk` found.

        Raises:
            ToolFailed: it is no file, is larger, or cannot be read.
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
            raise ToolFailed(f"`{path}` is larger than the {most_bytes} bytes that are read.")
        return data

    def start(self, path: str | None) -> tuple[Path, ...]:
        """Where a search begins: all of the folders, or at `path`.

        Raises:
            ToolFailed: it lies outside, or there is nothing.
        """
        starts = tuple(self.inside(str(folder)) for folder in self.folders) if path is None else (self.inside(path),)
        try:
            is_there = starts[0].exists()
        except OSError as error:  # a name that is longer than the file system allows
            raise ToolFailed(f"`{path}` cannot be looked up: {error.strerror}.") from error
        if path is not None and not is_there:
            raise ToolFailed(f"There is no `{path}`.")
        # One below another would be searched twice.
        return tuple(
            each for each in starts if not any(each != other and each.is_relative_to(other) for other in starts)
        )


def walk(start: Path) -> Iterator[Path | None]:
    """All files below `start`, or it alone where it is one, in the order of their names; None for anything else.

    Links, hidden folders and those of `SKIPPED` are not looked into.
    """
    if start.is_file():
        yield start
        return
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        try:
            entries = _entries(folder)
        except OSError:  # it may not be read, or is gone
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
# A pipe does not keep the reader waiting.
_READ = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# `O_PATH` needs no right to list the folder, only the right to go through it.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NO_LINK


def _opened(path: Path, flags: int) -> int:
    """A descriptor of `path`, a real path, which is opened without following a link in any of its parts.

    `O_NOFOLLOW` is only about the last part. A folder above it can be swapped for a link after `inside` looked at it,
    and be back before anything looks again. So each part is opened relative to the descriptor of the one before.

    Raises:
        OSError: it is not there, or a part of it is a link by now.
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
    """The name of each entry of `folder`, in order, and whether it is a file and a folder itself; a link is neither."""
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
