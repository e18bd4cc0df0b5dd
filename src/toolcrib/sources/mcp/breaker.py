"""Keeps callers away from a server that fails again and again, and lets one at a time see whether it works again."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.mcp.backoff import Backoff


class Breaker:
    """Holds the `Backoff` of one server, and refuses in its name.

    Whoever uses the server takes a `mark` before, and brings it when that failed: ten calls that a server takes along
    as it dies are one failure, and what began before the last failure has nothing new to say.
    """

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        """`name` is what refusals call the server; `now` is in seconds, from any beginning."""
        self._name = name
        self._now = now
        self._backoff = Backoff()
        self._marked = 0
        self._last: SourceUnavailable | None = None
        self._is_lasting = False
        """Whether it failed in a way that only its owner can change."""
        self._trial: anyio.Event | None = None
        """Set once the caller that tries the server knows whether it works, or has gone."""

    @property
    def failures(self) -> int:
        """How often the server failed in a row."""
        return self._backoff.failures

    @property
    def retry_after_s(self) -> float | None:
        """In how many seconds the server may be tried, to the next tenth; None where it may be tried now."""
        left_s = self._backoff.left_s(self._now())
        return math.ceil(round(left_s * 10, 6)) / 10 if left_s > 1e-6 else None  # sums of floats are a little off

    def mark(self) -> int:
        """What `failed` wants to have from before the server was asked."""
        return self._marked

    def check(self, *, in_words: bool = True) -> None:
        """Pass where the server may be tried.

        Without `in_words` the message does not say when it may, for a place where it stands for longer than that.

        Raises:
            SourceUnavailable: it may not yet; `retry_after_s` says when.
        """
        failures, retry_after_s = self._backoff.failures, self.retry_after_s
        if retry_after_s is None:
            return
        last = self._last or SourceUnavailable(f"`{self._name}` asked to be left alone for a while.")
        told = [last.message]
        if in_words and failures:
            told.append("It failed once." if failures == 1 else f"It failed {failures} times in a row.")
        if in_words:
            told.append(f"It is tried again in {retry_after_s:g} s.")
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

        While it is in doubt whether it works, one caller at a time does, and the others wait for what comes of that.

        Raises:
            SourceUnavailable: as `check` does.
        """
        trial = await self._turn()
        try:
            yield
        finally:
            if trial is not None:
                self._end(trial)

    async def _turn(self) -> anyio.Event | None:
        while True:
            self.check()
            if not self._backoff.in_doubt:
                return None
            if self._trial is None:
                self._trial = anyio.Event()
                return self._trial
            await self._trial.wait()

    def _end(self, trial: anyio.Event | None) -> None:
        if trial is not None:
            trial.set()
        if self._trial is trial:
            self._trial = None

    def worked(self) -> None:
        """The server answered, or lived for a while."""
        self._backoff = self._backoff.worked()
        self._last, self._is_lasting = None, False
        self._end(self._trial)

    def failed(self, failure: SourceUnavailable, mark: int, *, died: bool) -> SourceUnavailable:
        """Count a failure of what began at `mark`; gives `failure` with the time of the next try, where there is one.

        `died`: the server had been started before.
        """
        if mark == self._marked:
            self._marked += 1
            self._backoff = self._backoff.failed(self._now(), died=died)
            self._last = failure
            self._is_lasting = not died and not failure.retryable  # a start that failed is worth another, or it is not
            self._end(self._trial)
        self.pause(failure.retry_after_s)
        return failure.at(self.retry_after_s)

    def pause(self, pause_s: float | None) -> None:
        """The server wants no calls for so many seconds, if it wants that."""
        if pause_s is not None:
            self._backoff = self._backoff.paused(self._now(), pause_s)

    def forget(self) -> bool:
        """Begin anew, as when somebody has mended the server; a pause that it asked for stays. False if nothing was."""
        if not self._backoff.failures:
            return False
        self.worked()
        return True
