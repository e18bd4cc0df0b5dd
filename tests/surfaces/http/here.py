"""Serves a gateway over HTTP in the process of the test, on a local socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
from tests.servers.launching import Json, write_config
from tests.surfaces.http.asking import TIMEOUT_S

from toolcrib import Toolcrib
from toolcrib.surfaces.http.accepted_hosts import Address
from toolcrib.surfaces.http.http_connections import ConnectionLimits
from toolcrib.surfaces.http.http_serving import serve_http

VERSION = "2026-07-28"


@dataclass(frozen=True)
class Here:
    """A gateway that is being served."""

    url: str
    """The address of the MCP endpoint."""
    config: Path

    @property
    def base(self) -> str:
        return self.url.removesuffix("/mcp")

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def client(self, token: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx2.AsyncClient(base_url=self.base, headers=headers, timeout=TIMEOUT_S)

    async def ask(self, operation: str, /, token: str | None = None, **arguments: Any) -> httpx2.Response:
        async with self.client(token) as client:
            return await client.post(f"/v1/{operation}", json=arguments)

    async def handle(self, tool_id: str, token: str | None = None) -> str:
        """Expands `tool_id` and returns the handle for calling it."""
        return (await self.ask("expand_tool", token, tool_id=tool_id)).json()["handle"]


@asynccontextmanager
async def served_here(
    folder: Path,
    crib: Toolcrib | None = None,
    *,
    auth: Json | None = None,
    settings: Json | None = None,
    bounds: ConnectionLimits | None = None,
    **servers: Json,
) -> AsyncGenerator[Here]:
    """Serves `crib` with a configuration for the duration of the block, and then cancels the server."""
    crib = crib or Toolcrib()
    ours = {**(settings or {}), **({"auth": auth} if auth is not None else {})}
    path = write_config(folder / "mcp.json", toolcrib=ours, **servers)
    config, told, listens = crib.add_config(path), list[str](), anyio.Event()

    def listening(url: str) -> None:
        told.append(url)
        listens.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(serve_http, crib, config, Address("127.0.0.1", 0), listening, bounds=bounds))
        await listens.wait()
        yield Here(told[0], path)
        tasks.cancel_scope.cancel()


def envelope(method: str, params: Json | None = None, **capabilities: Any) -> Json:
    """Returns the body of an MCP request of version 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "here", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}


def headers_of(body: Json) -> dict[str, str]:
    """Returns the headers of an MCP request of version 2026-07-28."""
    named = {"Mcp-Name": body["params"]["name"]} if "name" in body["params"] else {}
    accept = "application/json, text/event-stream"
    return {"Accept": accept, "MCP-Protocol-Version": VERSION, "Mcp-Method": body["method"], **named}
