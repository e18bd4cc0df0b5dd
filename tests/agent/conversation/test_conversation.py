"""A running conversation, and its listeners."""

from __future__ import annotations

import logging

import pytest

from toolcrib.agent.conversation.conversation import Conversation, ConversationState
from toolcrib.agent.conversation.events import (
    CallAnswered,
    ConversationEvent,
    Corrected,
    EvaluationBegan,
    EvaluationEnded,
)
from toolcrib.agent.conversation.messages import ToolMessage
from toolcrib.core.errors import InvalidPrompt

BEGAN, CORRECTED, ENDED = EvaluationBegan("Compute.", (), "Go."), Corrected("As JSON."), EvaluationEnded("3")


def test_listeners_are_called_in_order_after_the_state_has_changed() -> None:
    conversation = Conversation()
    told: list[tuple[str, ConversationEvent, ConversationState]] = []
    conversation.subscribe(lambda event: told.append(("one", event, conversation.state)))
    conversation.subscribe(lambda event: told.append(("two", event, conversation.state)))

    conversation.dispatch(BEGAN)

    after = ConversationState().after(BEGAN)
    assert told == [("one", BEGAN, after), ("two", BEGAN, after)]


def test_listeners_see_the_state_after_all_events_of_one_dispatch() -> None:
    conversation = Conversation()
    told: list[tuple[ConversationEvent, str]] = []
    conversation.subscribe(lambda event: told.append((event, conversation.to_json())))

    conversation.dispatch(BEGAN, CORRECTED)

    saved = ConversationState().after(BEGAN).after(CORRECTED).to_json()
    assert told == [(BEGAN, saved), (CORRECTED, saved)]


def test_an_impossible_event_rejects_the_whole_dispatch() -> None:
    conversation, told = Conversation(), list[ConversationEvent]()
    conversation.subscribe(told.append)
    with pytest.raises(ValueError, match="is not waiting for an answer"):
        conversation.dispatch(BEGAN, CallAnswered(ToolMessage("1", "add", "3")))
    assert conversation.state == ConversationState()
    assert told == []


def test_an_error_in_a_listener_does_not_affect_the_other_listeners(caplog: pytest.LogCaptureFixture) -> None:
    conversation, told = Conversation(), list[ConversationEvent]()

    def broken(event: ConversationEvent) -> None:
        raise RuntimeError("the listener's own")

    conversation.subscribe(broken)
    conversation.subscribe(told.append)
    with caplog.at_level(logging.ERROR):
        conversation.dispatch(BEGAN, ENDED)
    assert told == [BEGAN, ENDED]
    assert "a listener raised on EvaluationBegan" in caplog.text
    assert conversation.state == ConversationState().after(BEGAN).after(ENDED)


def test_an_unsubscribed_listener_is_not_called_again() -> None:
    conversation, told = Conversation(), list[ConversationEvent]()
    listener = told.append
    conversation.subscribe(listener)
    conversation.dispatch(BEGAN)
    conversation.unsubscribe(listener)
    conversation.unsubscribe(listener)
    conversation.dispatch(ENDED)
    assert told == [BEGAN]


def test_a_saved_conversation_can_be_restored() -> None:
    conversation = Conversation()
    conversation.dispatch(BEGAN)
    restored = Conversation.from_json(conversation.to_json())
    assert restored.state == conversation.state
    with pytest.raises(InvalidPrompt):
        Conversation.from_json("{}")
