"""Our tools as the program sees them: a server in this process, whose calls wait for the answers of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

from toolcrib.agent.conversation.messages import ToolMessage, ToolSpec
from toolcrib.agent.formats import anthropic

SERVER = "crib"

PREFIX = f"mcp__{SERVER}__"
"""Of the names that the program makes of ours."""

CALL_ID = "claudecode/toolUseId"
"""Where a call says which of the model's calls it is (program 2.1)."""

MOST_CHARS = 500_000
"""In an answer that the program lets through, where a tool asks for that; more it does not grant (2.1)."""


class Answers:
    """What calls of the program wait for, by the model's ids of them; either may come first."""

    def __init__(self) -> None:
        self._given: dict[str, ToolMessage] = {}
        self._arrival = anyio.Event()

    def give(self, answer: ToolMessage) -> None:
        self._given[answer.call_id] = answer
        self._arrival.set()
        self._arrival = anyio.Event()

    async def take(self, call_id: str) -> ToolMessage:
        """Wait for an answer; nobody else gets it."""
        while call_id not in self._given:
            await self._arrival.wait()
        return self._given.pop(call_id)


def serve(tools: Sequence[ToolSpec], answers: Answers) -> Server[Any]:
    """A server of `tools` that runs nothing itself."""
    listed = [*_tools(tools)]

    async def list_tools(_: ServerRequestContext[Any], _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(context: ServerRequestContext[Any], _: CallToolRequestParams) -> CallToolResult:
        answer = await answers.take(str((context.meta or {}).get(CALL_ID)))
        return CallToolResult(content=[TextContent(type="text", text=answer.content)], is_error=answer.is_error)

    return Server(SERVER, on_list_tools=list_tools, on_call_tool=call_tool)


def _tools(tools: Sequence[ToolSpec]) -> Iterable[Tool]:
    meta = {"anthropic/maxResultSizeChars": MOST_CHARS}
    for tool in anthropic.tools(tools):
        schema = {"inputSchema": tool["input_schema"], "_meta": meta}
        yield Tool.model_validate({"name": tool["name"], "description": tool.get("description"), **schema})
