"""A running gateway serves what `toolcrib register` adds, and stops serving what `toolcrib unregister` removes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import stdio_client
from tests.cli.running import toolcrib_process
from tests.servers.launching import Json, write_config
from tests.surfaces.http.asking import served as served_over_http
from tests.surfaces.serving import TOOLCRIB, Conversation, Mode, ask, run_tool, text_of
from tests.until import DEADLINE_S, until

from toolcrib.cli.opened_catalog import default_registrations, registrations_of

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    declared = {"mine": {"tools": {"greet": {"description": "Greet.", "command": ["echo", "hello"]}}}}
    return write_config(tmp_path / "mcp.json", toolcrib={"declared": declared})


@asynccontextmanager
async def served(
    config: Path, mode: Mode = "auto", heard: MessageHandlerFnT | None = None, operations: str = "compact"
) -> AsyncGenerator[Client]:
    """Yields a client of a gateway that uses the same registration store as this process."""
    words = ["serve", str(config), "--no-cache", "--no-audit", "--operations", operations]
    parameters = StdioServerParameters(command=TOOLCRIB, args=words, env=dict(os.environ))
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(parameters, errlog=nowhere), mode=mode, message_handler=heard) as client:
            yield client


def add(config: Path, tool_id: str = "ops.disk_free", *words: str) -> None:
    command = words or ("echo", "all of {path} is free")
    ended = toolcrib_process(
        "register", "command", tool_id, "--description", "Free room on a disk.", "-c", config, "--", *command
    )
    assert ended.code == 0, ended.err


def remove(config: Path, tool_id: str = "ops.disk_free") -> None:
    ended = toolcrib_process("unregister", tool_id, "-c", config)
    assert ended.code == 0, ended.err


async def until_found(search: Callable[[], Awaitable[Json]], *expected: str) -> None:
    """Wait until a search finds exactly these tools."""

    async def are_found() -> bool:
        return sorted(each["tool_id"] for each in (await search())["results"]) == sorted(expected)

    await until(are_found, f"a search that finds {expected}")


async def in_thread(action: Callable[..., None], *arguments: Any) -> None:
    await anyio.to_thread.run_sync(action, *arguments)


@BOTH
async def test_a_registered_tool_is_served_until_it_is_unregistered(config: Path, mode: Mode) -> None:
    told: list[str] = []

    async def hear(message: object) -> None:
        told.append(getattr(message, "method", ""))

    async with served(config, mode, hear) as client:

        def search() -> Awaitable[Json]:
            return ask(client, "search_tools", query="free room on a disk")

        before = (await client.list_tools()).tools[0].description or ""
        await until_found(search)
        await in_thread(add, config)
        await until_found(search, "ops.disk_free")
        assert "ops" in [node["name"] for node in (await ask(client, "list"))["nodes"]]
        assert text_of(await run_tool(client, "ops.disk_free", path="/")).strip() == "all of / is free"
        after = (await client.list_tools(cache_mode="bypass")).tools
        assert "ops" in "".join(tool.description or "" for tool in after)
        assert "ops" not in before
        if mode == "legacy":
            await until(lambda: "notifications/tools/list_changed" in told, "the list change notification")

        handle = (await ask(client, "expand_tool", tool_id="ops.disk_free"))["handle"]
        await in_thread(remove, config)
        await until_found(search)
        gone = await client.call_tool("call_tool", {"tool_id": handle, "arguments": {"path": "/"}})
        assert gone.structured_content is not None
        assert gone.structured_content["error"]["code"] == "TOOL_NOT_FOUND"


@BOTH
async def test_with_all_operations_a_registration_changes_the_tool_list(config: Path, mode: Mode) -> None:
    told: list[str] = []

    async def hear(message: object) -> None:
        told.append(getattr(message, "method", ""))

    async with served(config, mode, hear, operations="all") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["mine__greet"]
        await in_thread(add, config)

        async def is_listed() -> bool:
            return [tool.name for tool in (await listed(client))] == ["mine__greet", "ops__disk_free"]

        await until(is_listed, "the new tool in the list")
        if mode == "legacy":
            await until(lambda: "notifications/tools/list_changed" in told, "the list change notification")


async def listed(client: Client) -> list[Any]:
    return (await client.list_tools(cache_mode="bypass")).tools


async def test_a_gateway_over_http_applies_registrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with served_over_http(tmp_path) as api:

        async def search() -> Json:
            return (await api.ask("search_tools", query="free room on a disk")).json()

        await in_thread(add, api.config)
        await until_found(search, "ops.disk_free")
        answer = await api.run_tool("ops.disk_free", path="/")
        assert "all of / is free" in answer.text
        await in_thread(remove, api.config)
        await until_found(search)
        gone = await api.ask("expand_tool", tool_id="ops.disk_free")
        assert gone.json()["code"] == "TOOL_NOT_FOUND"


async def test_a_gateway_that_starts_later_serves_earlier_registrations(config: Path) -> None:
    await in_thread(add, config)
    async with served(config) as client:
        assert text_of(await run_tool(client, "ops.disk_free", path="/")).strip() == "all of / is free"


KILLED = """
import os, signal
from toolcrib.config import registration_store as registrations

