"""Tests that clients are notified only of changes that they can see."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.server.connection import Connection
from tests.servers.launching import Json, faulty_entry, write_config
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, Api, served
from tests.surfaces.serving import Mode, run_tool
from tests.surfaces.test_isolation import isolated, watcher
from tests.surfaces.test_pass_through import FIXTURE
from tests.surfaces.test_subscriptions import STATIC, WATCHED, Watcher, of, update
from tests.until import DEADLINE_S, until

from toolcrib.catalog.view import View
from toolcrib.core.principal import Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.surfaces.mcp_gateway.notifications import Notifications

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

AUTH: Json = {"tokens": TOKENS}
OPEN: Json = {"policy": {"otherwise": "allow"}}

TOOLS, PROMPTS, RESOURCES = (f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))

KINDS = {ToolsListChanged: TOOLS, PromptsListChanged: PROMPTS, ResourcesListChanged: RESOURCES, ResourceUpdated: ""}


def hidden_from_bob(**rule: list[str]) -> Json:
    return {"policy": {"rules": [{"then": "hide", "principals": ["bob"], **rule}], "otherwise": "allow"}}


@asynccontextmanager
async def listener(api: Api, token: str, mode: Mode) -> AsyncGenerator[tuple[Watcher, list[str]]]:
    """Yields a client that listens for changes of every list, and the methods of its notifications."""
    async with watcher(api, token, mode) as (client, told):
        if mode == "legacy":
            yield client, told
            return
        stream = client.client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        async with anyio.create_task_group() as tasks, stream as events:
            heard: list[str] = []

            async def follow() -> None:
                async for event in events:
                    heard.append(KINDS[type(event)])  # noqa: PERF401  the stream does not end

            tasks.start_soon(follow)
            yield client, heard
            tasks.cancel_scope.cancel()


def reload(api: Api, settings: Json, **servers: Json) -> None:
    write_config(api.config, toolcrib={"auth": AUTH, **settings}, **servers)


async def until_there_are_prompts(client: Client) -> None:
    async def are_there() -> bool:
        listed = await client.list_prompts(cache_mode="bypass"), await client.list_resources(cache_mode="bypass")
        return bool(listed[0].prompts and listed[1].resources)

    await until(are_there, "prompts and resources in the lists")


async def until_quiet(api: Api, settings: Json, *heard: list[str], **servers: Json) -> None:
    """Wait until all earlier notifications have arrived, and clear them."""
    reload(api, settings, **servers, marker=faulty_entry())
    for told in heard:
        await until(lambda told=told: TOOLS in told, "the clients are notified of one more server")
        told.clear()


@BOTH
async def test_a_change_of_hidden_prompts_sends_no_notification(mode: Mode, tmp_path: Path) -> None:
    policy = hidden_from_bob(sources=["desk"])
    with served(tmp_path, auth=AUTH, settings=policy, desk=FIXTURE) as api:
        async with listener(api, ALICE, mode) as (alice, told_alice), listener(api, BOB, mode) as (_, told_bob):
            await until_there_are_prompts(alice.client)
            await until_quiet(api, policy, told_alice, desk=FIXTURE)
            await run_tool(alice.client, "desk.test_trigger_prompt_change")
            await until(lambda: PROMPTS in told_alice, "alice is notified")
            reload(api, policy, desk=FIXTURE)
            await until(lambda: told_bob.count(TOOLS) == 2, "bob gets a different notification")
            assert set(told_bob) == {TOOLS}


@BOTH
async def test_a_policy_change_notifies_only_the_affected_principals(mode: Mode, tmp_path: Path) -> None:
    with served(tmp_path, auth=AUTH, settings=OPEN, desk=FIXTURE) as api:
        async with listener(api, ALICE, mode) as (alice, told_alice), listener(api, BOB, mode) as (bob, told_bob):
            await until_there_are_prompts(alice.client)
            await until_quiet(api, OPEN, told_alice, told_bob, desk=FIXTURE)
            reload(api, hidden_from_bob(sources=["desk"]), desk=FIXTURE, marker=faulty_entry())
            await until(lambda: {TOOLS, PROMPTS, RESOURCES} <= {*told_bob}, "bob is notified")
            assert (await bob.client.list_prompts(cache_mode="bypass")).prompts == []
            assert told_alice == []
            reload(api, hidden_from_bob(sources=["desk"]), desk=FIXTURE)
            await until(lambda: told_alice, "alice gets a different notification")
            assert told_alice == [TOOLS]


@BOTH
async def test_a_reload_without_visible_changes_sends_no_notification(mode: Mode, tmp_path: Path) -> None:
    policy = hidden_from_bob(sources=["desk", "pay"])
    with served(tmp_path, auth=AUTH, settings=policy, desk=faulty_entry()) as api:
        async with listener(api, ALICE, mode) as (_, told_alice), listener(api, BOB, mode) as (_, told_bob):
            reload(api, policy, desk=faulty_entry(), pay=faulty_entry())
            await until(lambda: TOOLS in told_alice, "alice is notified")
            assert told_bob == []
            reload(api, policy, desk=faulty_entry(), pay=faulty_entry(), bench=faulty_entry())
            await until(lambda: told_bob, "bob is notified of what he sees")
            assert told_bob == [TOOLS]


@BOTH
async def test_with_all_operations_tool_changes_notify_only_principals_who_see_them(mode: Mode, tmp_path: Path) -> None:
    policy = hidden_from_bob(sources=["desk"])
    all_tools = ("--operations", "all")
    with served(tmp_path, *all_tools, auth=AUTH, settings=policy, desk=FIXTURE, bench=FIXTURE) as api:
        async with listener(api, ALICE, mode) as (alice, told_alice), listener(api, BOB, mode) as (bob, told_bob):
            for each in (alice, bob):
                await until_there_are_prompts(each.client)
            await until_quiet(api, policy, told_alice, told_bob, desk=FIXTURE, bench=FIXTURE)
            await alice.client.call_tool("desk__test_trigger_tool_change", {})
            await until(lambda: TOOLS in told_alice, "alice is notified")
            await alice.client.call_tool("bench__test_trigger_tool_change", {})
            await until(lambda: told_bob, "bob is notified of what he sees")
            assert told_bob == [TOOLS]


@BOTH
async def test_updates_of_a_resource_stop_when_the_policy_hides_it(mode: Mode, tmp_path: Path) -> None:
    with served(tmp_path, auth=AUTH, settings=OPEN, desk=FIXTURE) as api:
        async with watcher(api, ALICE, mode) as (alice, _), watcher(api, BOB, mode) as (bob, _):
            uris = (of("desk", WATCHED), of("desk", STATIC))
            async with alice.watching(*uris), bob.watching(*uris):
                await update(alice.client, "desk", WATCHED)
                await until(lambda: alice.heard and bob.heard, "both are notified")
                bob.heard.clear()
                reload(api, hidden_from_bob(tools=[f"desk.{WATCHED}"]), desk=FIXTURE)
                await until_unreadable(bob.client, of("desk", WATCHED))
                for uri in (WATCHED, STATIC):
                    await update(alice.client, "desk", uri)
                await until(
                    lambda: of("desk", STATIC) in bob.heard, "bob is notified of the resource that he still sees"
                )
                assert bob.heard == [of("desk", STATIC)]
                await until(lambda: len(alice.heard) == 3, "alice gets every notification")


async def until_unreadable(client: Client, uri: str) -> None:
    with anyio.fail_after(DEADLINE_S), suppress(MCPError):
        while True:
            await client.read_resource(uri, cache_mode="bypass")


async def test_losing_an_isolated_server_notifies_but_eviction_does_not(tmp_path: Path) -> None:
    one_at_a_time: Json = {"max_isolated_principals": 1}
    settings = {**isolated("alice", "bob"), **one_at_a_time}
    with served(tmp_path, auth=AUTH, settings=settings, desk=FIXTURE) as api:
        async with (
            listener(api, ALICE, "legacy") as (alice, told_alice),
            listener(api, BOB, "legacy") as (
                bob,
                told_bob,
            ),
        ):
            await until_there_are_prompts(alice.client)
            await until(lambda: {PROMPTS, RESOURCES} <= {*told_alice}, "alice has prompts")
            told_alice.clear()
            await until_there_are_prompts(bob.client)
            await until(lambda: {PROMPTS, RESOURCES} <= {*told_bob}, "bob has prompts, and alice made room")
            told_bob.clear()
            reload(api, {**isolated("alice"), **one_at_a_time}, desk=FIXTURE)
            await until(lambda: {TOOLS, PROMPTS, RESOURCES} <= {*told_bob}, "bob is notified that his prompts are gone")
            assert (await bob.client.list_prompts(cache_mode="bypass")).prompts == []
            assert told_alice == []


class Standing:
    """A stand-in for a connection to which nothing is written."""


async def test_closed_connections_are_not_compared_again() -> None:
    crib, looked_at = Toolcrib(), list[str]()

    def tools(view: View) -> Mapping[str, object]:
        looked_at.append(view.principal.id)
        return {}

    notifications = Notifications(crib, tools, tools_are_listed=True)
    stays, leaves = Standing(), Standing()
    notifications.remember(cast("Connection", stays), Principal("alice"))
    notifications.remember(cast("Connection", leaves), Principal("bob"))
    looked_at.clear()
    del leaves
    gc.collect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifications.follow)
        notifications.compare_all()
        await until(lambda: looked_at, "the connections are compared")
        tasks.cancel_scope.cancel()
    assert looked_at == ["alice"]
