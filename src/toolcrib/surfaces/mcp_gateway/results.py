"""Upstream answers, converted without loss to the protocol version that the client speaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import mcp_types
import orjson
from mcp_types import SERVER_INFO_META_KEY

from toolcrib.core.errors import NextAction
from toolcrib.sources.mcp.shapes import fits

LISTING = NextAction("tools/list")
"""The next action of an error, for a client without an operation that shows the catalog."""


def fitted(result: Mapping[str, Any], protocol_version: str) -> dict[str, Any]:
    """Convert `result`, an answer to `tools/call`, to `protocol_version`.

    What that version does not support becomes text: unknown kinds of content, and structured content that is not an
    object.
    """
    wire: dict[str, Any] = {"resultType": "complete", **result}  # servers of the older era omit `resultType`
    if isinstance(wire.get("_meta"), dict):  # the client talks to the gateway, not to the upstream server
        wire["_meta"] = {key: value for key, value in wire["_meta"].items() if key != SERVER_INFO_META_KEY}
    if not isinstance(wire.get("content"), list):
        wire["content"] = [] if wire.get("content") is None else [wire["content"]]
    if _fits(wire, protocol_version):
        return wire
    structured = wire.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        wire["structuredContent"] = {"result": structured}
    if not _fits({**wire, "content": []}, protocol_version):
        wire = {key: wire[key] for key in ("resultType", "content", "isError") if key in wire}
        if structured is not None:
            wire["content"] = [*wire.get("content", ()), _as_text(cast(object, structured))]
    content = [
        block if _fits({"resultType": "complete", "content": [block]}, protocol_version) else _as_text(block)
        for block in wire.get("content", ())
    ]
    return {**wire, "content": content}


def _fits(wire: Mapping[str, Any], protocol_version: str) -> bool:
    return fits(wire, "tools/call", protocol_version)


def as_json_result(value: Mapping[str, Any], *, is_error: bool) -> mcp_types.CallToolResult:
    """Return a JSON object as an answer to `tools/call`: as text for the model, as structured content for programs."""
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=json_text(value))],
        structured_content=dict(value),
        is_error=is_error,
    )


def json_text(value: object) -> str:
    """Return `value` as compact JSON. Integers beyond 64 bits are allowed."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _as_text(value: object) -> dict[str, Any]:
    return {"type": "text", "text": json_text(value)}
