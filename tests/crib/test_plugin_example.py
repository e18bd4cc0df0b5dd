"""The plugin example: built, installed like any package, and used by a separate `toolcrib` process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.running import Ended, toolcrib_process
from tests.plugin_packages import install
from tests.servers.launching import write_config
from tests.surfaces.serving import TOOLCRIB, ask, conversation, run_tool

from toolcrib.sources.installed import GROUP

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
UV = str(Path(sys.executable).with_name("uv"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, installed from a wheel."""
    built = tmp_path_factory.mktemp("built")
    source = shutil.copytree(EXAMPLE, built / "source")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built), at=source)
    (wheel,) = built.glob("*.whl")
    target = tmp_path_factory.mktemp("installed")
    where = ("--python", sys.executable, "--target", str(target))
    _run(UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--no-cache", *where, str(wheel), at=source)
    return target


@pytest.fixture
def config_with_broken_plugin(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration for a `toolcrib` that finds the example and a plugin that raises when it is imported."""
    broken = tmp_path / "broken"
    install(broken, "broken", "raise OSError(2, 'gone', '/home/ada')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), str(broken)]))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return write_config(tmp_path / "mcp.json")


def _run(*command: str, at: Path) -> None:
    ended = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.anyio
async def test_the_plugin_on_the_page_passes_its_own_check() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    await namespace["check"]()


def test_the_entry_point_on_the_page_uses_the_right_group() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert tomllib.loads(shown) == {"project": {"entry-points": {GROUP: {"dice": "toolcrib_dice:Dice"}}}}


def test_the_tests_of_the_example_pass(installed: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE), "tests"]
    ended = subprocess.run(
        command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stdout
    assert "3 passed" in ended.stdout


def test_the_command_line_uses_the_example_despite_a_broken_plugin(config_with_broken_plugin: Path) -> None:
    def toolcrib(command: str, *words: str) -> Ended:
        return toolcrib_process(command, *words, "-c", config_with_broken_plugin, "--json")

    listed = toolcrib("list", "units").json
    assert [tool["tool_id"] for tool in listed["tools"]] == ["units.convert", "units.list_units"]
    found = toolcrib("search", "how many miles is this").json
    assert found["results"][0]["tool_id"] == "units.convert"
    expansion = toolcrib("expand", "units.convert").json
    assert expansion["args_schema"]["required"] == ["value", "unit", "to"]
    assert "42.16 km" in json.dumps(expansion)
    arguments = {"value": 26.2, "unit": "mi", "to": "km"}
    called = toolcrib("call", "units.convert", json.dumps(arguments))
    assert (called.code, called.json["structuredContent"]) == (0, {"value": 42.164813, "unit": "km"})
    refused = toolcrib("call", "units.convert", json.dumps({**arguments, "to": "kg"}))
    assert refused.json["error"]["message"] == "`mi` and `kg` measure different things."

    doctor = toolcrib("doctor")
    sources = {source["name"]: source for source in doctor.json["sources"]}
    assert (doctor.code, sources["units"]["status"], sources["broken"]["status"]) == (1, "ready", "failed")
    # The user of `doctor` owns the machine, so the output contains details that callers do not see.
    assert "importing it raised FileNotFoundError" in sources["broken"]["reason"]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_gateway_uses_the_example_despite_a_broken_plugin(mode: Any, config_with_broken_plugin: Path) -> None:
    environment = {key: os.environ[key] for key in ("PYTHONPATH", "XDG_STATE_HOME", "PATH")}
    served = StdioServerParameters(
        command=TOOLCRIB, args=["serve", str(config_with_broken_plugin), "--no-cache", "--no-audit"], env=environment
    )
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(served, errlog=nowhere), mode=mode) as client:
            tools = await client.list_tools()
            assert "units" in str(tools.tools[1].description)
            root = await ask(client, "list")
            assert [(node["name"], node["tool_count"]) for node in root["nodes"]] == [("units", 2)]
            assert root["unavailable"] == ["broken"]
            found = await ask(client, "search_tools", query="how hot is it in Fahrenheit")
            assert found["results"][0]["tool_id"] == "units.convert"
            result = await run_tool(client, "units.convert", value=100, unit="C", to="F")
            assert result.structured_content == {"value": 212.0, "unit": "F"}
            broken = await ask(client, "expand_tool", tool_id="broken.say")
            assert broken["error"]["code"] == "SOURCE_UNAVAILABLE"
            assert "importing it raised FileNotFoundError" in broken["error"]["message"]
            assert "/home/ada" not in json.dumps(broken)


def test_a_gateway_ends_despite_a_hanging_plugin_and_excludes_its_output(
    config_with_broken_plugin: Path, tmp_path: Path
) -> None:
    install(tmp_path / "broken", "hanging", "print('I am here', flush=True)\nimport time\ntime.sleep(3600)")
    with conversation(config_with_broken_plugin) as gateway:
        gateway.shake_hands()
        result = gateway.run_tool("units.convert", {"value": 1, "unit": "kg", "to": "g"})
        assert result["structuredContent"] == {"value": 1000.0, "unit": "g"}
        assert gateway.end() == 0
        assert not any(b"I am here" in line for line in gateway.lines)
