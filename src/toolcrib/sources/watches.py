"""Those who wait for changes of a source, each on its event loop, told from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self
from weakref import WeakSet

import anyio

from toolcrib.core.loops import soon


class Watches:
    """Of one source: whoever lets go of what `watch` gave is forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: WeakSet[Watch] = WeakSet()

    def watch(self) -> Watch:
        """One more, for a task to iterate over."""
        watch = Watch()
        with self._lock:
            self._watches.add(watch)
        return watch

    def tell(self) -> None:
        """Something changed."""
        for watch in self._watching():
            watch.tell()

    def end(self) -> None:
        """Nothing will change any more."""
        for watch in self._watching():
            watch.end()

    def _watching(self) -> list[Watch]:
        with self._lock:
            return list(self._watches)


class Watch:
    """Who waits for changes on one event loop, and is told of them from any thread."""

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
            with suppress(RuntimeError):  # its loop is closed, and nobody waits any more
                self._wake()
            self._wake = None
