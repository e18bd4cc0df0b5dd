"""Tests for `toolcrib.declared`, and for declared sources from a file, a changed file, and code."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.until import until

from toolcrib.catalog.access import Access, Rules
from toolcrib.config import Config, parse_config
from toolcrib.core.errors import InvalidConfig, InvalidTool, ToolNotFound
from toolcrib.core.principal import LOCAL
from toolcrib.crib.crib import Toolcrib
from toolcrib.crib.top_level import top_level
from toolcrib.sources.declared.definition import DeclaredTools, read_declared_source

pytestmark = pytest.mark.anyio

HERE = Path("mcp.json")


def saying(text: str) -> dict[str, Any]:
    return {"description": f"Says {text}.", "command": [sys.executable, "-c", f"print('{text}')"]}


def written(path: Path, declared: Mapping[str, Any], **ours: Any) -> Path:
    path.write_text(json.dumps({"mcpServers": {}, "toolcrib": {"declared": declared, **ours}}))
    return path


def read(declared: str) -> Config:
    return parse_config(
        f'{{"mcpServers": {{"git": {{"command": "x"}}}}, "toolcrib": {{"declared": {declared}}}}}', HERE, {}
    )


def declared(name: str, **tools: Mapping[str, Any]) -> DeclaredTools:
    return read_declared_source(name, {"summary": f"What {name} does.", "tools": tools})


async def call(crib: Toolcrib, tool_id: str) -> str:
    return (await crib.call_tool(crib.expand_tool(tool_id).handle)).text


@asynccontextmanager
async def following(crib: Toolcrib, config: Config) -> AsyncGenerator[list[Config]]:
    taken_over: list[Config] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config, taken_over.append)
        await anyio.wait_all_tasks_blocked()  # it has read the current state of the file
        yield taken_over
        tasks.cancel_scope.cancel()


@pytest.fixture
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"ops": 1}', "mcp.json: toolcrib.declared.ops: must be an object"),
        ('{"ops": {"tols": {}}}', "mcp.json: toolcrib.declared.ops: unknown key `tols` (did you mean `tools`?)"),
        ('{"ops": {}, "ops": {}}', "mcp.json: toolcrib.declared.ops: duplicate key"),
        ('{"ops": {"tools": {"a": {}, "a": {}}}}', "mcp.json: toolcrib.declared.ops.tools.a: duplicate key"),
        (
            '{"ops": {"tools": {"a": {"description": "d", "command": ["x"], "env": {"A": "", "A": ""}}}}}',
            "mcp.json: toolcrib.declared.ops.tools.a.env.A: duplicate key",
        ),
        (
            '{"ops": {"tools": {"a": {"description": "d", "command": ["x", "{y}"]}}}}',
            "mcp.json: toolcrib.declared.ops.tools.a.command.1: `{y}` is not a property of the input schema",
        ),
        ('{"git": {}}', "mcp.json: toolcrib.declared.git: a server already has this name; rename one of them"),
    ],
)
def test_an_invalid_declaration_is_reported_with_its_path(text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        read(text)
    assert refused.value.message.startswith(complaint)


async def test_declared_tools_run_without_entering_the_crib(tmp_path: Path) -> None:
    crib = Toolcrib()
    path = written(tmp_path / "mcp.json", {"ops": {"summary": "Greetings", "tools": {"hi": saying("hello")}}})
    config = crib.add_config(path)
    assert [(top.name, top.summary) for top in top_level(config)] == [("ops", "Greetings")]
    assert crib.search_tools("says hello").results[0].tool_id == "ops.hi"
    assert await call(crib, "ops.hi") == "hello\n"
    assert crib.view().is_trusted("ops")


async def test_declared_sources_can_be_filtered_by_name(tmp_path: Path) -> None:
    crib = Toolcrib()
    path = written(tmp_path / "mcp.json", {"a": {"tools": {"x": saying("a")}}, "b": {"tools": {"x": saying("b")}}})
    crib.add_config(path, lambda name: name == "b")
    assert set(crib.view().tools) == {"b.x"}


async def test_an_unset_variable_disables_only_one_declared_tool(tmp_path: Path) -> None:
    crib = Toolcrib()
    locked = {**saying("locked"), "env": {"KEY": "${env:NO_SUCH_VARIABLE_4B1F}"}}
    crib.add_config(written(tmp_path / "mcp.json", {"ops": {"tools": {"locked": locked, "open": saying("open")}}}))
    assert set(crib.view().tools) == {"ops.open"}
    (aside,) = crib.registry.state.sources["ops"].set_aside
    assert (aside.name, "`NO_SUCH_VARIABLE_4B1F` is not set" in aside.reason) == ("locked", True)


@pytest.mark.usefixtures("poll_often")
async def test_changed_declarations_are_applied_while_running(tmp_path: Path) -> None:
    tools = {"same": saying("same"), "other": saying("one"), "gone": saying("gone")}
    path = written(tmp_path / "mcp.json", {"ops": {"tools": tools}, "old": {"tools": {"x": saying("x")}}})
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        tools = {"same": saying("same"), "other": saying("two"), "new": saying("new")}
        written(path, {"ops": {"tools": tools}, "fresh": {"tools": {"x": saying("x")}}}, max_concurrent_calls=1)
        await until(lambda: taken_over, "the file is taken over")
        assert set(crib.view().tools) == {"ops.same", "ops.other", "ops.new", "fresh.x"}
        assert set(crib.registry.state.sources) == {"ops", "fresh"}
        assert await call(crib, "ops.other") == "two\n"


@pytest.mark.usefixtures("poll_often")
async def test_a_hidden_tool_removed_together_with_its_rule_never_appears(tmp_path: Path) -> None:
    hidden = {"policy": {"rules": [{"tools": "ops.secret", "then": "hide"}], "otherwise": "allow"}}
    tools = {"secret": saying("secret"), "plain": saying("plain")}
    path = written(tmp_path / "mcp.json", {"ops": {"tools": tools}}, **hidden)
    crib = Toolcrib()
    config = crib.add_config(path)
    seen: set[str] = set()
    crib.registry.subscribe(lambda _: seen.update(crib.view().tools))
    async with crib, following(crib, config) as taken_over:
        written(path, {"ops": {"tools": {"plain": saying("plain")}}}, policy={"rules": [], "otherwise": "allow"})
        await until(lambda: taken_over, "the file is taken over")
        assert seen == {"ops.plain"}


@pytest.mark.usefixtures("poll_often")
async def test_a_name_can_move_between_a_server_and_a_declared_source(tmp_path: Path) -> None:
    server = {"mcpServers": {"ops": {"command": "no-such-program-4b1f"}}}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(server))
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        written(path, {"ops": {"tools": {"hi": saying("hello")}}})
        await until(lambda: len(taken_over) == 1, "the file is taken over")
        assert await call(crib, "ops.hi") == "hello\n"
        path.write_text(json.dumps(server))
        await until(lambda: len(taken_over) == 2, "the file is taken over again")
        assert set(crib.view().tools) == set()


async def test_a_declared_source_can_be_registered_replaced_and_unregistered() -> None:
    crib = Toolcrib()
    crib.register_declared(declared("ops", hi=saying("hello")))
    handle = crib.expand_tool("ops.hi").handle
    assert (await crib.call_tool(handle)).text == "hello\n"
    crib.register_declared(crib.declared["ops"].having(declared("ops", bye=saying("goodbye")).tools[0]))
    assert set(crib.view().tools) == {"ops.hi", "ops.bye"}
    assert (await crib.call_tool(handle)).text == "hello\n"
    crib.unregister_declared("ops")
    assert (dict(crib.declared), set(crib.view().tools), set(crib.registry.state.sources)) == ({}, set(), set())
    with pytest.raises(ToolNotFound, match="no source `ops` was added with `register_declared"):
        crib.unregister_declared("ops")


async def test_a_declared_source_cannot_replace_a_different_source(tmp_path: Path) -> None:
    crib = Toolcrib()
    crib.add_config(written(tmp_path / "mcp.json", {"ops": {"tools": {"hi": saying("hello")}}}))
    crib.add(saying)
    for name in ("ops", "functions"):
        with pytest.raises(InvalidTool, match=f"a source named `{name}` already exists"):
            crib.register_declared(declared(name))
    with pytest.raises(ToolNotFound):
        crib.unregister_declared("ops")
    crib.register_declared(declared("mine", hi=saying("mine")))
    with pytest.raises(InvalidConfig, match="a source named `mine` already exists"):
        crib.add_config(written(tmp_path / "more.json", {"mine": {}}))
    assert await call(crib, "mine.hi") == "mine\n"


async def test_the_policy_applies_to_declared_tools() -> None:
    crib = Toolcrib(policy=Rules((), otherwise=Access.HIDDEN))
    crib.register_declared(declared("ops", hi=saying("hello")))
    assert set(crib.view(LOCAL).tools) == set()


async def test_the_declarations_in_the_documentation_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "declared.md").read_text()
    path = tmp_path / "mcp.json"
    path.write_text(page.partition("```json\n")[2].partition("```")[0])
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("a.md", "b.txt"):
        (notes / name).write_text("buy $(nails); now\nsell\n")
    monkeypatch.setenv("NOTES", str(notes))
    monkeypatch.setenv("STOCK_TOKEN", "t")
    crib = Toolcrib()
    crib.add_config(path)
    assert set(crib.view().tools) == {"shop.disk_free", "shop.find_in_notes", "shop.order"}
    assert "Use%" in await call(crib, "shop.disk_free")
    find = crib.expand_tool("shop.find_in_notes").handle
    found = await crib.call_tool(find, {"text": "$(nails);", "kind": "md"})
    assert found.text == "./a.md:1:buy $(nails); now\n"
    assert len((await crib.call_tool(find, {"text": "l"})).text.splitlines()) == 4
    assert len((await crib.call_tool(find, {"text": "l", "most": 1})).text.splitlines()) == 2
