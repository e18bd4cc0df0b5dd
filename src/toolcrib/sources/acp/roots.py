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
    """Symbolic links are followed before a path is judged, so none of them leads out. Its methods read the disk."""

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
        # A link that was put there since is not followed, and a pipe does not keep us waiting.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(path, flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise ToolFailed(f"`{path}` is not a file.")
                data = file.read(most_bytes + 1)
        except OSError as error:
            raise ToolFailed(f"`{path}` cannot be read: {error.strerror}.") from error
        # A folder above it may have been swapped for a link while it was opened.
        if self.inside(str(path)) != path:
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
        if path is not None and not starts[0].exists():
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
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:  # it may not be read, or is gone
            continue
        below: list[Path] = []
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
                continue
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name not in SKIPPED:
                below.append(Path(entry.path))
            yield None
        waiting += reversed(below)
