"""Answers of sources on their way through the SDK, which lets through only the fields that it knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult

from toolcrib.surfaces.mcp_gateway.connections import Ctx

_ENVELOPE = ("resultType", "_meta")
"""What the SDK says of an answer; everything else is the source's."""

_passed_on: ContextVar[list[dict[str, Any]]] = ContextVar("_passed_on")
"""Takes the source's answer to the request that is being handled, if it is one to pass on."""


def whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What a handler returns to have all of `answer` reach the client, fields of a later protocol included."""
    wire = dict(answer)
    _passed_on.get().append(wire)
    return wire


async def pass_on_whole(ctx: Ctx, call_next: CallNext) -> HandlerResult:
    """Middleware that gives back to an answer the fields that the SDK took."""
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
