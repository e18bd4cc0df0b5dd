"""Tests for the principal of a request: fixed for a stdio gateway, per request over HTTP, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client, MCPError
from tests.servers.launching import faulty_entry, write_config

from toolcrib import Access, Principal, Rules, Toolcrib
from toolcrib.config import Config
from toolcrib.core.principal import LOCAL
from toolcrib.operations.operation_table import ALL
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway

pytestmark = pytest.mark.anyio

NO_SERVERS = Config(Path("mcp.json"))


async def cache_scope(crib: Toolcrib, config: Config = NO_SERVERS) -> str:
    """Returns the cache scope of the tool list."""
    async with Gateway(crib, config, principal=LOCAL) as gateway, Client(gateway.server) as client:
        return (await client.list_tools()).cache_scope


async def test_a_stdio_gateway_answers_for_its_one_principal() -> None:
    crib, seen = Toolcrib(), list[str]()
    crib.dispatcher.recorders.append(lambda event: seen.append(event.principal))
    async with crib, Gateway(crib, NO_SERVERS, principal=Principal("ada")) as gateway:
        async with Client(gateway.server) as client:
            await client.call_tool("list", {})
    assert seen == ["ada"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_request_without_a_principal_is_not_answered(mode: str) -> None:
    crib, seen = Toolcrib(), list[str]()
    crib.dispatcher.recorders.append(lambda event: seen.append(event.principal))
    async with crib, Gateway(crib, NO_SERVERS) as gateway:
        with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True):
            async with Client(gateway.server, mode=mode) as client:
                await client.call_tool("list", {})
    assert seen == []


def test_looking_up_a_schema_without_a_principal_is_an_error() -> None:
    schema_of = Gateway(Toolcrib(), NO_SERVERS, exposed=ALL).server.get_tool_input_schema
    assert schema_of is not None
    with pytest.raises(RuntimeError):
        schema_of("functions__lend")


async def test_the_tool_list_is_public_only_without_a_policy(tmp_path: Path) -> None:
    assert await cache_scope(Toolcrib()) == "public"
    assert await cache_scope(Toolcrib(policy=Rules((), otherwise=Access.CALL))) == "private"


async def test_the_tool_list_is_private_with_isolated_servers(tmp_path: Path) -> None:
    crib = Toolcrib()
    settings = {"sources": {"desk": {"isolation": "principal"}}}
    config = crib.add_config(write_config(tmp_path / "mcp.json", toolcrib=settings, desk=faulty_entry()))
    assert await cache_scope(crib, config) == "private"
