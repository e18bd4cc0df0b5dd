"""Wait for what another process does and tells nobody of: look again and again, until a deadline that names it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio

DEADLINE_S = 30.0
"""Only ever spent by a test that fails; generous, because machines that run tests are busy."""

_STEP_S = 0.01


async def until(happened: Callable[[], object], what: str) -> None:
    """Return once `happened` is true; it may be a coroutine function.

    Raises:
        AssertionError: it was not within `DEADLINE_S`; `what` says what was waited for.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = happened()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:g} s in vain: {what}"
        await anyio.sleep(_STEP_S)


def until_blocking(happened: Callable[[], object], what: str) -> None:
    """The same, for a test that is no coroutine."""
    anyio.run(until, happened, what)
