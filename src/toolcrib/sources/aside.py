"""Work on what strangers send, as much as it may be: done in a thread that lets everything else have its turn.

A thread alone would not do. Python changes threads after 5 ms of waiting, so each step of a request would take so much
longer; and a call into C that takes long keeps all threads waiting. So the work is cut into pieces, and calls `breathe`
between them.
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
"""Pieces of work that are done at once. More would take no less time, and more of the others' turns."""

TURN_S = 0.0003
"""How long the work goes on before others have their turn, in seconds.

The event loop gives up the interpreter at each call into the system, some fifteen times in a request, and waits for so
long until it has it again.
"""

_REST_S = 0.0001
"""A rest must take some time: a thread that goes on at once is faster than the one that it makes room for."""

_shared: RunVar[CapacityLimiter] = RunVar("toolcrib.sources.aside")


class _Turn(threading.local):
    ends_at: float | None = None
    """None in threads that do no such work."""


_turn = _Turn()


async def aside(work: Callable[[], T], *, limiter: CapacityLimiter | None = None) -> T:
    """What `work` gives or raises, done in a thread. Where the caller is cancelled, it ends at its next `breathe`."""
    return await to_thread.run_sync(_taking_turns, work, limiter=limiter or _places())


def breathe() -> None:
    """Let others have their turn, if it is time for that. Outside of `aside` this does nothing, and costs nothing.

    Between two calls there are at most some milliseconds of work.
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
