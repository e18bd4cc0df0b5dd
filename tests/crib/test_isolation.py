"""Isolated servers: each principal has its own process or connection, with only its own credentials."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.processes import is_running
from tests.servers import faulty
from tests.servers.launching import events, faulty_entry, http_server, received, replace_config, write_config
from tests.surfaces.test_pass_through import FIXTURE
from tests.until import until

from toolcrib.config import Config, ServerConfig, parse_config, read_config
from toolcrib.core.client import SilentClient
from toolcrib.core.errors import InvalidConfig, InvalidTool, SourceUnavailable, ToolcribError, ToolNotFound
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.crib.crib import Toolcrib
from toolcrib.crib.top_level import top_level
from toolcrib.sources.definition_cache import DefinitionStore
from toolcrib.sources.mcp import HttpServer, StdioServer
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

ADA, BOB, CYD = Principal("ada"), Principal("bob"), Principal("cyd")
TOKENS: Json = {each: {"env": {"TOKEN": f"token-of-{each}"}} for each in ("ada", "bob")}


def isolated(*, principals: Json | None = None, **more: Any) -> Json:
    """The settings under `toolcrib.sources.NAME` of an isolated server."""
    return {"isolation": "principal", **more} | ({"principals": principals} if principals is not None else {})


def config_of(path: Path, *words: str, principals: Json | None = TOKENS, settings: Json | None = None) -> Path:
    """A file with the isolated server `desk` and the shared server `bench`."""
    sources = {"desk": isolated(principals=principals)}
    toolcrib: Json = {"sources": sources, **(settings or {})}
    return write_config(path, toolcrib=toolcrib, desk=faulty_entry(*words), bench=faulty_entry())


@asynccontextmanager
async def crib_of(
    config: Path, *principals: Principal, definitions: DefinitionStore | None = None
) -> AsyncGenerator[Toolcrib]:
    """The crib of a configuration, after all sources of these principals are listed."""
    crib = Toolcrib(definitions=definitions)
    crib.add_config(config)
    async with crib:
        for principal in principals:
            assert await crib.ready(30, principal=principal)
        yield crib


async def call(crib: Toolcrib, principal: Principal, tool_id: str, **arguments: Any) -> ToolResult:
    context = CallContext(principal)
    handle = crib.expand_tool(tool_id, context=context).handle
    return await crib.call_tool(handle, arguments, context=context)


async def token(crib: Toolcrib, principal: Principal) -> str:
    return (await call(crib, principal, "desk.env", name="TOKEN")).text


async def pid(crib: Toolcrib, principal: Principal, source: str = "desk") -> int:
    return int((await call(crib, principal, f"{source}.pid")).text)


async def answers(crib: Toolcrib, principal: Principal, *references: str) -> str:
    """Everything that a principal can read about the servers of the configuration, as JSON."""
    context = CallContext(principal, trace_id=f"{1:032x}")  # handles contain the trace id
    asked: list[tuple[str, Json]] = [
        ("list", {}),
        ("list", {"path": ["desk"]}),
        ("list", {"query": "desk heirloom"}),
        ("search_tools", {"query": "heirloom desk echo text", "limit": 50}),
        ("search_tools", {"query": "environment variable", "include_unavailable": True}),
        ("search_nodes", {"query": "desk"}),
        ("list_categories", {}),
        ("expand_tool", {"tool_ids": ["desk.echo", "desk.heirloom", "desk", "bench.nothing"]}),
        ("expand_tool", {"tool_id": "desk__echo"}),
        *(("call_tool", {"tool_id": reference, "arguments": {"text": "x"}}) for reference in references),
    ]
    told: list[Any] = []
    for operation, arguments in asked:
        try:
            told.append((await crib.perform(operation, arguments, context=context)).to_wire())
        except ToolcribError as error:
            told.append(error.to_wire())
    view = crib.view(principal)
    told.append([sorted(view.tools), sorted(view.sources), view.fingerprint, sorted(view.names.values())])
    for uri in ("toolcrib://desk/test://static-text", "test://static-text"):
        try:
            told.append(dict(await crib.read_resource(uri, context=context)))
        except ToolcribError as error:
            told.append(error.to_wire())
    return json.dumps(told)


# -- separation of principals -----------------------------------------------------------------------------------------


async def test_an_isolated_server_added_later_is_available_to_active_principals(
    tmp_path: Path,
) -> None:
    shared = {"toolcrib": {"sources": {"vice": isolated()}}}
    async with crib_of(config_of(tmp_path / "mcp.json"), ADA) as crib:
        crib.add_config(write_config(tmp_path / "more.json", **shared, vice=faulty_entry()))
        assert await crib.ready(30, principal=ADA)
        assert set(crib.view(ADA).sources) == {"bench", "desk", "vice"}


async def test_each_principal_has_its_own_process_and_environment_and_shares_other_servers(tmp_path: Path) -> None:
    async with crib_of(config_of(tmp_path / "mcp.json"), ADA, BOB) as crib:
        assert await token(crib, ADA) == "token-of-ada"
        assert await token(crib, BOB) == "token-of-bob"
        assert await pid(crib, ADA) != await pid(crib, BOB)
        assert await pid(crib, ADA, "bench") == await pid(crib, BOB, "bench")
        assert (await call(crib, ADA, "bench.env", name="TOKEN")).text == "None"


async def test_headers_of_a_principal_override_the_headers_of_the_server(
    tmp_path: Path,
) -> None:
    principals: Json = {
        "ada": {"headers": {"authorization": "Bearer ada"}},
        "bob": {"headers": {"AUTHORIZATION": "Bearer bob"}},
        "cyd": {},
    }
    with http_server() as url:
        entry = {"url": f"{url}/mcp", "headers": {"Authorization": "Bearer all", "X-Who": "${principal}"}}
        settings = {"sources": {"desk": isolated(principals=principals)}}
        config = write_config(tmp_path / "mcp.json", toolcrib=settings, desk=entry)
        async with crib_of(config, ADA, BOB, CYD) as crib:
            for principal, sent in {ADA: "Bearer ada", BOB: "Bearer bob", CYD: "Bearer all"}.items():
                assert (await call(crib, principal, "desk.header", name="authorization")).text == sent
                assert (await call(crib, principal, "desk.header", name="x-who")).text == principal.id


async def test_the_local_principal_has_its_own_isolated_server(tmp_path: Path) -> None:
    config = config_of(tmp_path / "mcp.json", principals={"local": {"env": {"TOKEN": "mine"}}, **TOKENS})
    crib = Toolcrib()
    crib.add_config(config)
    async with crib:
        assert await crib.ready(30)
        assert {node.node.name for node in crib.list().nodes} == {"bench", "desk"}
        handle = crib.expand_tool("desk.env").handle
        assert (await crib.call_tool(handle, {"name": "TOKEN"})).text == "mine"
        assert crib.isolated_sources.starting(ADA) == ()


async def test_tools_of_one_principals_server_appear_in_no_answer_to_others(tmp_path: Path) -> None:
    async with crib_of(config_of(tmp_path / "mcp.json"), ADA, BOB) as crib:
        before = await answers(crib, BOB)
        await call(crib, ADA, "desk.change", name="heirloom", description="An heirloom of ada")
        await until(lambda: crib.view(ADA).find("desk.heirloom"), "it was listed")
        handle = crib.expand_tool("desk.heirloom", context=CallContext(ADA)).handle
        assert (await crib.call_tool(handle, {}, context=CallContext(ADA))).text == "heirloom"
        assert "heirloom of ada" in await answers(crib, ADA)

        with pytest.raises(ToolNotFound) as raised:
            await crib.call_tool(handle, {}, context=CallContext(BOB))
        assert "heirloom" not in " ".join(raised.value.hints)
        assert await answers(crib, BOB) == before


async def test_an_isolated_server_leaves_no_trace_for_principals_without_it(tmp_path: Path) -> None:
    without = write_config(tmp_path / "without.json", bench=faulty_entry())
    async with crib_of(config_of(tmp_path / "with.json"), ADA, CYD) as crib, crib_of(without, CYD) as other:
        handle = crib.expand_tool("desk.echo", context=CallContext(ADA)).handle
        assert await answers(crib, CYD, handle) == await answers(other, CYD, handle)
        assert crib.view(CYD).fingerprint == other.view(CYD).fingerprint
        assert "desk" in crib.view(ADA).sources


async def test_a_starting_isolated_server_is_only_reported_to_its_principals(tmp_path: Path) -> None:
    async with crib_of(config_of(tmp_path / "mcp.json", "silent"), CYD) as crib:
        page = crib.list(context=CallContext(ADA))
        assert page.missing.starting == ("desk",)
        with pytest.raises(SourceUnavailable, match="still starting"):
            crib.expand_tool("desk.echo", context=CallContext(ADA))
        assert not crib.list(context=CallContext(CYD)).missing.starting
        with pytest.raises(ToolNotFound):
            crib.expand_tool("desk.echo", context=CallContext(CYD))
        assert not await crib.ready(0.01, principal=ADA)
        assert await crib.ready(30, principal=CYD)


async def test_missing_credentials_of_one_principal_do_not_affect_others(tmp_path: Path) -> None:
    principals = {**TOKENS, "bob": {"env": {"TOKEN": "${TOOLCRIB_TEST_NOT_SET}"}}}
    async with crib_of(config_of(tmp_path / "mcp.json", principals=principals), ADA, BOB, CYD) as crib:
        assert await token(crib, ADA) == "token-of-ada"
        assert crib.list(context=CallContext(BOB)).missing.unavailable == ("desk",)
        with pytest.raises(SourceUnavailable, match="Its configuration is invalid") as failed:
            crib.expand_tool("desk.env", context=CallContext(BOB))
        assert "TOOLCRIB_TEST_NOT_SET" not in str(failed.value.to_wire())
        assert "principals.bob.env.TOKEN: environment variable `TOOLCRIB_TEST_NOT_SET` is not set" in (
            failed.value.diagnosis
        )
        for principal in (ADA, CYD):
            assert "TOOLCRIB_TEST_NOT_SET" not in await answers(crib, principal)
            assert not crib.list(context=CallContext(principal)).missing.unavailable


async def test_a_server_that_crashes_for_one_principal_continues_for_others(tmp_path: Path) -> None:
    async with crib_of(config_of(tmp_path / "mcp.json", "die-in-call"), ADA, BOB) as crib:
        before = await pid(crib, BOB)
        for _ in range(3):
            with pytest.raises(SourceUnavailable):
                await call(crib, ADA, "desk.crash")
        assert await pid(crib, BOB) == before


async def test_prompts_resources_and_subscriptions_are_separate_for_each_principal(tmp_path: Path) -> None:
    settings = {"sources": {"desk": isolated(principals={"ada": {}, "bob": {}})}}
    config = write_config(tmp_path / "mcp.json", toolcrib=settings, desk=FIXTURE)
    uri = "toolcrib://desk/test://watched-resource"
    async with crib_of(config, ADA, BOB, CYD) as crib:
        for principal in (ADA, BOB):
            assert uri in crib.view(principal).prompts_and_resources.resources
            assert "desk__test_simple_prompt" in crib.view(principal).prompts_and_resources.prompts
            context = CallContext(principal)
            assert "Watch me." in json.dumps(await crib.read_resource(uri, context=context), default=dict)
            assert await crib.get_prompt("desk__test_simple_prompt", context=context)
        assert not crib.view(CYD).prompts_and_resources.resources
        assert not crib.view(CYD).prompts_and_resources.prompts
        for attempt in (crib.read_resource(uri, context=CallContext(CYD)), crib.get_prompt("desk__test_simple_prompt")):
            with pytest.raises(ToolcribError):
                await attempt

        async def watched(principal: Principal) -> str:
            return (await call(crib, principal, "desk.test_watched")).text

        end = await crib.watch_resource(uri, lambda: None, context=CallContext(ADA))
        assert "watched-resource" in await watched(ADA)
        assert await watched(BOB) == ""
        end()


async def test_the_local_person_is_not_asked_on_behalf_of_a_different_principal(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    words = ("--era", "legacy", "--log", str(log))
    crib = Toolcrib()
    crib.client = SilentClient({"elicitation": {}})
    crib.add_config(config_of(tmp_path / "mcp.json", *words, principals={"local": {}, "ada": {}}))
    async with crib:
        assert await crib.ready(30, principal=LOCAL)
        assert await crib.ready(30, principal=ADA)
        mine, adas = (message["params"]["capabilities"] for message in received(log, "initialize"))
        assert "elicitation" in mine
        assert "elicitation" not in adas


# -- start and end ----------------------------------------------------------------------------------------------------


async def test_concurrent_first_requests_start_one_process(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    async with crib_of(config_of(tmp_path / "mcp.json", "--log", str(log))) as crib:
        assert events(log, "start") == []  # no principal has sent a request

        async def ask() -> None:
            crib.view(ADA)
            assert await crib.ready(30, principal=ADA)
            assert await token(crib, ADA) == "token-of-ada"

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
        assert len(events(log, "start")) == 1


@pytest.mark.slow
async def test_a_hundred_principals_share_a_limited_number_of_processes(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    words = ("--log", str(log))
    config = config_of(tmp_path / "mcp.json", *words, principals=None, settings={"max_isolated_principals": 4})
    seen: list[int] = []

    async def visit(principal: Principal) -> None:
        assert await crib.ready(30, principal=principal)
        seen.append(await pid(crib, principal))

    async with crib_of(config) as crib:
        for four in range(25):
            async with anyio.create_task_group() as tasks:
                for one in range(4):
                    tasks.start_soon(visit, Principal(f"person-{four}-{one}"))
            assert sum(map(is_running, seen)) <= 4
    assert len(set(seen)) == len(events(log, "start")) == 100
    assert not any(map(is_running, seen))


async def test_a_new_principal_is_refused_while_calls_of_others_are_running(tmp_path: Path) -> None:
    config = config_of(tmp_path / "mcp.json", settings={"max_isolated_principals": 1})
    async with crib_of(config, ADA) as crib, anyio.create_task_group() as tasks:
        holding = anyio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            holding.set()

        async def hold() -> None:
            context = CallContext(ADA)
            handle = crib.expand_tool("desk.slow", context=context).handle
            await crib.call_tool(handle, {"steps": 1, "hold": True}, context=context, progress=note)

        tasks.start_soon(hold)
        await holding.wait()
        assert crib.list(context=CallContext(BOB)).missing.unavailable == ("desk",)
        with pytest.raises(SourceUnavailable, match="Try again later") as raised:
            crib.expand_tool("desk.echo", context=CallContext(BOB))
        assert raised.value.retryable
        assert await token(crib, ADA) == "token-of-ada"
        tasks.cancel_scope.cancel()


async def test_cached_definitions_are_separate_for_each_principal(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    config = config_of(tmp_path / "mcp.json", "--log", str(log), principals=None)
    with DefinitionStore(tmp_path / "definitions.sqlite") as store:
        async with crib_of(config, ADA, definitions=store) as crib:
            await call(crib, ADA, "desk.change", name="heirloom")
            await until(lambda: crib.view(ADA).find("desk.heirloom"), "it was listed and stored")
        assert len(events(log, "start")) == 1

        async with crib_of(config, ADA, definitions=store) as crib:
            assert crib.view(ADA).find("desk.heirloom") is not None
            assert len(events(log, "start")) == 1  # the stored definitions are used
            assert await crib.ready(30, principal=BOB)
            assert crib.view(BOB).find("desk.heirloom") is None
            assert len(events(log, "start")) == 2


ODD_IDS = (
    *("", "..", "../root", "-rf", "--admin", "a\r\nX-Admin: 1", "a\nb", "a\n", "a\0b", "a\x7f", "a\u2028b", "ädä"),
    *(f"a{mark}b" for mark in " ;,/\\%?#:=&$`'\"<>(){}[]!*~^"),
)
"""Ids that would break out of a header, argument, option, folder or parameter."""


# -- the configuration ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def following(crib: Toolcrib, config: Config) -> AsyncGenerator[list[Config]]:
    """Let the crib follow its configuration file; yield the list of configurations that it applied."""
    taken_over: list[Config] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config, taken_over.append)
        await anyio.wait_all_tasks_blocked()  # the crib has read the current state of the file
        yield taken_over
        tasks.cancel_scope.cancel()


async def test_a_truncated_file_does_not_share_an_isolated_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    path = config_of(tmp_path / "mcp.json")
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        document = json.loads(path.read_text())
        replace_config(path, json.dumps({"mcpServers": document["mcpServers"]}))
        await until(lambda: "server `desk` was isolated" in caplog.text, "the file was read")

        assert taken_over == []
        assert await crib.ready(30, principal=ADA)
        assert await token(crib, ADA) != "None"
        assert "desk" not in crib.view(LOCAL).sources


async def test_a_truncated_file_does_not_give_a_server_to_more_principals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    path = config_of(tmp_path / "mcp.json")
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        assert "desk" not in crib.view(CYD).sources
        document = json.loads(path.read_text())
        desk = document["toolcrib"]["sources"]["desk"]
        del desk["principals"]
        replace_config(path, json.dumps(document))
        await until(lambda: "only some principals had server `desk`" in caplog.text, "the file was read")
        assert taken_over == []
        assert "desk" not in crib.view(CYD).sources

        desk["principals"] = {"*": {}}
        replace_config(path, json.dumps(document))
        await until(lambda: taken_over, "the file was taken over")
        assert "desk" in crib.view(CYD).sources


async def test_a_reload_restarts_servers_only_for_principals_whose_credentials_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    path = config_of(tmp_path / "mcp.json")
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        for principal in (ADA, BOB):
            assert await crib.ready(30, principal=principal)
        adas, bobs = await pid(crib, ADA), await pid(crib, BOB)

        config_of(path, principals={"ada": TOKENS["ada"], "bob": {"env": {"TOKEN": "another"}}, "cyd": {}})
        await until(lambda: len(taken_over) == 1, "the file is taken over")
        for principal in (ADA, BOB, CYD):
            assert await crib.ready(30, principal=principal)
        assert await pid(crib, ADA) == adas
        assert await token(crib, BOB) == "another"
        assert not is_running(bobs)  # the new process starts after the end of the old one
        assert await token(crib, CYD) == "None"

        config_of(path, principals={"bob": {"env": {"TOKEN": "another"}}})
        await until(lambda: len(taken_over) == 2, "the file is taken over")
        assert "desk" not in crib.view(ADA).sources
        await until(lambda: not is_running(adas), "the one of ada ended")
        assert await token(crib, BOB) == "another"

        shared = {"sources": {"desk": {"isolation": "shared"}}}
        write_config(path, toolcrib=shared, desk=faulty_entry(), bench=faulty_entry())
        await until(lambda: len(taken_over) == 3, "the file is taken over")
        for principal in (ADA, BOB):
            assert await crib.ready(30, principal=principal)
        assert await pid(crib, ADA) == await pid(crib, BOB)

        config_of(path)
        await until(lambda: len(taken_over) == 4, "the file is taken over")
        for principal in (ADA, BOB):
            assert await crib.ready(30, principal=principal)
        assert await token(crib, ADA) == "token-of-ada"


async def test_a_reload_retries_a_failed_server_of_a_principal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    monkeypatch.setattr("toolcrib.catalog.intake.FIRST_RETRY_S", 3_600)
    script = tmp_path / "desk.py"
    entry = {**faulty_entry(), "args": [str(script)]}
    settings = {"sources": {"desk": isolated()}}
    path = write_config(tmp_path / "mcp.json", toolcrib=settings, desk=entry)
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config):
        assert await crib.ready(30, principal=ADA)
        assert crib.list(context=CallContext(ADA)).missing.unavailable == ("desk",)
        script.symlink_to(faulty.__file__)
        write_config(path, toolcrib=settings, desk=entry, bench=faulty_entry())
        await until(lambda: "desk.echo" in crib.view(ADA).tools, "it was tried again")


async def test_the_name_of_an_isolated_server_cannot_be_used_again(tmp_path: Path) -> None:
    crib = Toolcrib()
    crib.add_config(config_of(tmp_path / "mcp.json"))
    with pytest.raises(InvalidTool, match="a source named `desk` already exists"):
        crib.add_source(ScriptedSource("desk"))
    with pytest.raises(InvalidConfig, match="a source named `desk` already exists"):
        crib.add_config(write_config(tmp_path / "other.json", desk=faulty_entry()))


def test_the_top_level_lists_an_isolated_server_only_for_its_principals(tmp_path: Path) -> None:
    config = read_config(config_of(tmp_path / "mcp.json"))
    assert [top.name for top in top_level(config, principal=ADA)] == ["desk", "bench"]
    assert [top.name for top in top_level(config)] == ["bench"]


def parsed(entry: Json, settings: Json, **environ: str) -> ServerConfig:
    document = {"mcpServers": {"desk": entry}, "toolcrib": {"sources": {"desk": settings}}}
    (server,) = parse_config(json.dumps(document), Path("mcp.json"), environ).servers
    return server


def reached(entry: Json, principal_id: str, settings: Json | None = None, **environ: str) -> StdioServer | HttpServer:
    own = parsed(entry, settings or isolated(), **environ).of(principal_id)
    assert own is not None
    assert own.server is not None, own.problem
    return own.server


def refused(entry: Json, principal_id: str, settings: Json | None = None) -> str:
    own = parsed(entry, settings or isolated()).of(principal_id)
    assert own is not None
    assert own.server is None
    return own.problem or ""


def test_a_server_is_shared_by_default() -> None:
    server = parsed({"command": "desk"}, {})
    assert server.isolation == "shared"
    assert server.of("ada") is server


def test_credentials_of_principals_are_refused_for_a_shared_server() -> None:
    wrong: list[Json] = [{"principals": {"ada": {}}}, {"principals": {"ada": {}}, "isolation": "shared"}]
    for settings in wrong:
        server = parsed({"command": "desk"}, settings)
        assert server.server is None
        assert server.problem is not None
        assert "toolcrib.sources.desk.principals: " in server.problem
        assert "`isolation`" in server.problem


def test_the_principal_is_filled_in_and_other_variables_are_not_affected() -> None:
    entry: Json = {
        "command": "desk",
        "args": ["--user=${principal}", "${HOME_OF_ALL}"],
        "env": {"WHO": "<${principal}>"},
        "cwd": "/srv/${principal}/desk",
    }
    assert reached(entry, "ada", HOME_OF_ALL="/srv", principal="nobody") == StdioServer(
        "desk", ("--user=ada", "/srv"), {"WHO": "<ada>"}, Path("/srv/ada/desk")
    )
    address: Json = {"url": "https://example.com/${principal}?as=${principal}", "headers": {"X-Who": "${principal}"}}
    assert reached(address, "ada+1@example.com") == HttpServer(
        "https://example.com/ada%2B1%40example.com?as=ada%2B1%40example.com", {"X-Who": "ada+1@example.com"}
    )


@pytest.mark.parametrize("principal_id", ODD_IDS)
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "desk", "args": ["${principal}"]},
        {"command": "desk", "env": {"WHO": "${principal}"}},
        {"command": "desk", "cwd": "/srv/${principal}"},
        {"url": "https://example.com/${principal}/mcp"},
        {"url": "https://example.com/mcp", "headers": {"X-Who": "${principal}"}},
    ],
    ids=["args", "env", "cwd", "url", "headers"],
)
def test_an_id_with_special_characters_is_not_filled_in(entry: Json, principal_id: str) -> None:
    assert "cannot be filled in" in refused(entry, principal_id)
    assert reached(entry, "ada") is not None


def test_an_id_with_a_bar_is_only_filled_in_within_a_url() -> None:
    assert reached({"url": "https://example.com/${principal}/mcp?as=${principal}"}, "auth0|123") == HttpServer(
        "https://example.com/auth0%7C123/mcp?as=auth0%7C123"
    )
    elsewhere: list[Json] = [
        {"command": "desk", "args": ["${principal}"]},
        {"command": "desk", "env": {"WHO": "${principal}"}},
        {"command": "desk", "cwd": "/srv/${principal}"},
        {"url": "https://example.com/mcp", "headers": {"X-Who": "${principal}"}},
    ]
    for entry in elsewhere:
        assert "a `|` is only allowed in a `url`" in refused(entry, "auth0|123")


def test_a_principal_with_special_characters_in_its_id_can_have_credentials() -> None:
    entry = {"url": "https://example.com/mcp"}
    settings = isolated(principals={"https://id.example.com/u/1": {"headers": {"X-Key": "${KEY}"}}})
    assert reached(entry, "https://id.example.com/u/1", settings, KEY="k") == HttpServer(entry["url"], {"X-Key": "k"})


def test_a_principal_that_is_not_listed_has_no_server_without_a_default() -> None:
    named = isolated(principals={"ada": {"env": {"TOKEN": "a"}}})
    assert parsed({"command": "desk", "env": {"WHO": "${principal}"}}, named).of("bob") is None
    others = isolated(principals={"ada": {"env": {"TOKEN": "a"}}, "*": {"env": {"TOKEN": "of ${principal}"}}})
    assert reached({"command": "desk"}, "ada", others) == StdioServer("desk", env={"TOKEN": "a"})
    assert reached({"command": "desk"}, "bob", others) == StdioServer("desk", env={"TOKEN": "of bob"})
    assert parsed({"command": "desk"}, isolated(principals={})).of("ada") is None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "/opt/${principal}"}, "mcpServers.desk.command: "),
        ({"url": "https://${principal}.example.com/mcp"}, "mcpServers.desk.url: "),
        ({"url": "https://${principal}@example.com/mcp"}, "mcpServers.desk.url: "),
        ({"command": "desk", "cwd": "~${principal}"}, "mcpServers.desk.cwd: "),
        ({"command": "desk", "args": ["a\0b"]}, "mcpServers.desk.args.0: "),
    ],
)
def test_some_settings_must_be_the_same_for_all_principals(entry: Json, problem: str) -> None:
    assert refused(entry, "ada").startswith(problem)


@pytest.mark.parametrize(
    ("entry", "own", "problem"),
    [
        ({"command": "desk"}, {"headers": {"X": "1"}}, "toolcrib.sources.desk.principals.ada.headers: "),
        ({"url": "https://example.com/"}, {"env": {"X": "1"}}, "toolcrib.sources.desk.principals.ada.env: "),
        ({"command": "desk"}, {"env": {"X": []}}, "toolcrib.sources.desk.principals.ada.env.X: "),
        ({"command": "desk"}, {"env": {"X": "${UNSET}"}}, "toolcrib.sources.desk.principals.ada.env.X: "),
        ({"command": "desk"}, {"env": 7}, "toolcrib.sources.desk.principals.ada.env: "),
    ],
)
def test_invalid_credentials_of_one_principal_are_reported_and_do_not_affect_others(
    entry: Json, own: Mapping[str, Any], problem: str
) -> None:
    settings = isolated(principals={"ada": own, "bob": {}})
    assert refused(entry, "ada", settings).startswith(problem)
    assert reached(entry, "bob", settings) is not None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"isolation": "user"}, "must be one of: shared, principal"),
        (isolated(principals={"ada": {"header": {}}}), "did you mean `headers`"),
        ({"isolation": "principal", "principals": ["ada"]}, "must be an object"),
        (isolated(principals={"ada": 7}), "must be an object"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_path(settings: Json, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        parsed({"command": "desk"}, settings)


def test_a_duplicate_principal_is_refused() -> None:
    text = '{"mcpServers": {"desk": {"command": "x"}}, "toolcrib": {"sources": {"desk": {"isolation": "principal", '
    text += '"principals": {"ada": {}, "ada": {}}}}}}'
    with pytest.raises(InvalidConfig, match=r"principals.ada: duplicate key"):
        parse_config(text, Path("mcp.json"), {})


def test_a_principal_variable_in_a_shared_server_is_refused_with_a_reason() -> None:
    server = parsed({"command": "desk", "args": ["${principal}"]}, {})
    assert server.problem is not None
    assert "`isolation`" in server.problem
