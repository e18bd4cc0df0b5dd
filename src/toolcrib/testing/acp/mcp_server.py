"""Runs a server of the MCP SDK for a fake editor, which exchanges plain messages with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import mcp_types as types
from acp import RequestError
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from toolcrib.testing.acp.tools import Answer, result_of


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a simple MCP server. Without an answer it returns its arguments."""

    answer: Answer = None
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})


SimpleTool: TypeAlias = McpTool | Callable[[Mapping[str, Any]], Any]
"""A function is the answer of a tool that accepts any arguments."""


class RunningServer:
    """A running server of the SDK, with methods to exchange messages."""

    def __init__(
        self,
        server: Server[Any],
        said: Callable[[str, Any], Awaitable[None]],
        asked: Callable[[str, Any], Awaitable[Any]],
    ) -> None:
        self._server = server
        self._said = said
        self._asked = asked
        self._numbers = count(1)
        self._waiting: dict[int | str, asyncio.Future[types.JSONRPCResponse | types.JSONRPCError]] = {}
        self._to_server: asyncio.Queue[types.JSONRPCMessage] = asyncio.Queue()
        self._questions: set[asyncio.Task[None]] = set()
        self._serving = asyncio.create_task(self._serve())

    async def request(self, method: str, params: Any) -> types.JSONRPCResponse | types.JSONRPCError:
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._to_server.put_nowait(types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params))
        try:
            return await answered
        except asyncio.CancelledError:
            await self.notify("notifications/cancelled", {"requestId": number})
            raise
        finally:
            del self._waiting[number]

    async def notify(self, method: str, params: Any) -> None:
        self._to_server.put_nowait(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params))

    async def close(self) -> None:
        for task in (self._serving, *self._questions):
            task.cancel()
        await asyncio.gather(self._serving, *self._questions, return_exceptions=True)

    async def _serve(self) -> None:
        try:
            async with _running(self._server) as (read, write):
                sending = asyncio.create_task(self._send(write))
                try:
                    async for message in read:
                        if isinstance(message, SessionMessage):
                            await self._heard(message.message)
                finally:
                    sending.cancel()
        finally:
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(RequestError.internal_error({"details": "The MCP server has ended."}))

    async def _send(self, write: Any) -> None:
        while True:
            await write.send(SessionMessage(await self._to_server.get()))

    async def _heard(self, message: types.JSONRPCMessage) -> None:
        match message:
            case types.JSONRPCNotification():
                await self._said(message.method, message.params)
            case types.JSONRPCRequest():
                task = asyncio.create_task(self._question(message))
                self._questions.add(task)
                task.add_done_callback(self._questions.discard)
            case types.JSONRPCResponse() | types.JSONRPCError():
                answered = self._waiting.get(message.id) if message.id is not None else None
                if answered is not None and not answered.done():
                    answered.set_result(message)

    async def _question(self, asked: types.JSONRPCRequest) -> None:
        try:
            result = await self._asked(asked.method, asked.params)
            answer: types.JSONRPCMessage = types.JSONRPCResponse(jsonrpc="2.0", id=asked.id, result=result)
        except RequestError as refused:
            error = types.ErrorData(code=refused.code, message=str(refused), data=refused.data)
            answer = types.JSONRPCError(jsonrpc="2.0", id=asked.id, error=error)
        self._to_server.put_nowait(answer)


@asynccontextmanager
async def _running(server: Server[Any]) -> AsyncGenerator[tuple[Any, Any]]:
    async with create_client_server_memory_streams() as ((client_read, client_write), (server_read, server_write)):
        running = asyncio.create_task(server.run(server_read, server_write, server.create_initialization_options()))
        try:
            yield client_read, client_write
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def simple_server(name: str, served: Mapping[str, SimpleTool]) -> Server[Any]:
    """Create a server with these tools, by name."""
    tools = {name: tool if isinstance(tool, McpTool) else McpTool(tool) for name, tool in served.items()}

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=tool.description or None, input_schema=dict(tool.input_schema))
                for name, tool in tools.items()
            ]
        )

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name not in tools:
            raise ValueError(f"Tool `{params.name}` not found.")
        answer = tools[params.name].answer
        result = await result_of(arguments if answer is None else answer, arguments)
        return types.CallToolResult.model_validate(result)

    return Server(name, version="1", on_list_tools=list_tools, on_call_tool=call_tool)
