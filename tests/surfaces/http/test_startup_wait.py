"""Tests for the start of a gateway: which requests wait for which servers, and when the gateway is ready."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.catalogs import tool
from tests.surfaces.http.asking import ALICE, BOB, TOKENS
from tests.surfaces.http.here import Here, served_here
from tests.until import DEADLINE_S, until

from toolcrib import Toolcrib
from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.base import Listing
from toolcrib.surfaces.mcp_gateway import startup_wait
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

HIDDEN_FROM_BOB = {"rules": [{"then": "hide", "sources": ["secret"], "principals": ["bob"]}], "otherwise": "allow"}
ONE_FOR_BOB = {
    "rules": [{"then": "allow", "principals": ["alice"]}, {"then": "allow", "tools": ["secret.r?ad"]}],
    "otherwise": "hide",
}


class Slow(ScriptedSource):
    """A source whose listing waits for an event."""

    def __init__(self, name: str = "secret") -> None:
        super().__init__(name, [tool(f"{name}.read", "Read it.")])
        self.may_go_on = anyio.Event()

    async def list_tools(self) -> Listing:
        await self.may_go_on.wait()
        return await super().list_tools()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Make requests wait longer than a test runs."""
    monkeypatch.setattr(startup_wait, "FIRST_ANSWER_WAIT_S", 2 * DEADLINE_S)


async def is_ready(here: Here) -> bool:
    async with here.client() as client:
        return (await client.get("/health/ready")).status_code == 200


@pytest.mark.parametrize(
    ("operation", "arguments", "status"),
    [("list", {}, 200), ("search_tools", {"query": "read"}, 200), ("expand_tool", {"tool_id": "secret.read"}, 404)],
)
async def test_requests_do_not_wait_for_servers_hidden_from_the_principal(
    operation: str, arguments: dict[str, str], status: int, tmp_path: Path
) -> None:
    crib, secret = Toolcrib(), Slow()
    crib.add_source(secret)
    settings = {"policy": HIDDEN_FROM_BOB}
    async with served_here(tmp_path, crib, auth={"tokens": TOKENS}, settings=settings) as here:
        with anyio.fail_after(DEADLINE_S):
            assert (await here.ask(operation, BOB, **arguments)).status_code == status
        seen: list[str] = []

        async def look() -> None:
            seen.append((await here.ask(operation, ALICE, **arguments)).text)

        async with anyio.create_task_group() as asking:
            asking.start_soon(look)
            with anyio.fail_after(DEADLINE_S):
                assert (await here.ask(operation, BOB, **arguments)).status_code == status
            assert seen == []
            secret.may_go_on.set()
        assert "secret" in seen[0]


async def test_a_search_waits_for_a_server_with_one_visible_tool(tmp_path: Path) -> None:
    crib, secret, other = Toolcrib(), Slow(), Slow("other")
    crib.add_source(secret)
    crib.add_source(other)
    async with served_here(tmp_path, crib, auth={"tokens": TOKENS}, settings={"policy": ONE_FOR_BOB}) as here:
        found: list[str] = []

        async def search() -> None:
            found.extend(
                each["tool_id"] for each in (await here.ask("search_tools", BOB, query="read")).json()["results"]
            )

        async with anyio.create_task_group() as asking:
            asking.start_soon(search)
            with anyio.fail_after(DEADLINE_S):
                assert (await here.ask("expand_tool", BOB, tool_id="other.read")).status_code == 404
            assert found == []
            secret.may_go_on.set()
        assert found == ["secret.read"]


async def test_the_gateway_is_ready_once_every_initial_server_listed_or_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup_wait, "FIRST_ANSWER_WAIT_S", 0.0)
    crib, sources = Toolcrib(), [Slow("one"), Slow("two")]
    for source in sources:
        crib.add_source(source)
    async with served_here(tmp_path, crib) as here:
        assert not await is_ready(here)
        sources[0].may_go_on.set()
        await until(lambda: crib.starting == ("two",), "the first server is listed")
        assert not await is_ready(here)
        sources[1].failure = SourceUnavailable("It does not work.")
        sources[1].may_go_on.set()
        await until(lambda: not crib.starting, "the second has failed")
        assert await is_ready(here)
        crib.add_source(Slow("three"))
        assert crib.starting == ("three",)
        assert await is_ready(here)
