"""Answers in the form that a client can read: complete results, lists by page, and errors."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, cast

import mcp_types
import orjson
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, SERVER_INFO_META_KEY

from toolcrib.core.errors import MAX_MESSAGE_CHARS, NextAction, NotFound, ToolcribError, cut
from toolcrib.sources.mcp.shapes import fits
from toolcrib.surfaces.mcp_gateway.request_context import Ctx

LISTING = NextAction("tools/list")
"""The next action of an error, for a client without an operation that shows the catalog."""

PAGE_SIZE = 100

TTL_MS = 60_000
"""How long a client may cache a page, in milliseconds. Clients are notified of changes."""

_ENVELOPE = ("resultType", "_meta")
"""The fields that the SDK sets itself. All other fields come from the source."""

_passed_on: ContextVar[list[dict[str, Any]]] = ContextVar("_passed_on")
"""Collects the source's answer to the current request, if it is to be passed on unchanged."""


def whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return `answer` from a handler so that all of its fields reach the client, also those of later protocols."""
    wire = dict(answer)
    _passed_on.get().append(wire)
    return wire


async def pass_on_whole(ctx: Ctx, call_next: CallNext) -> HandlerResult:
    """Middleware that restores the fields that the SDK dropped from an answer."""
    passed_on: list[dict[str, Any]] = []
    token = _passed_on.set(passed_on)
    try:
        shaped = await call_next(ctx)
    finally:
        _passed_on.reset(token)
    if not passed_on:
        return shaped
    envelope = cast("dict[str, Any]", shaped)
    own = {key: value for key, value in passed_on[0].items() if key not in _ENVELOPE}
    return own | {key: envelope[key] for key in _ENVELOPE if key in envelope}


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
    if fits(wire, "tools/call", protocol_version):
        return wire
    structured = wire.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        wire["structuredContent"] = {"result": structured}
    if not fits({**wire, "content": []}, "tools/call", protocol_version):
        wire = {key: wire[key] for key in ("resultType", "content", "isError") if key in wire}
        if structured is not None:
            wire["content"] = [*wire.get("content", ()), _as_text(cast(object, structured))]
    content = [
        block
        if fits({"resultType": "complete", "content": [block]}, "tools/call", protocol_version)
        else _as_text(block)
        for block in wire.get("content", ())
    ]
    return {**wire, "content": content}


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


def page_of(
    key: str,
    names: Iterable[str],
    shown: Callable[[str], Mapping[str, Any] | None],
    cursor: str | None,
    size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Return a page of a list result under `key`: `shown` of the `size` names that follow `cursor` in order.

    Names for which `shown` returns None are skipped. A cursor holds the name before the page. So names that appear or
    disappear between two requests do not shift the other names.

    Raises:
        MCPError: the cursor is invalid.
    """
    after = None if cursor is None else _name_in(cursor)
    following = sorted(name for name in names if after is None or name > after)
    page_names = following[:size]
    page: dict[str, Any] = {
        key: [definition for name in page_names if (definition := shown(name)) is not None],
        "resultType": "complete",
        "ttlMs": TTL_MS,
        "cacheScope": "private",
    }
    return {**page, "nextCursor": _cursor(page_names[-1])} if len(following) > size else page


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def _name_in(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise MCPError(INVALID_PARAMS, "Invalid cursor. Send the request again without `cursor`.") from error


def protocol_error(error: ToolcribError) -> MCPError:
    """Return the MCP error for a failed request that was not a tool call."""
    if (own := own_refusal(error)) is not None:
        return own
    code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
    return MCPError(code, cut(error.message, MAX_MESSAGE_CHARS), error.to_wire())


def own_refusal(error: ToolcribError) -> MCPError | None:
    """Return the unchanged refusal of an upstream server, or None if the server did not cause the error."""
    match error.details.get("upstream"):
        case {"code": int() as code, "message": str() as message, **rest}:
            return MCPError(code, message, rest.get("data"))
        case _:
            return None
