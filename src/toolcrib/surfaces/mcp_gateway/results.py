"""An upstream's answer made to fit the protocol version its reader speaks, with nothing of it lost."""

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
"""The next action of an error for a client that has no operation to look at the catalog with."""


def fitted(result: Mapping[str, Any], protocol_version: str) -> dict[str, Any]:
    """`result`, an answer to `tools/call`, as `protocol_version` has it.

    What that version has no form for (a kind of content it does not know, structured content that is no object) is
    carried as text.
    """
    wire: dict[str, Any] = {"resultType": "complete", **result}  # servers of the older era leave it out
    if isinstance(wire.get("_meta"), dict):  # who answers is the gateway, not the server it asked
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
    """One JSON object as an answer to `tools/call`, for the model as text and for programs as structured content."""
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=json_text(value))],
        structured_content=dict(value),
        is_error=is_error,
    )


def json_text(value: object) -> str:
    """`value` as compact JSON, integers beyond 64 bits included."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _as_text(value: object) -> dict[str, Any]:
    return {"type": "text", "text": json_text(value)}
