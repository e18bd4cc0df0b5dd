"""Which version of its contract a tool has reached since it was first seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from toolcrib.definitions.drift.grades import Drift, Grade


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Major, minor and patch, as semantic versioning has them: counted by what changed, not told by a server."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for anything but what `str` makes of a version."""
        if (found := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", text, re.ASCII)) is None:
            raise ValueError(f"no version: {text!r}")
        return cls(*map(int, found.groups()))

    def after(self, drift: Drift) -> Version:
        """Major where calls that were right may fail now, minor where more of them are right, else patch.

        Nothing changed, and nothing is counted.
        """
        if Grade.BREAKING in drift.grades:
            return Version(self.major + 1, 0, 0)
        if Grade.COMPATIBLE in drift.grades:
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1) if drift.grades else self

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


FIRST = Version(1, 0, 0)
"""What a tool has when it is first seen."""
