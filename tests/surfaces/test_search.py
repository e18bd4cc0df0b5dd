"""Tests for search through a gateway: with an embedding model, with call history, and with faults in both."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from mcp import Client
from numpy.typing import NDArray
from tests.cli.running import toolcrib_process
from tests.search.embedders.models import WORDS, static_folder
from tests.servers.launching import Json, write_config
from tests.surfaces.http.asking import ALICE, BOB, Api, entry
from tests.surfaces.http.asking import served as over_http
from tests.surfaces.serving import TOOLCRIB, Mode, ask, served
from tests.surfaces.test_http import serving
from tests.until import DEADLINE_S

from toolcrib.core.errors import ErrorCode

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

CYD = "token-of-cyd"

NOTES: Json = {
    "declared": {
        "notes": {
            "tools": {
                "scribble": {"description": "write", "command": ["true"]},
                "dispatch": {"description": "send", "command": ["true"]},
                "peek": {"description": "read", "command": ["true"]},
                "tidy": {"description": "Puts things in order.", "command": ["true"]},
                "weigh": {"description": "Weighs sugar.", "command": ["true"]},
            }
        }
    }
}
"""Tools that do not mention `mail`. The models of these tests treat `mail` as a synonym of `send`."""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


def model(folder: Path, same: str = "send", dim: int = len(WORDS)) -> Path:
    """Creates a model2vec folder in which `mail` has the vector of `same` and other words have their own."""
    table: NDArray[np.float32] = np.eye(len(WORDS), dim, dtype=np.float32)
    table[WORDS.index("mail")] = table[WORDS.index(same)]
    return static_folder(folder, tensors={"embeddings": table})


def configured(folder: Path, **search: Any) -> Path:
    search["without"] = ["meaning", *search.get("without", [])]  # the table of word vectors knows what `mail` is
    return write_config(folder / "mcp.json", toolcrib={**NOTES, "search": {"refuse": False, **search}})


async def tools_for(client: Client, query: str) -> list[str]:
    return [each["tool_id"] for each in (await ask(client, "search_tools", query=query))["results"]]


async def until_found(find: Callable[[], Any], expected: Any, what: str) -> None:
    """Repeat a search until it returns `expected`."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := await find()) != expected:
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:g} s in vain: {what}; {found}"
        await anyio.sleep(0.02)


@asynccontextmanager
async def client_of(how: str, config: Path) -> AsyncGenerator[Client]:
    transport, mode = how.split()
    era: Mode = "legacy" if mode == "legacy" else "auto"
    if transport == "stdio":
        async with served(config, era) as client:
            yield client
        return
    with serving(config) as gateway:
        async with Client(gateway.url, mode=era) as client:
            yield client


@pytest.mark.parametrize("how", ["stdio legacy", "stdio auto", "http legacy", "http auto"])
async def test_a_query_without_shared_words_finds_its_tool_by_vectors(how: str, tmp_path: Path) -> None:
    model(tmp_path / "tiny")
    async with client_of(how, configured(tmp_path, embedder={"folder": "tiny"})) as client:
        assert (await tools_for(client, "send"))[0] == "notes.dispatch"
        await until_found(
            lambda: tools_for(client, "mail"), ["notes.dispatch"], "the query finds the tool by its vector"
        )


def missing(folder: Path) -> str:
    return "the folder does not exist"


