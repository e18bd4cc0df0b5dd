"""Runs work on untrusted input in a thread that gives other threads regular turns.

A thread alone is not enough. Python switches threads after 5 ms of waiting, so each step of a request would take 5 ms
longer. A long call into C also blocks all threads. Therefore the work is cut into pieces, and calls `breathe` between
them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio import CapacityLimiter, from_thread, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")

PLACES = 2
"""How many pieces of work run at once. More would save no time and take more turns from other threads."""

TURN_S = 0.0003
"""How long the work runs before it gives others a turn, in seconds.

The event loop releases the interpreter at each system call, about fifteen times in a request. Each time it waits up to
this long to get the interpreter back.
"""

_REST_S = 0.0001
"""How long the work sleeps, in seconds. It must sleep for some time, or it takes the interpreter back before others
can."""

_shared: RunVar[CapacityLimiter] = RunVar("toolcrib.sources.aside")


class _Turn(threading.local):
    ends_at: float | None = None
    """None in threads without such work."""


_turn = _Turn()


async def aside(work: Callable[[], T], *, limiter: CapacityLimiter | None = None) -> T:
    """Run `work` in a thread and return its result. If the caller is cancelled, the work ends at its next `breathe`."""
    return await to_thread.run_sync(_taking_turns, work, limiter=limiter or _places())


def breathe() -> None:
    """Give others a turn if it is time. Outside of `aside` this does nothing and costs nothing.

    Call it after at most a few milliseconds of work.
    """
    if _turn.ends_at is not None and time.monotonic() >= _turn.ends_at:
        from_thread.check_cancelled()
        time.sleep(_REST_S)
        _turn.ends_at = time.monotonic() + TURN_S


def _taking_turns(work: Callable[[], T]) -> T:
    _turn.ends_at = time.monotonic() + TURN_S
    try:
        return work()
    finally:
        _turn.ends_at = None


def _places() -> CapacityLimiter:
    try:
        return _shared.get()
    except LookupError:
        _shared.set(limiter := anyio.CapacityLimiter(PLACES))
        return limiter
