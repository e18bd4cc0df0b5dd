"""Installed plugins: discovery, selection by the configuration, and isolation of faults."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import toolcrib
from tests.crib.test_crib import following
from tests.plugin_packages import PLUGIN, install
from tests.servers.launching import Json, faulty_entry, write_config
from tests.until import until

from toolcrib import CallContext, Plugin, Tool, Toolcrib
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.config import parse_config, read_config
from toolcrib.core.errors import InvalidConfig, SourceUnavailable

pytestmark = pytest.mark.anyio

RAISES = "raise OSError(2, 'gone', '/home/ada')"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A folder on the import path. Modules that are imported from it are removed from `sys.modules` afterwards."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)


@asynccontextmanager
async def crib_of(config: Path) -> AsyncGenerator[Toolcrib]:
    crib = Toolcrib()
    crib.add_config(config)
    async with crib:
        assert await crib.ready(30)
        yield crib


async def say(crib: Toolcrib, name: str) -> str:
    return (await crib.call_tool(crib.expand_tool(f"{name}.say").handle)).text


def reason(crib: Toolcrib, name: str) -> str:
    entry = crib.view().sources[name]
    assert entry.status is SourceStatus.FAILED
    return f"{entry.reason} {entry.diagnosis}"


class Own(Plugin):
    """A plugin of this program."""

    name = "hammer"
    description = "Says that it is its own."

    def tools(self) -> Sequence[Tool]:
        return [Tool(self.name, "say")]

    def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        return "my own"


# -- selection --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "there"),
    [
        ({}, ["hammer", "saw"]),
        ({"plugins": True}, ["hammer", "saw"]),
        ({"plugins": False}, []),
        ({"plugins": []}, []),
        ({"plugins": ["saw"]}, ["saw"]),
    ],
)
async def test_a_configuration_adds_all_plugins_or_the_named_ones(
    setting: Json, there: list[str], packages: Path, tmp_path: Path
) -> None:
    install(packages, "saw")
    install(packages, "hammer")
    async with crib_of(write_config(tmp_path / "mcp.json", toolcrib=setting)) as crib:
        assert [*crib.view().sources] == there
        assert [await say(crib, name) for name in there] == there


@pytest.mark.parametrize("setting", ["saw", {"saw": True}, None, 1, [7]])
def test_an_invalid_plugins_setting_is_refused(setting: object, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"toolcrib\.plugins(\.0)?: must be (true, false or a list of names|a string)"
    ):
        read_config(write_config(tmp_path / "mcp.json", toolcrib={"plugins": setting}))


def test_a_crib_adds_no_plugins_by_default(packages: Path) -> None:
    install(packages, "saw")
    assert not Toolcrib().view().sources


async def test_a_program_can_add_all_plugins_or_some(packages: Path) -> None:
    install(packages, "saw")
    install(packages, "hammer")
    crib = Toolcrib()
    crib.add_plugins(["saw", "drill"])
    assert [*crib.view().sources] == ["saw", "drill"]
    crib.add_plugins()
    async with crib:
        assert await crib.ready(30)
        assert {*crib.view().sources} == {"saw", "hammer", "drill"}
        assert await say(crib, "hammer") == "hammer"
        assert not crib.view().sources["hammer"].trusted


async def test_source_settings_override_the_title_and_summary_of_a_plugin(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    said = {"title": "The saw", "summary": "Cuts.", "trusted": True}
    async with crib_of(write_config(tmp_path / "mcp.json", toolcrib={"sources": {"saw": said}})) as crib:
        entry = crib.view().sources["saw"]
        assert (entry.title, entry.summary, entry.trusted, entry.version) == ("The saw", "Cuts.", True, "1")
    with pytest.raises(InvalidConfig, match="start_timeout_s"):
        read_config(write_config(tmp_path / "mcp.json", toolcrib={"sources": {"saw": {"start_timeout_s": 3}}}))


def test_the_top_level_lists_plugins_without_importing_them(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw", RAISES)
    config = parse_config("{}", tmp_path / "mcp.json")
    assert [(top.name, top.summary) for top in Toolcrib().top_level(config, CallContext().principal)] == [
        ("saw", "The package of saw.")
    ]


def test_a_policy_rule_about_a_plugin_causes_no_warning(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    rules = [{"then": "refuse", "sources": ["saw"]}, {"then": "ask", "tools": ["saw.say"]}]
    policy = {"rules": rules, "otherwise": "allow"}
    config = write_config(tmp_path / "mcp.json", toolcrib={"policy": policy})
    assert toolcrib("doctor", "-c", config, "--json").json["warnings"] == []


async def test_pin_settings_apply_to_the_tools_of_a_plugin(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    strict = write_config(tmp_path / "mcp.json", toolcrib={"pins": {"unpinned": "quarantine"}})
    async with crib_of(strict) as crib:
        entry = crib.registry.state.sources["saw"]
        assert [*crib.view().tools] == []
        assert (entry.address, [*entry.judgements]) == ("saw_module:Made of saw-package", ["say"])


async def test_the_policy_applies_to_the_tools_of_a_plugin(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    install(packages, "hammer")
    policy = {"rules": [{"then": "hide", "sources": ["saw"]}], "otherwise": "allow"}
    async with crib_of(write_config(tmp_path / "mcp.json", toolcrib={"policy": policy})) as crib:
        assert [*crib.view().tools] == ["hammer.say"]
        tops = crib.top_level(read_config(tmp_path / "mcp.json"), CallContext().principal)
        assert [top.name for top in tops] == ["hammer"]


# -- unusable plugins -------------------------------------------------------------------------------------------------

UNUSABLE: Mapping[str, tuple[str, str, str]] = {
    "raises when imported": (RAISES, "Made", "importing it raised FileNotFoundError"),
    "ends the program when imported": ("raise SystemExit(3)", "Made", "importing it raised SystemExit"),
    "has a syntax error": ("def", "Made", "importing it raised SyntaxError"),
    "lacks the name of its entry point": ("", "Made", "importing it raised AttributeError"),
    "is not a plugin": ("Made = 3", "Made", "leads to a `int`, not to a plugin"),
    "does not create a plugin": ("Made = dict", "Made", "leads to a `dict`, not to a plugin"),
    "raises when created": ("def Made(): return 1 / 0", "Made", "making it raised ZeroDivisionError"),
    "is incomplete": ("from toolcrib import Plugin\nclass Made(Plugin): pass", "Made", "making it raised TypeError"),
    "has a different name": (PLUGIN.replace("{name!r}", "'otherwise'"), "Made", "its `name` is `otherwise`"),
}


@pytest.mark.parametrize("fault", UNUSABLE)
async def test_an_unusable_plugin_is_reported_and_does_not_affect_other_plugins(
    fault: str, packages: Path, tmp_path: Path
) -> None:
    code, value, words = UNUSABLE[fault]
    install(packages, "broken", code, value=value)
    install(packages, "saw")
    async with crib_of(write_config(tmp_path / "mcp.json")) as crib:
        assert words in reason(crib, "broken")
        assert "/home" not in reason(crib, "broken")
        with pytest.raises(SourceUnavailable, match="broken"):
            crib.expand_tool("broken.say")
        assert await say(crib, "saw") == "saw"


@pytest.mark.parametrize("value", ["Made", "Made()", "make"])
async def test_a_class_an_instance_and_a_factory_are_accepted_as_plugins(
    value: str, packages: Path, tmp_path: Path
) -> None:
    more = "\n    make = lambda: Made()\n    made = Made()\n"
    install(packages, "saw", PLUGIN + more, value="made" if "(" in value else value)
    async with crib_of(write_config(tmp_path / "mcp.json")) as crib:
        assert await say(crib, "saw") == "saw"


async def test_a_named_plugin_that_is_not_installed_is_reported_with_the_nearest_name(
    packages: Path, tmp_path: Path
) -> None:
    install(packages, "hammer")
    config = write_config(tmp_path / "mcp.json", toolcrib={"plugins": ["hamer", "hammer"]})
    async with crib_of(config) as crib:
        assert "did you mean `hammer`?" in reason(crib, "hamer")
        assert await say(crib, "hammer") == "hammer"


async def test_two_packages_with_plugins_of_the_same_name_are_both_reported(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    install(packages / "more", "saw", distribution="another-package")
    for path in (packages / "more").iterdir():
        path.rename(packages / path.name)
    async with crib_of(write_config(tmp_path / "mcp.json")) as crib:
        assert "`another-package`" in reason(crib, "saw")
        assert "`saw-package`" in reason(crib, "saw")


async def test_a_package_with_unreadable_entry_points_does_not_affect_other_plugins(
    packages: Path, tmp_path: Path
) -> None:
    install(packages, "broken")
    (packages / "broken_package-1.0.dist-info" / "entry_points.txt").write_bytes(b"[toolcrib.plugins]\n\xff\n")
    install(packages, "saw")
    async with crib_of(write_config(tmp_path / "mcp.json")) as crib:
        assert await say(crib, "saw") == "saw"


# -- name conflicts ---------------------------------------------------------------------------------------------------


async def test_a_server_takes_precedence_over_a_plugin_with_the_same_name(packages: Path, tmp_path: Path) -> None:
    install(packages, "bench")
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    async with crib_of(config) as crib:
        assert "bench.add" in crib.view().tools
        assert reason(crib, "bench-2").startswith("The plugin `bench` cannot be used. The cause: a server")
        assert [top.name for top in crib.top_level(read_config(config), CallContext().principal)] == ["bench"]


async def test_a_plugin_of_the_program_takes_precedence_over_an_installed_one(packages: Path, tmp_path: Path) -> None:
    install(packages, "hammer")
    crib = Toolcrib()
    crib.add_plugin(Own())
    crib.add_config(write_config(tmp_path / "mcp.json"))
    crib.add_plugins()
    async with crib:
        assert await crib.ready(30)
        assert [*crib.view().sources] == ["hammer"]
        assert await say(crib, "hammer") == "my own"


# -- changes of the configuration -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("poll_often")
async def test_plugins_are_added_and_removed_when_the_configuration_changes(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    install(packages, "hammer")
    path = write_config(tmp_path / "mcp.json", toolcrib={"plugins": ["saw"]})
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config):
        assert await crib.ready(30)
        kept = crib.view().sources["saw"].source
        write_config(path, toolcrib={"plugins": ["saw", "hammer"]})
        await until(lambda: "hammer.say" in crib.view().tools, "the new plugin is available")
        assert crib.view().sources["saw"].source is kept
        assert await say(crib, "hammer") == "hammer"
        write_config(path, toolcrib={"plugins": ["hammer"]})
        await until(lambda: "saw" not in crib.view().sources, "the old plugin was removed")
        assert await say(crib, "hammer") == "hammer"
        write_config(path, toolcrib={"plugins": ["saw"]})
        await until(lambda: "saw.say" in crib.view().tools, "the plugin is available again")
        assert await say(crib, "saw") == "saw"


@pytest.mark.usefixtures("poll_often")
async def test_a_truncated_file_does_not_add_all_plugins(
    packages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(packages, "saw")
    path = write_config(tmp_path / "mcp.json", toolcrib={"plugins": False})
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config):
        write_config(path)
        await until(lambda: "To add all installed plugins" in caplog.text, "the file is refused")
        assert [*crib.view().sources] == []
        write_config(path, toolcrib={"plugins": True})
        await until(lambda: "saw.say" in crib.view().tools, "the explicit setting is applied")


@pytest.mark.usefixtures("poll_often")
async def test_a_plugin_yields_its_name_to_a_server_and_returns_after_its_removal(
    packages: Path, tmp_path: Path
) -> None:
    install(packages, "bench")
    path = write_config(tmp_path / "mcp.json")
    crib = Toolcrib()
    config = crib.add_config(path)
    async with crib, following(crib, config):
        assert await crib.ready(30)
        assert await say(crib, "bench") == "bench"
        write_config(path, bench=faulty_entry())
        await until(lambda: "bench.add" in crib.view().tools, "the server is available")
        assert "bench.say" not in crib.view().tools
        assert "a server" in reason(crib, "bench-2")
        write_config(path)
        await until(lambda: "bench.say" in crib.view().tools, "the plugin is available again")
        assert [*crib.view().sources] == ["bench"]


@pytest.mark.usefixtures("poll_often")
async def test_plugins_added_by_the_program_stay_under_any_configuration(packages: Path, tmp_path: Path) -> None:
    install(packages, "saw")
    path = write_config(tmp_path / "mcp.json", toolcrib={"plugins": ["saw"]})
    crib = Toolcrib()
    crib.add_plugin(Own())
    config = crib.add_config(path)
    async with crib, following(crib, config):
        assert await crib.ready(30)
        write_config(path, toolcrib={"plugins": False})
        await until(lambda: "saw" not in crib.view().sources, "the configured plugin was removed")
        assert await say(crib, "hammer") == "my own"


async def test_a_second_configuration_adds_plugins_and_its_server_takes_precedence(
    packages: Path, tmp_path: Path
) -> None:
    install(packages, "saw")
    install(packages, "bench")
    crib = Toolcrib()
    crib.add_config(write_config(tmp_path / "one.json", toolcrib={"plugins": ["bench"]}))
    crib.add_config(write_config(tmp_path / "two.json", toolcrib={"plugins": ["saw"]}, bench=faulty_entry()))
    async with crib:
        assert await crib.ready(30)
        assert {*crib.view().sources} == {"bench", "bench-2", "saw"}
        assert "bench.add" in crib.view().tools
