"""An MCP server over HTTP, made with the SDK: streamable HTTP at /mcp and SSE at /sse. It prints its port.

Run as a module (`python -m tests.servers.over_http`). Requests need the header `Authorization: Bearer open` when it was
started with `--locked`. Other requests are refused with the status in the query (`?status=503`), or with 401. `--era`
selects the protocol version at /mcp. With `--no-stream`, a GET of /mcp gets 404, as from servers without a stream.
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
    # Clients of version 2025-11-25 are notified on a stream of the session instead.
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


# The SDK refuses such a schema in its own tools, but a server without the SDK can send one.
torch_tool = server._tool_manager._tools["torch"]  # pyright: ignore[reportPrivateUsage]
torch_tool.parameters["properties"]["shelf"]["x-mcp-header"] = "no header: this"


@server.tool()
def header(name: str, ctx: Context[Any]) -> str:
    """The value of a header of this very request."""
    request = ctx.request_context.request
    return str(request.headers.get(name)) if isinstance(request, Request) else "none"


def counted(app: ASGIApp, *, without_stream: bool) -> ASGIApp:
    """Wraps `app` and counts its requests. With `without_stream`, a GET gets 404."""

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
    """Wraps `app` and refuses requests without the key."""

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
    """Wraps `app` and refuses the other protocol version as an unknown method."""
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
    """Returns a `receive` that first repeats a body that was already read."""
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
        # asyncio sets this only for sockets created with the protocol TCP. Without it, responses wait for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The socket is bound before the port is printed, so clients can connect and wait in the backlog.
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
