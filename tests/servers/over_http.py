"""An MCP server over HTTP, made with the SDK: streamable HTTP at /mcp, SSE at /sse, and what it prints is its port.

Run as a module (`python -m tests.servers.over_http`). Requests need the header `Authorization: Bearer open` when it was
started with `--locked`; others are refused with the status that the address asks for (`?status=503`), 401 where it asks
for none. `--era` narrows what it speaks at /mcp; with `--no-stream`, a GET is answered with 404 there, as servers do
that have no stream for messages of their own.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEY = "Bearer open"

server = MCPServer("over http", title="A server over HTTP", instructions="Tools behind an address.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
def picture() -> CallToolResult:
    """Answer with an image and metadata."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="one pixel"),
            ImageContent(type="image", data="aGVsbG8=", mime_type="image/png"),
        ],
        structured_content={"width": 1, "depth": None},
        _meta={"example.com/camera": "none"},
    )


@server.tool()
async def steps(count: int, ctx: Context[Any]) -> str:
    """Report progress a number of times."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
async def hold(ctx: Context[Any]) -> str:
    """Report once, then wait until cancelled; `cancelled` counts how often that happened."""
    await ctx.report_progress(1, None, "holding")
    try:
        await anyio.sleep_forever()
    finally:
        _cancelled.append("hold")
    return "never"


_cancelled: list[str] = []


@server.tool()
def cancelled() -> int:
    """How many calls of `hold` were cancelled."""
    return len(_cancelled)


@server.tool()
async def change(name: str, ctx: Context[Any]) -> str:
    """Add a tool of this name, and announce it."""

    def added() -> str:
        return name

    server.add_tool(added, name=name, description="A tool that came later.")
    await ctx.notify_tools_changed()
    # Whoever speaks the handshake era hears of it on a stream of the session instead.
    await ctx.session.send_tool_list_changed()
    return f"added {name}"


_asked: Counter[str] = Counter()


@server.tool()
def asked(what: str) -> int:
    """How many requests there were of a protocol method, such as `initialize`, or of an HTTP method other than POST."""
    return _asked[what]


@server.tool()
def torch(shelf: str) -> str:
    """Light a shelf; what its schema says of a header is not fit for one."""
    return f"light on {shelf}"


# The SDK refuses such a schema in a tool of its own, and cannot know of one that another server sends.
torch_tool = server._tool_manager._tools["torch"]  # pyright: ignore[reportPrivateUsage]
torch_tool.parameters["properties"]["shelf"]["x-mcp-header"] = "no header: this"


@server.tool()
def header(name: str, ctx: Context[Any]) -> str:
    """The value of a header of this very request."""
    request = ctx.request_context.request
    return str(request.headers.get(name)) if isinstance(request, Request) else "none"


def counted(app: ASGIApp, *, without_stream: bool) -> ASGIApp:
    """`app`, with all that it is asked counted; `without_stream`, a GET is not answered with a stream."""

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            body = await Request(scope, receive).body()
            _asked[str(json.loads(body).get("method"))] += 1
            receive = _replayed(body, receive)
        elif scope["type"] == "http":
            _asked[scope["method"]] += 1
            if without_stream and scope["method"] == "GET":
                await PlainTextResponse("There is no stream here.", 404)(scope, receive, send)
                return
        await app(scope, receive, send)

    return count


def locked(app: ASGIApp) -> ASGIApp:
    """`app` for those who show the key."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != KEY.encode():
            asked = Request(scope).query_params
            challenge = 'Bearer resource_metadata="https://far.example/.well-known/oauth-protected-resource"'
            headers = {"WWW-Authenticate": challenge} if "metadata" in asked else {}
            refusal = PlainTextResponse("Show your key.", int(asked.get("status", "401")), headers)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guard


def of_one_era(app: ASGIApp, era: str) -> ASGIApp:
    """`app` without the other era: its requests are refused as a server does that has never heard of them."""
    unknown = "server/discover" if era == "legacy" else "initialize"

    async def filtered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        message = json.loads(body)
        if message.get("method") == unknown:
            refusal: dict[str, Any] = {"code": -32601, "message": "Method not found"}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": refusal}
            await Response(json.dumps(answer), 404, media_type="application/json")(scope, receive, send)
            return
        await app(scope, _replayed(body, receive), send)

    return filtered


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """`receive` with a body that was read already put back in front."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def application(era: str) -> Starlette:
    streamable, sse = server.streamable_http_app(), server.sse_app()

    @asynccontextmanager
    async def lifespan(_: Starlette):
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(streamable.router.lifespan_context(streamable))
            yield

    routes = [Mount("/", app=streamable if era == "both" else of_one_era(streamable, era))]
    return Starlette(routes=[*sse.routes, *routes], lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both")
    parser.add_argument("--locked", action="store_true")
    parser.add_argument("--no-stream", action="store_true", help="answer 404 to GET")
    parser.add_argument("--port", type=int, default=0, help="where to listen; any free port by default")
    given = parser.parse_args()
    app = counted(application(given.era), without_stream=given.no_stream)
    if given.locked:
        app = locked(app)
    with socket.create_server(("127.0.0.1", given.port)) as listener:
        # asyncio does it for sockets that were named TCP, which this one was not; without it, answers wait for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Bound before it is told: whoever reads the port can connect, and waits in the backlog until we serve.
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
