"""Requests to a model and its answers, in a form that is independent of vendors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, cast

from toolcrib.core.errors import InvalidPrompt


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    """A name that all models accept: `^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$`."""
    description: str
    input_schema: Mapping[str, Any]
    is_deferred: bool = False
    """Whether the provider should hide the tool until a message reveals it."""

    def to_wire(self) -> dict[str, Any]:
        wire = {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}
        return {**wire, "is_deferred": True} if self.is_deferred else wire


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by a model."""

    id: str
    """The vendor's id of the call, unique within its message."""
    name: str
    arguments: str
    """The arguments as the model wrote them. They should be JSON."""

    def to_wire(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message from the user."""

    text: str

    def to_wire(self) -> dict[str, Any]:
        return {"role": "user", "text": self.text}


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message from the model."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    native: Any = None
    """JSON values by the name of a vendor's format, if the format contains more (such as thoughts and their signature).

    An adapter sends back its own value unchanged, and ignores the values of others.
    """

    def native_in(self, form: str) -> Any:
        """Return the value in the format `form`, or None."""
        return cast("Mapping[str, Any]", self.native).get(form) if isinstance(self.native, Mapping) else None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "role": "assistant",
            "text": self.text,
            "calls": [call.to_wire() for call in self.calls],
        }
        return wire if self.native is None else {**wire, "native": self.native}


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The single answer to one call."""

    call_id: str
    name: str
    """The name of the tool as the model called it."""
    content: str
    is_error: bool = False
    revealed: tuple[ToolSpec, ...] = ()
    """Tools that the model may call from now on, if the provider supports references to tools."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"role": "tool", "call_id": self.call_id, "name": self.name, "content": self.content}
        if self.is_error:
            wire["is_error"] = True
        if self.revealed:
            wire["revealed"] = [tool.to_wire() for tool in self.revealed]
        return wire


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class Stop(StrEnum):
    """The reason why a model ended its turn."""

    END = "end"
    CALLS = "calls"
    """The model waits for the answers to its calls."""
    LENGTH = "length"
    """The answer was cut off."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of requests, in tokens as the provider counts them."""

    input: int = 0
    """All tokens that were read, cached or not."""
    output: int = 0
    cached: int = 0
    """The part of `input` that was read from the provider's cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)

    def to_wire(self) -> dict[str, int]:
        return {"input": self.input, "output": self.output, "cached": self.cached}


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model. The next request of the same conversation repeats it, and appends to it."""

    system: str
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema of the final answer. None if the answer is text."""


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """The answer of a model to one request."""

    message: AssistantMessage
    stop: Stop = Stop.END
    usage: Usage = NO_USAGE


def read_tool(wire: Mapping[str, Any]) -> ToolSpec:
    """Read the result of `ToolSpec.to_wire`. Raises the same errors as `read_message`."""
    try:
        return ToolSpec(wire["name"], wire["description"], wire["input_schema"], bool(wire.get("is_deferred")))
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidPrompt("Not a saved tool.") from error


def read_message(wire: object) -> Message:
    """Read the result of a message's `to_wire`.

    Raises:
        InvalidPrompt: `wire` is not a saved message.
    """
    try:
        told = cast("Mapping[str, Any]", wire)
        match told["role"]:
            case "user":
                return UserMessage(told["text"])
            case "assistant":
                calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in told["calls"])
                return AssistantMessage(told["text"], calls, told.get("native"))
            case "tool":
                revealed = tuple(read_tool(tool) for tool in told.get("revealed", ()))
                is_error = bool(told.get("is_error"))
                return ToolMessage(told["call_id"], told["name"], told["content"], is_error, revealed)
            case _:
                raise InvalidPrompt("Not a saved message.")
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidPrompt("Not a saved message.") from error
