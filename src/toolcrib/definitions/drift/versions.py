"""Counts the versions of a tool's contract since the tool was first seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from toolcrib.definitions.drift.grades import Drift, Grade


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Major, minor and patch, as in semantic versioning. Toolcrib counts them from changes; servers do not report
    them."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str(version)`. Raises ValueError for everything else."""
        if (found := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", text, re.ASCII)) is None:
            raise ValueError(f"not a version: {text!r}")
        return cls(*map(int, found.groups()))

    def after(self, drift: Drift) -> Version:
        """Return the next version: major if valid calls may fail now, minor if more calls are valid, else patch.

        Without changes, the version stays the same.
        """
        if Grade.BREAKING in drift.grades:
            return Version(self.major + 1, 0, 0)
        if Grade.COMPATIBLE in drift.grades:
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1) if drift.grades else self

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


FIRST = Version(1, 0, 0)
"""The version of a tool that is seen for the first time."""
