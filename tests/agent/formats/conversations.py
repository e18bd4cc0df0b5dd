"""Generated conversations in which every call is answered before the next request to the model."""

from __future__ import annotations

from hypothesis import strategies as st

from toolcrib.agent.conversation.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolSpec, UserMessage

TEXTS = st.text(max_size=20)
NAMES = st.sampled_from(["add", "read_section", "search_tools"])
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', '{"section_key": "a.b"}', "", "{", "[]", '"text"', "NaN"])
SPECS = st.builds(ToolSpec, NAMES, TEXTS, st.just({"type": "object", "title": "ä"}), st.booleans())


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """Draw a question, an answer with calls, and the results of the calls."""
    names = draw(st.lists(NAMES, max_size=3))
    calls = tuple(ToolCall(f"call_{number}_{at}", name, draw(ARGUMENTS)) for at, name in enumerate(names))
    asked: list[Message] = [UserMessage(draw(TEXTS)), AssistantMessage(draw(TEXTS), calls)]
    revealed = st.lists(SPECS, max_size=2, unique_by=lambda spec: spec.name).map(tuple)
    answers = [ToolMessage(call.id, call.name, draw(TEXTS), draw(st.booleans()), draw(revealed)) for call in calls]
    return asked + answers


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    return tuple(message for number in range(draw(st.integers(0, 4))) for message in draw(turns(number)))
