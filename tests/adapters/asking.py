"""Requests to adapters, and helpers to check their failures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import pytest

from toolcrib.agent.conversation.messages import Message, ModelRequest, ModelTurn, ToolMessage, ToolSpec, UserMessage
from toolcrib.agent.loop.provider import Responder
from toolcrib.agent.sections import READ_SECTION
from toolcrib.core.errors import ProviderFailed
from toolcrib.testing.vendors.server import VendorServer

ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
READ = ToolSpec(READ_SECTION.name, READ_SECTION.description, READ_SECTION.input_schema)
HELLO = UserMessage("Hello")


def asked(
    *messages: Message,
    tools: Sequence[ToolSpec] = (ADD,),
    system: str = "Be brief.",
    output_schema: Mapping[str, Any] | None = None,
) -> ModelRequest:
    return ModelRequest(system, tuple(tools), messages or (HELLO,), output_schema)


def answered(turn: ModelTurn, *revealed: ToolSpec) -> tuple[Message, ...]:
    """Return the turn's message and an answer to each call; reading a section reveals tools."""
    return turn.message, *(
        ToolMessage(call.id, call.name, f"Did {call.name}.", revealed=revealed if call.name == READ.name else ())
        for call in turn.message.calls
    )


def ignore_text(_: str) -> None:
    """Ignore streamed text."""


async def failure(adapter: Responder, request: ModelRequest, *, streamed: bool = False) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as failed:
        await adapter.respond(request, ignore_text if streamed else None)
    return failed.value


def connections(server: VendorServer) -> int:
    """Count the connections of this process to a server."""
    port = int(server.url.rpartition(":")[2])
    held = psutil.Process().net_connections("tcp")
    return sum(bool(each.raddr) and each.raddr[1] == port for each in held)


def is_prefix(shorter: Sequence[Any], longer: Sequence[Any]) -> bool:
    """Compare item by item, as JSON."""
    return [json.dumps(item) for item in shorter] == [json.dumps(item) for item in longer[: len(shorter)]]
