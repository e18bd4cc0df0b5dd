"""Recognizes calls in any vendor's format, and writes each answer in the format of its call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias, cast

from toolcrib.agent.conversation.messages import ToolCall, ToolMessage, ToolSpec
from toolcrib.agent.formats import anthropic, json_schema, openai_chat, openai_responses

Json = dict[str, Any]

Form: TypeAlias = Literal["openai", "openai-responses", "anthropic", "json-schema"]

TOOLS: Mapping[str, Callable[[Iterable[ToolSpec]], list[Json]]] = {
    "openai": openai_chat.tools,
    "openai-responses": openai_responses.tools,
    "anthropic": anthropic.tools,
    "json-schema": json_schema.tools,
}
"""The function that writes tools, by format."""

_READ = ("type", "id", "call_id", "name", "arguments", "input", "function")
"""All attributes that one of the formats uses for a call."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call and its format."""

    call: ToolCall
    form: Form


def calls_in(held: Iterable[object] | None) -> tuple[Asked, ...]:
    """Return the calls in `held`: dictionaries, objects of an SDK, or `ToolCall`.

    A `ToolCall` has the format `json-schema`, and so has a dictionary with only `name`, `arguments` and optionally
    `id`. Everything that is not a call is ignored.

    Raises:
        TypeError: `held` is one call instead of a list of calls.
    """
    if isinstance(held, str | Mapping | ToolCall):
        raise TypeError("pass a list of calls, not a single call")
    found = (_asked(each, position) for position, each in enumerate(held or (), 1))
    return tuple(asked for asked in found if asked is not None)


def _asked(given: object, position: int) -> Asked | None:
    if isinstance(given, ToolCall):
        return Asked(replace(given, arguments=_text(given.arguments)), "json-schema")
    wire = _plain(given)
    match wire:
        case {"type": "function_call", "call_id": str(), "name": str()}:
            (call,) = openai_responses.read_calls({"output": [{"arguments": "", **wire}]})
            return Asked(call, "openai-responses")
        case {"type": "tool_use", "id": str(), "name": str()}:
            (call,) = anthropic.read_calls([{"input": {}, **wire}])
            return Asked(call, "anthropic")
        case {"function": function} if called := _plain(function):
            # Some servers do not give ids to calls.
            numbered = {**wire, "id": wire.get("id") or f"call_{position}", "function": called}
            (call,) = openai_chat.read_calls({"tool_calls": [numbered]})
            return Asked(call, "openai")
        case {"name": str(name), "arguments": arguments} if "type" not in wire:
            call = ToolCall(str(wire.get("id") or f"call_{position}"), name, _text(arguments))
            return Asked(call, "json-schema")
        case _:
            return None


def _text(arguments: object) -> str:
    """Return arguments as the text that a model would have written, if they are already parsed."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _plain(value: object) -> Json:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return {key: getattr(value, key) for key in _READ if hasattr(value, key)}


def answers_in(answered: Iterable[tuple[Form, ToolMessage]]) -> list[Any]:
    """Return messages with these answers in this order, each in its format, to be appended directly after the calls.

    Each answer becomes a dictionary. Consecutive answers in Anthropic's format share one message, as that API requires.
    In the format `json-schema`, the answer is the `ToolMessage` itself.
    """
    messages: list[Any] = []
    for _, group in groupby(answered, key=lambda each: each[0]):
        told = [*group]
        messages += _written(told[0][0], [answer for _, answer in told])
    return messages


def _written(form: Form, answers: Sequence[ToolMessage]) -> Sequence[Any]:
    match form:
        case "openai":
            return openai_chat.messages("", answers)
        case "openai-responses":
            return openai_responses.items(answers)
        case "anthropic":
            return anthropic.messages(answers)
        case "json-schema":
            return answers
