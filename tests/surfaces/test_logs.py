"""Tests that log messages of servers reach only the client whose call they belong to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import anyio
import httpx2
import mcp_types
import pytest
from mcp import Client
from tests.interop.launching import http_fixture
from tests.servers.launching import write_config
from tests.surfaces.serving import ENVELOPE, Conversation, Json, Mode, ask, conversation, run_tool, text_of
from tests.surfaces.test_http import serving
from tests.surfaces.test_pass_through import CLIENTS, ERAS, HANDSHAKE_FIXTURE, SERVERS, Person
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

LEVELS: tuple[mcp_types.LoggingLevel, ...] = get_args(mcp_types.LoggingLevel)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a gateway over servers of both versions with stdio and HTTP, and over three more servers of
    version 2025-11-25 that one test each uses."""
    with http_fixture() as url, http_fixture("--era", "legacy") as older:
        over_http: dict[str, Json] = {"newer-http": {"url": url}, "handshake-http": {"url": older}}
        alone = dict.fromkeys(("silent", "leveled", "mortal"), HANDSHAKE_FIXTURE)
        config = write_config(tmp_path_factory.mktemp("logs") / "mcp.json", **SERVERS, **over_http, **alone)
        with serving(config) as gateway:
            yield gateway.url


class Listener:
    """A client with the log messages that it received."""

    def __init__(self, client: Client, heard: list[mcp_types.LoggingMessageNotificationParams]) -> None:
        self.client = client
        self.heard = heard

    @property
    def levels(self) -> list[str]:
        return [message.level for message in self.heard]

    @property
    def words(self) -> list[object]:
        return [message.data for message in self.heard]

    async def set_level(self, level: mcp_types.LoggingLevel) -> None:
        params = mcp_types.SetLevelRequestParams(level=level)
        await self.client.session.send_request(mcp_types.SetLevelRequest(params=params), mcp_types.EmptyResult)


@asynccontextmanager
async def listener(
    gateway: str, mode: Mode, level: mcp_types.LoggingLevel | None, person: Person | None = None
) -> AsyncGenerator[Listener]:
    """Yields a client that requests messages from `level` on, as its protocol version defines."""
    heard: list[mcp_types.LoggingMessageNotificationParams] = []

    async def hear(params: mcp_types.LoggingMessageNotificationParams) -> None:
        heard.append(params)

    able: dict[str, Any] = {} if person is None else {"elicitation_callback": person.elicit}
    wanted = level if mode == "auto" else None
    async with Client(gateway, mode=mode, logging_callback=hear, log_level=wanted, **able) as client:
        told = Listener(client, heard)
        if level is not None and mode == "legacy":
            await told.set_level(level)
        yield told


async def let_go(client: Client, source: str, key: str) -> None:
    """Wait until the server holds a call under `key`, and release that call."""
    with anyio.fail_after(DEADLINE_S):
        while text_of(await run_tool(client, f"{source}.test_let_go", key=key)) != "yes":
            pass


@CLIENTS
@ERAS
async def test_a_client_receives_log_messages_from_its_requested_level(source: str, mode: Mode, shared: str) -> None:
    async with listener(shared, mode, "warning") as told:
        await run_tool(told.client, f"{source}.test_log_all_levels")
        await until(lambda: len(told.heard) >= len(LEVELS) - 3, "the messages")
        assert told.levels == [*LEVELS[3:]]
        assert told.words[0] == {"level": "warning", "nothing": None}
        if mode == "legacy":
            told.heard.clear()
            await told.set_level("emergency")
            await run_tool(told.client, f"{source}.test_log_all_levels")
            await until(lambda: told.heard, "the message")
            assert told.levels == ["emergency"]


@ERAS
async def test_a_newer_client_without_a_log_level_receives_no_messages(source: str, shared: str) -> None:
    async with listener(shared, "auto", "debug") as asking, listener(shared, "auto", None) as silent:
        await run_tool(silent.client, f"{source}.test_log_all_levels")
        await run_tool(asking.client, f"{source}.test_log_all_levels")
        await until(lambda: len(asking.heard) == len(LEVELS), "the messages")
        assert silent.heard == []


async def test_an_older_client_without_a_level_receives_logs_of_older_servers(shared: str) -> None:
    async with listener(shared, "legacy", None) as told:
        await run_tool(told.client, "newer.test_log_all_levels")
        answer = await run_tool(told.client, "silent.test_log_all_levels")
        assert text_of(answer) == ""  # no client has set the level of this server
        await until(lambda: len(told.heard) >= len(LEVELS), "the messages")
        assert told.levels == [*LEVELS]


async def test_an_older_server_is_set_to_the_lowest_requested_level(shared: str) -> None:
    async with listener(shared, "legacy", "error") as one, listener(shared, "auto", "info") as two:
        assert text_of(await run_tool(one.client, "leveled.test_log_all_levels")) == "error"
        assert text_of(await run_tool(two.client, "leveled.test_log_all_levels")) == "error info"
        assert text_of(await run_tool(one.client, "leveled.test_log_all_levels")) == "error info"
        await until(lambda: len(one.heard) == 2 * 4 and len(two.heard) == 7, "the messages")


