"""Tests for the gateway over stdio with clients of both protocol versions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.servers import faulty
from tests.servers.launching import events, faulty_entry, write_config
from tests.surfaces.serving import TOOLCRIB, Json, Mode, ask, conversation, run_tool, served, text_of
from tests.until import until

from toolcrib.config import Config
from toolcrib.core.principal import LOCAL
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations import dispatcher
from toolcrib.operations.operation_table import OPERATION_TABLE
from toolcrib.operations.protocol_messages import ListPage
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway

pytestmark = [pytest.mark.anyio, pytest.mark.true_start]

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])
BOTH_RAW = pytest.mark.parametrize("modern", [False, True])

ACROSS = pytest.mark.parametrize(("modern", "upstream"), [(False, "modern"), (True, "legacy")])
"""A client and a server of different protocol versions, where most information could be lost."""

OPERATIONS = ["list", "search_tools", "expand_tool", "call_tool"]


@pytest.mark.holds("goals.nothing-up-front", "operations.few")
@BOTH
async def test_a_client_finds_and_runs_a_tool_through_four_operations(mode: Mode, tmp_path: Path) -> None:
    async with served(write_config(tmp_path / "mcp.json", bench=faulty_entry()), mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == OPERATIONS
        assert "bench" in str(listed.tools[1].description)
        assert client.instructions is not None
        assert "bench" in client.instructions
        assert "handle" in client.instructions

        root = await ask(client, "list")
        assert [(node["name"], node["tool_count"]) for node in root["nodes"]] == [("bench", len(faulty.BASE_TOOLS))]
        found = (await ask(client, "search_tools", query="add two numbers"))["results"]
        assert found[0]["tool_id"] == "bench.add"
        expansion = await ask(client, "expand_tool", tool_id="bench.add")
        assert expansion["args_schema"]["required"] == ["a", "b"]
        called = {"tool_id": expansion["handle"], "arguments": {"a": 2, "b": 3}}
        result = await client.call_tool("call_tool", called)
        assert (text_of(result), result.structured_content, result.is_error) == ("5", {"sum": 5}, False)


async def test_a_gateway_that_hides_everything_from_its_client_warns_its_owner(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"policy": {"otherwise": "hide"}}, bench=faulty_entry())
    parameters = StdioServerParameters(command=TOOLCRIB, args=["serve", str(config), "--no-cache", "--no-audit"])
    told = f"The policy hides all {len(faulty.BASE_TOOLS)} tools from the principal `local`."
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            assert (await ask(client, "list"))["nodes"] == []
            await until(lambda: told in (tmp_path / "errors").read_text(), "the warning")


@BOTH_RAW
def test_the_tool_list_is_the_same_before_and_after_the_servers_started(modern: bool, tmp_path: Path) -> None:
    slow = write_config(
        tmp_path / "mcp.json", bench=faulty_entry("slow-start=0.5"), broken=faulty_entry("exit-at-start")
    )
    with conversation(slow) as gateway:
        if not modern:
            gateway.shake_hands()
        before = gateway.ask("tools/list", modern=modern)
        assert gateway.call("search_tools", {"query": "add"}, modern=modern)["structuredContent"]["results"]
        assert gateway.ask("tools/list", modern=modern) == before
        if modern:
            assert before["ttlMs"] > 0
            assert before["cacheScope"] in {"public", "private"}
            assert before["resultType"] == "complete"
        else:
            assert not {"ttlMs", "cacheScope", "resultType"} & before.keys()
        hints = {tool["name"]: tool["annotations"] for tool in before["tools"]}
        assert all(hints[name]["readOnlyHint"] for name in OPERATIONS[:3])
        assert hints["call_tool"]["destructiveHint"]
        assert not hints["call_tool"]["readOnlyHint"]
        assert gateway.end() == 0


def test_initialize_declares_that_the_tool_list_may_change(tmp_path: Path) -> None:
    with conversation(write_config(tmp_path / "mcp.json")) as gateway:
        told = gateway.shake_hands()
        assert told["capabilities"]["tools"] == {"listChanged": True}
        assert told["serverInfo"]["name"] == "toolcrib"
        assert "search_tools" in told["instructions"]


@pytest.mark.holds("errors.next-action")
@BOTH
async def test_every_error_has_text_structured_content_and_a_next_action(mode: Mode, tmp_path: Path) -> None:
    async with served(write_config(tmp_path / "mcp.json", bench=faulty_entry("die-in-call", "error")), mode) as client:

        async def error(operation: str, /, **arguments: Any) -> Json:
            return (await ask(client, operation, **arguments))["error"]

        missing = await error("expand_tool", tool_id="bench.ad")
        assert missing["code"] == "TOOL_NOT_FOUND"
        assert "bench.add" in missing["hints"][0]
        bare = await error("call_tool", tool_id="bench.add", arguments={"a": 1, "b": 2})
        assert bare["code"] == "NOT_EXPANDED"
        assert bare["next_action"] == {"operation": "expand_tool", "arguments": {"tool_id": "bench.add"}}

        handle = (await ask(client, "expand_tool", **bare["next_action"]["arguments"]))["handle"]
        wrong = await error("call_tool", tool_id=handle, arguments={"a": "1", "b": 2})
        assert wrong["code"] == "INVALID_ARGUMENTS"
        again = await client.call_tool(wrong["next_action"]["operation"], wrong["next_action"]["arguments"])
        assert again.structured_content == {"sum": 3}

        assert (await error("call_tool", tool_id="bench.add@000000000000"))["code"] == "STALE_EXPANSION"
        assert (await error("list", path=["bnch"]))["code"] == "UNKNOWN_PATH"
        assert (await error("search_tools", query="add", cursor="AAAA"))["code"] == "INVALID_CURSOR"
        assert (await error("search_tools", qurey="add"))["code"] == "INVALID_ARGUMENTS"
        assert (await error("expand_tool"))["code"] == "INVALID_ARGUMENTS"

        for tool_id, code in [("bench.refuse", "TOOL_FAILED"), ("bench.crash", "SOURCE_UNAVAILABLE")]:
            expanded = await ask(client, "expand_tool", tool_id=tool_id)
            assert (await error("call_tool", tool_id=expanded["handle"]))["code"] == code
        assert (await run_tool(client, "bench.echo", text="back again")).structured_content == {"text": "back again"}


@BOTH_RAW
def test_a_schema_with_an_integer_beyond_64_bits_is_unchanged(modern: bool, tmp_path: Path) -> None:
    with conversation(write_config(tmp_path / "mcp.json", bench=faulty_entry("big-number"))) as gateway:
        if not modern:
            gateway.shake_hands()
        shown = gateway.call("expand_tool", {"tool_id": "bench.weigh"}, modern=modern)
        schema = shown["structuredContent"]["args_schema"]
        assert schema["properties"]["grams"]["maximum"] == faulty.BEYOND_64_BITS
        assert json.loads(shown["content"][0]["text"]) == shown["structuredContent"]
        assert gateway.run_tool("bench.weigh", {"grams": 5}, modern=modern)["content"][0]["text"] == "weigh"


@BOTH
async def test_an_internal_error_response_contains_no_details(
    mode: Mode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> ListPage:
        raise KeyError("/home/ada/.secret")

    table = {**OPERATION_TABLE, "list": replace(OPERATION_TABLE["list"], answer=broken)}
    monkeypatch.setattr(dispatcher, "OPERATION_TABLE", table)
    crib = Toolcrib()
    gateway = Gateway(crib, Config(Path("mcp.json")), principal=LOCAL)
    async with crib, gateway, Client(gateway.server, mode=mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("list", {})
        assert caught.value.error.code == -32603
        assert "secret" not in str(caught.value.error)
        assert "secret" in caplog.text
        assert (await ask(client, "search_tools", query="anything"))["results"] == []


@BOTH
async def test_calling_an_unknown_tool_name_is_a_protocol_error(mode: Mode, tmp_path: Path) -> None:
    async with served(write_config(tmp_path / "mcp.json", bench=faulty_entry()), mode) as client:
        for name in ("bench.add", "hammer"):
            with pytest.raises(MCPError, match="Unknown tool") as caught:
                await client.call_tool(name, {})
            assert caught.value.error.code == -32602


@ACROSS
def test_results_pass_through_unchanged_between_protocol_versions(modern: bool, upstream: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("bad-output", "--era", upstream))
    with conversation(config) as gateway:
        if not modern:
            gateway.shake_hands()
        picture = gateway.run_tool("bench.image", modern=modern)
        direct = faulty._image({})  # pyright: ignore[reportPrivateUsage]  the answer of the server itself
        # Only the URIs of resources differ, because they name their server.
        assert json.loads(json.dumps(picture["content"]).replace("toolcrib://bench/", "")) == direct["content"]
        assert [block["uri"] for block in picture["content"] if "uri" in block] == ["toolcrib://bench/memo://palette"]
        assert picture["structuredContent"] == direct["structuredContent"]
        assert picture["futureField"] == direct["futureField"]
        assert picture["_meta"]["example.com/camera"] == "none"
        nothing = gateway.run_tool("bench.env", {"name": "NOT_SET"}, modern=modern)
        assert nothing["structuredContent"]["value"] is None
        assert gateway.run_tool("bench.mismatch", modern=modern)["structuredContent"] == {"total": "many"}
        failed = gateway.run_tool("bench.fail", modern=modern)
        assert failed["isError"]
        assert failed["content"] == [{"type": "text", "text": "This tool always fails."}]


@ACROSS
def test_results_are_converted_to_forms_that_the_client_version_has(
    modern: bool, upstream: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("list-output", "odd-output", "--era", upstream))
    with conversation(config) as gateway:
        if not modern:
            gateway.shake_hands()
        result = gateway.run_tool("bench.numbers", modern=modern)
        numbers = [1, None, {"three": None}]
        assert result["structuredContent"] == (numbers if modern else {"result": numbers})
        assert result["content"] == [{"type": "text", "text": "one, nothing, three"}]
        chart = gateway.run_tool("bench.chart", modern=modern)["content"]
        assert [block["type"] for block in chart] == ["text", "text", "text"]
        assert json.loads(chart[0]["text"]) == {"type": "chart", "bars": [1, None, 3]}
        assert chart[2]["text"] == "a chart"


@BOTH
async def test_progress_of_the_server_reaches_the_client(mode: Mode, tmp_path: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with served(write_config(tmp_path / "mcp.json", bench=faulty_entry()), mode) as client:
        handle = (await ask(client, "expand_tool", tool_id="bench.slow"))["handle"]
        called = {"tool_id": handle, "arguments": {"steps": 3}}
        result = await client.call_tool("call_tool", called, progress_callback=hear)
    assert text_of(result) == "done after 3 steps"
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@BOTH
async def test_cancellation_by_the_client_reaches_the_server(mode: Mode, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("--log", str(log)))
    async with served(config, mode) as client:
        handle = (await ask(client, "expand_tool", tool_id="bench.slow"))["handle"]
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            called = {"tool_id": handle, "arguments": {"steps": 1, "hold": True}}
            await client.call_tool("call_tool", called, progress_callback=cancel)
        assert scope.cancelled_caught
        await until(lambda: events(log, "cancelled"), "the server stops the call")
        assert text_of(await run_tool(client, "bench.echo", text="still here")) == "still here"


async def test_concurrent_calls_get_their_own_answers(tmp_path: Path) -> None:
    answers: dict[int, Any] = {}
    async with served(write_config(tmp_path / "mcp.json", bench=faulty_entry())) as client:
        handle = (await ask(client, "expand_tool", tool_id="bench.add"))["handle"]

        async def add(number: int) -> None:
            called = {"tool_id": handle, "arguments": {"a": number, "b": 1000}}
            answers[number] = (await client.call_tool("call_tool", called)).structured_content

        async with anyio.create_task_group() as calls:
            for number in range(50):
                calls.start_soon(add, number)
    assert answers == {number: {"sum": number + 1000} for number in range(50)}


@BOTH_RAW
def test_the_gateway_prints_only_protocol_messages(modern: bool, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json",
        noisy=faulty_entry("garbage", "flood-stderr"),
        broken=faulty_entry("exit-at-start"),
        absent={"command": "no-such-program-4b1f"},
    )
    with conversation(config) as gateway:
        if not modern:
            gateway.shake_hands()
        assert gateway.run_tool("noisy.echo", {"text": "through"}, modern=modern)["structuredContent"] == {
            "text": "through"
        }
        assert gateway.process.stdin is not None
        gateway.process.stdin.write(b'this is no JSON\n\n[1, 2]\n{"jsonrpc": "2.0"}\n')
        assert gateway.run_tool("noisy.add", {"a": 1, "b": 2}, modern=modern)["structuredContent"] == {"sum": 3}
        assert gateway.end() == 0
        for line in gateway.lines:
            assert line.startswith(b'{"jsonrpc":"2.0"'), line


async def test_a_failed_server_is_listed_as_unavailable_and_others_work(tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json",
        bench=faulty_entry(),
        broken=faulty_entry("exit-at-start"),
        unset={"command": "x", "env": {"TOKEN": "${TOOLCRIB_TEST_NOT_SET}"}},
        off={"command": "x", "disabled": True},
    )
    async with served(config) as client:
        root = await ask(client, "list")
        assert [node["name"] for node in root["nodes"]] == ["bench"]
        assert root["unavailable"] == ["broken", "unset"]
        why = (await ask(client, "expand_tool", tool_id="broken.echo"))["error"]
        assert why["code"] == "SOURCE_UNAVAILABLE"
        assert "it exited" in why["message"]
        assert "the vice is missing" not in str(
            why
        )  # only for the owner, because the output may contain paths and secrets
        unset = (await ask(client, "expand_tool", tool_id="unset.echo"))["error"]
        assert unset["message"] == "The source `unset` is unavailable: Its configuration is invalid."
        assert text_of(await run_tool(client, "bench.echo", text="fine")) == "fine"


async def test_the_first_search_waits_for_servers_that_are_starting(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("slow-start=0.7"))
    async with served(config) as client:
        found = await ask(client, "search_tools", query="add two integers")
        assert found["results"][0]["tool_id"] == "bench.add"
        assert "starting" not in found


async def test_a_configuration_without_servers_gives_an_empty_catalog(tmp_path: Path) -> None:
    async with served(write_config(tmp_path / "mcp.json")) as client:
        assert (await ask(client, "search_tools", query="anything"))["results"] == []
        assert (await ask(client, "list"))["nodes"] == []


async def test_search_pages_with_cursors_return_each_tool_once(tmp_path: Path) -> None:
    async with served(write_config(tmp_path / "mcp.json", bench=faulty_entry("odd-tools"))) as client:
        seen: list[str] = []
        cursor = None
        while True:
            page = await ask(client, "search_tools", query="", category=["bench"], limit=7, cursor=cursor)
            seen += [tool["tool_id"] for tool in page["results"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert len(seen) == len(set(seen)) == len(faulty.BASE_TOOLS) + 11
        assert "bench.天気予報" in seen
