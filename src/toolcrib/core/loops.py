"""How a thread reaches an event loop without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio.lowlevel


def soon() -> Callable[[Callable[[], Any]], Any]:
    """What runs a function on the event loop of this task, and may be called from any thread; it raises `RuntimeError`
    where the loop is closed.

    `anyio.from_thread.run_sync` waits for the loop, and would wait for ever where it is called on it.

    Raises:
        RuntimeError: no event loop is running here.
    """
    loop: Any = anyio.lowlevel.current_token().native_token
    return loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon
