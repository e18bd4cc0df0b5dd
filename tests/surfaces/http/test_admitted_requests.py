"""Tests that open requests and streams end when their token is revoked or expires."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.servers.launching import Json, events, faulty_entry, received, write_config
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, Api, problem, served
from tests.surfaces.http.issuer import AUDIENCE, issuing
from tests.surfaces.serving import ENVELOPE
from tests.until import DEADLINE_S, until

from toolcrib.surfaces.auth.signed_tokens import LEEWAY_S

pytestmark = pytest.mark.anyio

VERSIONS = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])

INTRODUCTION: Json = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


class Raw:
    """A client of either protocol version that reads streams message by message."""

    def __init__(self, http: httpx2.AsyncClient, version: str) -> None:
        self._http = http
        self._is_modern = version == "2026-07-28"
        self._headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}

    async def begin(self) -> None:
        if self._is_modern:
            return
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INTRODUCTION}
        begun = await self._http.post("/mcp", json=message, headers=self._headers)
        self._headers["Mcp-Session-Id"] = begun.headers["Mcp-Session-Id"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self._http.post("/mcp", json=note, headers=self._headers)).status_code == 202

    @asynccontextmanager
    async def standing(self) -> AsyncGenerator[AsyncIterator[Json]]:
        """Opens the GET stream of a session."""
        async with self._http.stream("GET", "/mcp", headers=self._headers) as response:
            assert response.status_code == 200
            yield messages(response)

    @asynccontextmanager
    async def asking(self, method: str, params: Json) -> AsyncGenerator[AsyncIterator[Json]]:
        """Sends request 7 and yields the stream of its response."""
        meta = {**(ENVELOPE if self._is_modern else {}), "progressToken": "p"}
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}
        headers = self._headers | {"Mcp-Method": method} | ({"Mcp-Name": params["name"]} if "name" in params else {})
        async with self._http.stream("POST", "/mcp", json=message, headers=headers) as response:
            assert response.status_code == 200
            yield messages(response)


async def messages(response: httpx2.Response) -> AsyncIterator[Json]:
    """Yields messages until the stream ends properly. A connection that is cut off raises an error."""
    async for line in response.aiter_lines():
        if line.startswith("data:") and (text := line.removeprefix("data:").strip()):
            yield json.loads(text)


def forget_alice(api: Api, **servers: Json) -> None:
    write_config(api.config, toolcrib={"auth": {"tokens": TOKENS[1:]}}, **servers)


async def handle(api: Api, tool_id: str, token: str = ALICE) -> str:
    return (await api.ask("expand_tool", token, tool_id=tool_id)).json()["handle"]


async def test_a_session_stream_ends_when_its_token_is_removed(tmp_path: Path) -> None:
    with served(tmp_path, auth={"tokens": TOKENS}, bench=faulty_entry()) as api:
        async with api.client(ALICE) as http:
            client = Raw(http, "2025-11-25")
            await client.begin()
            async with client.standing() as stream:
                forget_alice(api, bench=faulty_entry())
                with anyio.fail_after(DEADLINE_S):
                    assert [message async for message in stream] == []
        api.gateway.stop()
        stderr = api.gateway.process.stderr
        assert stderr is not None
        told = stderr.read()
        assert "ended one request of `alice` before the response was complete: Invalid token." in told
        assert ALICE not in told


async def test_a_subscription_ends_with_its_token_and_other_subscriptions_continue(tmp_path: Path) -> None:
    with served(tmp_path, auth={"tokens": TOKENS}, bench=faulty_entry()) as api:
        wanted = {"notifications": {"toolsListChanged": True}}
        async with api.client(ALICE) as of_alice, api.client(BOB) as of_bob:
            alice, bob = Raw(of_alice, "2026-07-28"), Raw(of_bob, "2026-07-28")
            async with (
                alice.asking("subscriptions/listen", wanted) as hers,
                bob.asking("subscriptions/listen", wanted) as his,
            ):
                agreed = "notifications/subscriptions/acknowledged"
                assert (await anext(hers))["method"] == (await anext(his))["method"] == agreed
                forget_alice(api, bench=faulty_entry())
                with anyio.fail_after(DEADLINE_S):
                    *_, last = [message async for message in hers]
                    assert last["id"] == 7
                    assert "Invalid token." in last["error"]["message"]
                    forget_alice(api, bench=faulty_entry(), more=faulty_entry())
                    assert (await anext(his))["method"] == "notifications/tools/list_changed"


@VERSIONS
async def test_a_call_is_cancelled_with_an_error_when_its_token_is_removed(version: str, tmp_path: Path) -> None:
    bench = faulty_entry("--log", str(log := tmp_path / "seen.jsonl"))
    with served(tmp_path, auth={"tokens": TOKENS}, bench=bench) as api:
        called = {"tool_id": await handle(api, "bench.slow"), "arguments": {"steps": 1, "hold": True}}
        async with api.client(ALICE) as http:
            client = Raw(http, version)
            await client.begin()
            async with client.asking("tools/call", {"name": "call_tool", "arguments": called}) as stream:
                assert (await anext(stream))["method"] == "notifications/progress"
                forget_alice(api, bench=bench)
                with anyio.fail_after(DEADLINE_S):
                    (last,) = [message async for message in stream]
                assert last["id"] == 7
                assert "Invalid token." in last["error"]["message"]
        await until(lambda: events(log, "cancelled"), "the server receives the cancellation")


async def test_an_unanswered_call_gets_401_when_its_token_is_removed(tmp_path: Path) -> None:
    bench = faulty_entry("--log", str(log := tmp_path / "seen.jsonl"))
    with served(tmp_path, auth={"tokens": TOKENS}, bench=bench) as api:
        called = {"tool_id": await handle(api, "bench.slow"), "arguments": {"steps": 0, "hold": True}}
        answers: list[httpx2.Response] = []

        async def call() -> None:
            answers.append(await api.ask("call_tool", ALICE, **called))

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await until(lambda: received(log, "tools/call"), "the call reached the server")
            forget_alice(api, bench=bench)
        assert answers[0].status_code == 401
        assert problem(answers[0])["code"] == "UNAUTHORIZED"
        assert 'error="invalid_token"' in answers[0].headers["www-authenticate"]
        await until(lambda: events(log, "cancelled"), "the server receives the cancellation")


async def test_an_open_stream_ends_when_authentication_is_turned_on(tmp_path: Path) -> None:
    with served(tmp_path, bench=faulty_entry()) as api:
        async with api.client() as http:
            client = Raw(http, "2025-11-25")
            await client.begin()
            async with client.standing() as stream:
                write_config(api.config, toolcrib={"auth": {"tokens": TOKENS}}, bench=faulty_entry())
                with anyio.fail_after(DEADLINE_S):
                    assert [message async for message in stream] == []


async def test_a_stream_ends_when_its_signed_token_expires(tmp_path: Path) -> None:
    with issuing() as issuer:
        auth = {"jwt": {"issuer": issuer.url, "audience": AUDIENCE, "jwks_url": issuer.jwks_url}}
        with served(tmp_path, auth=auth, bench=faulty_entry()) as api:
            # Already expired, but for a few seconds still within the allowed clock difference.
            token = issuer.token(exp=int(time.time()) + 5 - LEEWAY_S, iat=None)
            async with api.client(token) as http:
                client = Raw(http, "2026-07-28")
                wanted = {"notifications": {"toolsListChanged": True}}
                async with client.asking("subscriptions/listen", wanted) as stream:
                    with anyio.fail_after(DEADLINE_S):
                        *_, last = [message async for message in stream]
                assert "This token has expired." in last["error"]["message"]
