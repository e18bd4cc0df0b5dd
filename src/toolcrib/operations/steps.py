"""Next actions for clients that have only some of the operations: none leads to an operation that they lack."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.handles import Handle
from toolcrib.core.results import ToolResult
from toolcrib.operations.messages import Answer, Expansions, NodePage, SearchPage
from toolcrib.operations.showing import MAX_EXPANDED

if TYPE_CHECKING:
    from toolcrib.agent.conversation.events import Offer

MAX_NAMED = 20
"""Tools that an error names of those that a model has; it has their list besides."""


def leading_within(
    error: ToolcribError, operations: Collection[str], otherwise: NextAction | None = None
) -> ToolcribError:
    """`error` with a next action among `operations`: the same step in other words, or a look at what there is.

    `otherwise` is the next action where none of them can lead on. Without it `error` stays as it is then.
    """
    own = step_within(error.next_action or NextAction("list"), operations) or otherwise
    return error if own is None or own == error.next_action else error.leading_to(own)


def answer_within(
    answer: Answer | ToolResult, operations: Collection[str], otherwise: NextAction | None = None
) -> Answer | ToolResult:
    """`answer`, where the errors in it, or what it suggests, lead to nothing but `operations`, or `otherwise`."""
    if isinstance(answer, SearchPage | NodePage) and (told := answer.suggestion) is not None:
        own = step_within(told.next_action, operations) or otherwise or told.next_action
        return replace(answer, suggestion=replace(told, next_action=own))
    if not isinstance(answer, Expansions):
        return answer
    errors = {asked: leading_within(error, operations, otherwise) for asked, error in answer.errors.items()}
    return replace(answer, errors=errors)


def error_within(error: ToolcribError, offered: Mapping[str, Offer]) -> dict[str, Any]:
    """The object of `error`, leading to nothing but what a model has: a tool that has a name is called by that."""
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
        wire["error"]["hints"] = [*wire["error"].get("hints", ()), f"You have: {_named(offered)}."]
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


def step_within(step: NextAction, operations: Collection[str]) -> NextAction | None:
    """`step`, or what comes closest to it among `operations`; None where none of them can lead on."""
    if step.operation in operations:
        return step
    return next((other for other in _instead(step) if other.operation in operations), None)


def _instead(step: NextAction) -> Iterator[NextAction]:
    """Steps that do for `step`, the closest first; in the end those that look at the whole catalog."""
    asked = step.arguments
    path, query = _path_of(asked), asked.get("query")
    narrowed = {key: asked[key] for key in ("query", "tags", "limit") if asked.get(key)}
    match step.operation:
        case "call_tool" | "call_read_only_tool":
            yield NextAction("call_tool", asked)
        case "expand_tool":
            named = asked.get("tool_id") or " ".join(map(str, asked.get("tool_ids", ())))
            query = _words(named)
            # The only other operation that shows what a tool takes.
            yield NextAction("search_tools", {"query": query, "detail_level": "full", "limit": MAX_EXPANDED})
        case "list" if not (path or query or asked.get("tags")):
            yield NextAction("list_categories")
        case _:
            pass
    if query:
        yield NextAction("search_tools", {**narrowed, "query": query} | ({"category": path} if path else {}))
        yield NextAction("search_tool_by_category", {"query": query, "category_path": path})
        yield NextAction("list", {**narrowed, "query": query} | ({"path": path} if path else {}))
        yield NextAction("search_nodes", {"query": query})
    if path:
        yield NextAction("list", {"path": path})
        yield NextAction("search_tools", {"category": path})
        yield NextAction("search_tool_by_category", {"query": _words(" ".join(path)), "category_path": path})
    yield NextAction("list")
    yield NextAction("list_categories")
    yield NextAction("search_tools")
    # These find nothing without words, so they get the only ones there are.
    yield NextAction("search_nodes", {"query": query or _words(" ".join(path)) or "tools"})
    yield NextAction("search_tool_by_category", {"query": query or "tools", "category_path": []})


def _path_of(arguments: Mapping[str, Any]) -> list[str]:
    """The node that the arguments of an operation are about; empty for the root."""
    given = next((arguments[key] for key in ("path", "category", "category_path") if arguments.get(key)), ())
    return [given] if isinstance(given, str) else [*given]


def _words(name: str) -> str:
    return " ".join(re.split(r"[\W_]+", name)).strip()
