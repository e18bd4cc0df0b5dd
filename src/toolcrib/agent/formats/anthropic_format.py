"""The format of Anthropic's Messages API: converts messages to content blocks, and back.

A deferred tool is revealed by a reference in the answer to a call. The API accepts either references or text in such
an answer, not both (November 2026). For this reason the text follows after all answers of the turn.

Source: Anthropic, "Tool search tool", "Custom tool search implementation".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
)

Json = dict[str, Any]

NAME = "anthropic"
"""The key of a message's `native` that holds the content blocks of an answer."""

_COMBINATIONS = frozenset({"oneOf", "allOf", "anyOf"})
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 128

_PARTS = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("input", "partial_json"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}
"""Maps each kind of stream event to the field of the block, and to the field of the event with the new piece."""

_STOPS = {
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.REFUSED,
}


def tools(specs: Iterable[ToolSpec]) -> list[Json]:
    """Convert all tools, including deferred ones. The API itself hides these from the model until they are revealed."""
    return [_tool(spec) for spec in specs]


def _tool(spec: ToolSpec) -> Json:
    schema, is_whole = _accepted(spec.input_schema)
    told = spec.description
    if not is_whole:
        told = f"{told}\n\nThe whole schema of its input: {json.dumps(spec.input_schema, ensure_ascii=False)}".strip()
    tool: Json = {"name": spec.name, "input_schema": schema}
    if told:
        tool["description"] = told
    return {**tool, "defer_loading": True} if spec.is_deferred else tool


def _accepted(schema: Mapping[str, Any]) -> tuple[Json, bool]:
    """Return the part of a schema that the API accepts, and whether that is the whole schema.

    The API refuses the whole request if it refuses one schema.
    """
    kept = {key: value for key, value in schema.items() if key not in _COMBINATIONS}
    properties: object = kept.get("properties")
    if isinstance(properties, Mapping):
        named = cast("Mapping[str, Any]", properties)
        kept["properties"] = {key: value for key, value in named.items() if _PROPERTY.fullmatch(key)}
    is_whole = kept == schema
    return {**kept, "type": "object"}, is_whole


def messages(told: Iterable[Message], listed: Iterable[ToolSpec] = ()) -> list[Json]:
    """Convert a whole conversation. One more turn only appends messages, and does not change earlier ones.

    `listed` are the tools of the same request. Revealed tools are written as references if they are deferred in that
    list.
    """
    return list(_Writer(frozenset(spec.name for spec in listed if spec.is_deferred)).written(told))


class _Writer:
    """Writes one conversation, and keeps track of the call ids so far."""

    def __init__(self, deferred: Set[str]) -> None:
        self._deferred = deferred
        self._known = set[str]()
        self._ids: Mapping[str, str] = {}
        """The written ids of the last turn's calls, by their original ids."""

    def written(self, told: Iterable[Message]) -> Iterator[Json]:
        answers: list[ToolMessage] = []
        for message in told:
            if isinstance(message, ToolMessage):
                answers.append(message)
                continue
            yield from self._answered(answers)
            answers = []
            said = self._assistant_blocks(message) if isinstance(message, AssistantMessage) else _texts(message.text)
            if said:  # the API refuses a message without content
                yield {"role": "assistant" if isinstance(message, AssistantMessage) else "user", "content": said}
        yield from self._answered(answers)

    def _assistant_blocks(self, message: AssistantMessage) -> list[Json]:
        native = _native(message)
        if native:
            self._ids = {}
            self._known |= {call.id for call in read_calls(native)}
            return [dict(block) for block in native]
        self._ids = {call.id: self._new_id(call.id) for call in message.calls}
        calls = [
            {
                "type": "tool_use",
                "id": self._ids[call.id],
                "name": _NOT_IN_NAMES.sub("_", call.name)[:_LONGEST_NAME] or "_",
                "input": _object(call.arguments),
            }
            for call in message.calls
        ]
        return [*_texts(message.text), *calls]

    def _new_id(self, wanted: str) -> str:
        """Return `wanted` if the API accepts it. Other vendors use other characters, or number the calls of each
        turn."""
        found = wanted
        if not _ID.fullmatch(wanted) or wanted in self._known:
            found = f"call_{len(self._known)}"
            while found in self._known:
                found += "_"
        self._known.add(found)
        return found

    def _answered(self, answers: Sequence[ToolMessage]) -> Iterator[Json]:
        """Write the answers of one turn. The API requires them in one message, before all other content."""
        if answers:
            results = [self._result(answer) for answer in answers]
            after = [text for answer in answers if self._references(answer) for text in _texts(answer.content)]
            yield {"role": "user", "content": [*results, *after]}

    def _result(self, answer: ToolMessage) -> Json:
        result: Json = {"type": "tool_result", "tool_use_id": self._ids.get(answer.call_id, answer.call_id)}
        if references := self._references(answer):
            return {**result, "content": references}
        if answer.is_error:
            # The API requires a text for an error.
            return {**result, "content": _texts(answer.content) or _texts("It failed."), "is_error": True}
        return {**result, "content": texts} if (texts := _texts(answer.content)) else result

    def _references(self, answer: ToolMessage) -> list[Json]:
        names = dict.fromkeys(tool.name for tool in answer.revealed if tool.name in self._deferred)
        return [] if answer.is_error else [{"type": "tool_reference", "tool_name": name} for name in names]


