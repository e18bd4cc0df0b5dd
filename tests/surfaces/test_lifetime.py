"""Tests that a gateway follows its configuration, stops quickly and leaves no server running."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp.client.subscriptions import ToolsListChanged
from mcp_types import ToolListChangedNotification
from tests.processes import is_running
from tests.servers.launching import events, faulty_entry, replace_config, write_config
from tests.surfaces.serving import Mode, ask, conversation, run_tool, served, text_of
from tests.until import until, until_blocking

pytestmark = pytest.mark.true_start

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


@BOTH
@pytest.mark.anyio
async def test_a_changed_configuration_is_applied_and_clients_are_notified(mode: Mode, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json", old=faulty_entry(), kept=faulty_entry("--log", str(log := tmp_path / "kept.jsonl"))
    )
    told = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.set()

    async with served(config, mode, hear) as client:
        before = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        kept = (await run_tool(client, "kept.pid")).structured_content
        (old,) = [(await run_tool(client, "old.pid")).structured_content["pid"]]

        async def change() -> None:
            write_config(config, new=faulty_entry(), kept=faulty_entry("--log", str(log)))

        with anyio.fail_after(30):
            if mode == "auto":
                async with client.listen(tools_list_changed=True) as subscription:
                    await change()
                    assert await anext(subscription) == ToolsListChanged()
            else:
                await change()
                await told.wait()

        after = {tool.name: tool.description for tool in (await client.list_tools(cache_mode="bypass")).tools}
        assert after.keys() == before.keys()
        assert "old" in str(before["list"])
        assert "new" in str(after["list"])
        assert "old" not in str(after["list"])
        assert text_of(await run_tool(client, "new.echo", text="hello")) == "hello"
        assert (await ask(client, "expand_tool", tool_id="old.echo"))["error"]["code"] == "TOOL_NOT_FOUND"
        assert not is_running(old)
        assert (await run_tool(client, "kept.pid")).structured_content == kept
    assert len(events(log, "start")) == 1


@pytest.mark.anyio
async def test_an_invalid_configuration_changes_nothing_until_it_is_fixed(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    async with served(config) as client:
        before = (await run_tool(client, "bench.pid")).structured_content
        # Reading a broken file has no visible effect. A later call shows that the gateway had time to read it.
        async with client.listen(tools_list_changed=True) as subscription:
            for broken in ('{"mcpServers": ', '{"mcpServers": []}', '{"toolcrib": {"unknown": 1}}'):
                replace_config(config, broken)
                assert (await run_tool(client, "bench.pid")).structured_content == before
            config.unlink()
            assert (await run_tool(client, "bench.pid")).structured_content == before
            write_config(config, bench=faulty_entry(), second=faulty_entry())
            with anyio.fail_after(30):
                assert await anext(subscription) == ToolsListChanged()
        assert (await run_tool(client, "bench.pid")).structured_content == before
        assert text_of(await run_tool(client, "second.echo", text="mended")) == "mended"


@pytest.mark.parametrize("ending", ["SIGINT", "SIGTERM", "closed input"])
def test_the_gateway_stops_quickly_and_leaves_no_server_running(ending: str, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json",
        good=faulty_entry(),
        deaf=faulty_entry("ignore-stdin-close"),
        starting=faulty_entry("silent"),
        shell={"command": "sh", "args": ["-c", "sleep 1000 & wait"]},
    )
    with conversation(config) as gateway:
        gateway.shake_hands()
        until_blocking(lambda: len(gateway.servers()) >= 5, "every server runs, and what the shell started")
        servers = gateway.servers()
        match ending:
            case "closed input":
                assert gateway.end() == 0
            case _:
                gateway.process.send_signal(getattr(signal, ending))
                assert gateway.process.wait(30) == 0
        until_blocking(lambda: not any(is_running(each.pid) for each in servers), "every server has ended")


@pytest.mark.anyio
async def test_a_client_shutdown_as_specified_stops_every_server(tmp_path: Path) -> None:
    """The client closes the input, and sends SIGTERM while the gateway stops a server that ignores closed input."""
    async with served(write_config(tmp_path / "mcp.json", deaf=faulty_entry("ignore-stdin-close"))) as client:
        server = psutil.Process((await run_tool(client, "deaf.pid")).structured_content["pid"])  # pyright: ignore[reportOptionalSubscript]
    await until(lambda: not server.is_running(), "the server is stopped")


def test_a_running_call_does_not_prevent_the_stop(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    with conversation(write_config(tmp_path / "mcp.json", bench=faulty_entry("--log", str(log)))) as gateway:
        gateway.shake_hands()
        expansion = gateway.call("expand_tool", {"tool_id": "bench.slow"})["structuredContent"]
        arguments = {"tool_id": expansion["handle"], "arguments": {"hold": True}}
        gateway.send("tools/call", {"name": "call_tool", "arguments": arguments})
        until_blocking(lambda: "tools/call" in log.read_text(), "the call runs")
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(30) == 0


def test_a_gateway_with_an_invalid_configuration_exits_with_2(tmp_path: Path) -> None:
    (config := tmp_path / "mcp.json").write_text('{"mcpServers": 1}')
    with conversation(config) as gateway:
        assert gateway.end() == 2
        assert gateway.lines == []


@BOTH
@pytest.mark.anyio
async def test_a_killed_gateway_leaves_no_server_running(mode: Mode, tmp_path: Path) -> None:
    """The SDK client waits two seconds after closing the input and two after SIGTERM, then kills the gateway."""
    stubborn = faulty_entry("ignore-stdin-close", "ignore-sigterm")
    config = write_config(tmp_path / "mcp.json", one=stubborn, two=stubborn)
    async with served(config, mode) as client:
        pids = [(await run_tool(client, f"{name}.pid")).structured_content["pid"] for name in ("one", "two")]
    assert [pid for pid in pids if is_running(pid)] == []
