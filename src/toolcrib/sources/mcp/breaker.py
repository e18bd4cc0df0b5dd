"""Stops calls to a server that fails repeatedly, waits longer after each failure, and lets one caller at a time try."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

import anyio

from toolcrib.core.errors import SignInRequired, SourceUnavailable

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


class Breaker:
    """Holds the `Backoff` of one server, and refuses calls with an error that names the server.

    A caller takes a `mark` before it uses the server, and passes the mark to `failed`. So ten calls that fail when the
    server dies count as one failure, and a call from before the last failure does not count again.
    """

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        """`name` is the server's name in refusals. `now` is a clock in seconds with any start."""
        self._name = name
        self._now = now
        self._backoff = Backoff()
        self.mark = 0
        """The mark to pass to `failed`. Read it before the server is used. Only the breaker changes it."""
        self._last: SourceUnavailable | None = None
        self._is_lasting = False
        """Whether the server failed in a way that only its owner can fix."""
        self._trial: anyio.Event | None = None
        """Set when the caller that tries the server knows whether it works, or has left."""

    @property
    def failures(self) -> int:
        """How often the server failed in a row."""
        return self._backoff.failures

    @property
    def retry_after_s(self) -> float | None:
        """In how many seconds the server may be retried, rounded up to a tenth; None if it may be used now."""
        left_s = self._backoff.left_s(self._now())
        return math.ceil(round(left_s * 10, 6)) / 10 if left_s > 1e-6 else None  # sums of floats are slightly inexact

    @property
    def waits_for_sign_in(self) -> bool:
        """Whether the last failure was that the server wants a sign-in."""
        return isinstance(self._last, SignInRequired)

    def check(self, *, in_words: bool = True) -> None:
        """Return if the server may be used now.

        Without `in_words` the message does not say when the server may be retried, because it will be shown for longer
        than that.

        Raises:
            SourceUnavailable: the server may not be used yet. `retry_after_s` says when.
        """
        failures, retry_after_s = self._backoff.failures, self.retry_after_s
        if retry_after_s is None:
            return
        last = self._last or SourceUnavailable(f"`{self._name}` asked clients to wait before the next request.")
        if isinstance(last, SignInRequired):  # time does not help, and a sign-in is noticed at once
            raise last.at(None)
        told = [last.message]
        if in_words and failures:
            told.append("It failed once." if failures == 1 else f"It failed {failures} times in a row.")
        if in_words:
            told.append(f"Toolcrib retries in {retry_after_s:g} s.")
        raise SourceUnavailable(
            " ".join(told),
            diagnosis=last.diagnosis,
            remedy=last.remedy,
            retryable=not self._is_lasting,
            retry_after_s=retry_after_s,
        )

    @asynccontextmanager
    async def admitting(self) -> AsyncGenerator[None]:
        """Use the server for the block.

        While it is unknown whether the server works, one caller at a time uses it, and the others wait for the outcome.

        Raises:
            SourceUnavailable: as in `check`.
        """
        self.check()
        while self._backoff.in_doubt and self._trial is not None:
            await self._trial.wait()
            self.check()
        if not self._backoff.in_doubt:
            yield
            return
        trial = self._trial = anyio.Event()
        try:
            yield
        finally:
            self._end(trial)

    def _end(self, trial: anyio.Event | None) -> None:
        if trial is not None:
            trial.set()
        if self._trial is trial:
            self._trial = None

    def worked(self) -> None:
        """Note that the server answered, or ran for a while."""
        if not self._backoff.failures:
            return
        self._backoff = self._backoff.worked()
        self._last, self._is_lasting = None, False
        self._end(self._trial)

    def failed(self, failure: SourceUnavailable, mark: int, *, died: bool) -> SourceUnavailable:
        """Count a failure of a use that began at `mark`. Return `failure` with the time of the next retry, if any.

        `died`: the server had been started before.
        """
        if mark == self.mark:
            self.mark += 1
            self._backoff = self._backoff.failed(self._now(), died=died)
            self._last = failure
            # A failed start may be retryable or not; a server that died after its start always is.
            self._is_lasting = not died and not failure.retryable
            self._end(self._trial)
        self.pause(failure.retry_after_s)
        return failure if isinstance(failure, SignInRequired) else failure.at(self.retry_after_s)

    def pause(self, pause_s: float | None) -> None:
        """Note that the server wants no calls for `pause_s` seconds, if it said so."""
        if pause_s is not None:
            self._backoff = self._backoff.paused(self._now(), pause_s)

    def forget(self) -> bool:
        """Reset the failures after the owner fixed the server. A pause that it asked for remains. False if there were
        none."""
        if not self._backoff.failures:
            return False
        self.worked()
        return True
