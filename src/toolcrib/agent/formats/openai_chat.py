"""Chat completions, as OpenAI and all who speak like it take them: neutral messages as dictionaries, and back."""

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
"""The key of a message's `native` under which stands what only this form can say."""

_SAID = frozenset({"role", "content", "refusal", "tool_calls", "function_call", "annotations", "audio"})
"""The keys of a message that OpenAI knows: what stands there is read, or of no use to it later."""

_CALL = frozenset({"index", "id", "type", "function"})

_NOTHING: Mapping[str, Any] = {}


def tools(specs: Iterable[ToolSpec]) -> list[Json]:
    """All of them, for nothing is held back here."""
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
    """A conversation from its beginning. One more message is one more dictionary at the end; none before it changes."""
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
    """The calls in a model's message (`choices[0].message`). Servers that give a call no id are given one."""
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
    """Where a list may be, or null, or nothing."""
    return held.get(key) or []


def _first(held: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return next(iter(_all(held, key)), _NOTHING)


def _text(arguments: Any) -> str:
    """Of no arguments some servers write an empty text; some write an object where a text with JSON belongs."""
    return arguments or "{}" if isinstance(arguments, str | None) else json.dumps(arguments, ensure_ascii=False)


def read_message(message: Mapping[str, Any], *, dialect: str = NAME) -> AssistantMessage:
    """A model's message, kept as it came where it says what OpenAI's own do not: thoughts, signatures of calls."""
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
    """Whether there is anything in it."""
    return any(map(_tells, cast("Mapping[str, Any]", value).values())) if isinstance(value, Mapping) else bool(value)


def read_turn(completion: Mapping[str, Any], *, dialect: str = NAME) -> ModelTurn:
    """What a model answered, from a completion.

    Raises:
        ProviderFailed: there is no message in it.
    """
    choice = _first(completion, "choices")
    said: Mapping[str, Any] | None = choice.get("message")
    if said is None:
        raise ProviderFailed("The model's answer has no message in it; ask again.", retryable=True)
    message = read_message(said, dialect=dialect)
    stop = _stop(choice.get("finish_reason"), message, refused=bool(said.get("refusal")))
    return ModelTurn(message, stop, _usage(completion.get("usage") or {}))


def _stop(reason: str | None, message: AssistantMessage, *, refused: bool) -> Stop:
    """Servers that are not OpenAI's stop at calls for other reasons than `tool_calls`: the calls themselves count."""
    if reason == "length":
        return Stop.LENGTH
    if refused or reason == "content_filter":
        return Stop.REFUSED
    return Stop.CALLS if message.calls else Stop.END


def _usage(told: Mapping[str, Any]) -> Usage:
    details: Mapping[str, Any] = told.get("prompt_tokens_details") or {}
    return Usage(told.get("prompt_tokens") or 0, told.get("completion_tokens") or 0, details.get("cached_tokens") or 0)


def text_of(chunk: Mapping[str, Any]) -> str:
    """The piece of text in one chunk of a stream."""
    delta = _delta(chunk)
    return delta.get("content") or delta.get("refusal") or ""


def joined(chunks: Iterable[Mapping[str, Any]]) -> Json:
    """The completion that a stream's chunks are pieces of; without a `finish_reason` where the stream was lost."""
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
    """Of the call that a piece belongs to. Some servers count no places: there each id begins a call."""
    place = piece.get("index")
    if place is not None:
        return place
    return len(calls) if piece.get("id") or not calls else len(calls) - 1


_WHOLE = frozenset({"role", "id", "type", "name", "index"})
"""Keys whose texts are not sent in pieces; some servers repeat them in every chunk."""


def _add(held: Json, piece: Mapping[str, Any]) -> None:
    """Join `piece` to what came before it: texts and lists grow, the first of a name stays."""
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
