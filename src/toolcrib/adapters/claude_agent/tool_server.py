"""An MCP server in this process that offers our tools to the program. Its calls wait for the answers of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

from toolcrib.agent.conversation.messages import ToolMessage, ToolSpec
from toolcrib.agent.formats import anthropic_format

SERVER = "crib"

PREFIX = f"mcp__{SERVER}__"
"""The prefix that the program adds to the names of our tools."""

CALL_ID = "claudecode/toolUseId"
"""The key in `_meta` for the model's id of a call (program 2.1)."""

MOST_CHARS = 500_000
"""The longest answer that the program allows a tool to declare, in characters (2.1)."""


class Answers:
    """The answers that calls of the program wait for, by the model's call ids.

    Call and answer may come in any order.
    """

    def __init__(self) -> None:
        self._given: dict[str, ToolMessage] = {}
        self._arrival = anyio.Event()

    def give(self, answer: ToolMessage) -> None:
        self._given[answer.call_id] = answer
        self._arrival.set()
        self._arrival = anyio.Event()

    async def take(self, call_id: str) -> ToolMessage:
        """Wait for the answer to a call, and remove it."""
        while call_id not in self._given:
            await self._arrival.wait()
        return self._given.pop(call_id)


def serve(tools: Sequence[ToolSpec], answers: Answers) -> Server[Any]:
    """Create a server that lists `tools` and passes on answers. It runs nothing itself."""
    listed = [*_tools(tools)]

    async def list_tools(_: ServerRequestContext[Any], _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(context: ServerRequestContext[Any], _: CallToolRequestParams) -> CallToolResult:
        answer = await answers.take(str((context.meta or {}).get(CALL_ID)))
        return CallToolResult(content=[TextContent(type="text", text=answer.content)], is_error=answer.is_error)

    return Server(SERVER, on_list_tools=list_tools, on_call_tool=call_tool)


def _tools(tools: Sequence[ToolSpec]) -> Iterable[Tool]:
    meta = {"anthropic/maxResultSizeChars": MOST_CHARS}
    for tool in anthropic_format.tools(tools):
        schema = {"inputSchema": tool["input_schema"], "_meta": meta}
        yield Tool.model_validate({"name": tool["name"], "description": tool.get("description"), **schema})
