"""What a server answered to a call, told apart: a result, one of the first protocol's, a request for more input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import mcp_types
from pydantic import ValidationError


def is_result(wire: Mapping[str, Any]) -> bool:
    """Whether a client could read it as what a tool gave."""
    content = wire.get("content", [])
    return isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[object]", content))


def unwrapped(wire: dict[str, Any]) -> dict[str, Any]:
    """An answer of the first version of the protocol, which some servers still give, as later ones have it."""
    match wire:
        case {"toolResult": {"content": list()} as result} if "content" not in wire:
            return cast("dict[str, Any]", result)
        case {"toolResult": result} if "content" not in wire:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
            return {**wire, "content": [{"type": "text", "text": text}]}
        case _:
            return wire


def asks_oddly(wire: Mapping[str, Any]) -> bool:
    """Whether it asks for more input in a form that the protocol does not have."""
    if wire.get("resultType") != "input_required":
        return False
    try:
        mcp_types.InputRequiredResult.model_validate(wire, by_name=False)
    except ValidationError:
        return True
    return False
