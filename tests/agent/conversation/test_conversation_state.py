"""The state of a conversation after its events."""

from __future__ import annotations

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.conversation.drawn import histories

from toolcrib.agent.conversation.conversation import LAYOUT, ConversationState
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
from toolcrib.agent.conversation.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from toolcrib.agent.sections import SectionVisibility, SetVisibilityOverride
from toolcrib.core.errors import InvalidPrompt

ADD = Offer(ToolSpec("add", "Add.", {"type": "object"}), "sums.add@1")
MULTIPLY = Offer(ToolSpec("multiply", "Multiply.", {"type": "object"}, is_deferred=True))
BEGAN = EvaluationBegan("Compute.", (ADD,), "One and two?")
ONE, TWO = ToolCall("1", "add", "{}"), ToolCall("2", "multiply", "{")
BOTH = ModelAnswered(AssistantMessage("", (ONE, TWO)), Usage(10, 2))
FIRST, SECOND = ToolMessage("1", "add", "3"), ToolMessage("2", "multiply", "no", is_error=True)


def after(*events: ConversationEvent) -> ConversationState:
    return reduce(ConversationState.after, events, ConversationState())


@given(histories())
def test_a_restored_state_is_identical_and_accepts_the_same_events(events: list[ConversationEvent]) -> None:
    restored = ConversationState()
    for event in events:
        restored = ConversationState.from_json(restored.to_json()).after(event)
    assert restored == after(*events)
    assert restored.to_json() == after(*events).to_json()
    restored.to_json().encode()


@given(histories(), st.integers(0, 12))
def test_a_state_does_not_change_when_later_events_happen(events: list[ConversationEvent], at: int) -> None:
    before = after(*events[:at])
    saved = before.to_json()
    reduce(ConversationState.after, events[at:], before)
    assert before.to_json() == saved


@given(histories())
def test_each_turn_is_followed_by_the_answers_to_its_calls_in_order(events: list[ConversationEvent]) -> None:
    state = after(*events)
    left = list(state.messages)
    while left:
        message = left.pop(0)
        assert not isinstance(message, ToolMessage)
        if isinstance(message, AssistantMessage) and left:
            assert [answer.call_id for answer in left[: len(message.calls)] if isinstance(answer, ToolMessage)] == [
                call.id for call in message.calls
            ]
            del left[: len(message.calls)]
    finished = [message for message in (*state.messages, *state.answered) if isinstance(message, ToolMessage)]
    assert [message for _, message in state.finished_calls] == finished
    assert all((call.id, call.name) == (answer.call_id, answer.name) for call, answer in state.finished_calls)


def test_answers_that_arrive_out_of_order_are_in_the_order_of_calls() -> None:
    half = after(BEGAN, BOTH, CallAnswered(SECOND))
    assert half.open_calls == (ONE,)
    assert half.answered == (SECOND,)
    assert half.messages[-1] == BOTH.message
    assert half.finished_calls == ((TWO, SECOND),)

    whole = half.after(CallAnswered(FIRST))
    assert whole.open_calls == ()
    assert whole.answered == ()
    assert whole.messages == (UserMessage("One and two?"), BOTH.message, FIRST, SECOND)
    assert whole.finished_calls == ((ONE, FIRST), (TWO, SECOND))


@pytest.mark.parametrize(
    "before",
    [(), (BEGAN,), (BEGAN, BOTH, CallAnswered(FIRST)), (BEGAN, BOTH, CallAnswered(SECOND), CallAnswered(FIRST))],
)
def test_answering_a_call_that_is_not_open_is_refused(before: tuple[ConversationEvent, ...]) -> None:
    with pytest.raises(ValueError, match="is not waiting for an answer"):
        after(*before).after(CallAnswered(FIRST))


def test_a_turn_records_the_number_of_offers_that_existed_when_it_ended() -> None:
    assert after(BEGAN, BOTH, ToolsOffered((MULTIPLY,))).known_offers == 1
    assert after(BEGAN, ToolsOffered((MULTIPLY,)), BOTH).known_offers == 2
    assert after(BEGAN, BOTH, ToolsOffered((MULTIPLY,))).offers == (ADD, MULTIPLY)


def test_messages_survive_the_end_and_a_restart_but_offers_do_not() -> None:
    asked = after(BEGAN, BOTH, CallAnswered(FIRST), CallAnswered(SECOND), RestartRequired(("sums",)))
    assert asked.pending == (("sums",),)
    assert asked.system == "Compute."

    for event, restarts in ((EvaluationRestarted(("sums",)), 1), (EvaluationEnded(""), 0)):
        over = asked.after(event)
        assert over.messages == asked.messages
        assert (over.system, over.offers, over.restarts) == (None, (), restarts)
    assert asked.after(EvaluationRestarted(("sums",))).pending == ()

    again = over.after(EvaluationBegan("Compute on.", (MULTIPLY,)))
    assert (again.system, again.offers, again.messages) == ("Compute on.", (MULTIPLY,), asked.messages)


def test_the_usage_of_dropped_turns_is_counted() -> None:
    state = after(BEGAN, TurnDropped(Usage(5, 1, 2)), BOTH)
    assert (state.turns, state.usage) == (2, Usage(15, 3, 2))
    assert state.messages == (UserMessage("One and two?"), BOTH.message)


def test_a_correction_is_a_user_message_and_a_name_collision_changes_nothing() -> None:
    state = after(BEGAN, Corrected("As JSON."))
    assert state.messages[-1] == UserMessage("As JSON.")
    assert state.after(NameCollided("add", "sums")) == state


def test_a_visibility_override_opens_a_section() -> None:
    state = after(SetVisibilityOverride(("a", "b"), SectionVisibility.FULL))
    assert state.sections.overrides == {("a", "b"): SectionVisibility.FULL}


def test_a_conversation_saved_by_a_newer_version_is_refused() -> None:
    saved = json.loads(ConversationState().to_json())
    with pytest.raises(InvalidPrompt, match="newer version"):
        ConversationState.from_json(json.dumps({**saved, "layout": LAYOUT + 1}))


@pytest.mark.parametrize("key", [*json.loads(ConversationState().to_json())])
def test_a_saved_conversation_without_a_required_key_is_refused(key: str) -> None:
    saved = json.loads(ConversationState().to_json())
    del saved[key]
    with pytest.raises(InvalidPrompt, match="Not a saved conversation"):
        ConversationState.from_json(json.dumps(saved))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "1", '"x"', "[" * 100_000, '{"layout": {}}', '{"layout": 1, "sections": []}']
)
def test_text_that_is_not_a_saved_conversation_is_refused(text: str) -> None:
    with pytest.raises(InvalidPrompt):
        ConversationState.from_json(text)


@pytest.mark.parametrize("key", ["sections", "offers", "messages", "answered", "usage"])
@pytest.mark.parametrize("wrong", [1, "x", [1], [None], {"overrides": 1}, {"input": 1, "more": 2}])
def test_a_saved_conversation_with_an_invalid_value_is_refused(key: str, wrong: object) -> None:
    saved = json.loads(ConversationState().to_json())
    with pytest.raises(InvalidPrompt):
        ConversationState.from_json(json.dumps({**saved, key: wrong}))
