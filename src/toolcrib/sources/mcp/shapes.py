"""Checks the form of what servers send: results, definitions, and the three kinds of answers to a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast, get_args

import mcp_types
from mcp_types import methods as surfaces
from pydantic import BaseModel, ValidationError

LIST_KEYS: Mapping[str, str] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""The key of a result under which its definitions are listed, by method."""


def fits(wire: Mapping[str, Any], method: str, version: str) -> bool:
    """Return whether `wire` is a complete result of `method` in the protocol `version`. Additional fields are
    allowed."""
    # In the newer era the SDK's own check accepts nearly everything as a request for more input, so that alternative is
    # left out.
    model = surfaces.SERVER_RESULTS[method, version]  # pyright: ignore[reportArgumentType]
    complete = cast("type[BaseModel]", get_args(model)[0] if get_args(model) else model)
    try:
        complete.model_validate({"resultType": "complete", **wire}, by_name=False)
    except ValidationError:
        return False
    return True


def is_definition(wire: object, method: str, version: str) -> bool:
    """Return whether `wire` can be a definition in the result of `method`, one of `LIST_KEYS`, in the protocol
    `version`."""
    return fits({LIST_KEYS[method]: [wire], "ttlMs": 0, "cacheScope": "private"}, method, version)


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
