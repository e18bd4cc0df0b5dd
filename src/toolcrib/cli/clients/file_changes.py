"""Reads text files of other programs, and replaces them completely or not at all."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from toolcrib.core.errors import InvalidConfig

MAX_BYTES = 64 * 1024 * 1024
"""The largest file that is accepted as a configuration."""

CONTEXT_LINES = 3
"""How many unchanged lines are shown before and after a change."""

MAX_LINE = 300
"""How many characters of a line a diff shows. In a longer line, parts that did not change are left out."""

SHOWN_AROUND = 60
"""How many characters are shown before and after a change in a long line."""

PRIVATE = 0o600
"""The permissions of a file that only its owner may read."""

_BOM = "\ufeff"


@dataclass(frozen=True)
class FileSnapshot:
    """The content of a file at one moment."""

    path: Path
    """The path as it was given."""
    target: Path
    """The path after following all symbolic links."""
    data: bytes | None
    """None if there is no file."""
    mode: int | None = None
    """The permissions. None if there is no file."""

    @cached_property
    def text(self) -> str:
        """The content without a byte order mark. Empty if there is no file.

        Raises:
            InvalidConfig: the file is not UTF-8 text.
        """
        try:
            return (self.data or b"").decode().removeprefix(_BOM)
        except UnicodeDecodeError as error:
            raise InvalidConfig(f"{self.path}: must be UTF-8 text") from error

    def encoded(self, text: str) -> bytes:
        """Encode `text` for this file: with a byte order mark if the file has one."""
        marked = self.data is not None and self.data.startswith(_BOM.encode())
        return ((_BOM if marked else "") + text).encode()


@dataclass(frozen=True)
class FileChange:
    """A change of a file."""

    before: FileSnapshot
    after: bytes | None
    """The new content. None means that the file is deleted."""
    mode: int | None = None
    """The new permissions. None keeps them, and gives a new file the default ones."""

    @property
    def path(self) -> Path:
        return self.before.path

    def diff(self) -> list[str]:
        """Return the change as the lines of a unified diff. Long lines are shortened to what changes in them."""
        old = self.before.text.splitlines()
        new = (self.after or b"").decode().removeprefix(_BOM).splitlines()
        return [
            f"--- {self.path}" if self.before.data is not None else "--- (no file)",
            f"+++ {self.path}" if self.after is not None else "+++ (no file)",
            *_hunks(old, new),
        ]


def read(path: Path) -> FileSnapshot:
    """Read the file at `path`.

    Raises:
        InvalidConfig: the file cannot be read, or cannot be replaced: it is a folder or a device, or it has several
            hard links, which replacing it would separate.
    """
    target = Path(os.path.realpath(path))
    try:
        status = target.stat()
    except FileNotFoundError:
        return FileSnapshot(path, target, None)
    except OSError as error:  # for example, a circle of links, or a folder without permission
        raise _failed(path, "read", error) from error
    if not stat.S_ISREG(status.st_mode):
        raise InvalidConfig(f"{path}: not a file")
    if status.st_size > MAX_BYTES:
        raise InvalidConfig(f"{path}: too large for a configuration ({status.st_size:,} bytes)")
    if status.st_nlink > 1:
        raise InvalidConfig(f"{path}: the file has {status.st_nlink} hard links, which a change would separate")
    try:
        return FileSnapshot(path, target, target.read_bytes(), stat.S_IMODE(status.st_mode))
    except OSError as error:
        raise _failed(path, "read", error) from error


def check_writable(snapshot: FileSnapshot) -> None:
    """Check that the file and its folder can be written.

    Raises:
        InvalidConfig: the file is read-only, or its folder is.
    """
    target = snapshot.target
    if snapshot.data is not None and not (target.stat().st_mode & 0o222 and os.access(target, os.W_OK)):
        raise InvalidConfig(f"{snapshot.path}: the file is read-only", hints=_managed(snapshot))
    folder = target.parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidConfig(f"{snapshot.path}: the folder {folder} is read-only", hints=_managed(snapshot))


def write(change: FileChange) -> None:
    """Replace the file, if it did not change since it was read.

    Other programs see either the old file or the new one. Its mode, owner and extended attributes are kept.

    Raises:
        InvalidConfig: the file changed since it was read, or cannot be written. It stays as it is.
    """
    before, target = change.before, change.before.target
    check_unchanged(before)
    if change.after is None:
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise _failed(change.path, "removed", error) from error
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    except OSError as error:
        raise _failed(change.path, "written", error) from error
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(change.after)
            file.flush()
            os.fsync(file.fileno())
        _dress(new, change)
        check_unchanged(before)
        new.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            raise _failed(change.path, "written", error) from error
        raise


def check_unchanged(before: FileSnapshot) -> None:
    """Check that the file did not change since it was read.

    Raises:
        InvalidConfig: the file changed.
    """
    now = read(before.path)
    if (now.target, now.data) != (before.target, before.data):
        raise InvalidConfig(
            f"{before.path}: the file changed while the command was running, so it was not modified",
            hints=["Run the command again to see the change to the file as it is now."],
        )


def _dress(new: Path, change: FileChange) -> None:
    """Give the new file the permissions, owner and attributes of the old one."""
    target = change.before.target
    if change.before.data is None:
        mask = os.umask(0)
        os.umask(mask)
        new.chmod(change.mode if change.mode is not None else 0o666 & ~mask)
        return
    old = target.stat()
    if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):  # without the right to change the owner, only the mode is kept
            os.chown(new, old.st_uid, old.st_gid)
    shutil.copystat(target, new)
    os.utime(new)  # programs that watch the file must notice the change
    if change.mode is not None:
        new.chmod(change.mode)


def _failed(path: Path, what: str, error: OSError) -> InvalidConfig:
    return InvalidConfig(f"{path}: the file cannot be {what}: {error.strerror or error}")


def _managed(snapshot: FileSnapshot) -> list[str]:
    if snapshot.target == Path(os.path.abspath(snapshot.path)):  # noqa: PTH100  `resolve` would follow the links
        return []
    return [f"The path leads to {snapshot.target}. Change it with the program that manages that file."]


def _hunks(old: list[str], new: list[str]) -> list[str]:
    # Compare only the lines between the first and the last difference: files can be large, changes are small.
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start = max(0, head - CONTEXT_LINES)
    ends = [min(len(lines), len(lines) - tail + CONTEXT_LINES) for lines in (old, new)]
    compared = difflib.unified_diff(old[start : ends[0]], new[start : ends[1]], n=CONTEXT_LINES, lineterm="")
    lines = [*compared][2:]
    return [_numbered(line, start) if line.startswith("@@") else line for line in _shortened(lines)]


def _numbered(header: str, offset: int) -> str:
    """Return the header of a hunk with the line numbers of the whole file."""

    def shifted(part: str) -> str:
        line, comma, count = part[1:].partition(",")
        return f"{part[0]}{int(line) + offset}{comma}{count}"

    _, old, new, _ = header.split(" ")
    return f"@@ {shifted(old)} {shifted(new)} @@"


def _shortened(lines: list[str]) -> list[str]:
    shown: dict[int, str] = {}
    for i, (line, following) in enumerate(pairwise(lines)):
        # If one line replaces one other line, show only the parts that differ.
        if (line[:1], following[:1]) == ("-", "+") and max(len(line), len(following)) > MAX_LINE:
            shown[i] = line[0] + _around(line[1:], following[1:])
            shown[i + 1] = following[0] + _around(following[1:], line[1:])
    return [shown.get(i) or _cut(line) for i, line in enumerate(lines)]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}… {len(line) - MAX_LINE:,} more characters"


def _around(line: str, other: str) -> str:
    same = _common(line, other)
    end = _common(line[same:][::-1], other[same:][::-1])
    start, stop = max(0, same - SHOWN_AROUND), min(len(line), len(line) - end + SHOWN_AROUND)
    return f"{'…' * (start > 0)}{line[start:stop]}{'…' * (stop < len(line))}"


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common beginning. Uses a binary search, because one line can be a whole file."""
    same, differs = 0, min(len(one), len(other)) + 1
    while differs - same > 1:
        middle = (same + differs) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            differs = middle
    return same
