"""Third-party servers behind the gateway: all their tools are found, and one real call of each succeeds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ImageContent
from tests.interop.launching import node_server, python_server
from tests.servers.launching import write_config
from tests.surfaces.serving import Json, ask, run_tool, served, text_of

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


async def tools_of(client: Any, source: str) -> list[str]:
    """Return the sorted ids of all tools of a source, from every page and every node."""
    ids: list[str] = []
    waiting = [[source]]
    while waiting:
        path, cursor = waiting.pop(), None
        while True:
            page = await ask(client, "list", path=path, cursor=cursor)
            assert page.get("unavailable", []) == []
            ids += [tool["tool_id"] for tool in page["tools"]]
            waiting += [node["path"] for node in page["nodes"]]
            if (cursor := page["next_cursor"]) is None:
                break
    assert len(ids) == len(set(ids))
    return sorted(ids)


async def listed_by(server: Json) -> list[str]:
    """Return the names of all tools of a server, requested without the gateway."""
    parameters = StdioServerParameters(command=server["command"], args=server["args"], env=server.get("env"))
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(parameters, errlog=nowhere)) as client:
            return [tool.name for tool in (await client.list_tools()).tools]


async def test_the_git_server_returns_the_log_of_a_repository(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", git=python_server("mcp-server-git"))
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "Sharpen the chisels"]):
        await anyio.run_process(["git", *words], cwd=tmp_path)
    async with served(config) as client:
        assert "git.git_log" in await tools_of(client, "git")
        found = await ask(client, "search_tools", query="show the commit history")
        assert "git.git_log" in [pointer["tool_id"] for pointer in found["results"][:3]]
        result = await run_tool(client, "git.git_log", repo_path=str(tmp_path))
        assert "Sharpen the chisels" in text_of(result)
        refused = await run_tool(client, "git.git_status", repo_path=str(tmp_path / "nothing"))
        assert refused.is_error


async def test_the_time_server_converts_between_time_zones(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", time=python_server("mcp-server-time"))
    async with served(config) as client:
        assert {"time.convert_time", "time.get_current_time"} <= {*await tools_of(client, "time")}
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in text_of(await run_tool(client, "time.convert_time", **asked))


async def test_the_filesystem_server_writes_and_reads_files(tmp_path: Path) -> None:
    (shelf := (tmp_path / "shelf").resolve()).mkdir()
    config = write_config(tmp_path / "mcp.json", files=node_server("server-filesystem", str(shelf)))
    async with served(config) as client:
        assert {"files.write_file", "files.read_text_file"} <= {*await tools_of(client, "files")}
        note = str(shelf / "note.txt")
        await run_tool(client, "files.write_file", path=note, content="The saw is blunt. 鋸")
        assert (shelf / "note.txt").read_text(encoding="utf-8") == "The saw is blunt. 鋸"
        assert "鋸" in text_of(await run_tool(client, "files.read_text_file", path=note))
        outside = await run_tool(client, "files.read_text_file", path=str(tmp_path / "mcp.json"))
        assert outside.is_error


async def test_the_memory_server_finds_a_stored_entity(tmp_path: Path) -> None:
    memory = node_server("server-memory", MEMORY_FILE_PATH=str(tmp_path / "memory.json"))
    async with served(write_config(tmp_path / "mcp.json", memory=memory)) as client:
        assert "memory.create_entities" in await tools_of(client, "memory")
        saw = {"name": "saw", "entityType": "tool", "observations": ["blunt"]}
        await run_tool(client, "memory.create_entities", entities=[saw])
        found = await run_tool(client, "memory.search_nodes", query="blunt")
        assert "saw" in json.dumps(found.structured_content) + text_of(found)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_everything_server_sends_images_progress_and_structured_content(mode: Any, tmp_path: Path) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    config = write_config(tmp_path / "mcp.json", everything=node_server("server-everything"))
    async with served(config, mode) as client:
        ids = await tools_of(client, "everything")
        assert len(ids) >= 8
        assert "hello" in text_of(await run_tool(client, "everything.echo", message="hello"))

        picture = await run_tool(client, "everything.get-tiny-image")
        (image,) = [block for block in picture.content if isinstance(block, ImageContent)]
        assert image.mime_type == "image/png"

        weather = await run_tool(client, "everything.get-structured-content", location="Chicago")
        assert "temperature" in (weather.structured_content or {})

        expansion = await ask(client, "expand_tool", tool_id="everything.trigger-long-running-operation")
        called = {"tool_id": expansion["handle"], "arguments": {"duration": 1, "steps": 4}}
        await client.call_tool("call_tool", called, progress_callback=hear)
        assert heard == [1, 2, 3, 4]


ONLY_AS_TASKS = {"everything.simulate-research-query"}


async def test_all_tools_of_all_servers_are_in_one_catalog(tmp_path: Path) -> None:
    (shelf := tmp_path / "shelf").mkdir()
    servers = {
        "git": python_server("mcp-server-git"),
        "time": python_server("mcp-server-time"),
        "files": node_server("server-filesystem", str(shelf)),
        "memory": node_server("server-memory", MEMORY_FILE_PATH=str(tmp_path / "memory.json")),
        "everything": node_server("server-everything"),
    }
    async with served(write_config(tmp_path / "mcp.json", **servers)) as client:
        root = await ask(client, "list")
        assert {node["name"] for node in root["nodes"]} == {"git", "time", "files", "memory", "everything"}
        assert "unavailable" not in root
        for name, server in servers.items():
            offered = {f"{name}.{tool}" for tool in await listed_by(server)}
            assert await tools_of(client, name) == sorted(offered - ONLY_AS_TASKS)
        for query, tool_id in {
            "what time is it in Tokyo": "time.get_current_time",
            "read a text file": "files.read_text_file",
            "record a commit": "git.git_commit",
            "tiny image": "everything.get-tiny-image",
        }.items():
            found = (await ask(client, "search_tools", query=query))["results"]
            assert tool_id in [pointer["tool_id"] for pointer in found[:3]], query
