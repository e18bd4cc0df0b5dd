"""A running conversation: its state, and the listeners for its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Self, TypeAlias

from toolcrib.agent.conversation.events import ConversationEvent
from toolcrib.agent.conversation.state import ConversationState
from toolcrib.core.errors import InvalidPrompt

logger = logging.getLogger(__name__)

ConversationListener: TypeAlias = Callable[[ConversationEvent], None]
"""Receives each event after the state has changed. Errors that it raises are logged and ignored."""


class Conversation:
    """A conversation that one task at a time may continue. That task holds it with `taken`."""

    def __init__(self, state: ConversationState | None = None) -> None:
        self._state = state or ConversationState()
        self._listeners: tuple[ConversationListener, ...] = ()
        self._taken = threading.Lock()

    @property
    def state(self) -> ConversationState:
        return self._state

    @contextmanager
    def taken(self) -> Generator[None]:
        """Hold the conversation exclusively, also across threads.

        Raises:
            InvalidPrompt: a different task holds it.
        """
        if not self._taken.acquire(blocking=False):
            raise InvalidPrompt(
                "This session is busy with a different request. Wait until it ends, or start a new session."
            )
        try:
            yield
        finally:
            self._taken.release()

    def dispatch(self, *events: ConversationEvent) -> None:
        """Apply all events at once. A listener that saves the state on one event saves the effects of all of them.

        Raises the errors of `ConversationState.after`. Then no event is applied.
        """
        state = self._state
        for event in events:
            state = state.after(event)
        self._state = state
        for event in events:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener raised on %s", type(event).__name__)

    def subscribe(self, listener: ConversationListener) -> None:
        """Call `listener` for every event from the next one on, in order."""
        self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: ConversationListener) -> None:
        """Stop calling `listener`. Does nothing if it was not subscribed."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def to_json(self) -> str:
        """Return the state in the form that `from_json` reads."""
        return self._state.to_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a saved conversation. Raises the errors of `ConversationState.from_json`."""
        return cls(ConversationState.from_json(text))
