"""`toolcrib describe`, over definitions in a file and over a running server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import toolcrib, toolcrib_process
from tests.servers.launching import faulty_entry, write_config

from toolcrib.core.tools import Tool

SCHEMA = {"type": "object", "properties": {"litres": {"type": "number"}}}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    definitions = [
        {"name": "water", "description": "Water the [bold]garden[/].", "inputSchema": SCHEMA},
        {"name": "dig", "description": "Dig. Deep.", "inputSchema": {"type": "object"}},
    ]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    return path


def test_standard_output_has_only_the_description_of_the_tools(tools: Path) -> None:
    water = Tool("garden", "water", "Water the [bold]garden[/].", SCHEMA).handle
    told = toolcrib("describe", "--tools", tools)
    assert told.code == 0
    assert told.out.startswith("# Tools\n\nCall a tool by its handle")
    assert told.out.endswith(f"- {water}: Water the [bold]garden[/].\n  arguments:\n    litres (number)\n")
    assert "tokens; 2 tools." in told.err
    assert toolcrib_process("describe", "--tools", tools).out == told.out


def test_the_detail_option_limits_the_description(tools: Path) -> None:
    summaries = toolcrib("describe", "--tools", tools, "--detail", "summary").out
    assert summaries.endswith("\n## garden\n- garden.dig: Dig.\n- garden.water: Water the [bold]garden[/].\n")
    names = toolcrib("describe", "--tools", tools, "--detail", "name").out
    assert names.endswith("\n## garden\n- garden.dig, garden.water\n")


def test_the_budget_limits_the_tokens_of_the_description(tmp_path: Path) -> None:
    definitions = [{"name": f"t{n}", "description": "Dig. " * 50, "inputSchema": SCHEMA} for n in range(9)]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    whole = toolcrib("describe", "--tools", path, "--json").json
    assert whole["tokens"] > 200
    less = toolcrib("describe", "--tools", path, "--budget", "200", "--json").json
    assert less["tokens"] <= 200
    assert {*less["shown"].values()} > {"full"}
    assert toolcrib("describe", "--tools", path, "--budget", "99").code == 2


def test_json_output_lists_shown_and_omitted_tools(tools: Path) -> None:
    told = toolcrib("describe", "--tools", tools, "--json").json
    assert told["text"] == toolcrib("describe", "--tools", tools).out
    assert told["shown"] == {"garden.dig": "full", "garden.water": "full"}
    assert told["left_out"] == []


def test_tools_of_running_servers_are_described(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", faulty=faulty_entry(), lost={"command": "no-such-program"})
    told = toolcrib("describe", config, "--detail", "name")
    assert told.code == 0, told.err
    assert "faulty.echo" in told.out
    assert "Unavailable: lost." in told.err
