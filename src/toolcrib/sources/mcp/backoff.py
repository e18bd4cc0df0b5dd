"""When a server that failed may be tried again, as a value: each failure in a row makes it wait twice as long."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

FIRST_WAIT_S = 1.0
LAST_WAIT_S = 300.0
"""After its first failure a server is left alone for the first, then for twice as long, up to the last."""

LIVED_S = 30.0
"""A connection that is open for this long works, in seconds, also where nobody has called."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a server failed since it last worked, and until when it is left alone.

    Times are those of one monotonic clock, in seconds; whoever holds the value brings the clock.
    """

    failures: int = 0
    """In a row."""
    wait_s: float = 0.0
    """What the last of them costs."""
    retry_at: float = -math.inf
    paused_until: float = -math.inf
    """Until when the server asked not to be called; that it worked for somebody since does not shorten this."""

    def failed(self, now: float, *, died: bool) -> Self:
        """It did not start or, where it `died`, went away after it had.

        The first death in a row costs nothing: the next call starts the server at once.
        """
        failures = self.failures + 1
        forgiven = died and failures == 1
        wait_s = 0.0 if forgiven else min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 64), LAST_WAIT_S)
        return replace(self, failures=failures, wait_s=wait_s, retry_at=now + wait_s)

    def worked(self) -> Self:
        """It answered, or lived long enough; that it started says nothing."""
        return replace(self, failures=0, wait_s=0.0, retry_at=-math.inf)

    def paused(self, now: float, pause_s: float) -> Self:
        """It asked to be left alone for `pause_s`; a longer pause that it asked for before stays."""
        return replace(self, paused_until=max(self.paused_until, now + pause_s))

    def left_s(self, now: float) -> float:
        """Seconds until it may be tried, at least 0."""
        return max(0.0, self.retry_at - now, self.paused_until - now)

    @property
    def in_doubt(self) -> bool:
        """Whether it has yet to show that it works again: until then it is tried by one caller at a time."""
        return self.wait_s > 0