@EVERY_PAIR
async def test_log_messages_of_a_call_never_reach_a_different_client(source: str, mode: Mode, shared: str) -> None:
    keys = [f"{source} {mode} {number}" for number in (1, 2)]
    async with listener(shared, mode, "debug") as one, listener(shared, mode, "debug") as two:
        async with anyio.create_task_group() as calls:

            async def hold(told: Listener, key: str) -> None:
                assert text_of(await run_tool(told.client, f"{source}.test_hold", key=key)) == key

            for told, key in zip((one, two), keys, strict=True):
                calls.start_soon(hold, told, key)
            async with Client(shared) as third:
                for key in keys:
                    await let_go(third, source, key)
        if source.endswith("http"):  # each response has its own stream, so the messages are certain
            await until(lambda: len(one.heard) >= 2 and len(two.heard) >= 2, "the messages")
            assert one.words == [f"{keys[0]} is held", f"{keys[0]} goes on"]
            assert two.words == [f"{keys[1]} is held", f"{keys[1]} goes on"]
        assert not [word for word in one.words if keys[1] in str(word)]
        assert not [word for word in two.words if keys[0] in str(word)]


async def test_log_messages_of_a_cancelled_call_reach_no_other_client(shared: str) -> None:
    async with listener(shared, "legacy", "debug") as one, listener(shared, "legacy", "debug") as two:
        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: run_tool(one.client, "mortal.test_hold_on", key="it"))
            await until(lambda: one.heard, "the call is held")
            calls.cancel_scope.cancel()
        assert text_of(await run_tool(two.client, "mortal.test_let_go", key="it")) == "yes"
        await run_tool(two.client, "mortal.test_log_all_levels")
        await run_tool(two.client, "mortal.test_die")  # this also ends the cancelled call
        await run_tool(two.client, "mortal.test_tool_with_logging")
        await until(lambda: len(two.heard) == 3, "its own messages")
        assert one.words == ["it is held"]
        assert two.words[0] == "Tool execution started"


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "auto"])
async def test_log_messages_arrive_before_the_response_of_their_call(modern: bool, tmp_path: Path) -> None:
    with conversation(write_config(tmp_path / "mcp.json", **SERVERS)) as gateway:
        meta: Json = {"_meta": ENVELOPE | {"io.modelcontextprotocol/logLevel": "info"}} if modern else {}
        if not modern:
            capabilities = gateway.shake_hands()["capabilities"]
            assert "logging" in capabilities
            assert gateway.ask("logging/setLevel", {"level": "info"}) == {}
            assert _refusal(gateway, "logging/setLevel", {"level": "loud"}) == mcp_types.INVALID_PARAMS
        else:
            assert "logging" in gateway.ask("server/discover", modern=True)["capabilities"]
        for source in SERVERS:
            expansion = gateway.call("expand_tool", {"tool_id": f"{source}.test_tool_with_logging"}, modern=modern)
            called: Json = {"tool_id": expansion["structuredContent"]["handle"], "arguments": {}}
            before = len(gateway.lines)
            message: Json = {"name": "call_tool", "arguments": called, **meta}
            answer = gateway.answer(gateway.send("tools/call", message))
            told = [json.loads(line) for line in gateway.lines[before:]]
            assert told.pop() == answer
            assert [each["params"]["data"] for each in told if each.get("method") == "notifications/message"] == [
                "Tool execution started",
                "Tool processing data",
                "Tool execution completed",
            ]


def _refusal(gateway: Conversation, method: str, params: Json) -> int:
    return gateway.answer(gateway.send(method, params))["error"]["code"]


async def test_log_messages_during_an_input_request_arrive_afterwards(shared: str) -> None:
    async with listener(shared, "auto", "info", Person()) as told:
        greeting = await run_tool(told.client, "handshake.test_log_and_ask")
        assert text_of(greeting) == "Hello, Ada!"
        await until(lambda: len(told.heard) == 2, "the messages")
        assert told.words == ["before the question", "after the question"]


async def test_a_flood_of_log_messages_blocks_no_client_and_counts_dropped_messages(shared: str) -> None:
    count, chars = 4_000, 5_000
    async with Client(shared) as other, httpx2.AsyncClient(timeout=30) as web:
        handle = (await ask(other, "expand_tool", tool_id="newer-http.test_log_flood"))["handle"]
        called: Json = {"tool_id": handle, "arguments": {"count": count, "chars": chars}}
        meta = ENVELOPE | {"io.modelcontextprotocol/logLevel": "info"}
        body: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body["params"] = {"name": "call_tool", "arguments": called, "_meta": meta}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "call_tool",
        }
        async with web.stream("POST", shared, json=body, headers=headers) as response:
            # The response has begun and is not read. Other clients get answers until the server has logged everything.
            assert response.status_code == 200
            await let_go(other, "newer-http", "flood")
            lines = [line async for line in response.aiter_lines() if line.startswith("data:")]
        *messages, answer = [json.loads(line.removeprefix("data:")) for line in lines]
        assert text_of(mcp_types.CallToolResult.model_validate(answer["result"])) == "Done, with a flood."
        numbers = [int(each["params"]["data"].split()[0]) for each in messages if each["params"]["level"] == "info"]
        left_out = [each["params"] for each in messages if each["params"]["level"] == "warning"]
        assert numbers == sorted(numbers)
        assert left_out
        assert len(numbers) + sum(int(each["data"].split()[0]) for each in left_out) == count
        assert all(each["logger"] == "toolcrib" for each in left_out)
