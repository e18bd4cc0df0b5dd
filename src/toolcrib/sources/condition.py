"""How a server is doing at one moment, for its owner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """Calls at a server and in line for it, and whether it is left alone for its failures."""

    running: int
    waiting: int
    failures: int
    """In a row, to start or in calls; 0 where it works."""
    retry_after_s: float | None
    """In how many seconds it is tried again; None where nothing keeps it from being called."""
