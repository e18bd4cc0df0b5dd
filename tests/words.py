"""Counts words that plain technical English does without: `python -m tests.words`, a part of `make lint`.

They came from an earlier style of the project, which many readers found hard to follow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PLACES = ("src", "docs", "README.md", "CONTRIBUTING.md")

AVOIDED = (
    "as by default",
    "are none",
    "are told of",
    "beside",
    "by then",
    "comes to nothing",
    "has become another",
    "heed",
    "is none",
    "is told of",
    "likewise",
    "mend",
    "mended",
    "mends",
    "nobody",
    "of which",
    "of whom",
    "somebody",
    "whatever becomes of",
    "whoever",
)

ALLOWED = 0
"""Occurrences that are left. This number may only go down."""

_PATTERN = re.compile(rf"\b({'|'.join(map(re.escape, AVOIDED))})\b", re.IGNORECASE)


def occurrences(root: Path = ROOT) -> Iterator[tuple[Path, int, str]]:
    """Each file, line number and word."""
    for place in PLACES:
        path = root / place
        files = sorted(each for each in path.rglob("*") if each.suffix in {".py", ".md"}) if path.is_dir() else [path]
        for file in files:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for found in _PATTERN.finditer(line):
                    if found[0].endswith("None"):  # Python's `is None`
                        continue
                    yield file.relative_to(root), number, found[0]


def main() -> int:
    found = [*occurrences()]
    if len(found) == ALLOWED:
        return 0
    if len(found) < ALLOWED:
        print(f"{len(found)} words to avoid are left. Lower ALLOWED in tests/words.py from {ALLOWED} to {len(found)}.")
    else:
        for file, number, word in found if True else ():
            print(f"{file}:{number}: avoid `{word}`")
        print(f"{len(found)} words to avoid, and {ALLOWED} are allowed. Write the new ones in plain English.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
