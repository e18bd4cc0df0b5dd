"""`toolcrib lint`, as a CI step runs it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.cli.running import toolcrib, toolcrib_process
from tests.servers.launching import faulty_entry, write_config


def linted(folder: Path, code: str, target: str = "tools") -> tuple[int, list[str]]:
    (folder / "tools.py").write_text(dedent(code))
    done = toolcrib_process("lint", "--python", target, "--json", "--ignore", "parameter-undocumented", cwd=folder)
    return done.code, [f"{each['place']}: {each['problem']}" for each in done.json["findings"]]


HEAD = """
from toolcrib import Plugin, Tool, Toolcrib, ToolExample, ToolMetadata

crib = Toolcrib()

def convert(amount: float, unit: str = "m") -> float:
    "Turns a length into metres."
"""


def test_a_written_schema_that_agrees_with_its_function_passes(tmp_path: Path) -> None:
    code = (
        HEAD + 'crib.add(convert, input_schema={"properties": {"amount": {"type": "number"}}, "required": ["amount"]})'
    )
    assert linted(tmp_path, code) == (0, [])


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import sys; sys.exit(0)", "tools: cannot be imported: SystemExit: 0"),
        (
            "from toolcrib import Plugin\nclass Bare(Plugin):\n    def __init__(self, key: str) -> None: ...",
            "tools:Bare: cannot be created: TypeError: ",
        ),
    ],
)
def test_an_exiting_module_and_a_plugin_that_fails_are_findings(tmp_path: Path, code: str, problem: str) -> None:
    status, (told,) = linted(tmp_path, code)
    assert (status, told[: len(problem)]) == (1, problem)


def test_a_written_schema_that_disagrees_with_its_function_is_reported_with_all_differences(tmp_path: Path) -> None:
    code = HEAD + 'crib.add(convert, input_schema={"properties": {"amout": {"type": "number"}}})'
    assert linted(tmp_path, code) == (
        1,
        [
            (
                "tools: `functions.convert`: its schema and the callable disagree: the schema has `amout`, which the "
                "callable does not accept; the callable needs `amount`, which the schema does not have"
            )
        ],
    )


def test_an_example_that_violates_the_schema_is_reported_with_its_path(tmp_path: Path) -> None:
    code = HEAD + 'crib.add(convert, metadata=ToolMetadata(examples=(ToolExample("Long", {"amount": "far"}),)))'
    code_of_it, found = linted(tmp_path, code)
    assert code_of_it == 1
    assert found[0].startswith("tools: `functions.convert`: example 1 (Long) does not match its schema: `/amount`")


def test_all_invalid_tools_of_a_plugin_are_reported(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
class Lengths(Plugin):
    name = "lengths"

    def tools(self):
        bad = ToolMetadata(examples=(ToolExample("None", {}),))
        needs = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
        return [Tool("lengths", name, input_schema=needs, metadata=bad) for name in ("one", "two")]

    def execute(self, tool_name, arguments, context):
        return None
"""
    )
    code_of_it, found = linted(tmp_path, code, "tools:Lengths")
    assert code_of_it == 1
    assert [each.partition(" is ignored")[0] for each in found] == ["tools:Lengths: `one`", "tools:Lengths: `two`"]


def test_a_module_that_cannot_be_imported_or_has_no_tools_is_a_finding(tmp_path: Path) -> None:
    assert linted(tmp_path, "1 / 0") == (1, ["tools: cannot be imported: ZeroDivisionError: division by zero"])
    assert linted(tmp_path, "x = 1") == (1, ["tools: contains no Toolcrib, FunctionSource or Plugin"])


def test_configured_tool_metadata_is_checked_against_the_servers(tmp_path: Path) -> None:
    example = {"description": "Say it", "input": {"txet": "here"}}
    said = {"bench.echo": {"examples": [example]}, "bench.ecoh": {"risk": "none"}}
    config = write_config(tmp_path / "mcp.json", toolcrib={"tools": said}, bench=faulty_entry())
    done = toolcrib("lint", config, "--rule", "configuration-slip", "--json")
    assert done.code == 1
    assert [each["problem"] for each in done.json["findings"]] == [
        "toolcrib.tools: `bench.ecoh` matches no tool (did you mean `bench.echo`?)",
        (
            "toolcrib.tools: `bench.echo`: example 1 (Say it) does not match its schema: the required key `text` "
            "is missing (`txet` was given)"
        ),
    ]
    fine = write_config(
        tmp_path / "fine.json", toolcrib={"tools": {"bench.echo": {"risk": "none"}}}, bench=faulty_entry()
    )
    assert toolcrib("lint", fine, "--rule", "configuration-slip").code == 0


def test_an_unusable_definition_is_an_error_only_in_the_configuration(tmp_path: Path) -> None:
    env = {"BLOCK_SIZE": "${env:TOOLCRIB_TEST_NOT_SET}"}
    disk: dict[str, Any] = {"command": ["df"], "env": env, "description": "Free room.", "input_schema": {}}
    declared = {"ops": {"tools": {"disk": disk}}}
    config = write_config(tmp_path / "mcp.json", toolcrib={"declared": declared}, bench=faulty_entry("odd-tools"))
    rules = ("--rule", "definition-unusable", "--rule", "server-definition-unusable")
    ended = toolcrib("lint", config, "--json", *rules)
    found = {each["place"].partition(".")[0]: (each["rule"], each["level"]) for each in ended.json["findings"]}
    assert found == {
        "bench": ("server-definition-unusable", "note"),
        "ops": ("definition-unusable", "error"),
    }
    assert ended.code == 1
    third_party = write_config(tmp_path / "mcp.json", bench=faulty_entry("odd-tools"))
    assert toolcrib("lint", third_party, *rules).code == 0
    assert toolcrib("lint", third_party, *rules, "--fail-on", "note").code == 1


def test_missing_required_tools_and_capabilities_are_findings(tmp_path: Path) -> None:
    settings = {
        "bundles": {"say": {"required": ["bench.echo", "bench.shout"], "optional": ["whisper"]}},
        "tools": {"bench.echo": {"requires_capabilities": ["voice"]}},
    }
    config = write_config(tmp_path / "mcp.json", toolcrib=settings, bench=faulty_entry())
    rules = ("--rule", "bundle-incomplete", "--rule", "capability-missing")
    found = {each["place"]: each["problem"] for each in toolcrib("lint", config, "--json", *rules).json["findings"]}
    assert found.keys() == {"the bundle say", "the capability voice"}
    assert "`bench.shout` is missing" in found["the bundle say"]


def test_the_configuration_comes_from_an_option_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"bench.ecoh": {"risk": "none"}}
    config = write_config(tmp_path / "mcp.json", toolcrib={"tools": said}, bench=faulty_entry())
    assert toolcrib("lint", "-c", config, "--rule", "configuration-slip").code == 1
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(config))
    assert toolcrib("lint", "--rule", "configuration-slip").code == 1
