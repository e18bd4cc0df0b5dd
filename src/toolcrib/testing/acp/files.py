"""A real folder as a fake editor's file system."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from io import StringIO
from pathlib import Path


class Folder(MutableMapping[str, str]):
    """The text files under `root`, by absolute path. Files outside `root` do not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def __getitem__(self, path: str) -> str:
        try:
            return self._inside(path).read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise KeyError(path) from error

    def __setitem__(self, path: str, text: str) -> None:
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def __delitem__(self, path: str) -> None:
        try:
            self._inside(path).unlink()
        except OSError as error:
            raise KeyError(path) from error

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(str(path) for path in self.root.rglob("*") if path.is_file()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _inside(self, path: str) -> Path:
        file = Path(path).resolve()
        if not file.is_relative_to(self.root):
            raise KeyError(path)
        return file


def lines_of(text: str, line: int | None, limit: int | None) -> str:
    """Return `limit` lines of `text` starting at `line`, which counts from 1. Without both, return all lines."""
    lines = [*StringIO(text, newline="")][max((line or 1) - 1, 0) :]  # `splitlines` would also split at form feeds
    return "".join(lines if limit is None else lines[:limit])
