"""Which past calls count in a search."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Whose past calls count for whom, and for how long."""

    share: tuple[tuple[str, ...], ...] = ()
    """Groups, each the patterns of its principals' ids."""
    max_days: int = 90

    def group_of(self, principal_id: str) -> tuple[int, str]:
        """What is the same for all that share: the first group whose patterns are met, or the principal itself."""
        for number, patterns in enumerate(self.share):
            if any(fnmatchcase(principal_id, pattern) for pattern in patterns):
                return number, ""
        return -1, principal_id
