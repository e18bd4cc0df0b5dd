"""Next actions for whoever was given only some of what there is: none leads to what it does not have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.handles import Handle
from toolcrib.core.results import ToolResult
from toolcrib.disclosure.messages import Answer, Expansions, NodePage, SearchPage

if TYPE_CHECKING:
    from toolcrib.conversation.events import Offer

MAX_NAMED = 20
"""Tools that an error names of those that a model has; it has their list besides."""


def leading_within(error: ToolcribError, operations: Collection[str]) -> ToolcribError:
    """`error` with a next action among `operations`.

    In the place of `list`, which `list_categories` stands for at the top and a search without words below it.
    """
    if (step := error.next_action) is None or (own := _within(step, operations)) is step:
        return error
    return error.leading_to(own)


def answer_within(answer: Answer | ToolResult, operations: Collection[str]) -> Answer | ToolResult:
    """`answer`, where the errors in it, or what it suggests, lead to nothing but `operations`."""
    if isinstance(answer, SearchPage | NodePage) and (told := answer.suggestion) is not None:
        return replace(answer, suggestion=replace(told, next_action=_within(told.next_action, operations)))
    if not isinstance(answer, Expansions):
        return answer
    errors = {asked: leading_within(error, operations) for asked, error in answer.errors.items()}
    return replace(answer, errors=errors)


def error_within(error: ToolcribError, offered: Mapping[str, Offer]) -> dict[str, Any]:
    """The object of `error`, leading to nothing but what a model has: a tool that has a name is called by that."""
    operations = {name for name, offer in offered.items() if offer.handle is None}
    error = leading_within(error, operations)
    wire = error.to_wire()
    match error.next_action:
        case NextAction("call_tool", {"tool_id": str() as handle, "arguments": arguments}):
            name = _name_of(handle, offered)
        case _:
            name, arguments = None, None
    if name is not None:
        wire["error"]["next_action"] = {"operation": name, "arguments": arguments}
    elif error.next_action is not None and error.next_action.operation not in operations:
        del wire["error"]["next_action"]
        wire["error"]["hints"] = [*error.hints, f"You have: {_named(offered)}."]
    return wire


def _named(offered: Collection[str]) -> str:
    names = [*offered]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}" if names else "no tools"


def _name_of(handle: str, offered: Mapping[str, Offer]) -> str | None:
    """Under which name a tool is called; its handle may hold another trace."""
    meant = Handle.parse(handle)
    for name, offer in offered.items():
        shown = Handle.parse(offer.handle) if offer.handle is not None else None
        if meant is not None and shown is not None and (shown.tool_id, shown.digest) == (meant.tool_id, meant.digest):
            return name
    return None


def _within(step: NextAction, operations: Collection[str]) -> NextAction:
    if step.operation != "list" or "list" in operations or "list_categories" not in operations:
        return step
    if (path := step.arguments.get("path")) and "search_tools" in operations:
        return NextAction("search_tools", {"category": path})
    return NextAction("list_categories")
