"""The discovery plugin: search operations as a plugin, for agents that support plugins but not Toolcrib."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.operations.briefing import operation_tools
from toolcrib.operations.next_actions import answer_within, leading_within
from toolcrib.operations.protocol_messages import Answer
from toolcrib.sources.plugins import Plugin
from toolcrib.version import VERSION

NAME = "discovery"

DESCRIPTIONS: Mapping[str, str] = {
    "search_tools": "Find tools by what they do, in plain words, or all of a category without a query. detail_level "
    "sets how much you see of each: name its id, summary what it is for, full also its argument and result schemas.",
    "list_categories": "See what kinds of tools exist before you search: the categories, their tool counts, and tool "
    "ids, the first of each on the first page.",
}
"""The operations of the plugin, with descriptions for a model that has no other operations."""


class _Performer(Protocol):
    """An object that answers operations, such as `Toolcrib`."""

    async def perform(self, name: str, arguments: Mapping[str, Any], *, context: CallContext) -> Answer | ToolResult:
        """Return the answer to an operation, given by its name and JSON arguments.

        Raises:
            ToolcribError: the operation failed.
        """
        ...


class DiscoveryPlugin(Plugin):
    """`search_tools` and `list_categories` over the catalog of a crib, for the principal of the call's context.

    These are the crib's own operations, with its policy, cursors and records. An error is an answer with `isError`,
    and its object is the result of the error's `to_wire`.

    Source: the discovery plugin.
    """

    name = NAME
    version = VERSION
    description = "Find out which tools exist, with as much detail as you need."

    def __init__(self, crib: _Performer) -> None:
        self._crib = crib

    def tools(self) -> Sequence[Tool]:
        return tuple(
            Tool(NAME, tool.name, DESCRIPTIONS[tool.name], tool.input_schema, annotations=tool.annotations)
            for tool in operation_tools([*DESCRIPTIONS])
        )

    async def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> ToolResult:
        """Return the answer of the operation as JSON text and as structured content. An error has `isError` set.

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
