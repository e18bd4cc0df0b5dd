"""Recognizes calls in any vendor's format, and writes each answer in the format of its call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias, cast

from toolcrib.agent.conversation.messages import ToolCall, ToolMessage, ToolSpec
from toolcrib.agent.formats import anthropic_format, openai_chat_format, openai_responses_format


def _json_schema_tools(specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Write tools as most chat templates expect them: name, description and JSON Schema. None is deferred."""
    return [
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.input_schema)} for spec in specs
    ]


Json = dict[str, Any]

Form: TypeAlias = Literal["openai", "openai-responses", "anthropic", "json-schema"]

TOOLS: Mapping[str, Callable[[Iterable[ToolSpec]], list[Json]]] = {
    "openai": openai_chat_format.tools,
    "openai-responses": openai_responses_format.tools,
    "anthropic": anthropic_format.tools,
    "json-schema": _json_schema_tools,
}
"""The function that writes tools, by format."""

_READ = ("type", "id", "call_id", "name", "arguments", "input", "function")
"""All attributes that one of the formats uses for a call."""


@dataclass(frozen=True, slots=True)
class _FormattedCall:
    """A call and its format."""

    call: ToolCall
    form: Form


def calls_in(held: Iterable[object] | None) -> tuple[_FormattedCall, ...]:
    """Return the calls in `held`: dictionaries, objects of an SDK, or `ToolCall`.

    A `ToolCall` has the format `json-schema`, and so has a dictionary with only `name`, `arguments` and optionally
    `id`. Everything that is not a call is ignored.

    Raises:
        TypeError: `held` is one call instead of a list of calls.
    """
    if isinstance(held, str | Mapping | ToolCall):
        raise TypeError("pass a list of calls, not a single call")
    found = (_call_in(each, position) for position, each in enumerate(held or (), 1))
    return tuple(asked for asked in found if asked is not None)


def _call_in(given: object, position: int) -> _FormattedCall | None:
    if isinstance(given, ToolCall):
        return _FormattedCall(replace(given, arguments=_text(given.arguments)), "json-schema")
    wire = _plain(given)
    match wire:
        case {"type": "function_call", "call_id": str(), "name": str()}:
            (call,) = openai_responses_format.read_calls({"output": [{"arguments": "", **wire}]})
            return _FormattedCall(call, "openai-responses")
        case {"type": "tool_use", "id": str(), "name": str()}:
            (call,) = anthropic_format.read_calls([{"input": {}, **wire}])
            return _FormattedCall(call, "anthropic")
        case {"function": function} if called := _plain(function):
            # Some servers do not give ids to calls.
            numbered = {**wire, "id": wire.get("id") or f"call_{position}", "function": called}
            (call,) = openai_chat_format.read_calls({"tool_calls": [numbered]})
            return _FormattedCall(call, "openai")
        case {"name": str(name), "arguments": arguments} if "type" not in wire:
            call = ToolCall(str(wire.get("id") or f"call_{position}"), name, _text(arguments))
            return _FormattedCall(call, "json-schema")
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
            return openai_chat_format.messages("", answers)
        case "openai-responses":
            return openai_responses_format.items(answers)
        case "anthropic":
            return anthropic_format.messages(answers)
        case "json-schema":
            return answers
