"""An upstream's answer made to fit the protocol version its reader speaks, with nothing of it lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast, get_args

import mcp_types
import orjson
from mcp_types import SERVER_INFO_META_KEY
from mcp_types import methods as surfaces
from pydantic import BaseModel, ValidationError


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


def fits(wire: Mapping[str, Any], method: str, protocol_version: str) -> bool:
    """Whether `wire` is a complete result of `method`."""
    # In the newer era the SDK's own check takes nearly everything for a request for more input, the alternative there.
    model = surfaces.SERVER_RESULTS[method, protocol_version]  # pyright: ignore[reportArgumentType]
    complete = cast("type[BaseModel]", get_args(model)[0] if get_args(model) else model)
    try:
        complete.model_validate({"resultType": "complete", **wire}, by_name=False)
    except ValidationError:
        return False
    return True


def as_json_result(value: Mapping[str, Any], *, is_error: bool) -> mcp_types.CallToolResult:
    """One JSON object as an answer to `tools/call`, for the model as text and for programs as structured content."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits in somebody's schema
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=text)], structured_content=dict(value), is_error=is_error
    )


def _as_text(value: object) -> dict[str, Any]:
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)}
