"""A conversation as it goes on: its state, and who is told of what happens."""

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
"""Told of each event once the state has it; what it raises is logged and changes nothing."""


class Conversation:
    """Belongs to one task at a time: whoever goes on with it has `taken` it."""

    def __init__(self, state: ConversationState | None = None) -> None:
        self._state = state or ConversationState()
        self._listeners: tuple[ConversationListener, ...] = ()
        self._taken = threading.Lock()

    @property
    def state(self) -> ConversationState:
        return self._state

    @contextmanager
    def taken(self) -> Generator[None]:
        """Have it alone, also in other threads.

        Raises:
            InvalidPrompt: somebody else has it.
        """
        if not self._taken.acquire(blocking=False):
            raise InvalidPrompt("This session answers another request: wait for its end, or begin another session.")
        try:
            yield
        finally:
            self._taken.release()

    def dispatch(self, *events: ConversationEvent) -> None:
        """Have them happened, all at once: whoever is told of one and saves the state has all of them in it.

        Raises as `ConversationState.after` does, and then none has happened.
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
        """Tell it of every event from the next one on, in order."""
        self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: ConversationListener) -> None:
        """Tell it no more; no error where it was not subscribed."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def to_json(self) -> str:
        """What `from_json` goes on from."""
        return self._state.to_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises as `ConversationState.from_json` does."""
        return cls(ConversationState.from_json(text))
