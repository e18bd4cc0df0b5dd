"""Tests for subscriptions to resources through the gateway, for every pair of protocol versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import mcp_types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated
from tests.interop.launching import http_fixture
from tests.servers.launching import faulty_entry, write_config
from tests.surfaces.http.asking import Api, entry
from tests.surfaces.http.asking import served as served_over_http
from tests.surfaces.serving import Json, Mode, run_tool, text_of
from tests.surfaces.test_http import serving
from tests.surfaces.test_pass_through import CLIENTS, ERAS, FIXTURE, HANDSHAKE_FIXTURE, SERVERS, client_of
from tests.until import DEADLINE_S, until

pytestmark = pytest.mark.anyio

EVERY_PAIR = pytest.mark.parametrize(
    ("source", "mode"),
    [
        *((source, mode) for source in SERVERS for mode in ("legacy", "auto")),
        ("newer-http", "legacy"),
        ("handshake-http", "auto"),
    ],
)
"""Pairs of the protocol versions of a server and a client."""

WATCHED, STATIC, BINARY = "test://watched-resource", "test://static-text", "test://static-binary"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a gateway over servers of both versions with stdio and HTTP, and one without resources."""
    with http_fixture() as url, http_fixture("--era", "legacy") as older:
        more: dict[str, Json] = {"newer-http": {"url": url}, "handshake-http": {"url": older}, "bench": faulty_entry()}
        config = write_config(tmp_path_factory.mktemp("watched") / "mcp.json", **SERVERS, **more)
        with serving(config) as gateway:
            yield gateway.url


