"""What a model is sent and what it answers, in no vendor's words."""

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
    """As models take it: `^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$`."""
    description: str
    input_schema: Mapping[str, Any]
    is_deferred: bool = False
    """Whether the provider is to hold it back until a message reveals it."""

    def to_wire(self) -> dict[str, Any]:
        wire = {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}
        return {**wire, "is_deferred": True} if self.is_deferred else wire


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks for."""

    id: str
    """The vendor's; unique within its message."""
    name: str
    arguments: str
    """As the model wrote them: JSON, if all is well."""

    def to_wire(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class UserMessage:
    """From whoever asks."""

    text: str

    def to_wire(self) -> dict[str, Any]:
        return {"role": "user", "text": self.text}


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """From the model."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    native: Any = None
    """JSON values by the name of a vendor's form, where that says more (what the model thought, and its signature): an
    adapter that wrote one sends it back as it is, another one passes over it."""

    def native_in(self, form: str) -> Any:
        """What is kept of it in `form`; None where nothing is."""
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
    """The one answer to one call."""

    call_id: str
    name: str
    """Of what was called, as the model called it."""
    content: str
    is_error: bool = False
    revealed: tuple[ToolSpec, ...] = ()
    """Tools that the model may call from here on, where the provider takes them by reference."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"role": "tool", "call_id": self.call_id, "name": self.name, "content": self.content}
        if self.is_error:
            wire["is_error"] = True
        if self.revealed:
            wire["revealed"] = [tool.to_wire() for tool in self.revealed]
        return wire


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class Stop(StrEnum):
    """Why a model ended its turn."""

    END = "end"
    CALLS = "calls"
    """It waits for the answers to its calls."""
    LENGTH = "length"
    """It was cut off."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Usage:
    """What requests cost, in tokens as the provider counts them."""

    input: int = 0
    """All that was read, cached or not."""
    output: int = 0
    cached: int = 0
    """Of `input`, what was read from the provider's cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)

    def to_wire(self) -> dict[str, int]:
        return {"input": self.input, "output": self.output, "cached": self.cached}


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model. The next one in the same conversation has all of it, and more at its end."""

    system: str
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    output_schema: Mapping[str, Any] | None = None
    """That of the final answer, where it is to be JSON."""


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """What a model answered to one request."""

    message: AssistantMessage
    stop: Stop = Stop.END
    usage: Usage = NO_USAGE


def read_tool(wire: Mapping[str, Any]) -> ToolSpec:
    """What `ToolSpec.to_wire` wrote; raises as `read_message` does."""
    try:
        return ToolSpec(wire["name"], wire["description"], wire["input_schema"], bool(wire.get("is_deferred")))
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidPrompt("This is no saved tool.") from error


def read_message(wire: object) -> Message:
    """What `to_wire` of a message wrote.

    Raises:
        InvalidPrompt: it wrote no such thing.
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
                raise InvalidPrompt("This is no saved message.")
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidPrompt("This is no saved message.") from error
