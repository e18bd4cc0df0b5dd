"""How fast one principal may call: so many calls a minute, and so many at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from toolcrib.core.errors import RateLimited
from toolcrib.core.principal import Principal

MAX_PRINCIPALS = 10_000
"""Buckets that are kept; a full one is as good as none."""

_MINUTE_NS = 60_000_000_000
_TENTH_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls a minute in the long run, and how many may come at once.

    The default is what a person's agents do not reach: ten calls at once in every turn, and a turn every second, come
    to 600 a minute. A loop that calls as fast as it is answered is through with a thousand within seconds.
    """

    calls_per_minute: int = 1_000
    burst_calls: int = 1_000

    @property
    def interval_ns(self) -> int:
        """What one call takes in the long run."""
        return _MINUTE_NS // self.calls_per_minute


DEFAULT_RATE = Rate()

OPERATIONS_PER_CALL = 5
"""A call, and the lists, searches and expansions that lead to it."""

DEFAULT_LOOKUP_RATE = Rate(5_000, 1_666)
"""The same for all operations, calls included; `OPERATIONS_PER_CALL` for each call of the default rate."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A bucket of `burst_calls` tokens that gets one more every `interval_ns`, as the moment when it is full again.

    Times are whole nanoseconds of one monotonic clock, so that sums are exact: whoever waits for as long as it was told
    to is let in.
    """

    full_at_ns: int = 0

    def wait_ns(self, rate: Rate, now_ns: int) -> int:
        """How long until it holds a token; 0 where it does."""
        empty_for_ns = max(self.full_at_ns, now_ns) - now_ns + rate.interval_ns - rate.burst_calls * rate.interval_ns
        return max(0, empty_for_ns)

    def taken(self, rate: Rate, now_ns: int) -> Self:
        """The bucket with one token less."""
        return type(self)(max(self.full_at_ns, now_ns) + rate.interval_ns)


class CallLimits:
    """The buckets of all principals. One per crib; every way to call a tool passes the same one."""

    def __init__(
        self, rate: Rate | None = None, *, what: str = "calls", now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Without a `rate` nobody is kept waiting. `what` is what is counted, for the error."""
        self.rate = rate
        self._what = what
        self._now_ns = now_ns
        self._buckets: dict[str, TokenBucket] = {}
        """By the id of the principal."""

    @property
    def known(self) -> int:
        """Principals whose buckets are kept."""
        return len(self._buckets)

    def admit(self, principal: Principal) -> None:
        """Let a call of `principal` through, and count it.

        Raises:
            RateLimited: it comes too early, and is not counted.
        """
        rate = self.rate
        if rate is None:
            return
        now_ns = self._now_ns()
        bucket = self._buckets.get(principal.id, TokenBucket())
        if wait_ns := bucket.wait_ns(rate, now_ns):
            wait_s = -(-wait_ns // _TENTH_NS) / 10  # up to the next tenth
            raise RateLimited(
                f"`{principal.id}` calls too fast: {rate.calls_per_minute} {self._what} a minute are allowed, "
                f"{rate.burst_calls} of them at once. Nothing was run; try again in {wait_s:g} s.",
                hints=["The owner of the configuration can allow more."],
                retry_after_s=wait_s,
            )
        self._buckets[principal.id] = bucket.taken(rate, now_ns)
        if len(self._buckets) > MAX_PRINCIPALS:
            self._make_room(now_ns)

    def _make_room(self, now_ns: int) -> None:
        """Let go of full buckets, which says nothing about anybody; where that is not enough, of the fullest ones."""
        waiting = sorted(
            ((i, bucket) for i, bucket in self._buckets.items() if bucket.full_at_ns > now_ns),
            key=lambda kept: kept[1].full_at_ns,
            reverse=True,
        )
        self._buckets = dict(waiting[: MAX_PRINCIPALS // 2])
