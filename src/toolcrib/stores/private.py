"""Files that their owner alone may read, from the first moment on."""

from __future__ import annotations

import os
from contextlib import suppress
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
