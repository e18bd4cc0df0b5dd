"""Tells apart the answers to a call: a result, a result of the first protocol version, or a request for input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import mcp_types
from pydantic import ValidationError


def is_result(wire: Mapping[str, Any]) -> bool:
    """Return whether a client could read `wire` as the result of a tool."""
    content = wire.get("content", [])
    return isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[object]", content))


def unwrapped(wire: dict[str, Any]) -> dict[str, Any]:
    """Convert an answer of the first protocol version, which some servers still send, to the current form."""
    match wire:
        case {"toolResult": {"content": list()} as result} if "content" not in wire:
            return cast("dict[str, Any]", result)
        case {"toolResult": result} if "content" not in wire:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
            return {**wire, "content": [{"type": "text", "text": text}]}
        case _:
            return wire


def asks_oddly(wire: Mapping[str, Any]) -> bool:
    """Return whether `wire` asks for input in a form that the protocol does not allow."""
    if wire.get("resultType") != "input_required":
        return False
    try:
        mcp_types.InputRequiredResult.model_validate(wire, by_name=False)
    except ValidationError:
        return True
    return False
