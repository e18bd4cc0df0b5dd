"""MCP servers that a fake editor serves over ACP itself, in both published forms. Written from the ACP schemas.

Source: ACP schema 1.19 (`mcp/connect`, `mcp/message`, `mcp/disconnect`) and its unstable successor, which has no
connections. Both are unstable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias, cast

import mcp_types as types
from acp import RequestError
from acp.schema import AcpMcpServer
from mcp.server.lowlevel import Server

from toolcrib.testing.acp.mcp_server import RunningServer, SimpleTool, simple_server
from toolcrib.testing.acp.wire import Message, Wire

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


McpServer: TypeAlias = Server[Any] | Mapping[str, SimpleTool]
"""A server of the MCP SDK, or tools by name."""


class McpOverAcp:
    """Answers an agent's `mcp/*` messages on the wire that `wire` returns.

    A server's id is `acp:` followed by its name.
    """

    def __init__(self, servers: Mapping[str, McpServer], form: McpForm, wire: Callable[[], Wire]) -> None:
        self.servers = dict(servers)
        self.form: McpForm = form
        self.connections: dict[str, RunningServer] = {}
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

        async def said(method: str, params: Any) -> None:
            await self._notify(_envelope(params, connectionId=connection_id, method=method))

        async def asked(method: str, params: Any) -> Any:
            return await self._wire().request(
                "mcp/message", _envelope(params, connectionId=connection_id, method=method)
            )

        self.connections[connection_id] = RunningServer(self._server(server_id), said, asked)
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

        async def said(method: str, params: Any) -> None:
            await self._notify(_envelope(params, serverId=server_id, requestId=request_id, method=method))

        async def asked(method: str, _: Any) -> Any:
            raise RequestError.method_not_found(method)  # in MCP 2026-07-28 servers send no requests

        self._active.add((server_id, request_id))
        connection = RunningServer(server, said, asked)
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

    def _connection(self, params: Mapping[str, Any], *, remove: bool = False) -> RunningServer:
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
