"""Tests of the server with faults: it works without faults in both versions, and every fault has its effect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.subscriptions import ToolsListChanged
from mcp_types import CallToolResult, TextContent, ToolListChangedNotification
from tests.servers import faulty

FAULTY = str(Path(faulty.__file__))

Mode = Literal["legacy", "auto"]

ERAS = pytest.mark.parametrize(
    ("mode", "version"), [("legacy", faulty.LEGACY_VERSIONS[-1]), ("auto", faulty.MODERN_VERSION)]
)
BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

_ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": faulty.MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def connect(*arguments: str, mode: Mode = "auto") -> Client:
    return Client(StdioServerParameters(command=sys.executable, args=[FAULTY, *arguments]), mode=mode)


def request(request_id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(request_id: int, name: str, /, **arguments: Any) -> dict[str, Any]:
    return request(request_id, "tools/call", name=name, arguments=arguments)


def enveloped(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "params": {**message["params"], "_meta": _ENVELOPE}}


def converse(faults: Sequence[str], *messages: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    """Runs the server with `messages` as its input and returns its complete output."""
    sent = "".join(json.dumps(message) + "\n" for message in messages).encode()
    return subprocess.run([sys.executable, FAULTY, *faults], input=sent, capture_output=True, check=False)


def answers(faults: Sequence[str], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in converse(faults, *messages).stdout.splitlines()]


def logged(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


@ERAS
@pytest.mark.anyio
async def test_without_faults_the_server_serves_its_tools_in_both_versions(mode: Mode, version: str) -> None:
    async with connect(mode=mode) as client:
        assert client.session.protocol_version == version
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [tool["name"] for tool in faulty.BASE_TOOLS]

        echoed = await client.call_tool("echo", {"text": "お茶"})
        assert (text(echoed), echoed.structured_content) == ("お茶", {"text": "お茶"})
        assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"sum": 5}
        assert (await client.call_tool("add", {"a": 2, "b": "3"})).is_error
        assert (await client.call_tool("fail", {})).is_error

        first, second = await client.call_tool("pid", {}), await client.call_tool("pid", {})
        assert first.structured_content == second.structured_content
        assert (await client.call_tool("count", {})).structured_content == {"calls": 7}
        with pytest.raises(MCPError, match="Unknown tool: hammer"):
            await client.call_tool("hammer", {})


@BOTH
@pytest.mark.anyio
async def test_a_slow_tool_reports_its_progress_and_then_answers(mode: Mode) -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async with connect(mode=mode) as client:
        result = await client.call_tool("slow", {"steps": 2}, progress_callback=on_progress)

    assert text(result) == "done after 2 steps"
    assert reports == [(1, 2, "step 1"), (2, 2, "step 2")]


@BOTH
@pytest.mark.anyio
async def test_a_cancelled_call_stops_and_is_logged(mode: Mode, tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with connect("--log", str(log), mode=mode) as client:
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await client.call_tool("slow", {"steps": 1, "hold": True}, progress_callback=cancel)
        assert scope.cancelled_caught
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"

    entries = logged(log)
    cancellation = next(e["received"] for e in entries if e.get("received", {}).get("method") == faulty.CANCELLED)
    stopped = next(entry for entry in entries if entry.get("event") == "cancelled")
    assert stopped["request_id"] == cancellation["params"]["requestId"]
    assert entries.index(stopped) > entries.index({"received": cancellation})


def test_the_image_tool_sends_every_content_type_and_unknown_fields() -> None:
    (answer,) = answers([], call(1, "image"))
    assert [block["type"] for block in answer["result"]["content"]] == ["text", "image", "resource", "resource_link"]
    assert answer["result"]["content"][1]["futureField"] == {"depth": 8}
    assert answer["result"]["futureField"] == ["kept"]
    assert answer["result"]["_meta"] == {"example.com/camera": "none"}


@pytest.mark.anyio
async def test_a_list_change_is_announced_to_an_older_client() -> None:
    heard: list[object] = []

    async def on_message(message: object) -> None:
        heard.append(message)

    parameters = StdioServerParameters(command=sys.executable, args=[FAULTY])
    async with Client(parameters, mode="legacy", message_handler=on_message) as client:
        await client.call_tool("change", {"name": "vice", "description": "Hold something."})
        assert (await client.list_tools()).tools[-1].name == "vice"
    assert any(isinstance(message, ToolListChangedNotification) for message in heard)


@pytest.mark.anyio
async def test_a_list_change_is_announced_on_an_open_subscription() -> None:
    async with connect() as client, client.listen(tools_list_changed=True) as subscription:
        await client.call_tool("change", {"name": "echo", "description": "Another text."})
        assert await anext(subscription) == ToolsListChanged()
        assert (await client.list_tools()).tools[0].description == "Another text."


def test_a_newer_client_without_a_subscription_gets_no_notification() -> None:
    assert len(answers([], enveloped(call(1, "change")))) == 1


def test_a_server_of_one_protocol_version_refuses_the_other() -> None:
    handshake = request(1, "initialize", protocolVersion="2025-11-25")
    discovery = enveloped(request(2, "server/discover"))
    legacy = answers(["--era", "legacy"], handshake, discovery)
    modern = answers(["--era", "modern"], handshake, discovery)
    assert legacy[0]["result"]["protocolVersion"] == "2025-11-25"
    assert legacy[1]["error"]["code"] == -32601
    assert modern[0]["error"]["data"]["supported"] == [faulty.MODERN_VERSION]
    assert modern[1]["result"]["supportedVersions"] == [faulty.MODERN_VERSION]


def test_only_a_newer_tool_list_has_a_cache_lifetime() -> None:
    modern, legacy = answers(["--ttl-ms", "900"], enveloped(request(1, "tools/list")), request(2, "tools/list"))
    assert modern["result"]["ttlMs"] == 900
    assert "ttlMs" not in legacy["result"]


def test_exit_at_start_ends_with_code_3_and_a_reason() -> None:
    ended = converse(["exit-at-start"], request(1, "initialize"))
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert b"cannot start" in ended.stderr


def test_slow_start_answers_nothing_before_the_delay() -> None:
    with subprocess.Popen([sys.executable, FAULTY, "slow-start=3600"], stdin=subprocess.PIPE) as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.communicate(timeout=0.5)
        finally:
            process.kill()
    assert len(answers(["slow-start=0.001"], request(1, "ping"))) == 1


def test_silent_servers_read_requests_without_answering(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    messages = request(1, "initialize"), request(2, "tools/list"), call(3, "echo", text="hello")
    assert answers(["silent", "--log", str(log)], *messages) == []
    assert [entry["received"] for entry in logged(log) if "received" in entry] == list(messages)
    assert [answer["id"] for answer in answers(["silent-list"], *messages)] == [1, 3]
    assert [answer["id"] for answer in answers(["silent-call"], *messages)] == [1, 2]


@BOTH
@pytest.mark.anyio
async def test_a_server_that_crashes_in_a_call_answers_earlier_calls(mode: Mode) -> None:
    async with connect("die-in-call", mode=mode) as client:
        assert text(await client.call_tool("echo", {"text": "alive"})) == "alive"
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("crash", {})


def test_a_torn_answer_ends_in_the_middle_of_a_line() -> None:
    ended = converse(["die-in-call"], call(1, "crash", torn=True), request(2, "ping"))
    assert ended.returncode == faulty.EXIT_IN_CALL
    assert ended.stdout.startswith(b'{"jsonrpc"')
    assert not ended.stdout.endswith(b"\n")


@pytest.mark.parametrize("fault", ["garbage", "binary-garbage"])
def test_garbage_is_printed_between_complete_messages(fault: str) -> None:
    good: list[int] = []
    bad = 0
    for line in converse([fault], request(1, "ping"), request(2, "ping")).stdout.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            bad += 1
        else:
            good += [message["id"]] if isinstance(message, dict) and "jsonrpc" in message else []
    assert good == [1, 2]
    assert bad >= 2


@BOTH
@pytest.mark.anyio
async def test_the_sdk_client_works_despite_garbage(mode: Mode) -> None:
    async with connect("garbage", mode=mode) as client:
        assert text(await client.call_tool("echo", {"text": "through"})) == "through"


def test_flood_stderr_writes_5_mb_at_start_and_per_call() -> None:
    flood = faulty.FLOOD_BYTES
    assert flood * 0.99 < len(converse(["flood-stderr"]).stderr) <= flood
    assert len(converse(["flood-stderr"], call(1, "pid")).stderr) > 1.9 * flood


@pytest.mark.anyio
async def test_odd_tools_are_listed_and_break_a_strict_client() -> None:
    (answer,) = answers(["odd-tools"], request(1, "tools/list"))
    assert answer["result"]["tools"] == json.loads(json.dumps([*faulty.BASE_TOOLS, *faulty.ODD_TOOLS]))
    async with connect("odd-tools") as client:
        with pytest.raises(ValueError, match="validation error"):
            await client.list_tools()


def test_an_odd_tool_answers_with_its_name() -> None:
    name = faulty.LONG_NAME
    (answer,) = answers(["odd-tools"], call(1, name))
    assert answer["result"]["content"][0]["text"] == name
    assert len(name) == 200


def test_bad_output_does_not_match_its_schema() -> None:
    listed, called = answers(["bad-output"], request(1, "tools/list"), call(2, "mismatch"))
    assert listed["result"]["tools"][-1]["outputSchema"]["properties"]["total"] == {"type": "integer"}
    assert called["result"]["structuredContent"] == {"total": "many"}


@BOTH
@pytest.mark.anyio
async def test_two_pages_contain_every_tool_once(mode: Mode) -> None:
    async with connect("pages", mode=mode) as client:
        first = await client.list_tools()
        second = await client.list_tools(cursor=first.next_cursor)
    assert second.next_cursor is None
    assert [tool.name for tool in (*first.tools, *second.tools)] == [tool["name"] for tool in faulty.BASE_TOOLS]


def test_endless_pages_always_have_a_next_cursor() -> None:
    first, later = answers(["endless-pages"], request(1, "tools/list"), request(2, "tools/list", cursor="page-7"))
    assert first["result"]["nextCursor"] == "page-2"
    assert later["result"] == {"tools": [], "nextCursor": "page-8"}


@BOTH
@pytest.mark.anyio
async def test_the_refuse_tool_returns_an_error_with_data(mode: Mode) -> None:
    async with connect("error", mode=mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("refuse", {})
    assert refused.value.error.code == faulty.REFUSAL_CODE
    assert refused.value.error.data == {"locked_by": "somebody else", "since": "2026-01-01"}


def test_a_server_that_ignores_closed_stdin_and_sigterm_must_be_killed() -> None:
    command = [sys.executable, FAULTY, "ignore-stdin-close", "ignore-sigterm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request(1, "ping")).encode() + b"\n")
            process.stdin.close()
            assert process.stdout.readline()
            process.terminate()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.3)
        finally:
            process.kill()


def test_a_call_still_running_when_stdin_closes_is_stopped() -> None:
    assert converse([], call(1, "slow", hold=True)).returncode == 0


def test_a_server_sees_its_own_environment_and_directory(tmp_path: Path) -> None:
    sent = json.dumps(call(1, "env", name="SHELF")).encode()
    command = [sys.executable, FAULTY]
    ended = subprocess.run(command, input=sent, capture_output=True, check=True, cwd=tmp_path, env={"SHELF": "top"})
    content = json.loads(ended.stdout)["result"]["structuredContent"]
    assert content == {"value": "top", "cwd": str(tmp_path.resolve())}


def test_help_lists_every_fault_and_unknown_faults_are_refused() -> None:
    shown = converse(["--help"]).stdout.decode()
    assert all(fault in shown for fault in faulty.FAULTS)
    refused = converse(["no-such-fault"])
    assert refused.returncode == 2
    assert b"no fault 'no-such-fault'" in refused.stderr
