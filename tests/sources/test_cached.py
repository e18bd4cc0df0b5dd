"""Cached definitions are listed in place of a source until the source is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.processes import is_running
from tests.servers.launching import ROOT, events, faulty_server, received
from tests.until import until

from toolcrib.catalog import intake
from toolcrib.core.errors import StaleExpansion
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.base import Extras, Source
from toolcrib.sources.cached import LIFETIME_S, CachedSource
from toolcrib.sources.definition_cache import CachedDefinitions, DefinitionStore
from toolcrib.sources.mcp import Patience, StdioServer
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

SERVER = "from tests.servers.faulty import main; main()"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with DefinitionStore(tmp_path / "cache.sqlite") as store:
        yield store


class Clock:
    """A clock that a test sets, in seconds since the epoch."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def cached(
    store: DefinitionStore, server: StdioServer, *, clock: Clock | None = None, **patience: float
) -> CachedSource:
    source = McpSource("bench", server, patience=Patience(**patience), stops_when_idle=True)
    return CachedSource(source, store, {"args": list(server.args)}, now=clock or Clock())


async def pid_of(crib: Toolcrib) -> int:
    return (await crib.call_tool(crib.expand_tool("bench.pid").handle)).structured_content["pid"]


async def test_a_cached_source_passes_the_source_contract(store: DefinitionStore) -> None:
    def make() -> Source:
        return cached(store, faulty_server())

    await check_source(make, tool="echo", arguments={"text": "a"}, other_arguments={"text": "b"})


async def test_from_the_second_start_a_server_is_started_only_when_it_is_called(
    store: DefinitionStore, tmp_path: Path
) -> None:
    server = faulty_server("--log", str(log := tmp_path / "seen.jsonl"))
    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)
        first = crib.view().tools
    assert len(events(log, "start")) == 1

    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)
        assert {i: tool.handle for i, tool in crib.view().tools.items()} == {i: t.handle for i, t in first.items()}
        assert crib.search_tools("add two integers").results[0].tool_id == "bench.add"
        assert crib.view().sources["bench"].version == "1.0.0"
        assert len(events(log, "start")) == 1, "it was started to be listed"
        assert await pid_of(crib)
        assert len(events(log, "start")) == 2
    assert len(received(log, "tools/list")) == 2, "once at first, and once before the call"


async def test_a_definition_that_changed_since_it_was_cached_is_not_called_by_its_old_handle(
    store: DefinitionStore, tmp_path: Path
) -> None:
    from tests.servers import faulty

    program = tmp_path / "server.py"
    text = Path(faulty.__file__).read_text()  # noqa: ASYNC240
    program.write_text(text)
    server = StdioServer(faulty_server().command, (str(program),))
    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)

    program.write_text(text.replace("Add two integers.", "Subtract two integers."))
    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)
        old = crib.expand_tool("bench.add")
        assert "Add" in old.description
        with pytest.raises(StaleExpansion):
            await crib.call_tool(old.handle, {"a": 1, "b": 2})
        await until(lambda: "Subtract" in crib.expand_tool("bench.add").description, "the catalog has the new one")
        handle = crib.expand_tool("bench.add").handle
        assert (await crib.call_tool(handle, {"a": 1, "b": 2})).structured_content == {"sum": 3}

    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)
        assert "Subtract" in crib.expand_tool("bench.add").description, "the new definition was not kept"


async def test_expired_definitions_are_shown_at_once_and_listed_again_in_the_background(
    store: DefinitionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_PAUSE_S", 0.01)
    server, clock = faulty_server("--log", str(log := tmp_path / "seen.jsonl")), Clock()
    for age_s, starts in ((0.0, 1), (LIFETIME_S - 1, 1), (LIFETIME_S + 1, 2)):
        clock.now += age_s
        crib = Toolcrib()
        crib.add_source(cached(store, server, clock=clock))
        async with crib:
            assert await crib.ready(30)
            assert crib.view().tools
            await until(lambda starts=starts: len(events(log, "start")) >= starts, "it is listed anew")
            assert len(events(log, "start")) == starts
        clock.now -= age_s if age_s < LIFETIME_S else 0


async def test_an_idle_server_is_stopped_and_started_again_by_the_next_call(store: DefinitionStore) -> None:
    crib = Toolcrib()
    crib.add_source(cached(store, faulty_server(), idle_s=0.2))
    async with crib:
        assert await crib.ready(30)
        first = await pid_of(crib)

        def stopped() -> bool:

            return not is_running(first)

        await until(stopped, "it is stopped when nobody calls")
        assert crib.view().tools
        assert await pid_of(crib) != first


async def test_a_server_is_not_idle_while_a_call_is_running(store: DefinitionStore) -> None:
    crib = Toolcrib()
    crib.add_source(cached(store, faulty_server(), idle_s=0.1))
    async with crib:
        assert await crib.ready(30)
        slow = crib.expand_tool("bench.slow").handle
        assert not (await crib.call_tool(slow, {"steps": 4, "step_s": 0.2})).is_error


async def test_watching_a_resource_starts_the_server_and_keeps_it_from_being_idle(store: DefinitionStore) -> None:
    import psutil

    server = StdioServer(sys.executable, ("-m", "tests.interop.fixture_server"), cwd=ROOT)
    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)
    crib = Toolcrib()
    crib.add_source(cached(store, server, idle_s=0.2))
    crib.add_source(McpSource("other", faulty_server(), patience=Patience(idle_s=0.2), stops_when_idle=True))
    async with crib:
        others = {*psutil.Process().children()}
        assert await crib.ready(30)
        (other,) = {*psutil.Process().children()} - others
        told: list[str] = []
        end = await crib.watch_resource("toolcrib://bench/test://static-text", lambda: told.append("static-text"))
        (watching,) = {*psutil.Process().children()} - others - {other}
        # The server that became idle later is stopped, and the server that watches is not.
        call = crib.call_tool(crib.expand_tool("other.echo").handle, {"text": "a"})
        assert not (await call).is_error
        last = {*psutil.Process().children()} - others - {watching}
        await until(lambda: not any(process.is_running() for process in last), "the other is stopped")
        update = crib.expand_tool("bench.test_trigger_resource_update").handle
        await crib.call_tool(update, {"uri": "test://static-text"})
        await until(lambda: told, "it is told of")
        assert watching.is_running()
        end()
        await until(lambda: not watching.is_running(), "it is idle now")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"tools": 5}', b"\xff"])
async def test_an_unreadable_cache_entry_is_dropped_and_the_source_is_listed(
    store: DefinitionStore, body: bytes
) -> None:
    server = faulty_server()
    store.save(key := store.key({"args": list(server.args)}), CachedDefinitions(1_000_000.0, body))
    crib = Toolcrib()
    crib.add_source(cached(store, server))
    async with crib:
        assert await crib.ready(30)
        assert "bench.add" in crib.view().tools
    assert (kept := store.load(key)) is not None
    assert kept.body != body


async def test_prompts_and_resources_are_cached_and_read_from_the_server(store: DefinitionStore) -> None:
    server = StdioServer(sys.executable, ("-m", "tests.interop.fixture_server"), cwd=ROOT)
    listed: list[Extras] = []
    for _ in range(2):
        crib = Toolcrib()
        crib.add_source(cached(store, server))
        async with crib:
            assert await crib.ready(30)
            listed.append(crib.view().sources["bench"].extras)
            assert "bench__test_simple_prompt" in crib.view().prompts_and_resources.prompts
            read = await crib.read_resource("toolcrib://bench/test://static-text")
            assert read["contents"][0]["text"] == "This is the content of the static text resource."
    assert listed[0] == listed[1]
