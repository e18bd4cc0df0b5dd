"""Converts messages to the dictionaries of chat completions, as in OpenAI's API and compatible ones, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    Message,
    ModelTurn,
    Stop,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from toolcrib.core.errors import ProviderFailed

Json = dict[str, Any]

NAME = "openai_chat"
"""The key of a message's `native` for content that only this format can express."""

_SAID = frozenset({"role", "content", "refusal", "tool_calls", "function_call", "annotations", "audio"})
"""The keys of a message that OpenAI defines. They are either read, or not needed later."""

_CALL = frozenset({"index", "id", "type", "function"})

_NOTHING: Mapping[str, Any] = {}


def tools(specs: Iterable[ToolSpec]) -> list[Json]:
    """Convert all tools. This format has no deferred tools."""
    return [
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": dict(spec.input_schema),
            },
        }
        for spec in specs
    ]


def messages(system: str, told: Iterable[Message], *, dialect: str = NAME) -> list[Json]:
    """Convert a whole conversation. One more message only appends a dictionary, and does not change earlier ones."""
    opening = [{"role": "system", "content": system}] if system else []
    return [*opening, *(_message(message, dialect) for message in told)]


def _message(message: Message, dialect: str) -> Json:
    match message:
        case UserMessage():
            return {"role": "user", "content": message.text}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}
        case AssistantMessage():
            native: Mapping[str, Any] | None = message.native_in(dialect)
            return _assistant(message) if native is None else dict(native)


def _assistant(message: AssistantMessage) -> Json:
    if not message.calls:
        return {"role": "assistant", "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def read_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls in a model's message (`choices[0].message`). Calls without an id get one."""
    return tuple(
        ToolCall(
            call.get("id") or f"call_{position}",
            call["function"].get("name") or "",
            _text(call["function"].get("arguments")),
        )
        for position, call in enumerate(_called(message), 1)
    )


def _called(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in _all(message, "tool_calls") if call.get("function")]


def _all(held: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the list under `key`, which may be missing or null."""
    return held.get(key) or []


def _first(held: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return next(iter(_all(held, key)), _NOTHING)


def _text(arguments: Any) -> str:
    """Return arguments as text. Some servers write an empty string for no arguments, or an object instead of a
    string."""
    return arguments or "{}" if isinstance(arguments, str | None) else json.dumps(arguments, ensure_ascii=False)


def read_message(message: Mapping[str, Any], *, dialect: str = NAME) -> AssistantMessage:
    """Convert a model's message. If it contains more than OpenAI defines (thoughts, signatures), it is also kept as it
    is."""
    calls = read_calls(message)
    written = AssistantMessage(message.get("content") or message.get("refusal") or "", calls)
    extra = {key: value for key, value in message.items() if key not in _SAID and _tells(value)}
    signed = [
        {key: value for key, value in call.items() if key not in _CALL and _tells(value)} for call in _called(message)
    ]
    if not extra and not any(signed):
        return written
    native = _assistant(written) | extra
    if calls:
        native["tool_calls"] = [call | more for call, more in zip(native["tool_calls"], signed, strict=True)]
    return AssistantMessage(written.text, calls, {dialect: native})


def _tells(value: Any) -> bool:
    """Whether `value` has any content."""
    return any(map(_tells, cast("Mapping[str, Any]", value).values())) if isinstance(value, Mapping) else bool(value)


def read_turn(completion: Mapping[str, Any], *, dialect: str = NAME) -> ModelTurn:
    """Convert a completion to a turn.

    Raises:
        ProviderFailed: the completion contains no message.
    """
    choice = _first(completion, "choices")
    said: Mapping[str, Any] | None = choice.get("message")
    if said is None:
        raise ProviderFailed("The model's answer contains no message. Retry the request.", retryable=True)
    message = read_message(said, dialect=dialect)
    stop = _stop(choice.get("finish_reason"), message, refused=bool(said.get("refusal")))
    return ModelTurn(message, stop, _usage(completion.get("usage") or {}))


def _stop(reason: str | None, message: AssistantMessage, *, refused: bool) -> Stop:
    """Return why the model stopped. Calls count more than the reason, because some servers do not use `tool_calls`."""
    if reason == "length":
        return Stop.LENGTH
    if refused or reason == "content_filter":
        return Stop.REFUSED
    return Stop.CALLS if message.calls else Stop.END


def _usage(told: Mapping[str, Any]) -> Usage:
    details: Mapping[str, Any] = told.get("prompt_tokens_details") or {}
    return Usage(told.get("prompt_tokens") or 0, told.get("completion_tokens") or 0, details.get("cached_tokens") or 0)


def text_of(chunk: Mapping[str, Any]) -> str:
    """Return the piece of text in one chunk of a stream."""
    delta = _delta(chunk)
    return delta.get("content") or delta.get("refusal") or ""


def joined(chunks: Iterable[Mapping[str, Any]]) -> Json:
    """Join the chunks of a stream to a completion. It has no `finish_reason` if the stream was interrupted."""
    message: Json = {"role": "assistant"}
    calls: dict[Any, Json] = {}
    choice: Json = {"message": message, "finish_reason": None}
    completion: Json = {"choices": [choice], "usage": None}
    for chunk in chunks:
        completion["usage"] = chunk.get("usage") or completion["usage"]
        choice["finish_reason"] = _first(chunk, "choices").get("finish_reason") or choice["finish_reason"]
        delta = _delta(chunk)
        for piece in _all(delta, "tool_calls"):
            _add(calls.setdefault(_place(piece, calls), {}), piece)
        _add(message, {key: value for key, value in delta.items() if key != "tool_calls"})
    if calls:
        message["tool_calls"] = list(calls.values())
    return completion


def _delta(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    return _first(chunk, "choices").get("delta") or {}


def _place(piece: Mapping[str, Any], calls: Mapping[Any, Json]) -> Any:
    """Return the key of the call that a piece belongs to. Some servers send no index: then each id starts a new
    call."""
    place = piece.get("index")
    if place is not None:
        return place
    return len(calls) if piece.get("id") or not calls else len(calls) - 1


_WHOLE = frozenset({"role", "id", "type", "name", "index"})
"""Keys whose strings are not sent in pieces. Some servers repeat them in every chunk."""


def _add(held: Json, piece: Mapping[str, Any]) -> None:
    """Add `piece` to `held`: strings and lists are extended, and keys in `_WHOLE` keep their first value."""
    for key, value in piece.items():
        before: Any = held.get(key)
        if before is None or value is None:
            held[key] = before if value is None else _own(value)
        elif isinstance(before, dict) and isinstance(value, Mapping):
            _add(cast(Json, before), cast("Mapping[str, Any]", value))
        elif key not in _WHOLE and isinstance(before, str) and isinstance(value, str):
            held[key] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            held[key] = [*cast("list[Any]", before), *cast("list[Any]", value)]


def _own(value: Any) -> Any:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
