"""Rewrites the URIs of resources in a source's answers, so that clients can read the resources through Toolcrib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.core.names import resource_uri

_DIRECT = ("http://", "https://")
"""URIs that a client fetches itself. Source: MCP 2026-07-28, "Resources", common URI schemes."""


def under_catalog_names(entry: SourceEntry, wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result of `tools/call`, `prompts/get` or `resources/read` with the URIs that the catalog uses."""
    if entry.plain_names:
        return wire
    named = dict(wire)
    if isinstance(wire.get("content"), list):
        named["content"] = [_block(entry, block) for block in wire["content"]]
    if isinstance(wire.get("contents"), list):
        named["contents"] = [_with_uri(entry, part, direct=()) for part in wire["contents"]]
    if isinstance(wire.get("messages"), list):
        named["messages"] = [_message(entry, message) for message in wire["messages"]]
    return named if named != wire else wire  # cheap: unchanged blocks are the same objects


def _message(entry: SourceEntry, message: object) -> object:
    if not isinstance(message, dict):
        return message
    said = cast("dict[str, Any]", message)
    return {**said, "content": _block(entry, said["content"])} if "content" in said else said


def _block(entry: SourceEntry, block: object) -> object:
    match block:
        case {"type": "resource_link"}:
            return _with_uri(entry, cast("dict[str, Any]", block))
        case {"type": "resource", "resource": {}}:
            embedded = cast("dict[str, Any]", block)
            return {**embedded, "resource": _with_uri(entry, embedded["resource"])}
        case _:
            return block


def _with_uri(entry: SourceEntry, part: object, direct: tuple[str, ...] = _DIRECT) -> object:
    match part:
        case {"uri": str() as uri} if not uri.startswith(direct):
            return {**cast("dict[str, Any]", part), "uri": resource_uri(entry.name, uri)}
        case _:
            return part
