"""Models that follow a script, and checks that hold for every conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from toolcrib import Toolcrib
from toolcrib.adapters.scripted import Answering, ScriptedAdapter
from toolcrib.agent.conversation.conversation import ConversationState
from toolcrib.agent.conversation.events import ConversationEvent
from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
)
from toolcrib.agent.loop.provider import Delivery
from toolcrib.agent.session import Session

Step = str | ModelTurn | Sequence[tuple[str, object]]
"""A final answer, a complete turn, or names of calls with their arguments, as a string if they are not JSON."""


@dataclass(frozen=True)
class Way:
    """How an adapter adds tools."""

    delivery: Delivery
    reveals_unlisted: bool = False

    def __str__(self) -> str:
        return self.delivery.value + ("-unlisted" if self.reveals_unlisted else "")

    def adapter(self, answer: Answering) -> ScriptedAdapter:
        return ScriptedAdapter(
            answer, delivery=self.delivery, reveals_unlisted=self.reveals_unlisted, calls_only_offered=False
        )


INJECT, RESTART, PROXY = Way(Delivery.INJECT), Way(Delivery.RESTART), Way(Delivery.PROXY)
DEFER, DEFER_UNLISTED = Way(Delivery.DEFER), Way(Delivery.DEFER, reveals_unlisted=True)
WAYS = (INJECT, DEFER, DEFER_UNLISTED, PROXY, RESTART)


def turn(request: ModelRequest, step: Step) -> ModelTurn:
    match step:
        case ModelTurn():
            return step
        case str():
            return ModelTurn(AssistantMessage(step), usage=Usage(10, 1))
        case _:
            calls = tuple(
                ToolCall(f"{len(request.messages)}-{at}", name, given if isinstance(given, str) else json.dumps(given))
                for at, (name, given) in enumerate(step)
            )
            return ModelTurn(AssistantMessage("", calls), Stop.CALLS, Usage(10, 1))


def plays(*steps: Step | Callable[[ModelRequest], Step]) -> Answering:
    """A model that takes one step after the other; a function is called to get its step."""
    left = iter(steps)

    def answer(request: ModelRequest) -> ModelTurn:
        step = next(left)
        return turn(request, step(request) if callable(step) else step)

    return answer


def read(key: str) -> tuple[str, object]:
    return "read_section", {"section_key": key}


def answers(request: ModelRequest) -> list[ToolMessage]:
    return [message for message in request.messages if isinstance(message, ToolMessage)]


def offered(request: ModelRequest) -> set[str]:
    """The names of the tools that the model may call."""
    listed = {tool.name for tool in request.tools if not tool.is_deferred}
    return listed | {tool.name for message in answers(request) for tool in message.revealed}


def handles(request: ModelRequest) -> dict[str, str]:
    """Map tool names to handles in the answers, for tools that cannot be called by name."""
    found: dict[str, str] = {}
    for message in answers(request):
        for line in message.content.splitlines():
            if line.startswith("{") and '"handle"' in line:
                told = json.loads(line)
                for each in told.get("tools", [told]):
                    found[each["tool_id"].rsplit(".", 1)[-1]] = each["handle"]
    return found


def by_name_or_handle(request: ModelRequest, name: str, arguments: dict[str, Any]) -> tuple[str, object] | None:
    """Return a call of the tool by name or handle if the model can make it, else None."""
    if name in offered(request):
        return name, arguments
    if (handle := handles(request).get(name)) is not None:
        return "call_tool", {"tool_id": handle, "arguments": arguments}
    return None


def wire(request: ModelRequest) -> str:
    """Serialize the request in the order in which providers cache it."""
    parts: list[object] = [*(tool.to_wire() for tool in request.tools), request.system]
    parts += [message.to_wire() for message in request.messages]
    return "".join(json.dumps(part) + "\n" for part in parts)


def check_answered(state: ConversationState) -> None:
    """Check that every call has exactly one answer, after its turn and in the order of the calls."""
    assert state.open_calls == ()
    assert state.answered == ()
    left = list(state.messages)
    while left:
        message = left.pop(0)
        assert not isinstance(message, ToolMessage), "an answer to no call"
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            answer = left.pop(0)
            assert isinstance(answer, ToolMessage)
            assert (answer.call_id, answer.name) == (call.id, call.name)


def check_saved(state: ConversationState) -> None:
    """Check that a saved state is read unchanged and saved with the same bytes."""
    saved = state.to_json()
    assert ConversationState.from_json(saved) == state
    assert ConversationState.from_json(saved).to_json() == saved


class Watched:
    """Sessions and the events that happened in them."""

    def __init__(self) -> None:
        self._begun: list[tuple[Session, ConversationState, list[ConversationEvent]]] = []

    def session(self, crib: Toolcrib | None = None, **given: Any) -> Session:
        return self.watch((crib or Toolcrib()).session(**given))

    def watch(self, session: Session) -> Session:
        events: list[ConversationEvent] = []
        session.conversation.subscribe(events.append)
        self._begun.append((session, session.conversation.state, events))
        return session

    def events(self, session: Session) -> list[ConversationEvent]:
        return next(events for known, _, events in self._begun if known is session)

    def check(self) -> None:
        for session, first, events in self._begun:
            state = session.conversation.state
            check_answered(state)
            check_saved(state)
            assert reduce(ConversationState.after, events, first) == state, "replaying the events rebuilds the state"
