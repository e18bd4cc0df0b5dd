"""Adapts next actions to clients with only some operations, so that no next action uses an operation they lack."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.results import ToolResult
from toolcrib.operations.catalog_operations import MAX_EXPANDED
from toolcrib.operations.protocol_messages import Answer, Expansions, NodePage, SearchPage


def leading_within(
    error: ToolcribError, operations: Collection[str], otherwise: NextAction | None = None
) -> ToolcribError:
    """Return `error` with a next action from `operations`: an equivalent step, or a list of what exists.

    If none of `operations` can help, `otherwise` is the next action. Without it, `error` stays unchanged.
    """
    own = step_within(error.next_action or NextAction("list"), operations) or otherwise
    return error if own is None or own == error.next_action else error.leading_to(own)


def answer_within(
    answer: Answer | ToolResult, operations: Collection[str], otherwise: NextAction | None = None
) -> Answer | ToolResult:
    """Return `answer` with all next actions of its errors and its suggestion from `operations`, or `otherwise`."""
    if isinstance(answer, SearchPage | NodePage) and (told := answer.suggestion) is not None:
        own = step_within(told.next_action, operations) or otherwise or told.next_action
        return replace(answer, suggestion=replace(told, next_action=own))
    if not isinstance(answer, Expansions):
        return answer
    errors = {asked: leading_within(error, operations, otherwise) for asked, error in answer.errors.items()}
    return replace(answer, errors=errors)


def step_within(step: NextAction, operations: Collection[str]) -> NextAction | None:
    """Return `step`, or the closest step that only needs `operations`; None if none of them can help."""
    if step.operation in operations:
        return step
    return next((other for other in _instead(step) if other.operation in operations), None)


def _instead(step: NextAction) -> Iterator[NextAction]:
    """Yield steps that can replace `step`, closest first. The last ones look at the whole catalog."""
    asked = step.arguments
    path, query = _path_of(asked), asked.get("query")
    narrowed = {key: asked[key] for key in ("query", "tags", "limit") if asked.get(key)}
    match step.operation:
        case "call_tool" | "call_read_only_tool":
            yield NextAction("call_tool", asked)
        case "expand_tool":
            named = asked.get("tool_id") or " ".join(map(str, asked.get("tool_ids", ())))
            query = _words(named)
            # This is the only other operation that shows the arguments of a tool.
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
    # These two find nothing without words, so use any words that the request has.
    yield NextAction("search_nodes", {"query": query or _words(" ".join(path)) or "tools"})
    yield NextAction("search_tool_by_category", {"query": query or "tools", "category_path": []})


def _path_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the path in the arguments of an operation; empty for the root."""
    given = next((arguments[key] for key in ("path", "category", "category_path") if arguments.get(key)), ())
    return [given] if isinstance(given, str) else [*given]


def _words(name: str) -> str:
    return " ".join(re.split(r"[\W_]+", name)).strip()