def _texts(text: str) -> list[Json]:
    """Convert a text to blocks. Empty for a blank text, because the API refuses it."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _native(message: AssistantMessage) -> Sequence[Mapping[str, Any]]:
    return message.native_in(NAME) or ()


def _object(arguments: Any) -> Json:
    """Convert arguments to an object, the only form that the API accepts. Invalid or truncated text is wrapped."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    return cast(Json, value) if isinstance(value, dict) else {"malformed": arguments}


def read_calls(content: Iterable[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """Return the calls among the content blocks of an answer."""
    return tuple(
        ToolCall(block["id"], block["name"], _text(block["input"])) for block in content if block["type"] == "tool_use"
    )


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def read_message(content: Sequence[Mapping[str, Any]]) -> AssistantMessage:
    """Convert an answer to a message. All content blocks are kept, so that the thoughts can be sent back."""
    said = "".join(block["text"] for block in content if block["type"] == "text")
    kept = [_kept(block) for block in content if block["type"] != "text" or block["text"].strip()]
    while kept and is_thought(kept[-1]):
        # A message must not end with thoughts. This happens if the model was cut off in its thoughts.
        del kept[-1]
    return AssistantMessage(said, read_calls(content), {NAME: kept} if kept else None)


def _kept(block: Mapping[str, Any]) -> Json:
    return {**block, "input": _object(block["input"])} if block["type"] == "tool_use" else dict(block)


def is_thought(block: Mapping[str, Any]) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def thoughts(message: AssistantMessage) -> list[Mapping[str, Any]]:
    """Return the thoughts of the model, in a message that `read_message` made."""
    return [block for block in _native(message) if is_thought(block)]


def read_turn(answer: Mapping[str, Any]) -> ModelTurn:
    """Convert a whole message of the API to a turn."""
    stop = _STOPS.get(answer["stop_reason"])
    message = read_message(answer["content"])
    if stop is Stop.REFUSED:
        # The calls and thoughts before the refusal must not be run or continued.
        why: Mapping[str, Any] = answer.get("stop_details") or {}
        message = AssistantMessage(message.text or why.get("explanation") or "")
    return ModelTurn(message, stop or (Stop.CALLS if message.calls else Stop.END), _usage(answer.get("usage") or {}))


def _usage(told: Mapping[str, Any]) -> Usage:
    """The API counts uncached input, cache reads and cache writes separately."""
    cached = told.get("cache_read_input_tokens") or 0
    read = (told.get("input_tokens") or 0) + (told.get("cache_creation_input_tokens") or 0) + cached
    return Usage(read, told.get("output_tokens") or 0, cached)


def text_of(event: Mapping[str, Any]) -> str:
    """Return the piece of text in one event of a stream."""
    delta: Mapping[str, Any] = event.get("delta") or {}
    return delta.get("text", "") if delta.get("type") == "text_delta" else ""


def joined(events: Iterable[Mapping[str, Any]]) -> Json:
    """Join the events of a stream to a message. Its `stop_reason` is None if the stream was interrupted.

    The `input` of a call is the text that the model wrote, whether it is valid JSON or not.
    """
    answer: Json = {"stop_reason": None, "usage": {}}
    blocks: dict[int, Json] = {}
    pieces: dict[tuple[int, str], list[str]] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                answer["usage"] |= event["message"].get("usage") or {}
            case "content_block_start":
                blocks[event["index"]] = _begun(event["content_block"])
            case "content_block_delta":
                delta = event["delta"]
                if part := _PARTS.get(delta["type"]):
                    pieces.setdefault((event["index"], part[0]), []).append(delta[part[1]])
            case "message_delta":
                answer |= event["delta"]
                # These counts are totals, not increments.
                answer["usage"] |= {key: count for key, count in event["usage"].items() if count is not None}
            case _:
                pass
    for (index, key), added in pieces.items():
        blocks[index][key] = "".join((blocks[index].get(key) or "", *added))
    return {**answer, "content": list(blocks.values())}


def _begun(block: Mapping[str, Any]) -> Json:
    return {**block, "input": ""} if block["type"] == "tool_use" else dict(block)
