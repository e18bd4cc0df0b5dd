"""MCP servers that a fake editor serves over ACP itself, in both published forms. Written from the ACP schemas.

Source: ACP schema 1.19 (`mcp/connect`, `mcp/message`, `mcp/disconnect`) and its unstable successor, which has no
connections. Both are unstable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias, cast

import mcp_types as types
from acp import RequestError
from acp.schema import AcpMcpServer
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from toolcrib.testing.acp.editor_tools import Answer, result_of
from toolcrib.testing.acp.recorded_wire import Message, RecordedWire

McpForm: TypeAlias = Literal["connections", "requests"]
"""The form of the messages.

`connections`: schema 1.19, in which messages belong to a connection. `requests`: its successor, in which each message
names its server and its request.
"""

REQUEST_CANCELLED = -32800
SERVER_UNAVAILABLE = -33001
_UNSUPPORTED_VERSION = -32022
_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a simple MCP server. Without an answer it returns its arguments."""

    answer: Answer = None
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})


SimpleTool: TypeAlias = McpTool | Callable[[Mapping[str, Any]], Any]
"""A function is the answer of a tool that accepts any arguments."""


McpServer: TypeAlias = Server[Any] | Mapping[str, SimpleTool]
"""A server of the MCP SDK, or tools by name."""


class _RunningServer:
    """A running server of the SDK, with methods to exchange messages."""

    def __init__(
        self,
        server: Server[Any],
        notify: Callable[[str, Any], Awaitable[None]],
        ask: Callable[[str, Any], Awaitable[Any]],
    ) -> None:
        self._server = server
        self._notify = notify
        self._ask = ask
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
                            await self._take(message.message)
                finally:
                    sending.cancel()
        finally:
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(RequestError.internal_error({"details": "The MCP server has ended."}))

    async def _send(self, write: Any) -> None:
        while True:
            await write.send(SessionMessage(await self._to_server.get()))

    async def _take(self, message: types.JSONRPCMessage) -> None:
        match message:
            case types.JSONRPCNotification():
                await self._notify(message.method, message.params)
            case types.JSONRPCRequest():
                task = asyncio.create_task(self._question(message))
                self._questions.add(task)
                task.add_done_callback(self._questions.discard)
            case types.JSONRPCResponse() | types.JSONRPCError():
                answered = self._waiting.get(message.id) if message.id is not None else None
                if answered is not None and not answered.done():
                    answered.set_result(message)

    async def _question(self, request: types.JSONRPCRequest) -> None:
        try:
            result = await self._ask(request.method, request.params)
            answer: types.JSONRPCMessage = types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        except RequestError as refused:
            error = types.ErrorData(code=refused.code, message=str(refused), data=refused.data)
            answer = types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
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


