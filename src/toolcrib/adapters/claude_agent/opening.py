"""The first request to a new program, which contains the conversation so far."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from toolcrib.agent.conversation.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

MAX_CHARS = 400_000
"""The maximum length of the conversation in the request, in characters. The oldest messages are left out."""

MAX_ENTRY_CHARS = 50_000
"""The maximum length of one message or result in it, in characters."""

BEFORE = """\
The conversation so far, oldest first, as one JSON object per line. The calls in it were already made, and these are \
their results: do not repeat them."""

GO_ON = "Continue from here with the user's last request."


def opening(messages: Sequence[Message]) -> str:
    """Return `messages` as one prompt for a program that has seen none of them.

    The latest user message is unchanged.
    """
    asked = messages[-1] if messages else None
    now = asked.text if isinstance(asked, UserMessage) else GO_ON
    before = messages[:-1] if isinstance(asked, UserMessage) else messages
    lines = _fitting([json.dumps(each, ensure_ascii=False) for each in _entries(before)])
    return "\n\n".join((BEFORE, "\n".join(lines), now)) if lines else now


def _entries(messages: Iterable[Message]) -> Iterable[dict[str, Any]]:
    calls: dict[str, ToolCall] = {}
    for message in messages:
        match message:
            case UserMessage(text):
                yield {"user": _cut(text)}
            case AssistantMessage(text):
                calls = {call.id: call for call in message.calls}
                if text:
                    yield {"assistant": _cut(text)}
            case ToolMessage(call_id):
                arguments = calls[call_id].arguments if call_id in calls else ""
                told = {"call": message.name, "arguments": _cut(arguments), "answer": _cut(message.content)}
                yield {**told, "failed": True} if message.is_error else told


def _cut(text: str) -> str:
    left_out = len(text) - MAX_ENTRY_CHARS
    return text if left_out <= 0 else f"{text[:MAX_ENTRY_CHARS]}\n[{left_out:,} more characters were left out]"


def _fitting(lines: Sequence[str]) -> Sequence[str]:
    """Return as many of the last lines as fit."""
    kept = len(lines)
    left = MAX_CHARS
    while kept and len(lines[kept - 1]) <= left:
        kept -= 1
        left -= len(lines[kept])
    return lines if not kept else [f"[{kept:,} earlier lines were left out]", *lines[kept:]]
