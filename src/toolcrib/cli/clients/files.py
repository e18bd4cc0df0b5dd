"""Text files of other programs: read whole, and replaced whole or not at all."""

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
"""The largest file that is taken for a configuration."""

CONTEXT_LINES = 3
"""Unchanged lines shown on either side of a change."""

MAX_LINE = 300
"""Characters of a line that a diff shows before it leaves out what is the same on both sides."""

SHOWN_AROUND = 60
"""Characters shown on either side of a change within such a line."""

PRIVATE = 0o600
"""Permissions of a file that nobody but its owner may read."""

_BOM = "\ufeff"


@dataclass(frozen=True)
class Snapshot:
    """What stood in a file at one moment."""

    path: Path
    """As it was named."""
    target: Path
    """The file itself, behind all symbolic links."""
    data: bytes | None
    """None where there is no file."""
    mode: int | None = None
    """Its permissions; None where there is no file."""

    @cached_property
    def text(self) -> str:
        """What it says, without a byte order mark; nothing where there is no file.

        Raises:
            InvalidConfig: it is no UTF-8 text.
        """
        try:
            return (self.data or b"").decode().removeprefix(_BOM)
        except UnicodeDecodeError as error:
            raise InvalidConfig(f"{self.path}: not UTF-8 text") from error

    def encoded(self, text: str) -> bytes:
        """`text` as the file would hold it: with a byte order mark where it has one."""
        marked = self.data is not None and self.data.startswith(_BOM.encode())
        return ((_BOM if marked else "") + text).encode()


@dataclass(frozen=True)
class Change:
    """A file that is to hold something else."""

    before: Snapshot
    after: bytes | None
    """None: there is to be no file."""
    mode: int | None = None
    """Its permissions from now on; where that is None, they stay, and a new file gets the usual ones."""

    @property
    def path(self) -> Path:
        return self.before.path

    def diff(self) -> list[str]:
        """What changes, as the lines of a unified diff; long lines are shown around what changes in them."""
        old = self.before.text.splitlines()
        new = (self.after or b"").decode().removeprefix(_BOM).splitlines()
        return [
            f"--- {self.path}" if self.before.data is not None else "--- (no file)",
            f"+++ {self.path}" if self.after is not None else "+++ (no file)",
            *_hunks(old, new),
        ]


def read(path: Path) -> Snapshot:
    """The file at `path` as it is now.

    Raises:
        InvalidConfig: it cannot be read, or is nothing that can be replaced: a folder, a device, one of several hard
            links (which would part).
    """
    target = Path(os.path.realpath(path))
    try:
        status = target.stat()
    except FileNotFoundError:
        return Snapshot(path, target, None)
    except OSError as error:  # a circle of links, a folder that may not be entered
        raise _failed(path, "read", error) from error
    if not stat.S_ISREG(status.st_mode):
        raise InvalidConfig(f"{path}: not a file")
    if status.st_size > MAX_BYTES:
        raise InvalidConfig(f"{path}: {status.st_size:,} bytes are too many for a configuration")
    if status.st_nlink > 1:
        raise InvalidConfig(f"{path}: the file has {status.st_nlink} names (hard links), which a change would part")
    try:
        return Snapshot(path, target, target.read_bytes(), stat.S_IMODE(status.st_mode))
    except OSError as error:
        raise _failed(path, "read", error) from error


def check_writable(snapshot: Snapshot) -> None:
    """Raises:
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


def write(change: Change) -> None:
    """Replace the file, if it still is what it was.

    Readers see the old file or the new one and nothing between. Its mode, owner and extended attributes are kept.

    Raises:
        InvalidConfig: it was changed meanwhile, or cannot be written; it is as it was.
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


def check_unchanged(before: Snapshot) -> None:
    """Raises:
    InvalidConfig: the file is another than it was.
    """
    now = read(before.path)
    if (now.target, now.data) != (before.target, before.data):
        raise InvalidConfig(
            f"{before.path}: the file changed while the command was running, so it was not modified",
            hints=["Run the command again to see the change to the file as it is now."],
        )


def _dress(new: Path, change: Change) -> None:
    """Give the new file what the old one has besides its content."""
    target = change.before.target
    if change.before.data is None:
        mask = os.umask(0)
        os.umask(mask)
        new.chmod(change.mode if change.mode is not None else 0o666 & ~mask)
        return
    old = target.stat()
    if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):  # who may not give it away keeps it: the mode stays what it was
            os.chown(new, old.st_uid, old.st_gid)
    shutil.copystat(target, new)
    os.utime(new)  # whoever follows the file must see that it is another
    if change.mode is not None:
        new.chmod(change.mode)


def _failed(path: Path, what: str, error: OSError) -> InvalidConfig:
    return InvalidConfig(f"{path}: cannot be {what}: {error.strerror or error}")


def _managed(snapshot: Snapshot) -> list[str]:
    if snapshot.target == Path(os.path.abspath(snapshot.path)):  # noqa: PTH100  `resolve` would follow the links
        return []
    return [f"It leads to {snapshot.target}; a program that manages it is the one to change it."]


def _hunks(old: list[str], new: list[str]) -> list[str]:
    # Compared is only what lies between the first and the last difference: files can be large, changes are not.
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start = max(0, head - CONTEXT_LINES)
    ends = [min(len(lines), len(lines) - tail + CONTEXT_LINES) for lines in (old, new)]
    compared = difflib.unified_diff(old[start : ends[0]], new[start : ends[1]], n=CONTEXT_LINES, lineterm="")
    lines = [*compared][2:]
    return [_numbered(line, start) if line.startswith("@@") else line for line in _shortened(lines)]


def _numbered(header: str, offset: int) -> str:
    """A hunk's header with the line numbers of the whole file."""

    def shifted(part: str) -> str:
        line, comma, count = part[1:].partition(",")
        return f"{part[0]}{int(line) + offset}{comma}{count}"

    _, old, new, _ = header.split(" ")
    return f"@@ {shifted(old)} {shifted(new)} @@"


def _shortened(lines: list[str]) -> list[str]:
    shown: dict[int, str] = {}
    for i, (line, following) in enumerate(pairwise(lines)):
        # Where one line took the place of another, what differs can be shown.
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
    """How much both begin with; by halves, since one line can be a whole file."""
    same, differs = 0, min(len(one), len(other)) + 1
    while differs - same > 1:
        middle = (same + differs) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            differs = middle
    return same
