"""What a new program is started with: isolated settings, and a first request with the conversation so far.

The program ignores the user's own settings, and connects only to the API.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcrib.agent.conversation.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from toolcrib.agent.loop.provider import InnerLoopConfig

CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

MAX_CALL_MS = 7 * 24 * 3600 * 1000
"""The program's own time limit for a call, in milliseconds. It is high, because the loop limits calls."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """The arguments of an adapter."""

    model: str
    api_key: str | None
    base_url: str | None
    cwd: Path | None
    env: Mapping[str, str]
    program: Path | None

    def environment(self, folder: Path, config: InnerLoopConfig) -> dict[str, str]:
        """Return the variables that are added to this process's environment. `folder` belongs to the program alone."""
        set_here = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Turns are only read from the stream.
            "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(config.retries),
            "ENABLE_TOOL_SEARCH": "false",
            "MAX_STRUCTURED_OUTPUT_RETRIES": str(config.repair_turns + 1),
            "MCP_TOOL_TIMEOUT": str(MAX_CALL_MS),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        if self.api_key is not None:
            # The program would prefer a token that it finds in the environment.
            set_here |= {"ANTHROPIC_API_KEY": self.api_key, "ANTHROPIC_AUTH_TOKEN": ""}
        if self.base_url is not None:
            set_here["ANTHROPIC_BASE_URL"] = self.base_url
        known = {**os.environ, **set_here, **self.env}
        if any(known.get(name) for name in CREDENTIALS):
            # Without credentials, the default folder is kept, because it contains the login.
            set_here["CLAUDE_CONFIG_DIR"] = str(folder / "config")
        return {**set_here, **self.env}


MAX_CHARS = 400_000
"""The maximum length of the conversation in the request, in characters. The oldest messages are left out."""

MAX_ENTRY_CHARS = 50_000
"""The maximum length of one message or result in it, in characters."""

BEFORE = """\
The conversation so far, oldest first, as one JSON object per line. The calls in it were already made, and these are \
their results: do not repeat them."""

GO_ON = "Continue from here with the user's last request."


def first_request(messages: Sequence[Message]) -> str:
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
