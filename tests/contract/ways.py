"""Three ways to call an operation, with one interface: an answer or an error as JSON."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import anyio
import httpx2
from mcp import Client

from toolcrib import Toolcrib
from toolcrib.config import Config
from toolcrib.core.errors import ToolcribError
from toolcrib.operations.operation_table import CALLS
from toolcrib.surfaces.http.accepted_hosts import Address
from toolcrib.surfaces.http.http_serving import serve_http

Json = dict[str, Any]

Way = Literal["Python", "MCP", "HTTP"]
WAYS: tuple[Way, ...] = ("Python", "MCP", "HTTP")

_ERROR_MEMBERS = ("code", "message", "hints", "next_action", "retryable", "details")


class Ask(Protocol):
    """Calls an operation, and returns its answer or its error."""

    def __call__(self, operation: str, /, **arguments: Any) -> Awaitable[Json]: ...


@asynccontextmanager
async def asking(crib: Toolcrib, way: Way, exposed: str = "full") -> AsyncGenerator[Ask]:
    """Ask in the given way; MCP and HTTP use a real port, and `exposed` is the set of operations over MCP."""
    if way == "Python":
        yield _by_python(crib)
        return
    async with _served(crib, exposed) as base:
        if way == "MCP":
            async with Client(f"{base}/mcp") as client:
                yield _by_mcp(client)
        else:
            async with httpx2.AsyncClient(base_url=base) as client:
                yield _by_http(client)


@asynccontextmanager
async def _served(crib: Toolcrib, exposed: str) -> AsyncGenerator[str]:
    """Serve the crib, and yield the base URL."""
    addresses: list[str] = []
    listening = anyio.Event()

    def told(url: str) -> None:
        addresses.append(url.removesuffix("/mcp"))
        listening.set()

    config, anywhere = Config(Path("mcp.json")), Address.parse("127.0.0.1:0")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_http(crib, config, anywhere, told, exposed=exposed))
        await listening.wait()
        yield addresses[0]
        signal.raise_signal(signal.SIGTERM)  # the regular way to end, which closes the port


def _by_python(crib: Toolcrib) -> Ask:
    async def ask(operation: str, /, **arguments: Any) -> Json:
        try:
            return dict((await crib.perform(operation, arguments)).to_wire())
        except ToolcribError as error:
            return error.to_wire()

    return ask


def _by_mcp(client: Client) -> Ask:
    async def ask(operation: str, /, **arguments: Any) -> Json:
        answer = await client.call_tool(operation, arguments)
        content = cast("Json", answer.structured_content)
        if answer.is_error and "error" in content:
            return content
        return answer.model_dump(by_alias=True, exclude_none=True) if operation in CALLS else content

    return ask


def _by_http(client: httpx2.AsyncClient) -> Ask:
    async def ask(operation: str, /, **arguments: Any) -> Json:
        answer = await client.post(f"/v1/{operation}", json=arguments)
        told: Json = answer.json()
        if answer.status_code == 200:
            return told
        return {"error": {name: told[name] for name in _ERROR_MEMBERS if name in told}}

    return ask
