"""What benchmarks measure beside the gateway, each in a process of its own: `python benchmarks/servers.py ROLE ...`.

    echo      the SDK's low-level server with a tool that gives back a text, over stdio; over HTTP with `--http`
    proxy     FastMCP's proxy of an `mcp.json`, likewise
    relay     the SDK's low-level server over the SDK's client of the one server of an `mcp.json`, likewise
    constant  the SDK's low-level server, whose answers are read once from a file
    bare      a Starlette endpoint that answers the bytes of files, whatever it is asked
    function  the gateway over HTTP with a Python function of its own program

Over HTTP a server prints its address once it can be reached.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp

TEXT_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


POLICY = {
    "rules": [
        {"then": "hide", "tools": ["*.tool_1?"]},
        {"then": "ask", "principals": ["intern-*"], "annotations": {"destructive": True}},
        {"then": "refuse", "tags": ["retired"]},
    ],
    "otherwise": "allow",
}
"""As somebody might have it; whoever measures may call what is not hidden."""


def command(role: str, *words: str) -> list[str]:
    """How to start one of the roles."""
    return [sys.executable, __file__, role, *words]


def started(role: str, *words: str) -> dict[str, Any]:
    """A role over stdio in an `mcp.json`."""
    program, *rest = command(role, *words)
    return {"command": program, "args": rest}


@dataclass(frozen=True, slots=True)
class Reachable:
    """A server that runs, and where."""

    url: str
    pid: int

    @property
    def entry(self) -> dict[str, Any]:
        """It in an `mcp.json`."""
        return {"type": "http", "url": self.url}


def write_config(path: Path, **entries: Mapping[str, Any]) -> Path:
    """An `mcp.json` at `path`, with policy and audit, and no limit on how often its servers are called."""
    ours = {"calls_per_minute": 0, "policy": POLICY, "audit": {"path": str(path.with_suffix(".audit.sqlite"))}}
    path.write_text(json.dumps({"mcpServers": entries, "toolcrib": ours}))
    return path


@contextmanager
def reachable(role: str, *words: str) -> Generator[Reachable]:
    """A role over HTTP for the block."""
    with _started(command(role, *words), lambda process: process.stdout) as server:
        yield server


@contextmanager
def gateway(config: Path, *words: str) -> Generator[Reachable]:
    """`toolcrib serve` over HTTP for the block; it keeps no definitions."""
    serve = [sys.executable, "-m", "toolcrib", "serve", str(config), "--no-cache", "--http", "127.0.0.1:0", *words]
    with _started(serve, lambda process: process.stderr) as server:
        yield server


@contextmanager
def _started(words: Sequence[str], said: Callable[[subprocess.Popen[str]], Any]) -> Generator[Reachable]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = said(process).readline()
        url = next((word for word in line.split() if word.startswith("http://")), None)
        if url is None:
            process.kill()
            raise SystemExit(
                f"{' '.join(words)} did not start: {line}{process.stderr.read() if process.stderr else ''}"
            )
        for stream in (process.stdout, process.stderr):  # nobody waits for a pipe to be read
            threading.Thread(target=deque, args=[stream, 0], daemon=True).start()
        yield Reachable(url, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def echo_server(tools: int) -> Server[Any]:
    """One tool that gives back a text, and `tools` others, recombined from real ones, that do nothing."""
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    listed = [Tool(name="echo", description="Give back a text.", input_schema=TEXT_SCHEMA)]
    if tools:
        import catalog

        listed += [
            Tool(name=row.tool.name, description=row.tool.description, input_schema=dict(row.tool.input_schema))
            for row in catalog.rows(tools)
        ]
    unique = list({tool.name: tool for tool in listed}.values())

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=unique)

    async def call_tool(_: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=params.arguments["text"])])

    return Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)


@asynccontextmanager
async def relay_server(config: Path) -> AsyncGenerator[Server[Any]]:
    """Passes lists and calls on over one connection, as they are."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult

    (entry,) = json.loads(config.read_text(encoding="utf-8"))["mcpServers"].values()  # noqa: ASYNC240  before it serves
    at = entry["url"] if "url" in entry else StdioServerParameters(command=entry["command"], args=entry["args"])
    async with Client(at) as client:

        async def list_tools(_: Any, __: Any) -> ListToolsResult:
            return await client.list_tools()

        async def call_tool(_: Any, params: Any) -> CallToolResult:
            return await client.call_tool(params.name, params.arguments)

        def no_headers(_: str) -> None:
            """Not told that there are none, the SDK lists all tools for every call."""

        await client.list_tools()  # the client lists before it calls a tool it has not seen
        yield Server("relay", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=no_headers)


