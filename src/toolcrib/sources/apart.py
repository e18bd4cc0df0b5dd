"""Strangers' code in threads of its own, which the end of the program does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

import anyio

from toolcrib.core.loops import soon

T = TypeVar("T")


class NotStarted(Exception):
    """The system has no thread left; nothing ran."""


async def apart(work: Callable[[], T]) -> T:
    """What `work` gives or raises, run in a thread with the caller's context variables.

    Whoever is cancelled leaves the thread behind; it runs on, and what comes of it is dropped. The threads of anyio's
    pool would not do: code that hangs would take places from everybody else, and keep the interpreter from ending.

    Raises:
        NotStarted: there is no thread to be had.
    """
    outcome: list[Callable[[], T]] = []
    ended = anyio.Event()
    on_loop = soon()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            outcome.append(_raising(error))
        else:
            outcome.append(lambda: value)
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            on_loop(ended.set)

    try:
        threading.Thread(target=copy_context().run, args=(run,), name="plugin", daemon=True).start()
    except RuntimeError as error:
        raise NotStarted from error
    await ended.wait()
    return outcome[0]()


def _raising(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again
