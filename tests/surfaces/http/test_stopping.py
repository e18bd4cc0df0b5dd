"""Tests that a stopping gateway answers the requests that are still running."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.servers.launching import Json
from tests.surfaces.http.asking import problem
from tests.surfaces.http.here import Here, envelope, headers_of, served_here
from tests.until import DEADLINE_S, until

from toolcrib import Toolcrib
from toolcrib.sources.base import Listing
from toolcrib.surfaces.http import http_serving
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio


class Endless(ScriptedSource):
    """A source whose listing never ends."""

    async def list_tools(self) -> Listing:
        await anyio.sleep_forever()
        raise AssertionError


class Stopped:
    """A gateway with a tool that never ends. Collects the responses that are sent when the gateway stops."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.crib = Toolcrib()
        self.crib.add(self.wait)
        self.under_way = 0
        self.answers: dict[str, httpx2.Response] = {}

    async def wait(self) -> str:
        """Wait."""
        self.under_way += 1
        await anyio.sleep_forever()
        raise AssertionError

    async def run(self, **requests: tuple[str, Json]) -> None:
        """Send these requests, given by path and body, and stop the gateway while they run."""
        async with served_here(self.folder, self.crib) as here, anyio.create_task_group() as asking:
            for name, (path, body) in requests.items():
                asking.start_soon(self._ask, here, name, path, body)
            await until(lambda: self.under_way == len(requests), "all requests are running")
            signal.raise_signal(signal.SIGTERM)

    async def _ask(self, here: Here, name: str, path: str, body: Json) -> None:
        headers = headers_of(body) if path == "/mcp" else {}
        async with here.client() as client:
            self.answers[name] = await client.post(path, json=body, headers=headers)

    @property
    def handle(self) -> str:
        return self.crib.expand_tool("functions.wait").handle


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    monkeypatch.setattr(http_serving, "GRACE_S", 0)
    return Stopped(tmp_path)


def not_known(error: Any) -> bool:
    return error["code"] == "SOURCE_UNAVAILABLE" and "The tool may or may not have run." in error["hints"]


async def test_a_call_interrupted_by_the_stop_may_have_run(stopped: Stopped) -> None:
    call: Json = {"tool_id": stopped.handle, "arguments": {}}
    over_mcp = envelope("tools/call", {"name": "call_tool", "arguments": call})
    with anyio.fail_after(DEADLINE_S):
        await stopped.run(api=("/v1/call_tool", call), mcp=("/mcp", over_mcp))
    assert stopped.answers["api"].status_code == 503
    assert not_known(problem(stopped.answers["api"]))
    result = stopped.answers["mcp"].json()["result"]
    assert result["isError"]
    assert not_known(result["structuredContent"]["error"])


async def test_an_interrupted_request_other_than_a_call_ran_nothing(stopped: Stopped) -> None:
    class Noting(Endless):
        async def list_tools(self) -> Listing:
            stopped.under_way += 1
            return await super().list_tools()

    stopped.crib.add_source(Noting("endless"))
    with anyio.fail_after(DEADLINE_S):
        await stopped.run(api=("/v1/list", {}))
    told = problem(stopped.answers["api"])
    assert (told["status"], told["message"]) == (503, "The gateway is stopping. Nothing ran.")


async def test_an_open_session_stream_does_not_delay_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "GRACE_S", 2 * DEADLINE_S)
    accept = {"Accept": "application/json, text/event-stream"}
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "here", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    with anyio.fail_after(DEADLINE_S):
        async with served_here(tmp_path) as here, here.client() as http:
            begun = await http.post("/mcp", json=hello, headers=accept)
            session = {**accept, "Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
            async with http.stream("GET", "/mcp", headers=session) as listening:
                signal.raise_signal(signal.SIGTERM)
                assert [line async for line in listening.aiter_lines()] == []