def constant_server(answers: Path) -> Server[Any]:
    """Lists the `tools` of a file, and answers each tool of its `calls` with the result that stands there."""
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ListToolsResult

    known = json.loads(answers.read_text(encoding="utf-8"))
    listed = ListToolsResult.model_validate(known["tools"])
    results = {name: CallToolResult.model_validate(result) for name, result in known["calls"].items()}

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return listed

    async def call_tool(_: Any, params: Any) -> CallToolResult:
        return results[params.name]

    return Server("constant", on_list_tools=list_tools, on_call_tool=call_tool)


def bare_app(answers: Path) -> ASGIApp:
    """`/NAME` answers the bytes of `NAME.json` in a folder."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    known = {file.stem: file.read_bytes() for file in answers.glob("*.json")}

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(known[request.path_params["name"]], media_type="application/json")

    return Starlette(routes=[Route("/{name}", answer, methods=["POST"])])


async def relay(config: Path, *, http: bool) -> None:
    async with relay_server(config) as server:
        await (over_http(server.streamable_http_app()) if http else over_stdio(server))


async def over_stdio(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def over_http(app: ASGIApp, path: str = "/mcp") -> None:
    """Serve `app` as the gateway serves itself."""
    import uvicorn

    # A socket that does not know it is TCP stays without TCP_NODELAY, and every other answer waits 40 ms for an ACK.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        await uvicorn.Server(config).serve(sockets=[listener])


async def function_gateway(config: Path) -> None:
    """The gateway over HTTP with a function of this program and the servers of `config`, audited as that says."""
    from toolcrib import Toolcrib
    from toolcrib.audit.store import AuditStore
    from toolcrib.config import read_config
    from toolcrib.surfaces.http.accepted_hosts import Address
    from toolcrib.surfaces.http.http_serving import serve_http

    def echo(text: str) -> str:
        """Give back a text."""
        return text

    audit = read_config(config).audit
    if audit is None:
        raise SystemExit(f"{config}: nothing is audited")
    with AuditStore(audit.place) as store:
        crib = Toolcrib(record=store.record)
        crib.add(echo)
        await serve_http(crib, crib.add_config(config), Address("127.0.0.1", 0), lambda url: print(url, flush=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("echo", "proxy", "relay", "constant", "bare", "function"))
    parser.add_argument("file", type=Path, nargs="?", help="what the role reads: answers, or an mcp.json")
    parser.add_argument(
        "--http", action="store_true", help="serve over HTTP; echo, proxy and relay serve stdio without it"
    )
    parser.add_argument("--tools", type=int, default=0, help="tools that echo offers beside the one")
    given = parser.parse_args()
    match given.role:
        case "echo":
            server = echo_server(given.tools)
            anyio.run(over_http, server.streamable_http_app()) if given.http else anyio.run(over_stdio, server)
        case "proxy":
            from fastmcp.server import create_proxy

            proxy = create_proxy(json.loads(given.file.read_text(encoding="utf-8")))
            if given.http:
                anyio.run(over_http, proxy.http_app())
            else:
                proxy.run(transport="stdio", show_banner=False)
        case "relay":
            anyio.run(partial(relay, given.file, http=given.http))
        case "constant":
            anyio.run(over_http, constant_server(given.file).streamable_http_app())
        case "bare":
            anyio.run(over_http, bare_app(given.file), "")
        case _:
            anyio.run(function_gateway, given.file)


if __name__ == "__main__":
    main()
