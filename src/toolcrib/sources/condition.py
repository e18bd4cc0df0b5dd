"""The condition of a server at one moment, for its owner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """How many calls run and wait at a server, and whether calls are paused after failures."""

    running: int
    waiting: int
    failures: int
    """Failures in a row, of starts or calls; 0 if the server works."""
    retry_after_s: float | None
    """In how many seconds the next attempt is allowed; None if calls are not paused."""
