"""Next actions for whoever was given only some of the operations: none leads to one that it does not have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from toolcrib.core.errors import NextAction, ToolcribError
from toolcrib.core.results import ToolResult
from toolcrib.disclosure.messages import Answer, Expansions, SearchPage


def leading_within(error: ToolcribError, operations: Collection[str]) -> ToolcribError:
    """`error` with a next action among `operations`.

    In the place of `list`, which `list_categories` stands for at the top and a search without words below it.
    """
    if (step := error.next_action) is None or (own := _within(step, operations)) is step:
        return error
    return error.leading_to(own)


def answer_within(answer: Answer | ToolResult, operations: Collection[str]) -> Answer | ToolResult:
    """`answer`, where the errors in it, or what it suggests, lead to nothing but `operations`."""
    if isinstance(answer, SearchPage) and (told := answer.suggestion) is not None:
        return replace(answer, suggestion=replace(told, next_action=_within(told.next_action, operations)))
    if not isinstance(answer, Expansions):
        return answer
    errors = {asked: leading_within(error, operations) for asked, error in answer.errors.items()}
    return replace(answer, errors=errors)


def _within(step: NextAction, operations: Collection[str]) -> NextAction:
    if step.operation != "list" or "list" in operations or "list_categories" not in operations:
        return step
    if (path := step.arguments.get("path")) and "search_tools" in operations:
        return NextAction("search_tools", {"category": path})
    return NextAction("list_categories")
