"""A conversation: its state, computed from its events, and the listeners. It can be saved and continued."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, cast

from toolcrib.agent.conversation.events import (
    CallAnswered,
    ConversationEvent,
    Corrected,
    EvaluationBegan,
    EvaluationEnded,
    EvaluationRestarted,
    ModelAnswered,
    NameCollided,
    Offer,
    RestartRequired,
    ToolsOffered,
    TurnDropped,
)
from toolcrib.agent.conversation.messages import (
    NO_USAGE,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    read_message,
    read_tool,
)
from toolcrib.agent.sections import SectionPath, SectionState, SetVisibilityOverride, ToolsInjected, dotted, undotted
from toolcrib.core.errors import InvalidPrompt

logger = logging.getLogger(__name__)

NOTHING_OPENED = SectionState()

LAYOUT = 1
"""The version of the saved form. A newer version is refused."""


@dataclass(frozen=True, slots=True)
class ConversationState:
    """Everything that the next request to a model is made of."""

    sections: SectionState = NOTHING_OPENED
    system: str | None = None
    """The rendered prompt of the running evaluation. None if no evaluation is running."""
    offers: tuple[Offer, ...] = ()
    """The tools that the model was given, in this order."""
    known_offers: int = 0
    """How many offers the model had at its last turn. The calls of that turn may only name these."""
    messages: tuple[Message, ...] = ()
    """Each turn with calls is followed by the answers to all of them, in the order of the calls."""
    answered: tuple[ToolMessage, ...] = ()
    """Answers to calls of the last message, while other calls are still open."""
    pending: tuple[SectionPath, ...] = ()
    """Sections that were read, and that open when the evaluation restarts."""
    usage: Usage = NO_USAGE
    turns: int = 0
    restarts: int = 0
    prompt: str = ""
    """Namespace and key of the prompt of the last evaluation."""
    delivery: str = ""
    """The delivery of the last evaluation."""
    turns_before: int = 0
    """The turns of earlier requests. A restart does not count as a request."""
    tokens_before: int = 0
    """The tokens of earlier requests. A restart does not count as a request."""

    @property
    def tokens(self) -> int:
        """The tokens that were read and written, by all requests."""
        return self.usage.input + self.usage.output

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the last turn that have no answer yet."""
        last = self.messages[-1] if self.messages else None
        if not isinstance(last, AssistantMessage):
            return ()
        done = {answer.call_id for answer in self.answered}
        return tuple(call for call in last.calls if call.id not in done)

    @property
    def finished_calls(self) -> tuple[tuple[ToolCall, ToolMessage], ...]:
        """All calls that were ever answered, in order. A restart must not run them again."""
        calls: dict[str, ToolCall] = {}
        finished: list[tuple[ToolCall, ToolMessage]] = []
        for message in (*self.messages, *self.answered):
            match message:
                case AssistantMessage():
                    calls = {call.id: call for call in message.calls}  # a different turn may have the same ids
                case ToolMessage() if message.call_id in calls:
                    finished.append((calls[message.call_id], message))
                case _:
                    pass
        return tuple(finished)

    def after(self, event: ConversationEvent) -> ConversationState:
        """Return the state after `event`.

        Raises:
            ValueError: the event is impossible: a call already has its answer, or there was no such call.
        """
        match event:
            case EvaluationBegan(system, offers, request, prompt, delivery):
                began = replace(self, system=system, offers=offers, prompt=prompt, delivery=delivery)
                if request is None:
                    return began
                messages = (*self.messages, UserMessage(request))
                return replace(began, messages=messages, turns_before=self.turns, tokens_before=self.tokens)
            case ModelAnswered(message, usage):
                messages = (*self.messages, message)
                return replace(self.after(TurnDropped(usage)), messages=messages, known_offers=len(self.offers))
            case TurnDropped(usage):
                return replace(self, usage=self.usage + usage, turns=self.turns + 1)
            case CallAnswered(message):
                return self._answered(message)
            case ToolsOffered(offers):
                return replace(self, offers=(*self.offers, *offers))
            case Corrected(text):
                return replace(self, messages=(*self.messages, UserMessage(text)))
            case RestartRequired(path):
                return replace(self, pending=(*self.pending, path))
            case EvaluationRestarted():
                return replace(self, system=None, offers=(), known_offers=0, pending=(), restarts=self.restarts + 1)
            case EvaluationEnded():
                return replace(self, system=None, offers=(), known_offers=0)
            case SetVisibilityOverride() | ToolsInjected():
                return replace(self, sections=self.sections.after(event))
            case NameCollided():
                return self

    def _answered(self, answer: ToolMessage) -> ConversationState:
        if answer.call_id not in {call.id for call in self.open_calls}:
            raise ValueError(f"call {answer.call_id!r} is not waiting for an answer")
        answered = {each.call_id: each for each in (*self.answered, answer)}
        if len(self.open_calls) > 1:
            return replace(self, answered=tuple(answered.values()))
        last = cast("AssistantMessage", self.messages[-1])
        return replace(self, messages=(*self.messages, *(answered[call.id] for call in last.calls)), answered=())

    def to_json(self) -> str:
        """Return the state as JSON. Equal states have equal bytes."""
        wire = {
            "layout": LAYOUT,
            "sections": self.sections.to_wire(),
            "system": self.system,
            "offers": [{"tool": offer.spec.to_wire(), "handle": offer.handle} for offer in self.offers],
            "known_offers": self.known_offers,
            "messages": [message.to_wire() for message in self.messages],
            "answered": [answer.to_wire() for answer in self.answered],
            "pending": [dotted(path) for path in self.pending],
            "usage": self.usage.to_wire(),
            "turns": self.turns,
            "restarts": self.restarts,
            "prompt": self.prompt,
            "delivery": self.delivery,
            "turns_before": self.turns_before,
            "tokens_before": self.tokens_before,
        }
        return json.dumps(wire, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`.

        Raises:
            InvalidPrompt: `text` is not a saved conversation, or a newer version of Toolcrib wrote it.
        """
        try:
            wire = cast("Mapping[str, Any]", json.loads(text))
            if wire["layout"] != LAYOUT:
                raise InvalidPrompt(f"A newer version of Toolcrib saved this conversation (layout {wire['layout']}).")
            return cls(
                SectionState.from_wire(wire["sections"]),
                wire["system"],
                tuple(Offer(read_tool(offer["tool"]), offer["handle"]) for offer in wire["offers"]),
                wire["known_offers"],
                tuple(map(read_message, wire["messages"])),
                tuple(cast("ToolMessage", read_message(answer)) for answer in wire["answered"]),
                tuple(undotted(key) for key in wire["pending"]),
                Usage(**wire["usage"]),
                wire["turns"],
                wire["restarts"],
                wire["prompt"],
                wire["delivery"],
                wire["turns_before"],
                wire["tokens_before"],
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidPrompt("Not a saved conversation.") from error


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