class Dying(registrations.sqlite3.Connection):
    def execute(self, sql, parameters=(), /):
        if sql == "COMMIT":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, parameters)

connect = registrations.sqlite3.connect
registrations.sqlite3.connect = lambda *args, **options: connect(*args, factory=Dying, **options)
from toolcrib.cli import main
main()
"""


async def test_a_registration_killed_before_its_commit_has_no_effect(config: Path) -> None:
    async with served(config) as client:
        await in_thread(add, config, "ops.first")
        words = ["register", "command", "ops.second", "--description", "Free room.", "-c", str(config), "--", "df"]
        killed = await anyio.run_process([sys.executable, "-c", KILLED, *words], check=False)
        assert killed.returncode == -signal.SIGKILL
        await in_thread(add, config, "ops.third")
        await until_found(lambda: ask(client, "search_tools", query="free room on a disk"), "ops.first", "ops.third")
    assert [row.name for row in registrations_of(config).all()] == ["ops.first", "ops.third"]


async def test_concurrent_registrations_are_all_stored(config: Path) -> None:
    command = [TOOLCRIB, "register", "command", "--description", "Free room.", "-c", str(config)]
    async with served(config) as client:
        async with anyio.create_task_group() as adders:
            for number in range(4):
                adders.start_soon(anyio.run_process, [*command, f"ops.free_room_{number}", "--", "df"])
        found = [f"ops.free_room_{number}" for number in range(4)]
        await until_found(lambda: ask(client, "search_tools", query="free room on a disk"), *found)


def started(config: Path) -> subprocess.Popen[bytes]:
    pipe, command = subprocess.PIPE, [TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def damaged(path: Path, damage: str) -> None:
    path.unlink()
    if damage == "garbage":
        path.write_bytes(b"this is no database" * 100)


@pytest.mark.parametrize("damage", ["deleted", "garbage"])
async def test_a_damaged_registration_store_does_not_affect_a_running_gateway(config: Path, damage: str) -> None:
    await in_thread(add, config)
    with started(config) as process:
        gateway = Conversation(process)
        gateway.shake_hands()
        assert gateway.call("list", {})["structuredContent"]["nodes"]
        damaged(default_registrations(), damage)
        assert process.stderr is not None
        with anyio.fail_after(DEADLINE_S):
            line = await anyio.to_thread.run_sync(process.stderr.readline)
        assert b"in force" in line
        answer = gateway.run_tool("ops.disk_free", {"path": "/"})
        assert "all of / is free" in answer["content"][0]["text"]
        assert gateway.end() == 0


def test_registering_without_write_access_fails_with_a_reason(config: Path) -> None:
    store = default_registrations()
    store.parent.parent.mkdir()
    store.parent.write_text("")
    words = ("register", "command", "ops.x", "--description", "x", "-c", str(config), "--json", "--", "df")
    ended = toolcrib_process(*words)
    assert ended.code == 2
    assert ended.json["error"]["message"].startswith(f"{store}: nothing was registered or removed: ")
