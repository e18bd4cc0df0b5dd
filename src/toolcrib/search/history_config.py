"""The settings for learning from past calls."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Whose past calls count for whom, and for how long."""

    share: tuple[tuple[str, ...], ...] = ()
    """Groups of principals that share their past calls. Each group is a tuple of patterns of principal ids."""
    max_days: int = 90

    def group_of(self, principal_id: str) -> tuple[int, str]:
        """Return a key that is equal for principals that share: of the first matching group, or of the principal
        itself."""
        for number, patterns in enumerate(self.share):
            if any(fnmatchcase(principal_id, pattern) for pattern in patterns):
                return number, ""
        return -1, principal_id
