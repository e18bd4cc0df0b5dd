"""Tests that metadata configured for tools of real servers appears in lists, searches and expansions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.servers.launching import faulty_entry, replace_config
from tests.surfaces.serving import Json, Mode, ask
from tests.surfaces.test_pass_through import client_of
from tests.until import until

from toolcrib.catalog.access import Access
from toolcrib.config import Config
from toolcrib.core.errors import StaleExpansion
from toolcrib.core.handles import Handle
from toolcrib.core.principal import CallContext, Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.surfaces.mcp_gateway.listed_tools import METADATA_KEY

pytestmark = pytest.mark.anyio

ADA = CallContext(Principal("ada"))
SAID: Json = {
    "usage_hint": "Before zeppelins take off.",
    "aliases": ["pigeonhole"],
    "intents": ["my quicksilver spilled"],
    "tags": ["marmalade"],
    "optionality": "required",
    "examples": [{"description": "Say hello", "input": {"text": "hello"}}],
    "cost": "two shillings",
}


def config_of(folder: Path, said: Json, **settings: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(config_text(said, **settings))
    return path


def config_text(said: Json, **settings: Any) -> str:
    servers = {name: faulty_entry() for name in ("desk", "pay")}
    return json.dumps({"mcpServers": servers, "toolcrib": {"tools": said, **settings}})


def digest(handle: str) -> str:
    parsed = Handle.parse(handle)
    assert parsed is not None
    return parsed.digest


@asynccontextmanager
async def following(crib: Toolcrib, config: Config) -> AsyncGenerator[list[Config]]:
    taken_over: list[Config] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config, taken_over.append)
        await anyio.wait_all_tasks_blocked()  # it has read the current state of the file
        yield taken_over
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_listed_tools_carry_the_configured_metadata_without_intents(mode: Mode, tmp_path: Path) -> None:
    config = config_of(tmp_path, {"desk.echo": SAID})

    async with client_of(config, mode, "--operations", "all") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert (tools["desk__echo"].meta or {})[METADATA_KEY] == {k: v for k, v in SAID.items() if k != "intents"}
    assert METADATA_KEY not in (tools["pay__echo"].meta or {})
    assert "quicksilver" not in json.dumps([tool.model_dump(mode="json") for tool in tools.values()])


async def test_configured_metadata_appears_in_search_list_and_expansion(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"desk.echo": SAID})

    async with client_of(config, "auto") as client:
        for word in ("pigeonhole", "quicksilver", "zeppelins", "hello", "marmalade"):
            found = await ask(client, "search_tools", query=word)
            assert [pointer["tool_id"] for pointer in found["results"]] == ["desk.echo"], word
        (pointer,) = [
            each for each in (await ask(client, "list", path=["desk"]))["tools"] if each["tool_id"] == "desk.echo"
        ]
        assert (pointer["optionality"], pointer["usage_hint"]) == ("required", SAID["usage_hint"])
        expansion = await ask(client, "expand_tool", tool_id="desk.echo")
        assert {key: expansion[key] for key in ("usage_hint", "optionality", "examples", "cost")} == {
            key: SAID[key] for key in ("usage_hint", "optionality", "examples", "cost")
        }
        called = await client.call_tool("call_tool", {"tool_id": expansion["handle"], "arguments": {"text": "hello"}})
        assert not called.is_error


async def test_a_reload_applies_and_removes_metadata_while_calls_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    path = config_of(tmp_path, {})
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config) as taken_over:
        assert await crib.ready(30)
        first = crib.expand_tool("desk.echo").handle
        assert (await crib.call_tool(first, {"text": "one"})).text == "one"

        replace_config(path, config_text({"desk.*": SAID}))
        await until(lambda: len(taken_over) == 1, "the hint is taken over")
        with pytest.raises(StaleExpansion):
            await crib.call_tool(first, {"text": "two"})
        second = crib.expand_tool("desk.echo").handle
        assert digest(second) != digest(first)
        assert (await crib.call_tool(second, {"text": "two"})).text == "two"
        assert [
            pointer.tool_id
            for pointer in crib.search_tools("quicksilver", limit=50).results
            if "echo" in pointer.tool_id
        ] == ["desk.echo"]

        replace_config(path, config_text({}))
        await until(lambda: len(taken_over) == 2, "the change is reverted")
        assert digest(crib.expand_tool("desk.echo").handle) == digest(first)
        assert (await crib.call_tool(first, {"text": "three"})).text == "three"
        assert crib.search_tools("quicksilver").results == ()


async def test_an_example_that_does_not_match_the_schema_is_omitted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {"description": "Shout", "input": {"txet": "hello"}}
    crib = Toolcrib()
    crib.add_config(config_of(tmp_path, {"desk.echo": {"examples": [bad, *SAID["examples"]], "cost": "little"}}))

    async with crib:
        assert await crib.ready(30)
        expansion = crib.expand_tool("desk.echo").to_wire()

    assert (expansion["examples"], expansion["cost"]) == (SAID["examples"], "little")
    assert "desk.echo: example 1 (Shout) does not match its schema" in caplog.text


async def test_configured_metadata_applies_to_isolated_servers(tmp_path: Path) -> None:
    crib = Toolcrib()
    said = {"desk.*": {**SAID, "requires_permission": True}}
    crib.add_config(config_of(tmp_path, said, sources={"desk": {"isolation": "principal"}}))

    async with crib:
        assert await crib.ready(30, principal=ADA.principal)
        assert crib.registry.get("desk.echo") is None, "it is in no shared state"
        view = crib.view(ADA.principal)
        assert view.access_to(view.tools["desk.echo"]) is Access.ASK
        assert view.access_to(view.tools["pay.echo"]) is Access.CALL
        assert {
            pointer.tool_id.partition(".")[0] for pointer in crib.search_tools("pigeonhole", context=ADA).results
        } == {"desk"}
        assert crib.expand_tool("desk.echo", context=ADA).to_wire()["cost"] == "two shillings"
