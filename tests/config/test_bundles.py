"""Tests for the setting `toolcrib.bundles`, its errors, and changes of it while running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.crib.test_crib import following, poll_often
from tests.until import until

from toolcrib.catalog.bundles import NO_BUNDLES, Bundles, ToolBundle
from toolcrib.config import parse_config
from toolcrib.core.errors import InvalidConfig, UnknownBundle
from toolcrib.core.principal import LOCAL
from toolcrib.crib.crib import Toolcrib

FILE = Path("mcp.json")

_ = poll_often


def document(bundles: object, *labels: str) -> str:
    servers = {label: {"command": "no-such-program", "disabled": True} for label in labels}
    return json.dumps({"mcpServers": servers, "toolcrib": {"bundles": bundles}})


def read(bundles: object, *labels: str) -> Bundles:
    return parse_config(document(bundles, *labels), FILE, {}).bundles


def test_there_are_no_bundles_by_default() -> None:
    assert parse_config("{}", FILE, {}).bundles is read({}) is NO_BUNDLES


def test_every_key_of_a_bundle_is_read() -> None:
    written: dict[str, Any] = {
        "coding": {
            "description": "To write code.",
            "required": ["git.*", "search"],
            "optional": "web.fetch",
            "includes": ["notes"],
        },
        "notes": {},
    }
    assert read(written).given == (
        ToolBundle("coding", "To write code.", ("git.*", "search"), ("web.fetch",), ("notes",)),
        ToolBundle("notes"),
    )


def test_a_tool_id_may_start_with_the_configured_server_label() -> None:
    written = {"b": {"required": ["My Files.read", "read", "My-Files.list"], "optional": ["My Files.*"]}}
    (bundle,) = read(written, "My Files").given

    assert bundle.required == ("My-Files.read", "read", "My-Files.list"), "a label alone would always be missing"
    assert set(bundle.optional) >= {"My-Files.*"}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ([], "toolcrib.bundles: must be an object"),
        ({"a": 5}, "toolcrib.bundles.a: must be an object"),
        ({"a": {"require": []}}, "toolcrib.bundles.a: unknown key `require` .*`required`"),
        ({"a": {"required": [5]}}, "toolcrib.bundles.a.required.0: must be a string"),
        ({"a": {"optional": [""]}}, "toolcrib.bundles: a: an entry must be a tool id"),
        ({"a b": {}}, "toolcrib.bundles: `a b` is not a valid bundle name"),
        ({"a": {"includes": ["b"]}}, "toolcrib.bundles: a: includes unknown bundle `b`"),
        ({"a": {"includes": ["b"]}, "b": {"includes": ["a"]}}, "toolcrib.bundles: .*a > b > a"),
    ],
)
def test_an_invalid_bundle_is_reported_with_its_path(written: object, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        read(written)


def test_a_duplicate_bundle_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="a: duplicate key"):
        parse_config('{"toolcrib": {"bundles": {"a": {}, "a": {}}}}', FILE, {})


def test_the_top_level_lists_only_nodes_that_the_bundle_may_contain(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    settings: dict[str, Any] = {
        "categories": {"code": {"tools": ["git.*"]}, "news": {"tools": ["web.news*"]}, "tagged": {"tagged": ["x"]}},
        "bundles": {
            "one": {"required": ["git.log"]},
            "named": {"optional": ["log"]},
            "pattern": {"optional": ["*.log", "web.*"]},
            "none": {},
        },
    }
    servers = {name: {"command": "no-such-program"} for name in ("git", "web")}
    path.write_text(json.dumps({"mcpServers": servers, "toolcrib": settings}))
    crib = Toolcrib()
    config = crib.add_config(path)

    def told(bundle: str | None) -> list[str]:
        return [top.name for top in crib.top_level(config, LOCAL, bundle) if top.name not in crib_plugins]

    crib_plugins = {plugin.name for plugin in config.plugins}
    whole = ["code", "news", "tagged", "web"]  # all tools of `git` are in `code`
    assert told(None) == told("named") == told("pattern") == whole
    assert told("one") == ["code", "tagged"]
    assert told("none") == told("unknown") == []


@pytest.mark.anyio
@pytest.mark.usefixtures("poll_often")
async def test_changed_bundles_are_applied_and_bundles_added_in_code_stay(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(document({"one": {}, "two": {"optional": ["x"]}}))
    crib = Toolcrib()
    crib.add_bundle(ToolBundle("added"))
    async with crib, following(crib, crib.add_config(path)) as taken_over:
        assert [each.name for each in crib.bundles] == ["added", "one", "two"]
        path.write_text(document({"two": {"optional": ["y", "z"]}}))
        await until(lambda: taken_over, "the change is taken over")
        assert crib.bundles.contents("two").optional == ("y", "z")
        assert "added" in crib.bundles
        with pytest.raises(UnknownBundle):
            crib.view(bundle="one")


@pytest.mark.anyio
@pytest.mark.usefixtures("poll_often")
async def test_a_file_without_the_served_bundle_is_not_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(document({"one": {"optional": ["x"]}}))
    crib = Toolcrib()
    async with crib, following(crib, crib.add_config(path)):
        crib.confine("one")
        path.write_text(document({"two": {}}))
        await until(lambda: "`one` is being served" in caplog.text, "it is logged")
        assert [each.name for each in crib.bundles] == ["one"]
