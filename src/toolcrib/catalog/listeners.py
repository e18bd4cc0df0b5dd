"""Who is told of what happens to a catalog: in order, after it has happened, outside any lock."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from toolcrib.core.events import Event, Listener

logger = logging.getLogger(__name__)

_Told = Callable[[Event], object]


class Listeners:
    """Any thread may subscribe, unsubscribe and tell; a listener may as well, itself included.

    A plain listener is told by whichever thread is telling; an async one by a task of its own on the event loop that it
    was subscribed on. Each hears everything in the order of `put`, and one that raises takes nothing from the others.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._told: tuple[tuple[Listener, _Told], ...] = ()
        self._waiting: deque[tuple[Event, tuple[tuple[Listener, _Told], ...]]] = deque()
        self._telling = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Tell it of everything that is put in from now on.

        Raises:
            RuntimeError: it is async, and no event loop of asyncio is running here.
        """
        told: _Told = _OnLoop(listener, self.__contains__) if _is_async(listener) else listener
        with self._changing:
            self._told = (*self._told, (listener, told))

    def remove(self, listener: Listener) -> None:
        """Tell it no more; no error where it was not there."""
        with self._changing:
            # Not `is not`: a method is another object each time it is taken from its owner.
            self._told = tuple(each for each in self._told if each[0] != listener)

    def __contains__(self, listener: Listener) -> bool:
        return any(known == listener for known, _ in self._told)

    def put(self, events: Iterable[Event]) -> None:
        """Have whoever listens now told of these by the next `tell`."""
        listening = self._told
        self._waiting.extend((event, listening) for event in events)

    def tell(self) -> None:
        """Tell of all that was put in; whoever finds another at it leaves its events to that one."""
        while self._waiting and self._telling.acquire(blocking=False):
            try:
                while self._waiting:
                    event, listening = self._waiting.popleft()
                    for listener, told in listening:
                        if listener in self:  # else it unsubscribed meanwhile
                            _tell(told, event)
            finally:
                self._telling.release()


class _OnLoop:
    """An async listener, and what it has not heard yet."""

    def __init__(self, listener: Listener, is_subscribed: Callable[[Listener], bool]) -> None:
        self._listener = listener
        self._is_subscribed = is_subscribed
        self._loop = asyncio.get_running_loop()
        self._unheard: deque[Event] = deque()
        self._hearing: asyncio.Task[None] | None = None
        """Only looked at on its loop."""

    def __call__(self, event: Event) -> None:
        self._unheard.append(event)
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed: nobody hears any more
            self._unheard.clear()

    def _wake(self) -> None:
        if self._hearing is None or self._hearing.done():
            self._hearing = self._loop.create_task(self._hear())

    async def _hear(self) -> None:
        while self._unheard:
            event = self._unheard.popleft()
            if not self._is_subscribed(self._listener):
                continue
            try:
                await cast("Awaitable[None]", self._listener(event))
            except Exception:
                logger.exception("a catalog listener raised on %s", type(event).__name__)


def _is_async(listener: Listener) -> bool:
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004  an object whose `__call__` is a coroutine function
    )


def _tell(told: _Told, event: Event) -> None:
    try:
        told(event)
    except Exception:
        logger.exception("a catalog listener raised on %s", type(event).__name__)
