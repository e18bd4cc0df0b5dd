"""The crib as a whole: how its parts work together, its lifetime, and which details only its owner sees."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.catalogs import tool
from tests.processes import is_running
from tests.servers.launching import Json, events, faulty_entry, faulty_server, write_config
from tests.until import until

from toolcrib.catalog.access import Access, Permissions, Rules
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.capability_checks import ProgramOnPath
from toolcrib.catalog.definition_guard import DefinitionGuard
from toolcrib.config import Config
from toolcrib.config.registration_store import RegistrationStore
from toolcrib.core.errors import InvalidConfig, InvalidTool, SourceUnavailable, ToolcribError, ToolNotFound
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.pins import PinStore
from toolcrib.sources.declared.definition import read_declared_source
from toolcrib.sources.mcp import Patience
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio


def greet() -> str:
    """Say hello."""
    return "hello"


@asynccontextmanager
async def following(crib: Toolcrib, config: Config) -> AsyncGenerator[list[Config]]:
    """Let the crib follow its configuration file; yield the list of configurations that it applied."""
    taken_over: list[Config] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config, taken_over.append)
        await anyio.wait_all_tasks_blocked()  # the crib has read the current state of the file
        yield taken_over
        tasks.cancel_scope.cancel()


@pytest.fixture
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)


def test_a_configuration_can_be_added_before_an_event_loop_runs(tmp_path: Path) -> None:
    crib = Toolcrib()
    crib.add_config(write_config(tmp_path / "mcp.json", bench=faulty_entry()))
    crib.add_source(ScriptedSource("plain", [tool("plain.saw")]))

    async def main() -> None:
        async with crib:
            assert await crib.ready(30)
            assert {"bench.echo", "plain.saw"} <= crib.view().tools.keys()

    anyio.run(main)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("functions_first", [True, False])
async def test_a_server_named_functions_and_the_functions_of_the_program_coexist(
    functions_first: bool, tmp_path: Path
) -> None:
    path = write_config(tmp_path / "mcp.json", functions=faulty_entry())
    crib = Toolcrib()
    if functions_first:
        greeting = crib.tool_of(crib.add(greet))
        crib.add_config(path)
    else:
        crib.add_config(path)
        greeting = crib.tool_of(crib.add(greet))
    async with crib:
        assert await crib.ready(30)
        assert (await crib.call_tool(greeting.handle)).text == "hello"
        (echo,) = [known for known in crib.view().tools if known.endswith(".echo")]
        assert (await crib.call_tool(crib.expand_tool(echo).handle, {"text": "too"})).text == "too"


@pytest.mark.usefixtures("poll_often")
async def test_a_server_named_functions_can_be_added_by_a_reload(tmp_path: Path) -> None:
    path = write_config(tmp_path / "mcp.json", kept=faulty_entry())
    crib = Toolcrib()
    greeting = crib.tool_of(crib.add(greet))
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        write_config(path, kept=faulty_entry(), functions=faulty_entry())
        await until(lambda: taken_over, "the file is taken over")
        assert await crib.ready(30)
        assert [server.name for server in taken_over[0].servers] == ["kept", "functions-2"]
        assert "functions-2.echo" in crib.view().tools
        assert (await crib.call_tool(greeting.handle)).text == "hello"


async def test_a_server_with_the_name_of_an_existing_source_is_refused(tmp_path: Path) -> None:
    crib = Toolcrib()
    crib.add_source(ScriptedSource("taken"))
    before = crib.registry.state
    with pytest.raises(InvalidConfig, match="a source named `taken` already exists"):
        crib.add_config(write_config(tmp_path / "mcp.json", new=faulty_entry(), taken=faulty_entry()))
    assert crib.registry.state is before


@pytest.mark.usefixtures("poll_often")
async def test_a_reload_with_a_name_conflict_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_config(tmp_path / "mcp.json", kept=faulty_entry())
    crib = Toolcrib()
    crib.add_source(ScriptedSource("taken", [tool("taken.saw")]))
    config = crib.add_config(path)
    async with crib:
        assert await crib.ready(30)
        before = crib.registry.state
        async with following(crib, config) as taken_over:
            write_config(path, new=faulty_entry(), taken=faulty_entry())
            await until(lambda: "a source named `taken` already exists" in caplog.text, "the file is read")
            assert crib.registry.state is before
            assert taken_over == []
            write_config(path, kept=faulty_entry(), new=faulty_entry())
            await until(lambda: taken_over, "the fixed file is taken over")
            assert set(crib.registry.state.sources) == {"taken", "kept", "new"}


# -- lifetime ---------------------------------------------------------------------------------------------------------


async def test_a_crib_is_ready_only_while_entered_and_cannot_be_entered_twice() -> None:
    crib = Toolcrib()
    crib.add_source(ScriptedSource("bench", [tool("bench.saw")]))
    with anyio.fail_after(30):
        assert not await crib.ready()
        async with crib:
            with pytest.raises(RuntimeError, match="already entered"):
                await crib.__aenter__()
            assert await crib.ready()
            assert "bench.saw" in crib.view().tools
        assert not await crib.ready()


async def test_leaving_a_crib_does_not_wait_for_a_starting_server(tmp_path: Path) -> None:
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
            assert not is_running(events(log, "start")[0]["pid"])


@pytest.mark.usefixtures("poll_often")
async def test_a_reload_does_not_wait_for_the_start_of_a_removed_server(tmp_path: Path) -> None:
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
            await until(lambda: not is_running(events(log, "start")[0]["pid"]), "the server ended")


# -- changes of the configuration -------------------------------------------------------------------------------------

EVE = Principal("eve")

FROM_EVE: Json = {"rules": [{"then": "hide", "sources": ["pay*"], "principals": ["eve"]}], "otherwise": "allow"}
OPEN: Json = {"otherwise": "allow"}


@pytest.mark.parametrize("after", [{}, {"pay": faulty_entry("silent")}], ids=["removed", "changed"])
@pytest.mark.usefixtures("poll_often")
async def test_a_server_removed_together_with_its_hiding_rule_is_never_visible(
    after: dict[str, Json], tmp_path: Path
) -> None:
    stubborn = faulty_entry("ignore-sigterm")
    path = write_config(tmp_path / "mcp.json", toolcrib={"policy": FROM_EVE}, pay=stubborn, payroll=stubborn)
    crib = Toolcrib()
    config = crib.add_config(path)
    seen: list[str] = []

    def look(_: object = None) -> None:
        seen.extend(crib.view(EVE).tools)

    async with crib, following(crib, config) as taken_over:
        assert await crib.ready(30)
        handle = crib.expand_tool("pay.echo").handle
        crib.registry.subscribe(look)
        write_config(path, toolcrib={"policy": OPEN}, kept=faulty_entry(), **after)

        def is_over() -> bool:
            look()
            return "kept.echo" in seen

        await until(is_over, "the file counts, and all that was left has ended")
        assert taken_over
        assert [tool_id for tool_id in seen if tool_id.startswith("pay")] == []
        with pytest.raises(ToolcribError):
            await crib.call_tool(handle, {"text": "x"})


@pytest.mark.usefixtures("poll_often")
async def test_an_isolated_server_removed_together_with_its_rule_is_never_visible(tmp_path: Path) -> None:
    own: Json = {"sources": {"pay": {"isolation": "principal", "principals": {"eve": {}}}}}
    path = write_config(tmp_path / "mcp.json", toolcrib={"policy": FROM_EVE, **own}, pay=faulty_entry("ignore-sigterm"))
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        assert await crib.ready(30, principal=EVE)
        assert "pay.echo" in crib.isolated_sources.open_overlay("eve").tools
        seen: list[str] = []

        def look(_: object = None) -> None:
            seen.extend(crib.view(EVE).tools)

        crib.registry.subscribe(look)
        write_config(path, toolcrib={"policy": OPEN}, kept=faulty_entry())
        await until(lambda: taken_over, "the file counts")
        look()
        await until(lambda: "kept.echo" in seen, "what is new is seen")
        assert [tool_id for tool_id in seen if tool_id.startswith("pay")] == []


@pytest.mark.usefixtures("poll_often")
async def test_the_settle_callback_runs_before_a_changed_file_is_applied(tmp_path: Path) -> None:
    path = write_config(tmp_path / "mcp.json", toolcrib={"policy": FROM_EVE}, pay=faulty_entry())
    crib = Toolcrib()
    config = crib.add_config(path)
    states: list[object] = []
    async with crib, anyio.create_task_group() as tasks:
        assert await crib.ready(30)
        before = crib.registry.state

        def count(_: Config) -> None:
            states.append(crib.registry.state)

        def settle(changed: Config) -> None:
            assert changed.policy == Rules((), Access.CALL)
            states.append(crib.registry.state)
            assert not crib.view(EVE).tools
            if len(states) == 1:
                raise InvalidConfig("no principal may use this")

        tasks.start_soon(crib.follow, config, count, settle)
        await anyio.wait_all_tasks_blocked()
        write_config(path, toolcrib={"policy": OPEN})
        await until(lambda: states, "it was read")
        await anyio.wait_all_tasks_blocked()
        assert states == [before]
        assert crib.registry.state is before
        write_config(path, toolcrib={"policy": OPEN}, more=faulty_entry())
        await until(lambda: len(states) == 3, "the next one counts")
        assert states[1] is before
        assert set(crib.view(EVE).sources) == {"more"}
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("poll_often")
async def test_a_name_used_by_a_changed_file_cannot_be_taken_during_the_reload(tmp_path: Path) -> None:
    path = write_config(tmp_path / "mcp.json", old=faulty_entry())
    crib = Toolcrib()
    config = crib.add_config(path)
    refused: list[InvalidTool] = []

    def intrude(_: object) -> None:
        if "old" not in crib.registry.state.sources and not refused:
            try:
                crib.add_source(ScriptedSource("new"))
            except InvalidTool as error:
                refused.append(error)

    async with crib, following(crib, config) as taken_over:
        assert await crib.ready(30)
        crib.registry.subscribe(intrude)
        write_config(path, new=faulty_entry())
        await until(lambda: taken_over, "the file is taken over")
        assert len(refused) == 1
        write_config(path, new=faulty_entry(), third=faulty_entry())
        await until(lambda: len(taken_over) == 2, "the next one as well")
        assert await crib.ready(30)
        assert set(crib.view().sources) == {"new", "third"}


class Closed(list[str]):
    """A policy that hides everything, and is falsy because it is an empty list."""

    def permissions(self, principal: Principal) -> Permissions:
        return Rules((), otherwise=Access.HIDDEN).permissions(principal)


async def test_a_falsy_policy_object_is_respected(tmp_path: Path) -> None:
    crib = Toolcrib(policy=Closed())
    crib.add_source(ScriptedSource("files", [tool("files.read")]))
    assert not crib.view().tools
    crib.add_config(write_config(tmp_path / "mcp.json", toolcrib={"policy": {"otherwise": "allow"}}))
    async with crib:
        await crib.ready()
        assert not crib.view().tools


@pytest.mark.parametrize("rest", [{}, {"categories": {"Other": {"tools": ["nothing"]}}}], ids=["all", "some"])
@pytest.mark.usefixtures("poll_often")
async def test_a_file_that_loses_its_policy_does_not_widen_access(
    rest: Json, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hides = {"rules": [{"then": "hide", "paths": [["Money"]]}], "otherwise": "allow"}
    closed: Json = {"policy": hides, "categories": {"Money": {"tools": ["pay.*"]}}}
    path = write_config(tmp_path / "mcp.json", toolcrib=closed, pay=faulty_entry(), git=faulty_entry())
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        assert await crib.ready(30)
        write_config(path, toolcrib=rest, pay=faulty_entry(), git=faulty_entry(), more=faulty_entry())
        await until(lambda: taken_over, "the file without a policy is taken over")
        assert await crib.ready(30)
        assert {tool.source for tool in crib.view().tools.values()} == {"git", "more"}
        assert "Money" not in {top.name for top in crib.top_level(taken_over[0], LOCAL)}
        assert "the previous policy and its categories stay in force" in caplog.text
        assert "to allow everything" in caplog.text

        write_config(path, toolcrib={"policy": OPEN}, pay=faulty_entry(), git=faulty_entry())
        await until(lambda: len(taken_over) == 2, "the file that opens everything is taken over")
        assert {tool.source for tool in crib.view().tools.values()} == {"git", "pay"}


# -- details for the owner only ---------------------------------------------------------------------------------------


async def test_server_output_and_configuration_paths_are_only_shown_to_the_owner(tmp_path: Path) -> None:
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
            with pytest.raises(ToolcribError) as asking:  # like a call of a tool that was listed earlier
                await entry.source.call_tool(lost, {}, CallContext())
            told += [expanding.value, calling.value, asking.value]
        answers = [crib.list().to_wire(), crib.search_tools("saw").to_wire(), *(error.to_wire() for error in told)]
    assert "the vice is missing" in sources["broken"].diagnosis
    assert str(path) in sources["unset"].diagnosis
    shown = " ".join(map(str, [*answers, *told, *(entry.reason for entry in sources.values())]))
    assert "the vice is missing" not in shown
    assert str(tmp_path) not in shown
    assert "TOOLCRIB_TEST_NOT_SET" in sources["unset"].diagnosis
    assert "TOOLCRIB_TEST_NOT_SET" not in shown


def test_a_configuration_that_starts_toolcrib_with_the_same_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    monkeypatch.setenv("TOOLCRIB_SERVING", f"/elsewhere/mcp.json{os.pathsep}{config}")
    with pytest.raises(InvalidConfig, match="is Toolcrib serving the same file"):
        Toolcrib().add_config(config)


async def test_a_server_receives_the_paths_of_the_configurations_that_started_it(
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


# -- functions --------------------------------------------------------------------------------------------------------


async def test_a_decorated_function_stays_callable_and_is_a_tool() -> None:
    crib = Toolcrib()

    @crib.add
    def ho(text: str) -> str:
        """Say ho."""
        return f"ho {text}"

    @crib.add(name="hello", metadata=ToolMetadata(tags=("greeting",)))
    async def greeting(text: str) -> str:
        """Say hello."""
        return f"hello {text}"

    assert (ho("x"), await greeting("x")) == ("ho x", "hello x")
    assert [tool.id for tool in crib.registry.list()] == ["functions.hello", "functions.ho"]
    hello = crib.tool_of(greeting)
    assert (hello.id, hello.metadata.tags) == ("functions.hello", ("greeting",))
    assert (await crib.call_tool(crib.tool_of(ho).handle, {"text": "y"})).text == "ho y"


def test_a_function_is_removed_by_itself_or_its_tool_or_its_id() -> None:
    crib = Toolcrib()
    for removed in (greet, None, "functions.greet"):
        crib.add(greet)
        crib.remove(crib.tool_of(greet) if removed is None else removed)
        assert crib.registry.list() == ()
        with pytest.raises(ToolNotFound, match=r"`greet` was not added with `add\(\)`, or was removed"):
            crib.remove(greet)


def test_adding_a_tool_definition_as_a_function_is_refused() -> None:
    with pytest.raises(InvalidTool, match=r"`mine\.hello` is a tool definition, which cannot be called"):
        Toolcrib().add(Tool("mine", "hello"))  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_deprecated_method_names_still_work_with_a_warning(tmp_path: Path) -> None:
    crib = Toolcrib(registrations=RegistrationStore(tmp_path / "registrations.sqlite"))
    with pytest.warns(DeprecationWarning, match="`keep` is now `register`"):
        crib.keep(Capability("git", ProgramOnPath("git")))
    with pytest.warns(DeprecationWarning, match="`forget` is now `unregister`"):
        crib.forget("capability", "git")
    with pytest.warns(DeprecationWarning, match="`declare` is now `register_declared`"):
        crib.declare(
            read_declared_source("machine", {"tools": {"up": {"description": "Uptime.", "command": ["uptime"]}}})
        )
    assert set(crib.view().tools) == {"machine.up"}
    with pytest.warns(DeprecationWarning, match="`withdraw` is now `unregister_declared`"):
        crib.withdraw("machine")
    assert not crib.view().tools
    with pytest.warns(DeprecationWarning, match="`lockers` is now `isolated_sources`"):
        assert crib.lockers is crib.isolated_sources
    with pytest.warns(DeprecationWarning, match="`judge_again` is now `rejudge`"):
        await crib.judge_again()
    guard = DefinitionGuard(PinStore(tmp_path / "pins.sqlite", tmp_path / "mcp.json"))
    with pytest.warns(DeprecationWarning, match="`approve` is now `pin`"):
        guard.approve((), "ada")
    with pytest.warns(DeprecationWarning, match="`withdraw` is now `unpin`"):
        guard.withdraw((), "ada")
