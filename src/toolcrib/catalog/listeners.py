"""Delivers catalog events to listeners: in order, after the change, and outside of any lock."""

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

_RAISED = "a catalog listener failed on %s"

_METHODS = ("on_tool_registered", "on_tool_unregistered")
"""The methods of a `CatalogListener`."""

_Handler = Callable[[Event], object]

_FAULTS = (Exception, SystemExit)
"""Errors of a listener that are logged and do not affect other listeners."""


class Listeners:
    """The subscribed listeners. Any thread can add, remove and notify listeners, and so can a listener itself.

    A plain listener is called by the thread that calls `notify`. An async listener is called by its own task, on the
    event loop on which it was subscribed. Each listener receives all events in the order of `put`. A listener that
    raises does not affect the others.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._waiting: deque[tuple[Event, tuple[_Subscription, ...]]] = deque()
        self._notifying = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Deliver all events that are put in from now on to `listener`.

        Raises:
            RuntimeError: the listener is async, and no asyncio event loop is running here.
            TypeError: the listener is not callable and does not have the methods of `CatalogListener`.
        """
        handler = _called_with_events(listener)
        subscription = _OnLoop(listener, handler) if _is_async(handler) else _Subscription(listener, handler)
        with self._changing:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, listener: Listener) -> None:
        """Stop delivering events to `listener`. This is not an error if it is not subscribed."""
        with self._changing:
            # Compare with `==`, not `is`: each access to a bound method makes a new object.
            ending = [each for each in self._subscriptions if each.listener == listener]
            self._subscriptions = tuple(each for each in self._subscriptions if each not in ending)
        for each in ending:
            each.has_ended = True

    def put(self, events: Iterable[Event]) -> None:
        """Queue events for the current listeners. The next `notify` delivers them."""
        listening = self._subscriptions
        self._waiting.extend((event, listening) for event in events)

    def notify(self) -> None:
        """Deliver all queued events. If a different thread is already delivering, leave them to that thread."""
        while self._waiting and self._notifying.acquire(blocking=False):
            try:
                while self._waiting:
                    event, listening = self._waiting.popleft()
                    for subscription in listening:
                        if not subscription.has_ended:  # it can end after `put`
                            subscription.notify(event)
            finally:
                self._notifying.release()


class _Subscription:
    """One subscription of a listener. Subscribing the same listener again makes a new subscription."""

    def __init__(self, listener: Listener, handler: _Handler) -> None:
        """Subscribe `listener`; `handler` is the function that is called with each event."""
        self.listener = listener
        self.has_ended = False
        self._handler = handler

    def notify(self, event: Event) -> None:
        try:
            self._handler(event)
        except _FAULTS:
            logger.exception(_RAISED, type(event).__name__)


class _OnLoop(_Subscription):
    """A subscription of an async listener, with the events that it has not received yet."""

    def __init__(self, listener: Listener, handler: _Handler) -> None:
        super().__init__(listener, handler)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise RuntimeError(
                "an async listener runs on the event loop on which it is subscribed, but no event loop is running here"
            ) from error
        self._unheard: deque[Event] = deque()
        self._is_woken = False
        """Whether `_wake` is scheduled on the loop and has not run yet."""
        self._hearing: asyncio.Task[None] | None = None
        """The task that delivers the events. Only code on the loop reads it."""

    def notify(self, event: Event) -> None:
        self._unheard.append(event)
        try:
            if not self._is_woken or self._loop.is_closed():
                self._is_woken = True
                self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed, so no event can be delivered any more
            self.has_ended = True
            self._unheard.clear()

    def _wake(self) -> None:
        self._is_woken = False  # do this first, so that an event from now on schedules `_wake` again
        if self._hearing is None or self._hearing.done():
            self._hearing = self._loop.create_task(self._hear())

    async def _hear(self) -> None:
        while self._unheard:
            event = self._unheard.popleft()
            if self.has_ended:
                continue
            try:
                await cast("Awaitable[None]", self._handler(event))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # Something that the listener waited for was cancelled, not the listener itself.
                logger.exception(_RAISED, type(event).__name__)
            except _FAULTS:
                logger.exception(_RAISED, type(event).__name__)


def _called_with_events(listener: Listener) -> _Handler:
    """Return the function to call with each event: `listener` itself, or a function that calls its methods."""
    if callable(listener):
        return listener
    registered, unregistered = (getattr(listener, name, None) for name in _METHODS)
    if not (callable(registered) and callable(unregistered)):
        raise TypeError(f"{listener!r} must be callable, or have the methods {' and '.join(_METHODS)}")

    def handler(event: Event) -> object:
        match event:
            case ToolRegistered(tool) | ToolReplaced(_, tool):
                return registered(tool)
            case ToolUnregistered(tool):
                return unregistered(tool.id)
            case CatalogPublished():
                return None

    async def handle_later(event: Event) -> None:
        if inspect.isawaitable(answer := handler(event)):
            await answer

    return handle_later if _is_async(registered) or _is_async(unregistered) else handler


def _is_async(listener: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004  an object whose `__call__` is a coroutine function
    )
