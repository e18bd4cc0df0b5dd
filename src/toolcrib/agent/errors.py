"""Formats errors for a model. The next action only names tools that the model has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from toolcrib.agent.conversation.events import Offer
from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.handles import Handle
from toolcrib.operations.steps import leading_within

MAX_NAMED = 20
"""How many of a model's tools an error lists. The model has the whole list anyway."""


def error_within(error: ToolcribError, offered: Mapping[str, Offer]) -> dict[str, Any]:
    """Return the object of `error`. Its next action only names tools that the model has, by the model's names."""
    operations = {name for name, offer in offered.items() if offer.handle is None}
    match error.next_action:
        case NextAction("call_tool", {"tool_id": str() as handle, **rest}):
            name = _name_of(handle, offered)
        case _:
            name, rest = None, dict[str, Any]()
    if name is not None:
        wire = error.to_wire()
        wire["error"]["next_action"] = {"operation": name, "arguments": rest.get("arguments", {})}
        return wire
    error = leading_within(error, operations)
    wire = error.to_wire()
    if error.next_action is not None and error.next_action.operation not in operations:
        del wire["error"]["next_action"]
        wire["error"]["hints"] = [*wire["error"].get("hints", ()), f"Your tools are: {_named(offered)}."]
    return wire


def _named(offered: Collection[str]) -> str:
    names = [*offered]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}" if names else "no tools"


def _name_of(handle: str, offered: Mapping[str, Offer]) -> str | None:
    """Return the name of the tool with this handle. The handle may have a different trace."""
    meant = Handle.parse(handle)
    for name, offer in offered.items():
        shown = Handle.parse(offer.handle) if offer.handle is not None else None
        if meant is not None and shown is not None and (shown.tool_id, shown.digest) == (meant.tool_id, meant.digest):
            return name
    return None
