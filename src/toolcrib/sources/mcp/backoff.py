"""Decides when a failed server may be retried, as a value. Each failure in a row doubles the wait."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

FIRST_WAIT_S = 1.0
LAST_WAIT_S = 300.0
"""After its first failure a server gets no calls for the first wait, then for twice as long, up to the last wait."""

LIVED_S = 30.0
"""A connection that has been open for this long counts as working, in seconds, even without a call."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a server failed since it last worked, and until when it gets no calls.

    Times are those of one monotonic clock, in seconds. The owner of the value supplies the clock.
    """

    failures: int = 0
    """Failures in a row."""
    wait_s: float = 0.0
    """The wait after the last failure, in seconds."""
    retry_at: float = -math.inf
    paused_until: float = -math.inf
    """Until when the server asked not to be called. A call that worked in between does not shorten this."""

    def failed(self, now: float, *, died: bool) -> Self:
        """Count a failure: the server did not start or, if it `died`, stopped after it had started.

        The first death in a row has no wait: the next call starts the server at once.
        """
        failures = self.failures + 1
        forgiven = died and failures == 1
        wait_s = 0.0 if forgiven else min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 64), LAST_WAIT_S)
        return replace(self, failures=failures, wait_s=wait_s, retry_at=now + wait_s)

    def worked(self) -> Self:
        """Count a success: the server answered, or ran long enough. That it started is not enough."""
        return replace(self, failures=0, wait_s=0.0, retry_at=-math.inf)

    def paused(self, now: float, pause_s: float) -> Self:
        """Note that the server asked for a pause of `pause_s`. An earlier, longer pause remains."""
        return replace(self, paused_until=max(self.paused_until, now + pause_s))

    def left_s(self, now: float) -> float:
        """Return the seconds until the server may be retried, at least 0."""
        return max(0.0, self.retry_at - now, self.paused_until - now)

    @property
    def in_doubt(self) -> bool:
        """Whether the server has yet to show that it works again. Until then one caller at a time tries it."""
        return self.wait_s > 0
