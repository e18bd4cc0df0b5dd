"""Who is told of what happens to a catalog: in order, after it has happened, outside any lock."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from toolcrib.core.events import (
    CatalogPublished,
    Event,
    Listener,
    ToolRegistered,
    ToolReplaced,
    ToolUnregistered,
)

logger = logging.getLogger(__name__)

_RAISED = "a catalog listener raised on %s"

_METHODS = ("on_tool_registered", "on_tool_unregistered")
"""Those of a `CatalogListener`."""

_Told = Callable[[Event], object]

_FAULTS = (Exception, SystemExit)
"""What stays with the listener that raised it."""


class Listeners:
    """Any thread may subscribe, unsubscribe and tell; a listener may as well, itself included.

    A plain listener is told by whichever thread is telling; an async one by a task of its own on the event loop that it
    was subscribed on. Each hears everything in the order of `put`, and one that raises takes nothing from the others.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._waiting: deque[tuple[Event, tuple[_Subscription, ...]]] = deque()
        self._telling = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Tell it of everything that is put in from now on.

        Raises:
            RuntimeError: it is async, and no event loop of asyncio is running here.
            TypeError: it can neither be called nor has the methods of `CatalogListener`.
        """
        told = _called_with_events(listener)
        subscription = _OnLoop(listener, told) if _is_async(told) else _Subscription(listener, told)
        with self._changing:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, listener: Listener) -> None:
        """Tell it no more; no error where it was not there."""
        with self._changing:
            # Not `is`: a method is another object each time it is taken from its owner.
            ending = [each for each in self._subscriptions if each.listener == listener]
            self._subscriptions = tuple(each for each in self._subscriptions if each not in ending)
        for each in ending:
            each.has_ended = True

    def put(self, events: Iterable[Event]) -> None:
        """Have whoever listens now told of these by the next `tell`."""
        listening = self._subscriptions
        self._waiting.extend((event, listening) for event in events)

    def tell(self) -> None:
        """Tell of all that was put in; whoever finds another at it leaves its events to that one."""
        while self._waiting and self._telling.acquire(blocking=False):
            try:
                while self._waiting:
                    event, listening = self._waiting.popleft()
                    for subscription in listening:
                        if not subscription.has_ended:  # meanwhile
                            subscription.tell(event)
            finally:
                self._telling.release()


class _Subscription:
    """A listener from where it was subscribed to where it was unsubscribed; subscribed again, it is another."""

    def __init__(self, listener: Listener, told: _Told) -> None:
        """`told` is what is called with each event."""
        self.listener = listener
        self.has_ended = False
        self._told = told

    def tell(self, event: Event) -> None:
        try:
            self._told(event)
        except _FAULTS:
            logger.exception(_RAISED, type(event).__name__)


class _OnLoop(_Subscription):
    """One of an async listener, and what that has not heard yet."""

    def __init__(self, listener: Listener, told: _Told) -> None:
        super().__init__(listener, told)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise RuntimeError(
                "an async listener hears on the event loop that it is subscribed on, and none is running here"
            ) from error
        self._unheard: deque[Event] = deque()
        self._is_woken = False
        """Whether its loop has been told that there is something to hear, and has not had its turn since."""
        self._hearing: asyncio.Task[None] | None = None
        """Only looked at on its loop."""

    def tell(self, event: Event) -> None:
        self._unheard.append(event)
        try:
            if not self._is_woken or self._loop.is_closed():
                self._is_woken = True
                self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed: nobody hears any more
            self.has_ended = True
            self._unheard.clear()

    def _wake(self) -> None:
        self._is_woken = False  # first: what comes from here on wakes it again
        if self._hearing is None or self._hearing.done():
            self._hearing = self._loop.create_task(self._hear())

    async def _hear(self) -> None:
        while self._unheard:
            event = self._unheard.popleft()
            if self.has_ended:
                continue
            try:
                await cast("Awaitable[None]", self._told(event))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # What it waited for was cancelled, not the listener.
                logger.exception(_RAISED, type(event).__name__)
            except _FAULTS:
                logger.exception(_RAISED, type(event).__name__)


def _called_with_events(listener: Listener) -> _Told:
    """What to call with each event: `listener`, or what calls its methods."""
    if callable(listener):
        return listener
    registered, unregistered = (getattr(listener, name, None) for name in _METHODS)
    if not (callable(registered) and callable(unregistered)):
        raise TypeError(f"{listener!r} cannot be called with events, and has no methods {' and '.join(_METHODS)}")

    def told(event: Event) -> object:
        match event:
            case ToolRegistered(tool) | ToolReplaced(_, tool):
                return registered(tool)
            case ToolUnregistered(tool):
                return unregistered(tool.id)
            case CatalogPublished():
                return None

    async def told_later(event: Event) -> None:
        if inspect.isawaitable(answer := told(event)):
            await answer

    return told_later if _is_async(registered) or _is_async(unregistered) else told


def _is_async(listener: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004  an object whose `__call__` is a coroutine function
    )
