"""Tests that answers and notifications of isolated servers reach only their own principal."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import mcp_types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.servers.launching import Json, faulty_entry, write_config
from tests.surfaces.http.asking import ALICE, BOB, TIMEOUT_S, TOKENS, Api, served
from tests.surfaces.serving import Mode, ask, run_tool, text_of
from tests.surfaces.serving import served as behind_pipe
from tests.surfaces.test_pass_through import FIXTURE
from tests.surfaces.test_subscriptions import STATIC, WATCHED, Watcher, of, update
from tests.until import until

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

AUTH: Json = {"tokens": TOKENS}


def isolated(*principals: str) -> Json:
    own = {each: {"env": {"TOKEN": f"{each}'s own"}} for each in principals}
    return {"sources": {"desk": {"isolation": "principal", "principals": own}}}


@asynccontextmanager
async def watcher(api: Api, token: str, mode: Mode) -> AsyncGenerator[tuple[Watcher, list[str]]]:
    """Yields a client with this token, and the methods of the notifications that it received."""
    found: list[Watcher] = []
    told: list[str] = []

    async def hear(message: object) -> None:
        told.append(getattr(message, "method", ""))
        await found[0].hear(message)

    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S) as http:
        transport = streamable_http_client(api.gateway.url, http_client=http)
        async with Client(transport, mode=mode, message_handler=hear) as client:
            found.append(Watcher(client))
            yield found[0], told


async def test_each_token_reaches_the_isolated_server_of_its_principal(
    tmp_path: Path,
) -> None:
    with served(tmp_path, auth=AUTH, settings=isolated("alice", "bob"), desk=faulty_entry()) as api:
        for token, own in ((ALICE, "alice's own"), (BOB, "bob's own")):
            answer = await api.run_tool("desk.env", token, name="TOKEN")
            assert answer.json()["structuredContent"]["value"] == own


@BOTH
async def test_a_principal_without_an_isolated_server_never_sees_it(mode: Mode, tmp_path: Path) -> None:
    with served(tmp_path, auth=AUTH, settings=isolated("alice"), desk=faulty_entry(), bench=faulty_entry()) as api:
        async with api.mcp(ALICE, mode) as alice, api.mcp(BOB, mode) as bob:
            assert "desk" in str(await alice.list_tools())
            assert "desk" in str(await ask(alice, "list"))
            assert "bench" in str(await ask(bob, "list"))
            for told in (await bob.list_tools(), bob.instructions, await ask(bob, "list")):
                assert "desk" not in str(told)
            assert (await ask(bob, "expand_tool", tool_id="desk.echo"))["error"]["code"] == "TOOL_NOT_FOUND"


@BOTH
async def test_a_resource_update_reaches_only_the_principal_of_its_server(mode: Mode, tmp_path: Path) -> None:
    with served(tmp_path, auth=AUTH, settings=isolated("alice", "bob"), desk=FIXTURE) as api:
        async with watcher(api, ALICE, mode) as (alice, _), watcher(api, BOB, mode) as (bob, _):
            uris = (of("desk", WATCHED), of("desk", STATIC))
            async with alice.watching(*uris) as alices, bob.watching(*uris) as bobs:
                assert alices == bobs == set(uris)
                await update(alice.client, "desk", WATCHED)
                await until(lambda: alice.heard, "alice is notified")
                await update(bob.client, "desk", STATIC)
                await until(lambda: bob.heard, "bob is notified")
                assert alice.heard == [of("desk", WATCHED)]
                assert bob.heard == [of("desk", STATIC)]


async def test_a_prompt_change_reaches_only_the_principal_of_its_server(tmp_path: Path) -> None:
    changed = "notifications/prompts/list_changed"
    with served(tmp_path, auth=AUTH, settings=isolated("alice", "bob"), desk=FIXTURE) as api:
        async with watcher(api, ALICE, "legacy") as (alice, told_alice), watcher(api, BOB, "legacy") as (bob, told_bob):
            for each, told in ((alice, told_alice), (bob, told_bob)):
                await each.client.list_prompts()
                await until(lambda told=told: changed in told, "the prompts are listed")
                told.clear()
            await run_tool(alice.client, "desk.test_trigger_prompt_change")
            await until(lambda: changed in told_alice, "alice is notified")
            async with bob.watching(of("desk", STATIC)):
                await update(bob.client, "desk", STATIC)
                await until(lambda: bob.heard, "bob gets a different notification")
            assert changed not in told_bob
            offered = [{prompt.name for prompt in (await each.client.list_prompts()).prompts} for each in (alice, bob)]
            assert offered[0] - offered[1] == {"desk__test_comes_and_goes"}


@BOTH
async def test_the_local_principal_has_an_isolated_server_over_stdio(mode: Mode, tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib=isolated("local"), desk=faulty_entry())
    async with behind_pipe(config, mode) as client:
        assert "desk" in str(await client.list_tools())
        assert text_of(await run_tool(client, "desk.env", name="TOKEN")) == "local's own"


@BOTH
async def test_the_local_principal_can_read_and_watch_isolated_resources(mode: Mode, tmp_path: Path) -> None:
    heard: list[str] = []

    async def hear(message: object) -> None:
        if isinstance(message, mcp_types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    config = write_config(tmp_path / "mcp.json", toolcrib=isolated("local"), desk=FIXTURE)
    async with behind_pipe(config, mode, hear) as client:
        uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert of("desk", WATCHED) in uris
        assert "Watch me." in str(await client.read_resource(of("desk", WATCHED)))
        async with Watcher(client).watching(of("desk", WATCHED)):
            await update(client, "desk", WATCHED)
            await until(lambda: heard, "the client is notified")
