"""Starts a gateway over HTTP in a process of its own, with tokens for some principals."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.servers.launching import Json, write_config
from tests.surfaces.serving import Mode
from tests.surfaces.test_http import Serving, serving

ALICE, BOB, WATCHER = "token-of-alice", "token-of-bob", "token-of-the-watcher"

TIMEOUT_S = 30.0


def entry(token: str, principal: str, *scopes: str) -> Json:
    """A member of `toolcrib.auth.tokens`."""
    return {"sha256": hashlib.sha256(token.encode()).hexdigest(), "principal": principal, "scopes": list(scopes)}


TOKENS = [entry(ALICE, "alice"), entry(BOB, "bob"), entry(WATCHER, "watcher", "metrics")]


@dataclass(frozen=True)
class Api:
    """A gateway that is being served."""

    gateway: Serving
    config: Path

    @property
    def base(self) -> str:
        return self.gateway.url.removesuffix("/mcp")

    def client(self, token: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx2.AsyncClient(base_url=self.base, headers=headers, timeout=TIMEOUT_S)

    async def ask(self, operation: str, /, token: str | None = None, **arguments: Any) -> httpx2.Response:
        async with self.client(token) as client:
            return await client.post(f"/v1/{operation}", json=arguments)

    async def run_tool(self, tool_id: str, /, token: str | None = None, **arguments: Any) -> httpx2.Response:
        """Expand a tool and call it."""
        expanded = await self.ask("expand_tool", token, tool_id=tool_id)
        assert expanded.status_code == 200, expanded.text
        return await self.ask("call_tool", token, tool_id=expanded.json()["handle"], arguments=arguments)

    @asynccontextmanager
    async def mcp(self, token: str, mode: Mode = "auto") -> AsyncGenerator[Client]:
        """Connects the client of the MCP SDK, which sends `token` with every request."""
        async with self.client(token) as http:
            transport = streamable_http_client(f"{self.base}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client


@contextmanager
def served(
    folder: Path,
    *words: str,
    auth: Json | None = None,
    where: str = "127.0.0.1:0",
    settings: Json | None = None,
    audited: bool = False,
    **servers: Json,
) -> Generator[Api]:
    ours = {**(settings or {}), **({"auth": auth} if auth is not None else {})}
    config = write_config(folder / "mcp.json", toolcrib=ours, **servers)
    with serving(config, where, *words, audited=audited) as gateway:
        yield Api(gateway, config)


def problem(response: httpx2.Response) -> Json:
    """Checks and returns the problem details of `response`."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    found: Json = response.json()
    assert found["status"] == response.status_code
    assert found["detail"] == found["message"]
    assert {"type", "title", "code", "retryable"} <= found.keys()
    return found
