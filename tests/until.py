"""Waits for effects of a different process that sends no notification: checks repeatedly until a deadline."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio

DEADLINE_S = 30.0
"""Only a failing test waits this long. The value is generous because test machines are busy."""

_STEP_S = 0.01


async def until(happened: Callable[[], object], what: str) -> None:
    """Return once `happened` returns a true value. It may be a coroutine function.

    Raises:
        AssertionError: `happened` was not true within `DEADLINE_S`. The message contains `what`.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = happened()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:g} s in vain: {what}"
        await anyio.sleep(_STEP_S)


def until_blocking(happened: Callable[[], object], what: str) -> None:
    """Wait like `until`, in a test that is not a coroutine."""
    anyio.run(until, happened, what)
