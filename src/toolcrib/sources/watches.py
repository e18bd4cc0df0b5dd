"""Notifies tasks on several event loops that a source has changed, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self
from weakref import WeakSet

import anyio

from toolcrib.core.threads import soon


class Watches:
    """The watches of one source. A watch ends when its task drops the object that `watch` returned."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: WeakSet[_Watch] = WeakSet()

    def watch(self) -> _Watch:
        """Return a new watch for a task to iterate over."""
        watch = _Watch()
        with self._lock:
            self._watches.add(watch)
        return watch

    def tell(self) -> None:
        """Report a change to every watch."""
        for watch in self._watching():
            watch.tell()

    def end(self) -> None:
        """End every watch."""
        for watch in self._watching():
            watch.end()

    def _watching(self) -> list[_Watch]:
        with self._lock:
            return list(self._watches)


class _Watch:
    """An async iterator over changes. It runs on one event loop, and `tell` works from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = False
        self._ended = False
        self._wake: Callable[[], None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        while True:
            with self._lock:
                if self._changed:
                    self._changed = False
                    return
                if self._ended:
                    raise StopAsyncIteration
                event = anyio.Event()
                self._wake = partial(soon(), event.set)
            await event.wait()

    def tell(self) -> None:
        with self._lock:
            self._changed = True
            self._wake_up()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            with suppress(RuntimeError):  # the event loop of the watching task is closed
                self._wake()
            self._wake = None
