"""Runs functions on an event loop from other threads, third-party code in daemon threads, and tasks one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar


def soon() -> Callable[[Callable[[], Any]], Any]:
    """Return a function that schedules another function on the event loop of this task, from any thread.

    The returned function raises `RuntimeError` if the loop is closed. `anyio.from_thread.run_sync` is not used, because
    it waits for the loop: called on the loop itself, it would wait forever.

    Raises:
        RuntimeError: no event loop is running here.
    """
    loop: Any = anyio.lowlevel.current_token().native_token
    return loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon


T = TypeVar("T")


class NotStarted(Exception):
    """The system has no free thread. Nothing ran."""


async def apart(work: Callable[[], T]) -> T:
    """Run `work` in a new thread with the caller's context variables, and return its result.

    If the caller is cancelled, the thread runs on and its result is dropped. The threads of anyio's pool are not used,
    because code that hangs would use up the pool and keep the interpreter from exiting.

    Raises:
        NotStarted: the system has no free thread.
    """
    outcome: list[Callable[[], T]] = []
    ended = anyio.Event()
    on_loop = soon()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001  raised again in the waiting task
            outcome.append(_raising(error))
        else:
            outcome.append(lambda: value)
        with suppress(RuntimeError):  # the event loop of the waiting task is closed
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


class KeyedLocks:
    """One lock for each key, in each event loop. A lock exists as long as a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: RunVar[WeakValueDictionary[str, anyio.Lock]] = RunVar("toolcrib.core.threads")

    def of(self, key: str) -> anyio.Lock:
        """Return the lock of `key`. Keep a reference to it while you use it."""
        try:
            locks = self._locks.get()
        except LookupError:
            self._locks.set(locks := WeakValueDictionary())
        return locks.setdefault(key, anyio.Lock())
