"""The discovery plugin: finding tools, as a plugin for agents that take plugins and know nothing of Toolcrib."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.operations.messages import Answer
from toolcrib.operations.steps import answer_within, leading_within
from toolcrib.operations.tools import operation_tools
from toolcrib.sources.plugins import Plugin
from toolcrib.version import VERSION

NAME = "discovery"

DESCRIPTIONS: Mapping[str, str] = {
    "search_tools": "Find tools by what they do, in plain words, or all of a category without a query. detail_level "
    "says how much is told of each: name its id, summary what it is for, full also the schemas of what it takes and "
    "gives.",
    "list_categories": "See what kinds of tools there are before you search: the categories, how many tools each has, "
    "and their ids, the first of each on the first page.",
}
"""The operations that it has, with what a model is told of them where there are no others beside them."""


class Performer(Protocol):
    """Whoever answers operations, as `Toolcrib` does."""

    async def perform(self, name: str, arguments: Mapping[str, Any], *, context: CallContext) -> Answer | ToolResult:
        """The answer to an operation by its name and JSON arguments; raises `ToolcribError`."""
        ...


class DiscoveryPlugin(Plugin):
    """`search_tools` and `list_categories` over the catalog of a crib, on behalf of whoever a call's context names.

    They are the crib's own operations: with its policy, its cursors, its records. An error of theirs is an answer with
    `isError`, and its object is what the error's `to_wire` gives.

    Source: the discovery plugin.
    """

    name = NAME
    version = VERSION
    description = "Find out which tools there are, as much of each as is needed."

    def __init__(self, crib: Performer) -> None:
        self._crib = crib

    def tools(self) -> Sequence[Tool]:
        return tuple(
            Tool(NAME, tool.name, DESCRIPTIONS[tool.name], tool.input_schema, annotations=tool.annotations)
            for tool in operation_tools([*DESCRIPTIONS])
        )

    async def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> ToolResult:
        """What the operation answers, as JSON in a text and as structured content; an error of it as one that says so.

        Source: the discovery plugin, `execute`.
        """
        if tool_name not in DESCRIPTIONS:
            return ToolResult({"content": [_text(f"Unknown tool: {tool_name}")], "isError": True})
        try:
            answer = await self._crib.perform(tool_name, arguments, context=context)
        except ToolcribError as error:
            return _result(leading_within(error, DESCRIPTIONS).to_wire(), is_error=True)
        return _result(answer_within(answer, DESCRIPTIONS).to_wire(), is_error=False)


def _result(value: Mapping[str, Any], *, is_error: bool) -> ToolResult:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return ToolResult({"content": [_text(text)], "structuredContent": dict(value), "isError": is_error})


def _text(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}
