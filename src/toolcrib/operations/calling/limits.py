"""Rate limits per principal: calls per minute, and calls at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from toolcrib.core.errors import RateLimited
from toolcrib.core.principal import Principal

MAX_PRINCIPALS = 10_000
"""The most buckets that are stored. A full bucket need not be stored."""

_MINUTE_NS = 60_000_000_000
_TENTH_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: the average number of calls per minute, and the number of calls at once.

    A person's agents do not reach the default: ten calls in every turn, and a turn every second, are 600 per minute. A
    loop that calls as fast as possible uses up a thousand calls within seconds.
    """

    calls_per_minute: int = 1_000
    burst_calls: int = 1_000

    @property
    def interval_ns(self) -> int:
        """The average time per call, in nanoseconds."""
        return _MINUTE_NS // self.calls_per_minute


DEFAULT_RATE = Rate()

OPERATIONS_PER_CALL = 5
"""The number of operations for one call: the call itself, and the lists, searches and expansions that lead to it."""

DEFAULT_LOOKUP_RATE = Rate(5_000, 1_666)
"""The default limit for all operations, including calls: `OPERATIONS_PER_CALL` times the default rate of calls."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A bucket of `burst_calls` tokens that gets one more every `interval_ns`; it stores when it is full again.

    Times are integers, in nanoseconds of one monotonic clock, so sums are exact: a caller that waits for the given time
    is always admitted.
    """

    full_at_ns: int = 0

    def wait_ns(self, rate: Rate, now_ns: int) -> int:
        """Return the nanoseconds until the bucket has a token; 0 if it has one."""
        empty_for_ns = max(self.full_at_ns, now_ns) - now_ns + rate.interval_ns - rate.burst_calls * rate.interval_ns
        return max(0, empty_for_ns)

    def taken(self, rate: Rate, now_ns: int) -> Self:
        """Return the bucket with one token less."""
        return type(self)(max(self.full_at_ns, now_ns) + rate.interval_ns)


class CallLimits:
    """The buckets of all principals. A crib has one, and every call of a tool passes it."""

    def __init__(
        self, rate: Rate | None = None, *, what: str = "calls", now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Make the limits. Without a `rate` there is no limit. `what` names what is counted, for the error."""
        self.rate = rate
        self._what = what
        self._now_ns = now_ns
        self._buckets: dict[str, TokenBucket] = {}
        """The buckets by the id of the principal."""

    @property
    def known(self) -> int:
        """The number of stored buckets."""
        return len(self._buckets)

    def admit(self, principal: Principal) -> None:
        """Count a call of `principal`, if it is within the limit.

        Raises:
            RateLimited: the call exceeds the limit, and is not counted.
        """
        rate = self.rate
        if rate is None:
            return
        now_ns = self._now_ns()
        bucket = self._buckets.get(principal.id, TokenBucket())
        if wait_ns := bucket.wait_ns(rate, now_ns):
            wait_s = -(-wait_ns // _TENTH_NS) / 10  # rounded up to a tenth of a second
            raise RateLimited(
                f"`{principal.id}` exceeded the rate limit of {rate.calls_per_minute} {self._what} per minute "
                f"(burst of {rate.burst_calls}). Nothing ran. Retry in {wait_s:g} s.",
                hints=["The gateway's owner can raise the limit."],
                retry_after_s=wait_s,
            )
        self._buckets[principal.id] = bucket.taken(rate, now_ns)
        if len(self._buckets) > MAX_PRINCIPALS:
            self._make_room(now_ns)

    def _make_room(self, now_ns: int) -> None:
        """Drop full buckets, which have no information. If that is not enough, drop the fullest of the others."""
        waiting = sorted(
            ((i, bucket) for i, bucket in self._buckets.items() if bucket.full_at_ns > now_ns),
            key=lambda kept: kept[1].full_at_ns,
            reverse=True,
        )
        self._buckets = dict(waiting[: MAX_PRINCIPALS // 2])
