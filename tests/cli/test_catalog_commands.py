"""`toolcrib tree`, `search` and `expand`, over definitions in a file and over running servers."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.running import toolcrib
from tests.cli.terminal import typed
from tests.servers import faulty
from tests.servers.launching import faulty_entry, write_config

from toolcrib.cli.app import main

LONG = "a_name_that_goes_on_" * 6

TOOLS: list[dict[str, Any]] = [
    {
        "name": "[red]x",
        "description": "Paint the [bold]fence[/] red :bug: [/nope]. And more.",
        "inputSchema": {"type": "object", "properties": {"[link=x]colour[/]": {"type": "string"}}},
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
    },
    {"name": "water", "description": "Water the garden \\", "inputSchema": {"type": "object"}},
    {"name": LONG, "description": "A long name.", "inputSchema": {"type": "object"}},
]


@pytest.fixture
def tools(tmp_path: Path) -> str:
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": TOOLS}))
    return str(path)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def wire(*words: str) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_the_tree_shows_every_tool_under_its_id(tools: str) -> None:
    shown = run("tree", "--tools", tools)
    assert shown.exit_code == 0
    assert "3 tools" in shown.stdout
    assert "garden.[red]x Paint the [bold]fence[/] red :bug: [/nope]." in shown.stdout
    assert LONG in shown.stdout


def test_the_tree_as_json_has_nodes_tools_and_counts(tools: str) -> None:
    tree = wire("tree", "--tools", tools)
    (garden,) = tree["nodes"]
    assert (garden["name"], garden["path"], garden["tool_count"]) == ("garden", ["garden"], 3)
    assert {tool["tool_id"] for tool in garden["tools"]} == {f"garden.{tool['name']}" for tool in TOOLS}


def test_categories_are_shown_with_counts_and_as_json_with_tools(tools: str) -> None:
    shown = run("categories", "--tools", tools)
    assert (shown.exit_code, shown.stdout.split()[:2]) == (0, ["garden", "3"])
    (garden,) = wire("categories", "--tools", tools)["categories"]
    assert (garden["category"], garden["tool_count"]) == ("garden", 3)
    assert garden["tools"] == sorted(f"garden.{tool['name']}" for tool in TOOLS)


def test_all_categories_are_shown_without_a_limit(tmp_path: Path) -> None:
    tool = {"name": "water", "description": "Water it.", "inputSchema": {"type": "object"}}
    gardens = {f"garden{number:02}": {"tools": [tool]} for number in range(70)}
    (path := tmp_path / "gardens.json").write_text(json.dumps(gardens))

    shown = run("categories", "--tools", str(path)).stdout

    assert all(garden in shown for garden in gardens)
    assert {*gardens} <= {each["category"] for each in wire("categories", "--tools", str(path))["categories"]}


def test_a_search_shows_the_best_result_first_with_complete_ids(tools: str) -> None:
    assert wire("search", "paint", "the", "fence", "--tools", tools)["results"][0]["tool_id"] == "garden.[red]x"
    shown = run("search", "paint the fence, a long name", "--tools", tools)
    assert shown.exit_code == 0
    assert "garden.[red]x" in shown.stdout
    assert ":bug:" in shown.stdout
    assert f"garden.{LONG}" in shown.stdout
    assert "…" not in shown.stdout


def test_a_search_returns_at_most_the_requested_number_of_results(tools: str) -> None:
    page = wire("search", "garden", "-n", "1", "--tools", tools)
    assert len(page["results"]) == 1
    assert page["next_cursor"]


def test_a_shortened_result_list_says_that_more_results_are_available(tools: str) -> None:
    for words in (["search", "garden"], ["list", "garden"]):
        assert (
            "More results are available: pass a larger `-n` (at most 50)."
            in run(*words, "-n", "1", "--tools", tools).stderr
        )
        assert "More results" not in run(*words, "--tools", tools).stderr


def test_a_full_page_of_fifty_suggests_a_narrower_search(tmp_path: Path) -> None:
    definitions: list[dict[str, Any]] = [
        {"name": f"tool_{number}", "description": "Dig.", "inputSchema": {}} for number in range(60)
    ]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    shown = run("search", "dig", "-n", "50", "--tools", str(path))
    assert "More results are available: narrow the search with `--in` or `--tag`." in shown.stderr


def test_a_search_without_words_shows_no_confidence(tools: str) -> None:
    shown = run("search", " ", "--tools", tools)
    assert shown.exit_code == 0
    assert {line.split()[0] for line in shown.stdout.splitlines()} == {
        "garden.[red]x",
        "garden.water",
        f"garden.{LONG}",
    }


def test_list_and_tree_report_an_empty_result(tmp_path: Path, tools: str) -> None:
    empty = write_config(tmp_path / "mcp.json")
    for command in ("list", "tree"):
        shown = run(command, "-c", str(empty))
        assert (shown.exit_code, shown.stdout) == (0, "")
        assert "No tools found." in shown.stderr
    unmet = run("list", "garden", "--tag", "quux", "--tools", tools)
    assert (unmet.exit_code, unmet.stdout) == (0, "")
    assert "No matching tools or categories here." in unmet.stderr


def test_long_summaries_are_shortened_in_text_output(tmp_path: Path) -> None:
    words = [
        "oak",
        "rose",
        "bean",
        "kale",
        "maple",
        "tulip",
        "lentil",
        "chard",
        "cedar",
        "lily",
        "pea",
        "leek",
        "birch",
    ]
    definitions: list[dict[str, Any]] = [
        {"name": f"plant_{word}", "description": f"Plant {word} near {word}grove.", "inputSchema": {}} for word in words
    ]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    (node,) = wire("list", "--tools", str(path))["nodes"]
    assert len(node["summary"]) > 90
    for command in ("list", "categories", "tree"):
        shown = run(command, "--tools", str(path)).stdout
        (line,) = [line for line in shown.splitlines() if "garden " in line and " 13 " in line]
        assert line.endswith("…")
        assert len(line) < 120


def test_tree_lines_are_shortened_to_the_terminal_width_but_ids_are_complete(tmp_path: Path) -> None:
    told = "Dig a hole that is wide enough for the roots of an old tree and then water it."
    definitions: list[dict[str, Any]] = [
        {"name": name, "description": told, "inputSchema": {}} for name in ("dig", LONG)
    ]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    shown = typed("tree", "--tools", path, answers=[], environ={**os.environ}, folder=tmp_path, columns=60).out
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 60
    (dig,) = (line for line in lines if "garden.dig" in line)
    assert dig.endswith("…")
    assert f"garden.{LONG}" in re.sub(r"[\s│]", "", shown)
    piped = run("tree", "--tools", str(path)).stdout
    assert f"garden.{LONG} {told}" in piped


def test_a_search_without_matches_exits_with_1_and_suggests_a_next_command(tools: str) -> None:
    shown = run("search", "quux", "--tools", tools)
    assert (shown.exit_code, shown.stdout.strip()) == (1, "")
    assert run("search", "quux", "--in", "garden", "--tools", tools).exit_code == 1
    assert "No tool matches this query well." in shown.stderr
    assert f"Next: toolcrib tree --tools {tools}" in shown.stderr
    as_json = run("search", "quux", "--tools", tools, "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["results"]) == (1, [])
    shown = run("search", "water the garden", "--tag", "none", "--tools", tools)
    assert f"Next: toolcrib search --tools {tools} 'water the garden'" in shown.stderr


def test_results_with_a_confidence_below_one_percent_are_counted_but_not_shown(tmp_path: Path) -> None:
    told = {"water_garden": "Water the garden with the hose."}
    told |= {f"dig_{n}": f"Dig {n} holes, far from the garden." for n in "abc"}
    definitions: list[dict[str, Any]] = [
        {"name": name, "description": text, "inputSchema": {}} for name, text in told.items()
    ]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    words = ["search", "water", "with", "the", "hose", "garden", "--tools", str(path)]
    low = [each["tool_id"] for each in wire(*words)["results"] if each["confidence"] < 0.01]
    shown = run(*words)
    assert low
    assert not any(tool_id in shown.stdout for tool_id in low)
    assert f"{len(low)} more have a confidence below 0.01" in shown.stderr


def test_an_expansion_shows_the_input_schema_and_the_annotations(tools: str) -> None:
    shown = run("expand", "garden.[red]x", "--tools", tools)
    assert shown.exit_code == 0
    assert '"[link=x]colour[/]"' in shown.stdout
    assert "Paint the [bold]fence[/] red :bug: [/nope]. And more." in " ".join(shown.stdout.split())
    assert "claims to be: readOnly, openWorld" in shown.stdout
    expansion = wire("expand", "garden.[red]x", "--tools", tools)
    assert expansion["args_schema"] == TOOLS[0]["inputSchema"]
    of_the_tool, _, trace = expansion["handle"].rpartition(".")
    assert of_the_tool.startswith("garden.[red]x@")
    assert trace
    assert f"handle: {of_the_tool}." in shown.stdout


def test_an_unknown_id_exits_with_1_and_suggests_a_working_command(tools: str) -> None:
    shown = run("expand", "garden.[red]y", "--tools", tools)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert "TOOL_NOT_FOUND" in shown.stderr
    assert "`garden.[red]x`" in shown.stderr
    (line,) = [line for line in shown.stderr.splitlines() if "Next:" in line]
    command = shlex.split(line.partition("Next:")[2])
    assert command[0] == "toolcrib"
    assert run(*command[1:], "--tools", tools).exit_code == 0
    error = run("expand", "garden.[red]y", "--tools", tools, "--json")
    assert error.exit_code == 1
    assert json.loads(error.stdout)["error"]["code"] == "TOOL_NOT_FOUND"


def test_a_file_without_definitions_exits_with_2(tmp_path: Path) -> None:
    (path := tmp_path / "tools.json").write_text("[[")
    assert run("tree", "--tools", str(path)).exit_code == 2


def test_error_messages_wrap_between_words_at_eighty_columns(tools: str, tmp_path: Path) -> None:
    environ = {**os.environ, "NO_COLOR": "1"}
    config = write_config(tmp_path / "m.json", gone={"command": "no-such-program-4b1f"})
    for words, said in [
        (
            ["search", "--tools", tools, "zzzz"],
            "No tool matches this query well. Search with different words: say what you want to do",
        ),
        (["call", "-c", config.name, "gone.x"], "`gone` could not start or connect. The gateway's owner can"),
    ]:
        shown = typed(*words, answers=(), environ=environ, folder=tmp_path).out
        lines = [line.strip() for line in shown.splitlines() if "Next: " not in line]  # a command is not broken
        assert max(map(len, lines)) <= 80
        assert said in " ".join(lines)


def test_running_servers_are_searched_and_failed_servers_are_named(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("odd-tools"), broken=faulty_entry("exit-at-start"))
    found = toolcrib("search", "add", "two", "integers", "-c", config)
    assert found.code == 0
    assert "bench.add" in found.out.splitlines()[0]
    assert f"Unavailable: broken. Run `toolcrib doctor -c {config}` to see why." in found.err
    tree = toolcrib("tree", config, "--json").json
    assert tree["unavailable"] == ["broken"]
    assert tree["nodes"][0]["tool_count"] == len(faulty.BASE_TOOLS) + 11


def test_an_expansion_names_the_obstacle_to_a_call(tmp_path: Path) -> None:
    rules = [{"then": "refuse", "tools": ["bench.add"]}, {"then": "ask", "tools": ["bench.echo"]}]
    policy = {"rules": rules, "otherwise": "allow"}
    config = write_config(tmp_path / "mcp.json", toolcrib={"policy": policy}, bench=faulty_entry())
    for tool_id, obstacle in (("bench.add", "you are not allowed to call it"), ("bench.echo", "A person must approve")):
        assert obstacle in toolcrib("expand", tool_id, "-c", config).out
        assert obstacle in toolcrib("expand", tool_id, "-c", config, "--json").json["obstacle"]


def test_an_expansion_starts_only_the_server_of_the_tool(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry(), other=faulty_entry("--log", str(other)))
    assert toolcrib("expand", "bench.add", "-c", config, "--json").json["tool_id"] == "bench.add"
    assert not other.exists()
    assert toolcrib("expand", "bench__add", "-c", config, "--json").json["tool_id"] == "bench.add"
    assert other.exists()


def test_a_slow_server_is_waited_for_only_as_long_as_requested(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", mute=faulty_entry("silent"))
    tree = toolcrib("tree", config, "--wait", "0")
    assert tree.code == 0
    assert "Timed out while waiting for: mute." in tree.err
    assert toolcrib("tree", config, "--wait", "0", "--json").json["starting"] == ["mute"]
    expansion = toolcrib("expand", "mute.echo", "-c", config, "--wait", "0", "--json")
    assert (expansion.code, expansion.json["error"]["code"]) == (1, "SOURCE_UNAVAILABLE")


def test_an_unusable_model_is_reported_and_does_not_delay_a_search(tmp_path: Path) -> None:
    search = {"search": {"embedder": {"endpoint": "http://127.0.0.1:9/v1", "model": "none"}}}
    config = write_config(tmp_path / "mcp.json", toolcrib=search, bench=faulty_entry())
    ended = toolcrib("search", "--config", config, "echo")
    assert (ended.code, "Searching by words only:" in ended.err) == (0, True)


def test_a_configuration_with_a_definition_file_supplies_the_search_settings(tmp_path: Path, tools: str) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"search": {"embedder": {"folder": "none"}}})
    assert "the folder does not exist" in toolcrib("search", "--tools", tools, "--config", config, "commit").err
    assert toolcrib("search", "--tools", tools, "--config", tmp_path / "none.json", "commit").code == 2


@pytest.mark.parametrize(
    "words", [["expand"], ["expand", "--json"], ["grammar", "--of=arguments"], ["grammar", "--strict"]]
)
def test_definitions_are_printed_without_terminal_control_characters(tmp_path: Path, words: list[str]) -> None:
    odd = "a\x9b2J\x9d0;title\x9c\u202eb\u061cc\u2028d"
    schema = {"type": "object", "properties": {"x": {"enum": [odd], "description": odd}}}
    definition = {"name": "saw", "description": odd, "inputSchema": schema}
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": [definition]}))
    command, *more = words
    given = [command, *more, "garden.saw", "--tools", str(path)]
    shown = typed(*given, answers=[], environ={**os.environ}, folder=tmp_path).out
    assert "2J" in shown
    assert not re.search("[\x80-\x9f\u202e\u061c\u2028]", shown)


# -- the view of other principals -------------------------------------------------------------------------------------


@pytest.fixture
def ruled(tmp_path: Path) -> Path:
    token = {"sha256": "0" * 64, "principal": "ben", "scopes": ["write"]}
    policy = {
        "rules": [
            {"then": "hide", "tools": ["bench.echo"], "principals": ["ada"]},
            {"then": "allow", "scopes": ["write"]},
            {"then": "allow", "tools": ["bench.add"]},
        ],
        "otherwise": "refuse",
    }
    return write_config(
        tmp_path / "mcp.json", toolcrib={"policy": policy, "auth": {"tokens": [token]}}, bench=faulty_entry()
    )


@pytest.mark.parametrize("command", [("list", "bench", "-c"), ("tree", "-c"), ("search", "echo", "-c")])
def test_a_tool_that_may_not_be_called_is_marked(command: tuple[str, ...], ruled: Path) -> None:
    lines = run(*command, str(ruled)).stdout.replace("\n", " ")
    assert lines.count("unavailable: You can see this tool, but you are not allowed to call it") >= 1
    if command[0] == "list":
        assert lines.count("unavailable: ") == len(faulty.BASE_TOOLS) - 1


def hiding_from(tmp_path: Path, principal: str) -> Path:
    policy = {"rules": [{"then": "hide", "principals": [principal]}], "otherwise": "allow"}
    return write_config(tmp_path / "mcp.json", toolcrib={"policy": policy}, bench=faulty_entry())


@pytest.mark.parametrize(
    "command", [("tree",), ("list",), ("list", "nope"), ("categories",), ("search", "echo"), ("expand", "bench.echo")]
)
def test_the_owner_is_warned_when_the_policy_hides_every_tool(command: tuple[str, ...], tmp_path: Path) -> None:
    part = " of bench" if command[0] == "expand" else ""
    told = f"The policy hides all {len(faulty.BASE_TOOLS)} tools{part} from the principal `local`."
    shown = run(*command, "-c", str(hiding_from(tmp_path, "local")))
    assert told in shown.stderr.replace("\n", " ")
    assert "Nothing here." not in shown.stderr
    assert "only tools" not in shown.stderr
    open_to_local = run(*command, "-c", str(hiding_from(tmp_path, "ada")))
    assert "The policy hides" not in open_to_local.stderr


def test_search_and_expand_accept_a_principal(tmp_path: Path) -> None:
    config = str(hiding_from(tmp_path, "ada"))
    for command in (("search", "echo"), ("expand", "bench.echo")):
        assert "bench.echo" in run(*command, "-c", config).stdout
        shown = run(*command, "--as", "ada", "-c", config)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "from the principal `ada`." in shown.stderr


@pytest.mark.parametrize("command", [("list", "bench"), ("tree",)])
def test_list_and_tree_show_the_view_of_a_principal(command: tuple[str, ...], ruled: Path) -> None:
    def shown(principal: str) -> str:
        return run(*command, "--as", principal, "-c", str(ruled)).stdout

    assert "bench.echo" not in shown("ada")
    assert "bench.add" in shown("ada")
    assert "bench.echo" in shown("cleo")
    assert "unavailable" in shown("cleo")
    assert "unavailable" not in shown("ben"), "its token has a scope"
    assert shown("local") == run(*command, "-c", str(ruled)).stdout
