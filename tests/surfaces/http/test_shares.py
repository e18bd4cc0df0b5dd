"""Tests that principals share limited resources fairly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.servers.launching import Json
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, problem
from tests.surfaces.http.here import Here, envelope, headers_of, served_here
from tests.until import DEADLINE_S, until

from toolcrib import Toolcrib
from toolcrib.sources.base import Extras, Listing
from toolcrib.surfaces.auth import admitted_requests
from toolcrib.surfaces.http.http_connections import ConnectionLimits
from toolcrib.surfaces.mcp_gateway import streamable_http, subscriptions
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio


class Library(ScriptedSource):
    """A source that offers any resource and supports subscriptions."""

    def __init__(self) -> None:
        super().__init__("library")
        self.watched: list[str] = []

    async def list_tools(self) -> Listing:
        return Listing((), extras=Extras(templates=({"name": "page", "uriTemplate": "page://{number}"},)))

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        self.watched.append(uri)

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        self.watched.remove(uri)


@asynccontextmanager
async def subscribed(here: Here, token: str, *numbers: int) -> AsyncGenerator[list[int]]:
    """Opens a subscription for the block and yields the numbers of the pages that the gateway accepted."""
    uris = [f"toolcrib://library/page://{number}" for number in numbers]
    body = envelope("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    async with here.client(token) as client, client.stream("POST", "/mcp", json=body, headers=headers_of(body)) as got:
        async for line in got.aiter_lines():
            if line.startswith("data:"):
                agreed = json.loads(line.removeprefix("data:"))["params"]["notifications"]
                yield [int(uri.rpartition("/")[2]) for uri in agreed.get("resourceSubscriptions") or ()]
                return


async def test_a_principal_with_many_subscriptions_makes_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WATCHED", 10)
    crib, library = Toolcrib(), Library()
    crib.add_source(library)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(served_here(tmp_path, crib, auth={"tokens": TOKENS}))
        with anyio.fail_after(DEADLINE_S):
            assert len(await stack.enter_async_context(subscribed(here, BOB, *range(100)))) == 10
            assert await stack.enter_async_context(subscribed(here, ALICE, 1, 2)) == [1, 2]
            assert len(library.watched) == 10, "two that bob watched have ended"
            assert await stack.enter_async_context(subscribed(here, BOB, 200)) == []
            assert await stack.enter_async_context(subscribed(here, ALICE, 3)) == [3]


HELLO: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "here", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def new_session(client: httpx2.AsyncClient) -> str:
    """Starts a session and returns its id."""
    return (await client.post("/mcp", json=HELLO, headers=ACCEPT)).raise_for_status().headers["Mcp-Session-Id"]


async def is_open(client: httpx2.AsyncClient, session: str) -> bool:
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answer = await client.post("/mcp", json=ping, headers={**ACCEPT, "Mcp-Session-Id": session})
    assert answer.status_code in {200, 404}
    return answer.status_code == 200


async def test_new_sessions_replace_only_sessions_of_the_same_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_SESSIONS_EACH", 3)
    async with (
        served_here(tmp_path, auth={"tokens": TOKENS}) as here,
        here.client(ALICE) as ada,
        here.client(BOB) as eve,
    ):
        mine = await new_session(ada)
        used = await new_session(eve)
        hers: list[str] = []
        for _ in range(30):
            hers.append(await new_session(eve))
            assert await is_open(eve, used), "the one that was used last is not the one that has been idle for longest"
        assert [await is_open(eve, each) for each in hers[-3:]] == [False, True, True]
        assert await is_open(ada, mine)


async def test_a_session_with_an_active_request_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_SESSIONS_EACH", 1)
    async with served_here(tmp_path) as here, here.client() as client:
        session = {**ACCEPT, "Mcp-Session-Id": await new_session(client)}
        async with client.stream("GET", "/mcp", headers=session) as listening:
            assert listening.status_code == 200
            assert (await client.post("/mcp", json=HELLO, headers=ACCEPT)).status_code == 503


async def test_a_principal_without_sessions_can_always_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_SESSIONS", 3)
    async with (
        served_here(tmp_path, auth={"tokens": TOKENS}) as here,
        here.client(ALICE) as ada,
        here.client(BOB) as eve,
    ):
        hers = [await new_session(eve) for _ in range(3)]
        mine = await new_session(ada)
        for _ in range(10):
            await new_session(eve)
        assert await is_open(ada, mine)
        assert not await is_open(eve, hers[0])


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


class Waiting:
    """A tool whose calls wait for an event."""

    def __init__(self) -> None:
        self.began = 0
        self.go_on = anyio.Event()

    async def wait(self) -> str:
        """Wait."""
        self.began += 1
        await self.go_on.wait()
        return "done"


async def test_concurrent_requests_are_limited_per_principal(tmp_path: Path, waiting: Waiting) -> None:
    crib, bounds = Toolcrib(), ConnectionLimits(connections=12)
    crib.add(waiting.wait)
    answered: list[int] = []
    async with served_here(tmp_path, crib, auth={"tokens": TOKENS}, bounds=bounds) as here:
        handle = await here.handle("functions.wait", BOB)

        async def call() -> None:
            answered.append((await here.ask("call_tool", BOB, tool_id=handle)).status_code)

        async with anyio.create_task_group() as calls:
            for _ in range(bounds.requests_each):
                calls.start_soon(call)
            await until(lambda: waiting.began == bounds.requests_each, "all allowed calls are running")
            refused = await here.ask("list", BOB)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
            assert problem(refused)["retryable"]
            assert (await here.ask("list", ALICE)).status_code == 200
            waiting.go_on.set()
        assert answered == [200] * bounds.requests_each
        assert (await here.ask("list", BOB)).status_code == 200


async def test_the_size_of_pending_bodies_is_limited_per_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admitted_requests, "MAX_BODY_BYTES_EACH", 1_000)
    async with served_here(tmp_path, auth={"tokens": TOKENS}) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        lines = ["POST /v1/list HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {BOB}", "Content-Length: 2000"]
        writer.write("\r\n".join([*lines, "Expect: 100-continue", "", ""]).encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 100")  # the gateway reads the body
        writer.write(b" " * 900)
        with anyio.fail_after(DEADLINE_S):
            while (refused := await here.ask("search_tools", BOB, query="x" * 200)).status_code != 429:
                assert refused.status_code == 200  # the gateway has not read the written bytes yet
        assert "bytes" in problem(refused)["message"]
        assert (await here.ask("search_tools", ALICE, query="x" * 200)).status_code == 200
        writer.close()
        await writer.wait_closed()
        with anyio.fail_after(DEADLINE_S):
            while (await here.ask("search_tools", BOB, query="x" * 200)).status_code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.01)
