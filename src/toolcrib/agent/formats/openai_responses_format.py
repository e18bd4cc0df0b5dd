"""The format of OpenAI's Responses API: converts messages to items, and back.

With `searches`, `read_section` becomes the tool search that the client executes. An item of the conversation then
delivers the tools of the section that was read, and the list of tools does not change. Such an answer cannot contain
text, so the content of the section follows as a developer message.

Source: OpenAI, "Tool search", "Client-executed tool search" (November 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

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
from toolcrib.agent.sections import READ_SECTION

Json = dict[str, Any]

NAME = "openai_responses"
"""The key of a message's `native` that holds the items of an answer."""


def tools(specs: Iterable[ToolSpec], *, searches: bool = False) -> list[Json]:
    return [
        _search(spec) if searches and spec.name == READ_SECTION.name else _function(spec, spec.is_deferred)
        for spec in specs
    ]


def _function(spec: ToolSpec, is_deferred: bool) -> Json:
    function = {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.input_schema),
        # Set explicitly, because the API would otherwise make some schemas strict.
        "strict": False,
    }
    return {**function, "defer_loading": True} if is_deferred else function


def _search(spec: ToolSpec) -> Json:
    return {
        "type": "tool_search",
        "execution": "client",
        # This item has no name, but the prompt refers to the tool by name.
        "description": f"`{spec.name}`: {spec.description}",
        "parameters": dict(spec.input_schema),
    }


def items(told: Iterable[Message], *, searches: bool = False) -> list[Json]:
    """Convert a whole conversation. One more message only appends items, and does not change earlier ones."""
    found: list[Json] = []
    sought = set[str]()
    for message in told:
        match message:
            case UserMessage():
                found.append({"role": "user", "content": message.text})
            case AssistantMessage():
                said = list(_assistant_items(message, searches=searches))
                sought |= {item["call_id"] for item in said if item["type"] == "tool_search_call"}
                found += said
            case ToolMessage():
                found += _search_output(message) if message.call_id in sought else _answered(message, searches=searches)
    return found


def _assistant_items(message: AssistantMessage, *, searches: bool) -> Iterator[Json]:
    native: Sequence[Mapping[str, Any]] = message.native_in(NAME) or ()
    # Search items can only be sent back if the search tool is offered.
    if native and (searches or all(item.get("type") != "tool_search_call" for item in native)):
        yield from (dict(item) for item in native)
        return
    if message.text:
        yield {"type": "message", "role": "assistant", "content": message.text}
    for call in message.calls:
        yield _searched(call) if searches and call.name == READ_SECTION.name else _called(call)


def _called(call: ToolCall) -> Json:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _searched(call: ToolCall) -> Json:
    return {
        "type": "tool_search_call",
        "call_id": call.id,
        "execution": "client",
        "status": "completed",
        "arguments": _value(call.arguments),
    }


def _value(arguments: str) -> Any:
    """Parse the arguments of a search, which must be JSON values and not strings. Invalid JSON stays a string."""
    try:
        return json.loads(arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return arguments


def _refuse(constant: str) -> None:
    """Refuse NaN and infinities, which Python reads but which are not JSON."""
    raise ValueError(constant)


def _answered(message: ToolMessage, *, searches: bool) -> list[Json]:
    """Convert the answer to a normal call, followed by the delivered tools, unless they are in the list of tools."""
    output: Json = {"type": "function_call_output", "call_id": message.call_id, "output": message.content}
    if not (message.revealed and searches):
        return [output]
    more = [_function(tool, is_deferred=False) for tool in message.revealed]
    return [output, {"type": "additional_tools", "role": "developer", "tools": more}]


def _search_output(message: ToolMessage) -> list[Json]:
    output = {
        "type": "tool_search_output",
        "call_id": message.call_id,
        "execution": "client",
        "status": "completed",
        # Marked as deferred, otherwise they would count as listed from the start. OpenAI's own client, Codex, does the
        # same.
        "tools": [_function(tool, is_deferred=True) for tool in message.revealed],
    }
    return [output, {"role": "developer", "content": message.content}]


def read_calls(response: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls in a model's answer. Tool searches become calls of `read_section`."""
    found: list[ToolCall] = []
    for item in _items(response):
        if item.get("type") == "function_call":
            found.append(ToolCall(item["call_id"], item["name"], item["arguments"]))
        elif item.get("type") == "tool_search_call" and item.get("execution") == "client":
            arguments = item["arguments"]
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            found.append(ToolCall(item["call_id"], READ_SECTION.name, text))
    return tuple(found)


def _items(response: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return response.get("output") or ()


def read_message(response: Mapping[str, Any]) -> AssistantMessage:
    """Convert an answer to a message. All items are kept, so that the thoughts can be sent back."""
    said = "".join(part.get("text") or part.get("refusal") or "" for part in _parts(response))
    output = [dict(item) for item in _items(response)]
    while output and output[-1].get("type") == "reasoning":
        # The API refuses thoughts without the output that they lead to. This happens if the model was cut off.
        del output[-1]
    return AssistantMessage(said, read_calls(response), {NAME: output} if output else None)


def _parts(response: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from chain.from_iterable(
        item.get("content") or () for item in _items(response) if item.get("type") == "message"
    )


def read_turn(response: Mapping[str, Any]) -> ModelTurn:
    """Convert a response that did not fail to a turn."""
    message = read_message(response)
    return ModelTurn(message, _stop(response, message), _usage(response.get("usage") or {}))


def _stop(response: Mapping[str, Any], message: AssistantMessage) -> Stop:
    if response.get("status") == "incomplete":
        why: Mapping[str, Any] = response.get("incomplete_details") or {}
        return Stop.REFUSED if why.get("reason") == "content_filter" else Stop.LENGTH
    if any(part.get("type") == "refusal" for part in _parts(response)):
        return Stop.REFUSED
    return Stop.CALLS if message.calls else Stop.END


def _usage(told: Mapping[str, Any]) -> Usage:
    details: Mapping[str, Any] = told.get("input_tokens_details") or {}
    return Usage(told.get("input_tokens") or 0, told.get("output_tokens") or 0, details.get("cached_tokens") or 0)
