"""The crib as a whole: what lives side by side in it, its beginning and its end, and what it tells to whom."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from tests.catalogs import tool
from tests.servers.launching import events, faulty_entry, faulty_server, write_config
from tests.waiting import until

from toolcrib.config import Config
from toolcrib.core.errors import InvalidConfig, SourceUnavailable, ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.crib import Toolcrib
from toolcrib.sources.mcp import Patience
from toolcrib.sources.mcp.source import McpSource
from toolcrib.testing.scripted import ScriptedSource

pytestmark = pytest.mark.anyio


def greet() -> str:
    """Say hello."""
    return "hello"


@asynccontextmanager
async def following(crib: Toolcrib, config: Config) -> AsyncGenerator[list[Config]]:
    """The crib keeps in step with its file for the block; gives the configurations that it took over."""
    taken_over: list[Config] = []

    async def note(changed: Config) -> None:
        taken_over.append(changed)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config, note)
        await anyio.wait_all_tasks_blocked()  # it knows what the file looks like now
        yield taken_over
        tasks.cancel_scope.cancel()


@pytest.fixture
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.crib.POLL_S", 0.01)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("functions_first", [True, False])
async def test_a_server_called_functions_and_functions_of_this_program_live_side_by_side(
    functions_first: bool, tmp_path: Path
) -> None:
    path = write_config(tmp_path / "mcp.json", functions=faulty_entry())
    crib = Toolcrib()
    if functions_first:
        greeting = crib.add(greet)
        crib.add_config(path)
    else:
        crib.add_config(path)
        greeting = crib.add(greet)
    async with crib:
        assert await crib.ready(30)
        assert (await crib.call_tool(greeting.handle)).text == "hello"
        (echo,) = [known for known in crib.view().tools if known.endswith(".echo")]
        assert (await crib.call_tool(crib.expand_tool(echo).handle, {"text": "too"})).text == "too"


@pytest.mark.usefixtures("poll_often")
async def test_a_server_that_a_reload_brings_may_be_called_as_the_functions_of_this_program_are(tmp_path: Path) -> None:
    path = write_config(tmp_path / "mcp.json", kept=faulty_entry())
    crib = Toolcrib()
    greeting = crib.add(greet)
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        write_config(path, kept=faulty_entry(), functions=faulty_entry())
        await until(lambda: taken_over, "the file is taken over")
        assert await crib.ready(30)
        assert [server.name for server in taken_over[0].servers] == ["kept", "functions-2"]
        assert "functions-2.echo" in crib.view().tools
        assert (await crib.call_tool(greeting.handle)).text == "hello"


async def test_a_server_with_the_name_of_another_source_is_refused(tmp_path: Path) -> None:
    crib = Toolcrib()
    crib.add_source(ScriptedSource("taken"))
    before = crib.registry.state
    with pytest.raises(InvalidConfig, match="a source named `taken` is there already"):
        crib.add_config(write_config(tmp_path / "mcp.json", new=faulty_entry(), taken=faulty_entry()))
    assert crib.registry.state is before


@pytest.mark.usefixtures("poll_often")
async def test_a_reload_with_a_server_whose_name_another_source_has_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(tmp_path / "mcp.json", kept=faulty_entry())
    crib = Toolcrib()
    crib.add_source(ScriptedSource("taken", [tool("taken.saw")]))
    config = crib.add_config(path)
    async with crib:
        assert await crib.ready(30)
        before = crib.registry.state
        async with following(crib, config) as taken_over:
            write_config(path, new=faulty_entry(), taken=faulty_entry())
            await until(lambda: "a source named `taken` is there already" in caplog.text, "the file is read")
            assert crib.registry.state is before
            assert taken_over == []
            write_config(path, kept=faulty_entry(), new=faulty_entry())
            await until(lambda: taken_over, "the mended file is taken over")
            assert set(crib.registry.state.sources) == {"taken", "kept", "new"}


# -- its life ---------------------------------------------------------------------------------------------------------


async def test_a_crib_is_ready_only_while_it_is_entered_and_is_entered_once_at_a_time() -> None:
    crib = Toolcrib()
    crib.add_source(ScriptedSource("bench", [tool("bench.saw")]))
    with anyio.fail_after(30):
        assert not await crib.ready()
        async with crib:
            with pytest.raises(RuntimeError, match="entered already"):
                await crib.__aenter__()
            assert await crib.ready()
            assert "bench.saw" in crib.view().tools
        assert not await crib.ready()


async def test_leaving_does_not_wait_for_the_start_that_somebody_waits_for(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    source = McpSource("mute", faulty_server("silent", "--log", str(log)), patience=Patience(start_s=3600))
    crib = Toolcrib()
    crib.add_source(source)

    async def ask() -> None:
        with pytest.raises(SourceUnavailable, match="was stopped"):
            await source.list_tools()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as waiting:
            async with crib:
                waiting.start_soon(ask)
                waiting.start_soon(crib.ready)
                await until(lambda: events(log, "start"), "the server runs")
                await anyio.wait_all_tasks_blocked()
            assert not psutil.pid_exists(events(log, "start")[0]["pid"])


@pytest.mark.usefixtures("poll_often")
async def test_a_reload_does_not_wait_for_the_start_of_a_server_that_it_removes(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    patient = {"start_timeout_s": 3600}
    path = write_config(tmp_path / "mcp.json", toolcrib=patient, mute=faulty_entry("silent", "--log", str(log)))
    crib = Toolcrib()
    config = crib.add_config(path)
    source = crib.view().sources["mute"].source

    async def ask() -> None:
        with pytest.raises(SourceUnavailable, match="was stopped"):
            await source.list_tools()

    with anyio.fail_after(30):
        async with crib, following(crib, config) as taken_over, anyio.create_task_group() as waiting:
            waiting.start_soon(ask)
            waiting.start_soon(crib.ready)
            await until(lambda: events(log, "start"), "the server runs")
            await anyio.wait_all_tasks_blocked()
            write_config(path, toolcrib=patient)
            await until(lambda: taken_over, "the file without the server is taken over")
            assert "mute" not in crib.view().sources
            assert not psutil.pid_exists(events(log, "start")[0]["pid"])


# -- what is for the owner alone --------------------------------------------------------------------------------------


async def test_what_a_server_wrote_and_where_its_configuration_stands_is_for_its_owner_alone(tmp_path: Path) -> None:
    unset = {"command": "x", "env": {"TOKEN": "${TOOLCRIB_TEST_NOT_SET}"}}
    path = write_config(tmp_path / "mcp.json", broken=faulty_entry("exit-at-start"), unset=unset)
    crib = Toolcrib()
    crib.add_config(path)
    told: list[ToolcribError] = []
    async with crib:
        assert await crib.ready(30)
        sources = crib.view().sources
        for name, entry in sources.items():
            lost = tool(f"{name}.saw")
            with pytest.raises(ToolcribError) as expanding:
                crib.expand_tool(lost.id)
            with pytest.raises(ToolcribError) as calling:
                await crib.call_tool(lost.handle)
            with pytest.raises(ToolcribError) as asking:  # as a call does whose tool was listed before
                await entry.source.call_tool(lost, {}, CallContext())
            told += [expanding.value, calling.value, asking.value]
        answers = [crib.list().to_wire(), crib.search_tools("saw").to_wire(), *(error.to_wire() for error in told)]
    assert "the vice is missing" in sources["broken"].diagnosis
    assert str(path) in sources["unset"].diagnosis
    shown = " ".join(map(str, [*answers, *told, *(entry.reason for entry in sources.values())]))
    assert "the vice is missing" not in shown
    assert str(tmp_path) not in shown
    assert "TOOLCRIB_TEST_NOT_SET" in shown  # which variable it misses, anybody may know


def test_a_configuration_that_starts_toolcrib_on_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    monkeypatch.setenv("TOOLCRIB_SERVING", f"/elsewhere/mcp.json{os.pathsep}{config}")
    with pytest.raises(InvalidConfig, match="Toolcrib serves this file already"):
        Toolcrib().add_config(config)


async def test_a_server_is_told_from_which_configurations_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_SERVING", "/above/mcp.json")
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    crib = Toolcrib()
    crib.add_config(config)
    async with crib:
        assert await crib.ready(30)
        told = await crib.call_tool(crib.expand_tool("bench.env").handle, {"name": "TOOLCRIB_SERVING"})
    assert f"/above/mcp.json{os.pathsep}{config}" in told.text
