"""Messages and events drawn by Hypothesis; strings may hold any character that a model may write."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from toolcrib.agent.conversation.conversation import ConversationState
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
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from toolcrib.agent.sections import SectionVisibility, SetVisibilityOverride, ToolsInjected

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)  # half a surrogate pair included

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)

SCHEMAS = st.dictionaries(TEXTS, JSON, max_size=3)
TOOLS = st.builds(ToolSpec, TEXTS, TEXTS, SCHEMAS, st.booleans())
OFFERS = st.lists(st.builds(Offer, TOOLS, st.none() | TEXTS), max_size=3).map(tuple)
IDS = st.lists(TEXTS, max_size=4, unique=True)
USAGES = st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))


@st.composite
def turns(draw: st.DrawFn) -> AssistantMessage:
    calls = tuple(ToolCall(call_id, draw(TEXTS), draw(TEXTS)) for call_id in draw(IDS))
    return AssistantMessage(draw(TEXTS), calls, draw(st.none() | JSON))


def _answer(call: ToolCall) -> st.SearchStrategy[ToolMessage]:
    return st.builds(
        ToolMessage, st.just(call.id), st.just(call.name), TEXTS, st.booleans(), st.lists(TOOLS, max_size=2).map(tuple)
    )


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, TEXTS), turns(), st.builds(ToolCall, TEXTS, TEXTS, TEXTS).flatmap(_answer)
)

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple)


def _possible(state: ConversationState) -> st.SearchStrategy[ConversationEvent]:
    """Draw an event that can happen next."""
    if state.open_calls:
        answers = st.sampled_from(state.open_calls).flatmap(_answer)
        return st.one_of(answers.map(CallAnswered), answers.map(CallAnswered), *_ANY_TIME)
    return st.one_of(
        st.builds(EvaluationBegan, TEXTS, OFFERS, st.none() | TEXTS),
        st.builds(ModelAnswered, turns(), USAGES),
        st.builds(ModelAnswered, turns(), USAGES),
        st.builds(TurnDropped, USAGES),
        st.builds(Corrected, TEXTS),
        st.builds(EvaluationRestarted, st.just(("a",))),
        st.builds(EvaluationEnded, TEXTS),
        *_ANY_TIME,
    )


_ANY_TIME: list[st.SearchStrategy[ConversationEvent]] = [
    st.builds(ToolsOffered, OFFERS),
    st.builds(NameCollided, TEXTS, TEXTS),
    st.builds(RestartRequired, PATHS),
    st.builds(SetVisibilityOverride, PATHS, st.sampled_from(SectionVisibility)),
    st.builds(ToolsInjected, st.just(("add",)), TEXTS, st.just(0.0)),
]


@st.composite
def histories(draw: st.DrawFn) -> list[ConversationEvent]:
    """Draw a sequence of events in which each can follow those before it."""
    state, events = ConversationState(), list[ConversationEvent]()
    for _ in range(draw(st.integers(0, 12))):
        event = draw(_possible(state))
        events.append(event)
        state = state.after(event)
    return events
