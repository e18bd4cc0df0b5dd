"""Catalog files: their formats, their errors, and the refusal of calls to their tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import InvalidConfig, SourceUnavailable
from toolcrib.core.principal import CallContext
from toolcrib.sources.base import Listing
from toolcrib.sources.catalog_file import CatalogFileSource, load_catalog_file

pytestmark = pytest.mark.anyio

ECHO = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))
    return path


def rows(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(orjson.dumps(row) for row in rows) + b"\n"


async def listings(sources: tuple[CatalogFileSource, ...]) -> dict[str, Listing]:
    return {source.name: await source.list_tools() for source in sources}


async def test_an_object_of_servers_gives_one_source_per_server(tmp_path: Path) -> None:
    servers = {
        "git tools": {
            "server_info": {"name": "mcp-git", "title": "Git"},
            "instructions": "\n# Git, by tools\nMore",
            "tools": [ECHO],
        },
        "git.tools": {"server_info": {"name": "x", "description": "Another git."}, "tools": [ECHO, {"name": "bad"}]},
        "down": {"error": "did not start"},
    }
    found = await listings(load_catalog_file(written(tmp_path, "tools.json", servers)))
    assert list(found) == ["git-tools", "git-tools-2", "down"]
    assert (found["git-tools"].title, found["git-tools"].summary) == ("Git", "Git, by tools")
    assert found["git-tools"].tools[0].id == "git-tools.echo"
    assert found["git-tools"].tools[0].wire == ECHO
    assert (found["git-tools-2"].title, found["git-tools-2"].summary) == ("x", "Another git.")
    assert [aside.name for aside in found["git-tools-2"].set_aside] == ["bad"]
    assert [aside.reason for aside in found["down"].set_aside] == ["it has no list under `tools`"]


@pytest.mark.parametrize(
    "content", [[ECHO], {"tools": [ECHO]}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [ECHO]}}]
)
@pytest.mark.parametrize(("file", "name"), [("pets.json", "pets"), ("my pets/tools.json", "my-pets")])
async def test_a_plain_list_gives_one_source_named_after_the_file(
    tmp_path: Path, content: Any, file: str, name: str
) -> None:
    found = await listings(load_catalog_file(written(tmp_path, file, content)))
    assert [tool.id for tool in found[name].tools] == [f"{name}.echo"]


async def test_rows_give_one_source_per_server_and_one_for_rows_without_a_server(tmp_path: Path) -> None:
    row: dict[str, Any] = {"description": "d", "category": [], "input_schema": None, "server": None}
    path = written(
        tmp_path,
        "set/tools.jsonl",
        rows(
            {**row, "id": "a::list", "name": "list", "server": "A b", "category": ["Data", "Lists"]},
            {**row, "id": "free", "name": "free", "input_schema": {"type": "object", "required": ["x"]}},
            {**row, "id": "a::list-2", "name": "list", "server": "A b"},
        ),
    )
    sources = load_catalog_file(path)
    found = await listings(sources)
    assert {name: [tool.name for tool in listing.tools] for name, listing in found.items()} == {
        "A-b": ["list", "a::list-2"],
        "set": ["free"],
    }
    assert found["A-b"].title == "A b"
    assert found["A-b"].tools[0].own_path == ("Data", "Lists")
    assert found["A-b"].tools[0].input_schema == {"type": "object", "properties": {}}
    assert [dict(source.row_ids) for source in sources] == [
        {"a::list": "A-b.list", "a::list-2": "A-b.a::list-2"},
        {"free": "set.free"},
    ]


async def test_bad_rows_are_set_aside_with_their_line_numbers(tmp_path: Path) -> None:
    content = rows({"id": "1", "name": "one", "server": "s"}, {"id": "2", "name": "", "server": "s"})
    content += b'{"id": "3", \n\n[]\n' + rows({"id": "1", "name": "one", "server": "s"})
    content += rows({"id": "4", "name": "four", "category": [1], "server": "s"}, {"name": "five", "server": 5})
    found = await listings(load_catalog_file(written(tmp_path, "set.jsonl", content)))
    assert [tool.id for tool in found["s"].tools] == ["s.one"]
    assert [(aside.name, aside.reason) for aside in found["s"].set_aside] == [
        ("line 2", "line 2: it has no name"),
        ("one", "line 6: an earlier row has the same id"),
        ("four", "line 7: its category is not a list of strings"),
    ]
    unplaced = {aside.name: aside.reason for aside in found["set"].set_aside}
    assert unplaced["line 3"].startswith("line 3: it is not valid JSON: ")
    assert unplaced["line 5"] == "line 5: it is not an object"
    assert unplaced["five"] == "line 8: its `server` is not a string"


async def test_a_file_with_a_single_row_is_a_catalog(tmp_path: Path) -> None:
    found = await listings(load_catalog_file(written(tmp_path, "one.jsonl", rows({"id": "a", "name": "a"}))))
    assert [tool.id for tool in found["one"].tools] == ["one.a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'[\n  {"name": "a", "inputSchema": {}},\n  {"name": "b" "inputSchema": {}}\n]',
            "line 3, column 16: not valid JSON",
        ),
        (b"hello", "line 1, column 1: not valid JSON"),
        (b"", "line 1, column 1: not valid JSON"),
        (b'{"a":\n "\xff"}', "line 2, column 3: not valid UTF-8"),
        (b'{"mcpServers": {"git": {"command": "git"}}}', "contains no tool definitions"),
        (b"3", "contains no tool definitions"),
    ],
)
def test_a_file_without_definitions_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, "tools.json", content)
    with pytest.raises(InvalidConfig) as refused:
        load_catalog_file(path)
    assert message in refused.value.message
    assert str(path) in refused.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read: No such file"):
        load_catalog_file(tmp_path / "none.json")


async def test_a_tool_without_a_server_cannot_be_called(tmp_path: Path) -> None:
    (source,) = load_catalog_file(written(tmp_path, "pets.json", [ECHO]))
    (echo,) = (await source.list_tools()).tools
    with pytest.raises(SourceUnavailable) as refused:
        await source.call_tool(echo, {}, CallContext())
    assert "read from a file, without a server" in refused.value.message
    assert refused.value.hints
    assert not refused.value.retryable


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from("abcdef"),
                "name": st.sampled_from(["a", "b", "x.y", ""]),
                "server": st.sampled_from([None, "s 1", "s.1", "...", "S-1"]),
            }
        ),
        min_size=1,
    )
)
def test_every_row_becomes_one_tool_or_one_reason(tmp_path_factory: pytest.TempPathFactory, given: list[Any]) -> None:
    path = written(tmp_path_factory.mktemp("rows"), "set.jsonl", rows(*given))
    sources = load_catalog_file(path)
    found = anyio.run(listings, sources)
    assert len(found) == len(sources)
    assert sum(len(listing.tools) + len(listing.set_aside) for listing in found.values()) == len(given)
    ids = [tool.id for listing in found.values() for tool in listing.tools]
    assert len(ids) == len(set(ids))
    assert all(tool_id in ids for source in sources for tool_id in source.row_ids.values())


def test_a_file_with_a_byte_order_mark_and_indentation_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "pets.json"
    path.write_text("\ufeff" + json.dumps([ECHO], indent=2), encoding="utf-8")
    assert load_catalog_file(path)[0].name == "pets"
