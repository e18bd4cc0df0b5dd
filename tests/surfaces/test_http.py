"""Tests `toolcrib serve --http` with many clients of both protocol versions at one local endpoint."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import psutil
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ToolsListChanged
from tests.servers.launching import events, faulty_entry, received, write_config
from tests.surfaces.serving import TOOLCRIB, Mode, ask, run_tool, text_of
from tests.until import until

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


@dataclass(frozen=True)
class Serving:
    url: str
    process: subprocess.Popen[str]

    def servers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def serving(config: Path, where: str = "127.0.0.1:0", *words: str, audited: bool = False) -> Generator[Serving]:
    """Runs a gateway over HTTP and yields its printed address. With `audited`, the audit settings of `config` apply."""
    command = [TOOLCRIB, "serve", str(config), "--no-cache", "--http", where, *words]
    command += [] if audited else ["--no-audit"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, said + process.stderr.read()
        try:
            yield Serving(found[0], process)
        finally:
            process.terminate()
            process.stderr.read()


@BOTH
async def test_a_client_lists_searches_expands_and_calls(mode: Mode, tmp_path: Path) -> None:
    with serving(write_config(tmp_path / "mcp.json", bench=faulty_entry())) as gateway:
        async with Client(gateway.url, mode=mode) as client:
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["list", "search_tools", "expand_tool", "call_tool"]
            found = await ask(client, "search_tools", query="add two integers")
            assert found["results"][0]["tool_id"] == "bench.add"
            assert text_of(await run_tool(client, "bench.echo", text="over HTTP")) == "over HTTP"
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("no_such_tool", {})
            assert unknown.value.code == -32602


@pytest.mark.slow
async def test_a_hundred_concurrent_clients_get_their_own_answers_while_half_disconnect(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    with serving(config) as gateway:
        answers: dict[int, str] = {}

        async def stay(number: int, mode: Mode) -> None:
            async with Client(gateway.url, mode=mode) as client:
                answers[number] = text_of(await run_tool(client, "bench.echo", text=f"number {number}"))

        async def leave(mode: Mode) -> None:
            async with Client(gateway.url, mode=mode) as client:
                handle = (await ask(client, "expand_tool", tool_id="bench.slow"))["handle"]
                with anyio.move_on_after(0.05):
                    await client.call_tool("call_tool", {"tool_id": handle, "arguments": {"steps": 1, "hold": True}})

        async with anyio.create_task_group() as clients:
            for number in range(50):
                mode: Mode = "auto" if number % 2 else "legacy"
                clients.start_soon(stay, number, mode)
                clients.start_soon(leave, mode)
        assert answers == {number: f"number {number}" for number in range(50)}
        assert len(gateway.servers()) == 1


@BOTH
async def test_a_disconnected_client_cancels_its_upstream_call(mode: Mode, tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("--log", str(log := tmp_path / "seen.jsonl")))
    with serving(config) as gateway:
        async with Client(gateway.url, mode=mode) as client:
            handle = (await ask(client, "expand_tool", tool_id="bench.slow"))["handle"]
            async with anyio.create_task_group() as calls:
                calls.start_soon(
                    client.call_tool, "call_tool", {"tool_id": handle, "arguments": {"steps": 1, "hold": True}}
                )
                await until(lambda: received(log, "tools/call"), "the call reached the server")
                calls.cancel_scope.cancel()
            await until(lambda: events(log, "cancelled"), "the server receives the cancellation")


async def test_a_running_call_is_answered_before_the_gateway_stops(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("--log", str(log := tmp_path / "seen.jsonl")))
    with serving(config) as gateway:
        servers: list[psutil.Process] = []
        answer: list[str] = []
        with suppress(Exception):  # the gateway has exited when the client ends its session
            async with Client(gateway.url) as client:
                handle = (await ask(client, "expand_tool", tool_id="bench.slow"))["handle"]

                async def call() -> None:
                    arguments = {"steps": 5, "step_s": 0.1}
                    answer.append(
                        text_of(await client.call_tool("call_tool", {"tool_id": handle, "arguments": arguments}))
                    )

                async with anyio.create_task_group() as calls:
                    calls.start_soon(call)
                    await until(lambda: received(log, "tools/call"), "the call reached the server")
                    servers += gateway.servers()
                    gateway.process.send_signal(signal.SIGTERM)
                assert answer
                assert answer[0]
        assert answer, "the call was cut off"
        assert gateway.process.wait(30) == 0
        assert servers
        assert not [server for server in servers if server.is_running()]


async def test_an_open_subscription_receives_changes_and_does_not_delay_the_stop(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    with serving(config) as gateway:
        async with Client(gateway.url) as client, client.listen(tools_list_changed=True) as changes:
            write_config(config, bench=faulty_entry(), more=faulty_entry())
            with anyio.fail_after(30):
                assert await anext(changes) == ToolsListChanged()
            gateway.process.send_signal(signal.SIGTERM)
            with anyio.fail_after(5):
                assert [change async for change in changes] == []
        assert gateway.process.wait(30) == 0


async def test_a_client_that_left_silently_does_not_delay_a_reload(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    with serving(config) as gateway:
        accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
        async with httpx2.AsyncClient(headers=accept) as mute:
            session = {"Mcp-Session-Id": (await mute.post(gateway.url, json=hello)).headers["Mcp-Session-Id"]}
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await mute.post(gateway.url, json=told, headers=session)).status_code == 202
        async with Client(gateway.url) as other:
            await run_tool(
                other, "bench.echo", text="here"
            )  # the tools of the first server would count as a change too
        for name in ("second", "third"):
            async with Client(gateway.url) as other, other.listen(tools_list_changed=True) as changes:
                write_config(config, bench=faulty_entry(), **{name: faulty_entry()})
                with anyio.fail_after(30):
                    assert await anext(changes) == ToolsListChanged()
                assert text_of(await run_tool(other, f"{name}.echo", text="here")) == "here"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_a_request_with_a_foreign_host_or_origin_is_refused(
    headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    with serving(write_config(tmp_path / "mcp.json", bench=faulty_entry())) as gateway:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient() as client:
            assert (await client.post(gateway.url, json=body, headers={**accept, **headers})).status_code == status


@pytest.mark.parametrize("where", ["0.0.0.0:0", "192.0.2.1:80", "example.org:80", "[::]:0", "nonsense", "localhost:x"])
def test_a_public_or_invalid_listen_address_is_refused(where: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    command = [TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit", "--http", where]
    ended = subprocess.run(command, capture_output=True, timeout=60, text=True, check=False)
    assert ended.returncode == 2
    assert "INVALID_CONFIG" in ended.stderr


def test_an_address_in_use_is_named_in_the_error(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    with serving(config) as gateway:
        where = gateway.url.removeprefix("http://").removesuffix("/mcp")
        command = [TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit", "--http", where]
        ended = subprocess.run(command, capture_output=True, timeout=60, text=True, check=False)
        assert ended.returncode == 2
        assert f"{where}: Address already in use" in ended.stderr


async def test_a_server_that_ignores_its_closed_input_is_stopped(tmp_path: Path) -> None:
    with serving(write_config(tmp_path / "mcp.json", bench=faulty_entry("ignore-stdin-close"))) as gateway:
        async with Client(gateway.url) as client:
            await ask(client, "list")
            servers = gateway.servers()
        assert gateway.stop() == 0
        assert servers
        assert not [server for server in servers if server.is_running()]
