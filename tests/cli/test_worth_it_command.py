"""`toolcrib worth-it`: sizes that can be checked by hand, and a verdict that follows from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import toolcrib
from tests.servers import faulty
from tests.servers.launching import faulty_entry, write_config

from toolcrib.operations.briefing import Top, instructions, operation_tools
from toolcrib.operations.operation_table import SETS


def definition(number: int, words: int) -> dict[str, Any]:
    """A tool whose description has that many words."""
    return {
        "name": f"tool_{number}",
        "description": f"Do thing {number}. " + "word " * words,
        "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}},
        # Clients do not show these to a model.
        "outputSchema": {"type": "object", "description": "x" * 10_000},
        "annotations": {"title": "x" * 10_000},
    }


def catalog(path: Path, **servers: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({name: {"tools": tools} for name, tools in servers.items()}))
    return path


def weight(tool: dict[str, Any]) -> int:
    shown = {key: tool[key] for key in ("name", "description", "inputSchema")}
    return len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode())


def told(path: Path, code: int = 0) -> dict[str, Any]:
    ended = toolcrib("worth-it", "--tools", path, "--json")
    assert (ended.code, ended.err) == (code, "")
    return ended.json


def test_servers_are_measured_by_what_clients_show_and_sorted_by_size(tmp_path: Path) -> None:
    light, heavy = [definition(1, 1)], [definition(1, 50), definition(2, 90), definition(3, 70)]
    report = told(catalog(tmp_path / "tools.json", light=light, heavy=heavy))
    assert [(server["name"], server["tool_count"], server["bytes"]) for server in report["servers"]] == [
        ("heavy", 3, sum(map(weight, heavy))),
        ("light", 1, sum(map(weight, light))),
    ]
    assert [tool["tool_id"] for tool in report["heaviest"]] == [
        "heavy.tool_2",
        "heavy.tool_3",
        "heavy.tool_1",
        "light.tool_1",
    ]
    assert report["servers"][0]["heaviest"][0]["tool_id"] == "heavy.tool_2"
    assert report["now"]["bytes"] == sum(server["bytes"] for server in report["servers"])
    assert report["now"]["estimated_tokens"] == report["now"]["bytes"] // 4
    assert report["tool_count"] == 4


def test_the_size_before_the_first_search_is_operations_plus_instructions(tmp_path: Path) -> None:
    report = told(catalog(tmp_path / "tools.json", garden=[definition(1, 1)]))
    tops = [Top("garden")]
    compact = SETS["compact"]
    shown = [*(tool.to_wire() for tool in operation_tools(compact, tops)), instructions(compact, tops)]
    written = json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()
    assert report["with_toolcrib"]["before_first_search"]["bytes"] == len(written) - len("[]")


def test_the_size_of_one_use_is_a_result_page_plus_an_expansion(tmp_path: Path) -> None:
    path = catalog(tmp_path / "tools.json", garden=[definition(1, 5)])
    one_use = told(path)["with_toolcrib"]
    page = toolcrib("search", "Do", "thing", "1.", "--tools", path, "--json").json
    expansion = toolcrib("expand", "garden.tool_1", "--tools", path, "--json").json
    for part, sent in (("search", page), ("expansion", expansion)):
        size = len(json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode())
        assert one_use[part]["bytes"] == size
    assert one_use["one_use"]["bytes"] == one_use["search"]["bytes"] + one_use["expansion"]["bytes"]
    handful = one_use["after_a_handful"]
    assert handful["bytes"] == one_use["before_first_search"]["bytes"] + handful["uses"] * one_use["one_use"]["bytes"]


def without_schemas(number: int, words: int) -> dict[str, Any]:
    return {key: value for key, value in definition(number, words).items() if key != "outputSchema"}


def test_many_large_tools_are_worth_it(tmp_path: Path) -> None:
    path = catalog(tmp_path / "tools.json", office=[without_schemas(i, 200) for i in range(200)])
    report = told(path)
    assert (report["verdict"], report["worth_it"]) == ("worth it", True)
    assert report["now"]["bytes"] >= 2 * report["with_toolcrib"]["after_a_handful"]["bytes"]
    shown = toolcrib("worth-it", "--tools", path)
    assert "Worth it." in shown.out
    assert report["reason"] in " ".join(shown.out.split())
    assert f"tools to look up until both are equal {report['uses_until_even']:,}" in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("tools", "words", "why"),
    [
        (2, 5, "Toolcrib costs more from the first tool on."),
        (9, 150, "Toolcrib costs more when more than"),
        (30, 150, "That saves too little for the two extra steps"),
    ],
)
def test_few_or_small_tools_are_not_worth_it(tools: int, words: int, why: str, tmp_path: Path) -> None:
    path = catalog(tmp_path / "tools.json", desk=[without_schemas(i, words) for i in range(tools)])
    report = told(path)
    assert (report["verdict"], report["worth_it"]) == ("leave it", False)
    assert why in report["reason"]
    now, handful = report["now"]["bytes"], report["with_toolcrib"]["after_a_handful"]["bytes"]
    assert now < 2 * handful
    assert (report["uses_until_even"] >= 5) == (now >= handful)
    assert "Leave it." in toolcrib("worth-it", "--tools", path).out


def test_servers_are_started_to_measure_them(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry(), off={"command": "x", "disabled": True})
    ended = toolcrib("worth-it", config, "--json")
    assert ended.code == 0
    (server,) = ended.json["servers"]
    assert (server["name"], server["tool_count"]) == ("bench", len(faulty.BASE_TOOLS))
    assert ended.json["missing"] == []


def test_no_verdict_is_given_when_it_depends_on_a_failed_server(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry(), broken=faulty_entry("exit-at-start"))
    ended = toolcrib("worth-it", config, "--json")
    assert ended.code == 1
    report = ended.json
    assert (report["verdict"], report["worth_it"], report["missing"]) == ("cannot tell", None, ["broken"])
    told = "not counting broken. For the other servers: leave it. Run `toolcrib doctor` to see what is wrong."
    assert told in report["reason"]
    assert "Cannot tell." in toolcrib("worth-it", config).out


def test_a_client_file_with_only_toolcrib_measures_the_servers_behind_it(tmp_path: Path) -> None:
    served = write_config(tmp_path / "served.json", bench=faulty_entry())
    client = write_config(tmp_path / "mcp.json", gateway={"command": "toolcrib", "args": ["serve", str(served)]})
    ended = toolcrib("worth-it", client, "--json")
    assert ended.err == f"{client} starts Toolcrib. Measuring the servers of {served} instead.\n"
    assert [server["name"] for server in ended.json["servers"]] == ["bench"]


def test_a_configuration_without_servers_has_no_tools_to_measure(tmp_path: Path) -> None:
    ended = toolcrib("worth-it", write_config(tmp_path / "mcp.json"), "--json")
    assert (ended.code, ended.json["reason"]) == (0, "There are no tools.")


def test_control_characters_and_markup_in_tool_names_are_not_interpreted(tmp_path: Path) -> None:
    odd = {**definition(1, 1), "name": "[red]x\x1b[2J"}
    shown = toolcrib("worth-it", "--tools", catalog(tmp_path / "tools.json", a=[odd], b=[definition(2, 1)]))
    assert "[red]x" in shown.out
    assert "\x1b" not in shown.out
