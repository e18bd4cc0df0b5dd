"""Tests for the MCP servers of `session/new` as sources in a catalog."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp.schema import NewSessionRequest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.launching import SCRIPT, faulty_entry, http_server
from tests.sources.acp.editor import SERVER_ID, editing
from tests.until import until

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.sources.acp.mcp_over_acp import McpOverAcp
from toolcrib.surfaces.acp_agent.mcp_servers import passed_servers

pytestmark = pytest.mark.anyio

CWD = Path(os.sep)


async def _unreachable(message: dict[str, Any]) -> None:
    raise ConnectionError


UNCONNECTED = McpOverAcp(_unreachable)


def entry_of(wire: object, *taken: str) -> SourceEntry:
    (entry,) = passed_servers([wire], cwd=CWD, carrier=UNCONNECTED, taken=taken)
    return entry


@asynccontextmanager
async def settled(entries: Sequence[SourceEntry]) -> AsyncGenerator[ToolRegistry]:
    """Yields a registry with `entries`, once every source was listed or failed."""
    registry = ToolRegistry()
    async with Intake(registry) as intake:
        for entry in entries:
            intake.add(entry.source, entry)

        def are_settled() -> bool:
            return all(one.status is not SourceStatus.STARTING for one in registry.state.sources.values())

        await until(are_settled, "the listings")
        yield registry


async def test_an_invalid_server_of_a_session_does_not_affect_the_others(
    tmp_path: Path,
) -> None:
    stdio = faulty_entry()
    session = NewSessionRequest.model_validate(
        {
            "cwd": str(tmp_path),
            "mcpServers": [
                {"name": "my bench", "command": stdio["command"], "args": [SCRIPT], "env": []},
                {"type": "acp", "name": "editor", "serverId": SERVER_ID},
                {"name": "my bench", "command": "", "args": [], "env": []},
            ],
        }
    )
    passed = [server.model_dump(by_alias=True, mode="json") for server in session.mcp_servers]
    async with editing("on its own") as (_, frames):
        entries = passed_servers(passed, cwd=tmp_path, carrier=frames, taken={"editor"})
        async with settled(entries) as registry:
            sources = registry.state.sources
            assert list(sources) == ["my-bench", "editor-2", "my-bench-2"]
            assert [one.status for one in sources.values()] == ["ready", "ready", "failed"]
            assert not any(one.trusted for one in sources.values())
            assert {"my-bench.add", "editor-2.add"} <= set(registry.state.tools)
            assert sources["editor-2"].title == "editor"
            assert sources["my-bench-2"].reason is not None
            assert "`command`" in sources["my-bench-2"].reason


async def test_a_stdio_server_gets_the_session_folder_and_environment(tmp_path: Path) -> None:
    env = [{"name": "BENCH_KEY", "value": "v"}]
    stdio = faulty_entry()
    passed = {"name": "s", "command": stdio["command"], "args": stdio["args"], "env": env, "_meta": None}
    (entry,) = passed_servers([passed], cwd=tmp_path, carrier=UNCONNECTED)
    assert entry.address == f"{stdio['command']} {SCRIPT}"
    async with settled([entry]) as registry:
        tool = registry.state.tools["s.env"]
        result = await entry.source.call_tool(tool, {"name": "BENCH_KEY"}, LOCAL_CONTEXT)
        assert result.structured_content == {"value": "v", "cwd": str(tmp_path)}


@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_a_remote_server_gets_its_headers_and_its_address_hides_secrets(kind: str, path: str) -> None:
    headers = [{"name": "Authorization", "value": "Bearer open"}]
    with http_server("--locked") as address:
        entry = entry_of({"type": kind, "name": "far", "url": f"{address}/{path}?key=s3cret", "headers": headers})
        assert entry.address == f"{address}/{path}"
        async with settled([entry]) as registry:
            assert registry.state.sources["far"].status is SourceStatus.READY


def test_entries_for_the_same_server_have_the_same_identity() -> None:
    def known_by(**wire: Any) -> tuple[str, str]:
        entry = entry_of({"name": "s", **wire})
        return entry.identity, entry.origin

    assert known_by(command="a") == known_by(command="a", env=[{"name": "K", "value": "v"}])
    assert len({known_by(command="a"), known_by(command="b"), known_by(type="acp", serverId="a")}) == 3
    assert all(known_by(command="a"))


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (None, "`command` is missing"),
        ([], "`command` is missing"),
        ({"name": "s"}, "`command` is missing"),
        ({"name": "s", "command": 5}, "`command` is missing"),
        ({"name": "s", "command": "a", "args": "b"}, "`args`"),
        ({"name": "s", "command": "a", "args": [1]}, "`args`"),
        ({"name": "s", "command": "a", "env": {"KEY": "s3cret"}}, "`env`"),
        ({"name": "s", "command": "a", "env": [{"name": "KEY"}]}, "`env`"),
        ({"name": "s", "type": "http"}, "`url` is missing"),
        ({"name": "s", "type": "http", "url": "file:///s3cret"}, "must be an http or https URL"),
        ({"name": "s", "type": "sse", "url": "http://host", "headers": "s3cret"}, "`headers`"),
        ({"name": "s", "type": "acp"}, "`serverId` is missing"),
        (
            {"name": "s", "type": "websocket", "url": "ws://host"},
            "must be one of stdio, http, sse, acp, not `websocket`",
        ),
        ({"name": "s", "type": ["s3cret"]}, "`type`"),
    ],
)
def test_an_invalid_server_entry_fails_with_a_reason_without_secrets(wire: object, expected: str) -> None:
    entry = entry_of(wire)
    assert (entry.status, entry.is_lasting) == (SourceStatus.FAILED, True)
    assert entry.reason is not None
    assert expected in entry.reason
    assert "s3cret" not in entry.reason
    assert entry.reason.endswith(".")


@pytest.mark.parametrize("label", ["", "...", "-", None, 5])
def test_an_unusable_server_label_is_replaced_by_a_default_name(label: object) -> None:
    assert entry_of({"name": label, "command": "a"}, "server").name == "server-2"


@given(
    st.lists(
        st.none()
        | st.dictionaries(
            st.sampled_from(["name", "type", "command", "args", "env", "url", "headers", "serverId"]),
            st.none() | st.integers() | st.text(max_size=4) | st.lists(st.text(max_size=3) | st.none(), max_size=2)
            | st.sampled_from(["acp", "http", "sse", "stdio", "http://host"]),
        ),
        max_size=5,
    )
)  # fmt: skip
def test_every_passed_server_gets_one_entry_with_a_unique_name(passed: list[object]) -> None:
    entries = passed_servers(passed, cwd=CWD, carrier=UNCONNECTED, taken={"editor"})
    names = {entry.name for entry in entries}
    assert len(names) == len(entries) == len(passed)
    assert "editor" not in names