def truncated(folder: Path) -> str:
    weights = model(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return "model.safetensors"


def of_too_few_tokens(folder: Path) -> str:
    static_folder(folder, tensors={"embeddings": np.eye(3, dtype=np.float32)})
    return "token"


@pytest.mark.parametrize("spoiled", [missing, truncated, of_too_few_tokens])
async def test_with_an_unusable_model_search_uses_words_and_doctor_reports_it(
    spoiled: Callable[[Path], str], tmp_path: Path
) -> None:
    told = spoiled(tmp_path / "tiny")
    config = configured(tmp_path, embedder={"folder": "tiny"})
    async with served(config) as client:
        assert await tools_for(client, "send") == ["notes.dispatch"]
        assert await tools_for(client, "mail") == []
    ended = toolcrib_process("doctor", config, "--json")
    assert ended.code == 1, ended.err
    condition = ended.json["embedding"]
    assert (condition["model"], condition["embedded"]) == (None, 0)
    assert str(tmp_path / "tiny") in condition["problem"]
    assert told in condition["problem"]
    assert "found by their words only" in " ".join(toolcrib_process("doctor", config).out.split())
    assert toolcrib_process("search", "mail", "-c", config, "--json").json["results"] == []


def test_the_search_command_uses_and_caches_vectors(tmp_path: Path) -> None:
    model(tmp_path / "tiny")
    config = configured(tmp_path, embedder={"folder": "tiny"})
    for _ in range(2):
        found = toolcrib_process("search", "mail", "-c", config, "--json").json["results"]
        assert [each["tool_id"] for each in found] == ["notes.dispatch"]
    assert (tmp_path / "cache" / "toolcrib" / "vectors.sqlite").exists()


async def test_cached_vectors_of_a_different_dimension_are_not_used(tmp_path: Path) -> None:
    model(tmp_path / "tiny")
    config = configured(tmp_path, embedder={"folder": "tiny"})
    assert toolcrib_process("search", "mail", "-c", config, "--json").json["results"]
    for file in (tmp_path / "tiny").iterdir():
        file.unlink()
    (tmp_path / "tiny").rmdir()
    model(tmp_path / "tiny", "write", dim=len(WORDS) + 4)
    found = toolcrib_process("search", "mail", "-c", config, "--json").json["results"]
    assert [each["tool_id"] for each in found] == ["notes.scribble"]


@BOTH
async def test_changes_of_search_settings_apply_while_serving(mode: Mode, tmp_path: Path) -> None:
    model(tmp_path / "one")
    model(tmp_path / "other", "write")
    one: Json = {"embedder": {"folder": "one"}}
    async with served(configured(tmp_path, **one), mode) as client:
        for said, expected in (
            (one, ["notes.dispatch"]),
            ({"embedder": {"folder": "other"}}, ["notes.scribble"]),
            ({**one, "without": ["embedding"]}, []),
            (one, ["notes.dispatch"]),
            ({}, []),
            ({"embedder": {"folder": "nowhere"}}, []),
        ):
            configured(tmp_path, **said)
            await until_found(lambda: tools_for(client, "mail"), expected, f"{said} holds")
        assert await tools_for(client, "send") == ["notes.dispatch"]


# -- searches without a match -----------------------------------------------------------------------------------------


@BOTH
async def test_a_search_without_a_match_returns_hints_and_a_next_action(mode: Mode, tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={**NOTES, "search": {"without": ["meaning"]}})
    async with served(config, mode, operations="full") as client:
        page = await ask(client, "search_tools", query="zebra crossing")
        assert page["results"] == []
        assert "with different words" in " ".join(page["hints"])
        step = page["next_action"]
        assert (await ask(client, step["operation"], **step["arguments"]))["nodes"]
        asked = {"query": "zebra crossing", "category_path": ["notes"]}
        error = (await ask(client, "search_tool_by_category", **asked))["error"]
        assert error["code"] == ErrorCode.NO_MATCH_IN_CATEGORY.value
        step = error["next_action"]
        assert (await ask(client, step["operation"], **step["arguments"]))["tools"]
    async with served(config, mode, operations="discovery") as client:
        page = await ask(client, "search_tools", query="zebra crossing")
        assert page["next_action"] == {"operation": "list_categories", "arguments": {}}


async def test_the_refuse_setting_decides_whether_weak_matches_are_shown(tmp_path: Path) -> None:
    told = {
        "hoard": "Keeps what people have too many of, on shelves, in boxes, below beds and behind doors, for years.",
        "weigh": "Weighs sugar.",
        "tidy": "Puts things in order.",
    }
    schema: Json = {"properties": {"shelf": {"type": "string"}}}
    tools = {
        name: {"description": each, "command": ["true", "{shelf}"], "input_schema": schema}
        for name, each in told.items()
    }
    config, declared = tmp_path / "mcp.json", {"notes": {"tools": tools}}
    write_config(config, toolcrib={"declared": declared, "search": {"refuse": True}})
    query = "quarterly revenue forecast of the northern sales region and of all its biggest customers behind schedule"
    async with served(config) as client:
        assert await tools_for(client, query) == []
        write_config(config, toolcrib={"declared": declared, "search": {"refuse": False}})
        await until_found(lambda: tools_for(client, query), ["notes.hoard"], "the best match is shown")


# -- call history -----------------------------------------------------------------------------------------------------

AUTH: Json = {"tokens": [entry(ALICE, "team-alice"), entry(BOB, "team-bob"), entry(CYD, "cyd")]}

TEAM: Json = {"search": {"history": {"share": [["team-*"]]}}}


async def ranked(api: Api, token: str, query: str) -> list[tuple[str, float]]:
    answer = (await api.ask("search_tools", token, query=query)).json()
    return [(each["tool_id"], each["confidence"]) for each in answer["results"]]


async def first(api: Api, token: str, query: str) -> str:
    return (await ranked(api, token, query))[0][0]


async def search_and_call(api: Api, token: str, query: str, tool_id: str, **arguments: Any) -> None:
    """Searches, expands and calls a tool in one trace, as a model does."""
    assert tool_id in [each for each, _ in await ranked(api, token, query)]
    called = await api.run_tool(tool_id, token, **arguments)
    assert called.status_code == 200, called.text
    assert not called.json().get("isError"), called.text


async def test_past_calls_raise_the_rank_only_for_principals_who_share_history(
    tmp_path: Path,
) -> None:
    drawers: Json = {
        "declared": {
            "desk": {
                "tools": {
                    f"drawer_{number}": {"description": "Opens a drawer of the desk.", "command": ["true"]}
                    for number in range(4)
                }
            }
        }
    }
    query = "open the drawer with the stamps"
    with over_http(tmp_path, auth=AUTH, settings={**TEAM, **drawers}, audited=True) as api:
        before = await ranked(api, CYD, query)
        assert before[0][0] == "desk.drawer_0"
        await search_and_call(api, ALICE, query, "desk.drawer_3")
        for token in (ALICE, BOB):
            await until_found(
                lambda token=token: first(api, token, query), "desk.drawer_3", "past calls change the ranking"
            )
        assert await ranked(api, CYD, query) == before
        ended = toolcrib_process("audit", "forget", "--principal", "team-alice", "--yes", "-c", api.config)
        assert ended.code == 0, ended.err
        for token in (ALICE, BOB):
            await until_found(lambda token=token: ranked(api, token, query), before, "it is forgotten")


def test_history_without_audit_is_reported_by_doctor_and_gateway(tmp_path: Path) -> None:
    said: Json = {**NOTES, "audit": False, "search": {"history": True}}
    config = write_config(tmp_path / "mcp.json", toolcrib=said)
    assert any("nothing is learned" in each for each in toolcrib_process("doctor", config, "--json").json["warnings"])
    command = [TOOLCRIB, "serve", str(config), "--no-cache"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert "nothing is learned from past calls" in ended.stderr
    on = write_config(tmp_path / "on.json", toolcrib={**NOTES, "search": {"history": True}})
    assert toolcrib_process("doctor", on, "--json").json["warnings"] == []
