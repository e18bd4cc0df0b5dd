"""An editor that contains an MCP server, at its end of a socket.

The editor speaks both forms of MCP-over-ACP, as published, and forwards the messages to a server of the MCP SDK.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import BaseModel
from tests.until import until

from toolcrib.sources.acp.mcp_over_acp import McpOverAcp
from toolcrib.sources.mcp import CarriedServer

Json = dict[str, Any]
Kind = Literal["connected, legacy", "connected, modern", "on its own"]

KINDS: tuple[Kind, ...] = ("connected, legacy", "connected, modern", "on its own")
"""The form with connections, for a legacy and a modern server, and the form without connections."""

SERVER_ID = "server-1"


class Editor:
    """The editor's end of the connection, as a test sees and controls it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Kind) -> None:
        self._reader = reader
        self._writer = writer
        self.kind = kind
        self.server = bench()
        self.got: list[Json] = []
        """The messages that the editor received."""
        self.instead: dict[str, Callable[[Json], Json | None]] = {}
        """By MCP method: the answer without its id, sent in place of the server's answer; None sends no answer."""
        self.renumbers = False
        """Whether the editor assigns its own ids to forwarded requests (the form with connections)."""
        self._sessions: dict[str, asyncio.Queue[Json]] = {}
        """By connection: the messages for its server."""
        self._numbers = iter(range(1, 1_000_000))
        self._asked: dict[int, tuple[str, str | int]] = {}
        """By the id of the editor's own request: the connection and the server's id."""
        self._answers: dict[tuple[str, str | int], str] = {}
        """By connection and the id that the server knows: the id of the frame."""
        self._running: dict[str, asyncio.Task[None]] = {}
        """Requests without a connection, by the id of the frame."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer_to(self, request_id: str) -> Json:
        """Return the agent's answer to a request that a test sent."""

        def answers() -> list[Json]:
            return [one for one in self.got if one.get("id") == request_id and "method" not in one]

        await until(answers, f"the answer to {request_id}")
        (answer,) = answers()
        return answer

    def frames_of(self, inner: str) -> list[Json]:
        """Return the received messages that carry a message with the method `inner`."""
        return [one for one in self.got if one.get("params", {}).get("method") == inner]

    async def say(self, message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    def hang_up(self) -> None:
        self._writer.close()

    async def run(self) -> None:
        async for line in self._reader:
            message = json.loads(line)
            self.got.append(message)
            await self._take(message)

    async def _take(self, message: Json) -> None:
        match message:
            case {"method": "$/cancel_request", "params": {"requestId": frame_id}}:
                if (running := self._running.pop(frame_id, None)) is not None:
                    running.cancel()
            case {"method": str() as method, "params": {"method": inner}} if (
                method == "mcp/message" and inner in self.instead
            ):
                answer = self.instead[inner](message)
                if answer is not None:
                    await self.say({"jsonrpc": "2.0", "id": message["id"], **answer})
            case {"method": str(), "id": frame_id} if self.kind == "on its own":
                self._running[frame_id] = asyncio.create_task(self._alone(message))
            case {"method": str(), **rest}:
                await self._on_connection(message, rest["params"])
            case {"id": own_id} if own_id in self._asked:
                connection_id, asked_as = self._asked.pop(own_id)
                outcome = {key: message[key] for key in ("result", "error") if key in message}
                await self._sessions[connection_id].put({"jsonrpc": "2.0", "id": asked_as, **outcome})
            case {"id": str()}:
                pass  # the answer to a message that a test sent itself
            case _:
                raise AssertionError(f"an editor cannot read {message}")

    # -- the form with connections ------------------------------------------------------------------------------------

    async def _on_connection(self, message: Json, params: Json) -> None:
        match message["method"]:
            case "mcp/connect" if params != {"serverId": SERVER_ID}:
                await self._refuse(message, -32602, "no such server")
            case "mcp/connect":
                connection_id = f"connection-{next(self._numbers)}"
                self._sessions[connection_id] = asyncio.Queue()
                self._start(self._serve(connection_id))
                await self.say({"jsonrpc": "2.0", "id": message["id"], "result": {"connectionId": connection_id}})
            case "mcp/disconnect":
                self._sessions.pop(params["connectionId"])
                await self.say({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            case _:
                if params["method"] == "server/discover" and self.kind == "connected, legacy":
                    await self._refuse(message, -32601, "Method not found")
                    return
                inner: Json = {"jsonrpc": "2.0", "method": params["method"]}
                inner |= {"params": params["params"]} if "params" in params else {}
                connection_id = params["connectionId"]
                if "id" in message:
                    inner["id"] = next(self._numbers) if self.renumbers else message["id"]
                    self._answers[connection_id, inner["id"]] = message["id"]
                await self._sessions[connection_id].put(inner)

    async def _serve(self, connection_id: str) -> None:
        async def said(message: Json) -> None:
            carried = {"connectionId": connection_id, "method": message.get("method")}
            carried |= {"params": message["params"]} if "params" in message else {}
            match message:
                case {"method": _, "id": asked_as}:
                    own_id = next(self._numbers)
                    self._asked[own_id] = (connection_id, asked_as)
                    await self.say({"jsonrpc": "2.0", "id": own_id, "method": "mcp/message", "params": carried})
                case {"method": _}:
                    await self.say({"jsonrpc": "2.0", "method": "mcp/message", "params": carried})
                case _:
                    frame_id = self._answers.pop((connection_id, message["id"]))
                    await self.say({**message, "id": frame_id})

        await self._hand_on(self._sessions[connection_id], said)

    async def _refuse(self, message: Json, code: int, text: str) -> None:
        await self.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}})

    # -- the form without ---------------------------------------------------------------------------------------------

    async def _alone(self, message: Json) -> None:
        params = message["params"]
        if message["method"] != "mcp/message":
            await self._refuse(message, -32601, "Method not found")
            return
        if params["serverId"] != SERVER_ID:
            await self._refuse(message, -33001, "MCP server registration unavailable")
            return
        to_server = asyncio.Queue[Json]()
        settled = asyncio.Event()

        async def said(inner: Json) -> None:
            if "method" not in inner:
                outcome = {key: inner[key] for key in ("result", "error") if key in inner}
                await self.say({"jsonrpc": "2.0", "id": message["id"], "result": outcome})
                settled.set()
                return
            assert "id" not in inner, "the form has no requests of a server"
            of_it = {"serverId": SERVER_ID, "requestId": params["requestId"]}
            said = {**of_it, "method": inner["method"], "params": inner.get("params")}
            await self.say({"jsonrpc": "2.0", "method": "mcp/message", "params": said})

        inner = {"jsonrpc": "2.0", "id": params["requestId"], "method": params["method"], "params": params["params"]}
        await to_server.put(inner)
        handing_on = asyncio.create_task(self._hand_on(to_server, said))
        try:
            await settled.wait()
        except asyncio.CancelledError:
            await self._refuse(message, -32800, "Request cancelled")
        finally:
            handing_on.cancel()

    # -- the server ---------------------------------------------------------------------------------------------------

    async def _hand_on(self, to_server: asyncio.Queue[Json], said: Callable[[Json], Any]) -> None:
        server = self.server._lowlevel_server  # pyright: ignore[reportPrivateUsage]
        async with (
            create_client_server_memory_streams() as ((from_it, to_it), (its_in, its_out)),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(server.run, its_in, its_out, server.create_initialization_options())

            async def bring() -> None:
                while True:
                    message = jsonrpc_message_adapter.validate_python(await to_server.get(), by_name=False)
                    await to_it.send(SessionMessage(message))

            tasks.start_soon(bring)
            async for message in from_it:
                assert isinstance(message, SessionMessage)
                await said(message.message.model_dump(by_alias=True, exclude_unset=True, mode="json"))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Name(BaseModel):
    name: str


def bench() -> MCPServer[Any]:
    """Return a server with a tool for everything that may happen in a call."""
    server = MCPServer[Any]("bench", title="A bench", instructions="Tools in the editor.")
    cancelled: list[str] = []

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool()
    async def steps(count: int, ctx: Context[Any]) -> str:
        """Report progress a number of times."""
        for step in range(1, count + 1):
            await ctx.report_progress(step, count, f"step {step}")
        return "done"

    @server.tool()
    async def hold(ctx: Context[Any]) -> str:
        """Report once, then wait until cancelled."""
        await ctx.report_progress(1, None, "holding")
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("hold")
        return "never"

    @server.tool()
    def given_up() -> int:
        """How many calls of `hold` were cancelled."""
        return len(cancelled)

    @server.tool()
    async def change(name: str, ctx: Context[Any]) -> str:
        """Add a tool of this name, and announce it."""

        def added() -> str:
            return name

        server.add_tool(added, name=name, description="A tool that came later.")
        await ctx.notify_tools_changed()
        await ctx.session.send_tool_list_changed()
        return f"added {name}"

    @server.resource("memo://bench")
    def memo() -> str:
        """A memo."""
        return "sharpen the chisels"

    @server.tool()
    async def edit(ctx: Context[Any]) -> str:
        """Announce that the memo has changed."""
        await ctx.notify_resource_updated("memo://bench")
        return "edited"

    @server.tool()
    async def greet(ctx: Context[Any]) -> str:
        """Ask for a name, and greet."""
        answer = await ctx.elicit("Who is there?", Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else answer.action

    return server


@asynccontextmanager
async def editing(kind: Kind) -> AsyncGenerator[tuple[Editor, McpOverAcp]]:
    """Yield an editor, and the frames at the agent's end of the socket."""
    ours, its = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=2**24)
    editor = Editor(*await asyncio.open_connection(sock=its, limit=2**24), kind)

    async def send(message: Json) -> None:
        if writer.is_closing():
            raise ConnectionError("closed")
        writer.write(json.dumps(message).encode() + b"\n")
        await writer.drain()

    frames = McpOverAcp(send)

    async def listen() -> None:
        async for line in reader:
            assert frames.take(json.loads(line)), f"nobody takes {line!r}"
        frames.close(ConnectionError("the editor has gone"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        tasks.start_soon(editor.run)
        try:
            yield editor, frames
        finally:
            frames.close()
            await editor.stop()
            tasks.cancel_scope.cancel()
            writer.close()
            editor.hang_up()


def carried(frames: McpOverAcp, server_id: str = SERVER_ID) -> CarriedServer:
    return CarriedServer(server_id, frames)