class Watcher:
    """A client with the URIs of the resource updates that it received."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heard: list[str] = []

    async def hear(self, message: object) -> None:
        if isinstance(message, mcp_types.ResourceUpdatedNotification):
            self.heard.append(str(message.params.uri))

    @asynccontextmanager
    async def watching(self, *uris: str) -> AsyncGenerator[frozenset[str]]:
        """Subscribes to `uris` for the block, and yields the URIs that the gateway accepted."""
        if self.client.protocol_version != "2026-07-28":
            for uri in uris:
                await self._ask(mcp_types.SubscribeRequest(params=mcp_types.SubscribeRequestParams(uri=uri)))
            yield frozenset(uris)
            for uri in uris:
                await self._ask(mcp_types.UnsubscribeRequest(params=mcp_types.UnsubscribeRequestParams(uri=uri)))
            return
        async with anyio.create_task_group() as tasks, self.client.listen(resource_subscriptions=uris) as events:

            async def follow() -> None:
                async for event in events:
                    assert isinstance(event, ResourceUpdated)

            tasks.start_soon(follow)
            yield frozenset(events.honored.resource_subscriptions or ())
            tasks.cancel_scope.cancel()

    async def _ask(self, request: mcp_types.ClientRequest) -> None:
        await self.client.session.send_request(request, mcp_types.EmptyResult)


@asynccontextmanager
async def watcher(gateway: Path | str, mode: Mode) -> AsyncGenerator[Watcher]:
    found: list[Watcher] = []

    async def hear(message: object) -> None:
        await found[0].hear(message)

    async with client_of(gateway, mode, heard=hear) as client:
        found.append(Watcher(client))
        yield found[0]


def of(source: str, uri: str) -> str:
    return f"toolcrib://{source}/{uri}"


async def update(client: Client, source: str, uri: str) -> None:
    await run_tool(client, f"{source}.test_trigger_resource_update", uri=uri)


async def watched_at(client: Client, source: str) -> list[str]:
    return text_of(await run_tool(client, f"{source}.test_watched")).split()


@EVERY_PAIR
async def test_resource_updates_reach_exactly_the_subscribed_clients(source: str, mode: Mode, shared: str) -> None:
    async with watcher(shared, mode) as one, watcher(shared, mode) as two, watcher(shared, "auto") as silent:
        async with one.watching(of(source, WATCHED)) as agreed, two.watching(of(source, STATIC)):
            assert agreed == {of(source, WATCHED)}
            for uri in (WATCHED, BINARY, STATIC):
                await update(silent.client, source, uri)
            await until(lambda: one.heard and two.heard, "both are notified")
            async with two.watching(of(source, WATCHED)):
                part = (
                    "" if source.startswith("newer") else "/a/part/of/it"
                )  # streams of the SDK do not report parts of a resource
                await update(silent.client, source, WATCHED + part)
                await until(
                    lambda: len(one.heard) == 2 and len(two.heard) == 2, "both are notified of the same resource"
                )
        assert one.heard == [of(source, WATCHED)] * 2
        assert two.heard == [of(source, STATIC), of(source, WATCHED)]
        assert silent.heard == []


@CLIENTS
async def test_the_gateway_subscribes_once_and_unsubscribes_after_the_last_client(mode: Mode, tmp_path: Path) -> None:
    with serving(write_config(tmp_path / "mcp.json", **SERVERS)) as gateway:
        async with watcher(gateway.url, "auto") as asking, watcher(gateway.url, mode) as one:
            for source in SERVERS:
                async with one.watching(of(source, WATCHED)):
                    async with watcher(gateway.url, mode) as two:
                        stays = two.watching(of(source, WATCHED), of(source, STATIC))
                        if mode == "auto":
                            async with stays:
                                pass
                        else:
                            await stays.__aenter__()  # the client leaves without unsubscribing
                    await until_watched(asking.client, source, {WATCHED})
                    await update(asking.client, source, WATCHED)
                    await until(lambda: one.heard, "the remaining client is notified")
                    assert one.heard == [of(source, WATCHED)]
                    one.heard.clear()
                await until_watched(asking.client, source, set())
                if source == "handshake":
                    seen = Counter(await watched_at(asking.client, source))
                    assert seen == {f"{sign}{uri}": 1 for sign in "+-" for uri in (WATCHED, STATIC)}


async def until_watched(client: Client, source: str, uris: set[str]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while True:
            seen = Counter(await watched_at(client, source))
            if {line[1:] for line in seen if seen[f"+{line[1:]}"] > seen[f"-{line[1:]}"]} == uris:
                return


@CLIENTS
@ERAS
async def test_subscriptions_are_restored_after_a_server_crash(source: str, mode: Mode, shared: str) -> None:
    async with watcher(shared, mode) as one, watcher(shared, "auto") as other:
        async with one.watching(of(source, WATCHED)):
            await run_tool(other.client, f"{source}.test_die")
            await until(lambda: one.heard, "the client is notified after the crash")
            one.heard.clear()
            await update(other.client, source, WATCHED)
            await until(lambda: one.heard == [of(source, WATCHED)], "the client is notified again")


async def test_a_refused_subscription_of_an_older_client_gives_a_reason(shared: str) -> None:
    async with watcher(shared, "legacy") as one:
        assert one.client.server_capabilities is not None
        assert one.client.server_capabilities.resources is not None
        assert one.client.server_capabilities.resources.subscribe
        for uri, told in (
            ("toolcrib://nobody/test://x", "Resource `toolcrib://nobody/test://x` not found"),
            (of("bench", "test://x"), "`bench` does not report changes of its resources"),
            (of("handshake", "test://x"), "There is nothing to subscribe to"),
        ):
            with pytest.raises(MCPError, match=told) as refused:
                async with one.watching(uri):
                    pass
            assert refused.value.code == mcp_types.INVALID_PARAMS


async def test_a_newer_client_is_subscribed_only_to_watchable_resources(shared: str) -> None:
    async with watcher(shared, "auto") as one:
        possible = {of(source, uri) for source in SERVERS for uri in (WATCHED, STATIC)}
        in_vain = ("toolcrib://nobody/test://x", of("bench", "test://x"), of("handshake", "test://x"))
        async with one.watching(*possible, *in_vain) as agreed:
            assert agreed == possible


@CLIENTS
async def test_subscriptions_work_over_stdio_and_with_plain_names(mode: Mode, tmp_path: Path) -> None:
    settings: Json = {"sources": {"newer": {"plain_names": True}}}
    async with watcher(write_config(tmp_path / "mcp.json", toolcrib=settings, **SERVERS), mode) as one:
        async with one.watching(WATCHED, of("handshake", WATCHED)):
            for source in SERVERS:
                await update(one.client, source, WATCHED)
            await until(lambda: sorted(one.heard) == [WATCHED, of("handshake", WATCHED)], "both")


async def test_subscriptions_move_to_the_server_of_a_changed_configuration(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", one=FIXTURE)
    with serving(config) as gateway:
        async with watcher(gateway.url, "legacy") as one, watcher(gateway.url, "auto") as other:
            async with one.watching(of("one", WATCHED)):
                write_config(config, one=HANDSHAKE_FIXTURE)
                await until(lambda: one.heard, "the client is notified of the new server")
                one.heard.clear()
                await update(other.client, "one", WATCHED)
                await until(lambda: one.heard == [of("one", WATCHED)], "the client is notified")


BEFORE, AFTER = "token-of-alice", "renewed-token-of-alice"
RENEWED = [entry(BEFORE, "alice"), entry(AFTER, "alice", "all")]


@asynccontextmanager
async def renewing_watcher(api: Api) -> AsyncGenerator[tuple[Watcher, Callable[[], None]]]:
    """Yields a client of version 2025-11-25 that sends `BEFORE`, and a function that makes it send `AFTER`."""
    async with api.client(BEFORE) as http:
        found: list[Watcher] = []

        async def hear(message: object) -> None:
            await found[0].hear(message)

        def renew() -> None:
            http.headers["Authorization"] = f"Bearer {AFTER}"

        transport = streamable_http_client(api.gateway.url, http_client=http)
        async with Client(transport, mode="legacy", message_handler=hear) as client:
            found.append(Watcher(client))
            yield found[0], renew


async def test_a_subscription_continues_after_a_token_renewal_with_more_scopes(tmp_path: Path) -> None:
    with served_over_http(tmp_path, auth={"tokens": RENEWED}, one=FIXTURE) as api:
        async with renewing_watcher(api) as (one, renew), one.watching(of("one", WATCHED)):
            renew()
            async with one.watching(of("one", WATCHED), of("one", STATIC)):
                for uri in (WATCHED, STATIC):
                    await update(one.client, "one", uri)
                await until(lambda: of("one", STATIC) in one.heard, "the client is notified of the last subscription")
                assert one.heard == [of("one", WATCHED), of("one", STATIC)]


async def test_a_token_with_fewer_scopes_cannot_join_a_subscription(tmp_path: Path) -> None:
    policy = {"rules": [{"then": "allow", "scopes": ["all"]}], "otherwise": "refuse"}
    with served_over_http(tmp_path, auth={"tokens": RENEWED}, settings={"policy": policy}, one=FIXTURE) as api:
        async with renewing_watcher(api) as (less, _), renewing_watcher(api) as (more, renew):
            renew()
            async with more.watching(of("one", WATCHED)):
                with pytest.raises(MCPError, match="is not allowed to use"):
                    async with less.watching(of("one", WATCHED)):
                        pass
                await update(more.client, "one", WATCHED)
                await until(lambda: more.heard, "the other subscription continues")
                assert less.heard == []
