"""Runs functions on an event loop from other threads, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio.lowlevel


def soon() -> Callable[[Callable[[], Any]], Any]:
    """Return a function that schedules another function on the event loop of this task, from any thread.

    The returned function raises `RuntimeError` if the loop is closed. `anyio.from_thread.run_sync` is not used, because
    it waits for the loop: called on the loop itself, it would wait forever.

    Raises:
        RuntimeError: no event loop is running here.
    """
    loop: Any = anyio.lowlevel.current_token().native_token
    return loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon
