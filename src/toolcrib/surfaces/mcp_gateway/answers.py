"""Answers of sources, kept complete on their way through the SDK, which drops unknown fields."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult

from toolcrib.surfaces.mcp_gateway.connections import Ctx

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