class FakeMcpServers:
    """Answers an agent's `mcp/*` messages on the wire that `wire` returns.

    A server's id is `acp:` followed by its name.
    """

    def __init__(self, servers: Mapping[str, McpServer], form: McpForm, wire: Callable[[], RecordedWire]) -> None:
        self.servers = dict(servers)
        self.form: McpForm = form
        self.connections: dict[str, _RunningServer] = {}
        self._active: set[tuple[str, str]] = set()
        self._answering: dict[str | int, asyncio.Task[None]] = {}
        self._wire = wire
        self._numbers = count(1)

    def entries(self) -> list[AcpMcpServer]:
        """Return the entries for `session/new`."""
        return [AcpMcpServer(type="acp", name=name, server_id=f"acp:{name}") for name in self.servers]

    def takes(self, message: Message) -> bool:
        """Handle an `mcp/*` message, which the SDK has no route for, or the cancellation of one.

        False for other messages.
        """
        method: str = message["method"]
        params: Message = message.get("params") or {}
        if method == "$/cancel_request":
            if running := self._answering.get(params.get("requestId", "")):
                running.cancel()
        elif not method.startswith("mcp/"):
            return False
        elif "id" in message:
            task = self._wire().spawn(self._serve(message["id"], method, params))
            self._answering[message["id"]] = task
            task.add_done_callback(lambda _: self._answering.pop(message["id"], None))
        else:
            self._wire().spawn(self._notified(params))
        return True

    async def close(self) -> None:
        for connection in self.connections.values():
            await connection.close()
        self.connections.clear()

    async def _serve(self, own_id: str | int, method: str, params: Message) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": own_id}
        try:
            answer["result"] = await self._answer(method, params)
        except RequestError as error:
            answer["error"] = error.to_error_obj()
        except asyncio.CancelledError:
            answer["error"] = {"code": REQUEST_CANCELLED, "message": "Request cancelled"}
        await self._wire().send(answer)

    async def _notified(self, params: Message) -> None:
        """Pass on an agent's `mcp/message` notification, which only the form with connections has."""
        if connection := self.connections.get(params.get("connectionId", "")):
            await connection.notify(params["method"], params.get("params"))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> Any:
        """Return the result of an agent's request.

        Raises:
            RequestError: an error for the wire. In the form with connections, this includes errors of the inner server.
        """
        match (self.form, method):
            case ("connections", "mcp/connect"):
                return await self._connect(_text(params, "serverId"))
            case ("connections", "mcp/message"):
                return await self._on_connection(params)
            case ("connections", "mcp/disconnect"):
                await self._connection(params, remove=True).close()
                return {}
            case ("requests", "mcp/message"):
                return await self._on_its_own(params)
            case _:
                raise RequestError.method_not_found(method)

    async def _connect(self, server_id: str) -> dict[str, str]:
        connection_id = f"connection-{next(self._numbers)}"

        async def notify(method: str, params: Any) -> None:
            await self._notify(_envelope(params, connectionId=connection_id, method=method))

        async def ask(method: str, params: Any) -> Any:
            return await self._wire().request(
                "mcp/message", _envelope(params, connectionId=connection_id, method=method)
            )

        self.connections[connection_id] = _RunningServer(self._server(server_id), notify, ask)
        return {"connectionId": connection_id}

    async def _on_connection(self, params: Mapping[str, Any]) -> Any:
        answer = await self._connection(params).request(_text(params, "method"), params.get("params"))
        if isinstance(answer, types.JSONRPCError):
            raise RequestError(answer.error.code, answer.error.message, answer.error.data)
        return answer.result

    async def _on_its_own(self, params: Mapping[str, Any]) -> dict[str, Any]:
        server_id, request_id = _text(params, "serverId"), _text(params, "requestId")
        method, inner = _text(params, "method"), params.get("params")
        server = self._server(server_id)
        if (server_id, request_id) in self._active:
            raise RequestError.invalid_params({"details": f"The request `{request_id}` is already active."})
        if error := _envelope_error(inner):
            return {"error": error}

        async def notify(method: str, params: Any) -> None:
            await self._notify(_envelope(params, serverId=server_id, requestId=request_id, method=method))

        async def ask(method: str, _: Any) -> Any:
            raise RequestError.method_not_found(method)  # in MCP 2026-07-28 servers send no requests

        self._active.add((server_id, request_id))
        connection = _RunningServer(server, notify, ask)
        try:
            answer = await connection.request(method, inner)
        finally:
            self._active.discard((server_id, request_id))
            await connection.close()
        if isinstance(answer, types.JSONRPCError):
            return {"error": answer.error.model_dump(mode="json", exclude_none=True)}
        return {"result": answer.result}

    async def _notify(self, params: Message) -> None:
        await self._wire().send({"jsonrpc": "2.0", "method": "mcp/message", "params": params})

    def _server(self, server_id: str) -> Server[Any]:
        served = self.servers.get(server_id.removeprefix("acp:")) if server_id.startswith("acp:") else None
        if served is None:
            raise RequestError(SERVER_UNAVAILABLE, "MCP server unavailable", {"serverId": server_id})
        return served if isinstance(served, Server) else simple_server(server_id.removeprefix("acp:"), served)

    def _connection(self, params: Mapping[str, Any], *, remove: bool = False) -> _RunningServer:
        connection_id = _text(params, "connectionId")
        if connection_id not in self.connections:
            raise RequestError.invalid_params({"details": f"Connection `{connection_id}` not found."})
        return self.connections.pop(connection_id) if remove else self.connections[connection_id]


def _envelope_error(params: Any) -> dict[str, Any] | None:
    """Check that a request has its version and the caller's capabilities. Source: MCP 2026-07-28."""
    meta = cast(Mapping[str, Any], params).get("_meta") if isinstance(params, Mapping) else None
    told: Mapping[str, Any] = cast(Mapping[str, Any], meta) if isinstance(meta, Mapping) else {}
    version = told.get(f"{_META}protocolVersion")
    if not isinstance(version, str):
        return {"code": -32602, "message": f"Invalid params: missing {_META}protocolVersion in params._meta"}
    if version != _VERSION:
        data = {"supported": [_VERSION], "requested": version}
        return {"code": _UNSUPPORTED_VERSION, "message": "Unsupported protocol version", "data": data}
    if not isinstance(told.get(f"{_META}clientCapabilities"), Mapping):
        return {"code": -32602, "message": f"Invalid params: missing {_META}clientCapabilities in params._meta"}
    return None


def _envelope(params: Any, **envelope: str) -> dict[str, Any]:
    return envelope | ({} if params is None else {"params": params})


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        raise RequestError.invalid_params({"details": f"`{key}` is missing."})
    return value
