"""Calls as any vendor's answer holds them, told apart by their form, and answers in the form that each came in."""

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
"""How tools are written in each form."""

_READ = ("type", "id", "call_id", "name", "arguments", "input", "function")
"""Whatever one of the forms has for a call."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, and the form in which it was made."""

    call: ToolCall
    form: Form


def calls_in(held: Iterable[object] | None) -> tuple[Asked, ...]:
    """The calls among what an answer holds: dictionaries, objects of an SDK, or `ToolCall`, which is `json-schema`'s,
    as is a dictionary of nothing but `name`, `arguments` and perhaps `id`.

    What is no call is passed over.

    Raises:
        TypeError: `held` is one call, and no list of them.
    """
    if isinstance(held, str | Mapping | ToolCall):
        raise TypeError("a list of calls is expected here, and not one call by itself")
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
            # Some servers give their calls no ids.
            numbered = {**wire, "id": wire.get("id") or f"call_{position}", "function": called}
            (call,) = openai_chat.read_calls({"tool_calls": [numbered]})
            return Asked(call, "openai")
        case {"name": str(name), "arguments": arguments} if "type" not in wire:
            call = ToolCall(str(wire.get("id") or f"call_{position}"), name, _text(arguments))
            return Asked(call, "json-schema")
        case _:
            return None


def _text(arguments: object) -> str:
    """As a model would have written them, for whoever has read them already."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _plain(value: object) -> Json:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return {key: getattr(value, key) for key in _READ if hasattr(value, key)}


def answers_in(answered: Iterable[tuple[Form, ToolMessage]]) -> list[Any]:
    """Messages with exactly these answers in this order, each in its form, to stand right after the calls.

    A dictionary for each answer; of Anthropic's, which have to stand in one message, one for all that follow each
    other; for `json-schema` the `ToolMessage` itself.
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
