"""What the system offers that tools may need: programs, variables, places, addresses, packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Findings:
    """What is known of capabilities at one moment. One of which nothing is known is missing."""

    there: frozenset[str] = frozenset()
    """Names of those that the system has."""
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why the others are missing and what to do about it, by name, in sentences that any caller may read."""

    def why_not(self, names: Iterable[str]) -> str | None:
        """Why a tool that needs these cannot be called; None where all are there."""
        missing = (name for name in names if name not in self.there)
        reasons = (self.lacking.get(name, f"It needs `{name}`, of which nothing is known here.") for name in missing)
        return " ".join(reasons) or None


NO_FINDINGS = Findings()
