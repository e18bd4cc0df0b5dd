"""`toolcrib lint` over definitions: its output, its formats and its exit code."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from tests.cli.running import Ended, toolcrib, toolcrib_process
from tests.servers.launching import faulty_entry, write_config

from toolcrib.cli import main
from toolcrib.core.schema import Schema
from toolcrib.definitions.lint import RULES
from toolcrib.definitions.lint.linted_tool import MAX_TOKENS

TEXT = {"type": "string", "description": "Which one."}
DEFINITIONS: list[dict[str, Any]] = [
    {
        "name": "open_ticket",
        "description": "Opens a ticket and answers its number.",
        "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}, "body": TEXT}},
    },
    {"name": "close_ticket", "description": "TODO", "inputSchema": {"type": "object", "properties": {"id": TEXT}}},
    {"name": "list", "description": "Lists tickets", "inputSchema": {"type": "object"}},
    {"name": "tags", "description": "Answers all tags that a ticket has.", "inputSchema": {
        "type": "object", "properties": {"ids": {"type": "array", "description": "Of tickets."}}}},
]  # fmt: skip


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    """A file in which each `name` is on its own line: line 3, 18, …"""
    path = tmp_path / "desk.json"
    path.write_text(json.dumps(DEFINITIONS, indent=1))
    return path


def rules(done: Ended) -> Counter[str]:
    return Counter(finding["rule"] for finding in done.json["findings"])


def test_a_definition_file_is_checked_without_a_server(definitions: Path) -> None:
    done = toolcrib_process("lint", "--tools", definitions, "--json", cwd=definitions.parent)
    assert done.code == 1
    assert rules(done) == {
        "description-placeholder": 1,
        "description-short": 1,
        "parameter-undocumented": 1,
        "array-without-items": 1,
    }
    assert done.json["counts"] == rules(done)
    undocumented = next(each for each in done.json["findings"] if each["rule"] == "parameter-undocumented")
    assert undocumented == {
        "rule": "parameter-undocumented",
        "level": "warning",
        "place": "desk.open_ticket",
        "problem": "1 of 2 parameters has no description: `title`",
        "change": "Add a `description` to each parameter: its meaning, unit, format and an example",
        "paths": ["/inputSchema/properties/title"],
        "file": str(definitions),
        "line": 3,
    }


def test_text_output_groups_findings_by_tool_and_counts_them_by_rule(definitions: Path) -> None:
    done = toolcrib_process("lint", "--tools", definitions)
    assert "desk.close_ticket\n  warning description-placeholder\n    the description is a placeholder" in done.out
    assert re.findall(r"^ +(\d+)  (\w+) +([\w-]+)$", done.out, re.MULTILINE) == [
        ("1", "error", "array-without-items"),
        ("1", "warning", "description-placeholder"),
        ("1", "warning", "parameter-undocumented"),
        ("1", "note", "description-short"),
    ]
    assert done.err == "4 findings.\n"


def test_rules_can_be_selected_and_ignored_for_all_or_some_tools(definitions: Path) -> None:
    def found(*words: str) -> Counter[str]:
        return rules(toolcrib("lint", "--tools", definitions, "--json", *words))

    assert found("--rule", "description-short") == {"description-short": 1}
    assert "array-without-items" not in found("--ignore", "array-without-items")
    assert "array-without-items" not in found("--ignore", "array-without-items:desk.t*")
    assert "array-without-items" in found("--ignore", "array-without-items:desk.l*")
    (budget,) = (option for option in main.commands["lint"].params if option.name == "max_tokens")
    assert budget.default == MAX_TOKENS
    assert found("--max-tokens", "20")["over-budget"] == 3
    wrong = toolcrib("lint", "--tools", definitions, "--ignore", "array-without-item")
    assert wrong.code == 2
    assert "did you mean `array-without-items`?" in wrong.err


@pytest.mark.parametrize(
    ("rule", "failing"),
    [("array-without-items", {"error", "warning", "note"}), ("description-short", {"note"})],
)
def test_fail_on_sets_the_level_that_fails_the_command(definitions: Path, rule: str, failing: set[str]) -> None:
    words = ("lint", "--tools", definitions, "--rule", rule, "--fail-on")
    assert {level for level in ("error", "warning", "note") if toolcrib(*words, level).code == 1} == failing
    assert toolcrib("lint", "--tools", definitions, "--rule", rule).code == int("warning" in failing)


def test_definitions_that_are_ignored_by_the_catalog_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "desk.json"
    path.write_text(json.dumps([*DEFINITIONS, {"name": "odd", "inputSchema": {"type": "txet"}}]))
    done = toolcrib("lint", "--tools", path, "--rule", "definition-unusable", "--json")
    (finding,) = done.json["findings"]
    assert (done.code, finding["place"], finding["level"]) == (1, "desk.odd", "error")


def test_tools_of_servers_are_checked_and_located_in_the_configuration(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry(), other=faulty_entry())
    done = toolcrib("lint", config, "--rule", "near-duplicate", "--json")
    assert done.code == 1
    pairs = {each["place"]: each["related"] for each in done.json["findings"]}
    assert pairs["bench.echo"] == ["other.echo"]
    assert {(each["file"], each["line"]) for each in done.json["findings"]} == {(str(config), 1)}


def test_a_definition_file_has_priority_over_the_configuration_of_the_environment(
    definitions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(definitions.with_name("no-such.json")))
    assert toolcrib("lint", "--tools", definitions, "--json").code == 1


def test_tools_in_python_are_checked_with_all_rules(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(
        "from toolcrib import Toolcrib\ncrib = Toolcrib()\n@crib.add\ndef close(ticket: str) -> None:\n    'TODO'\n"
    )
    done = toolcrib_process("lint", "--python", "desk", "--json", cwd=tmp_path)
    assert rules(done) == {"description-placeholder": 1, "parameter-undocumented": 1}
    assert {each["file"] for each in done.json["findings"]} == {str(tmp_path / "desk.py")}


# What SARIF 2.1.0 requires of the objects that lint writes, with unknown properties forbidden. Source: OASIS,
# `sarif-schema-2.1.0.json`, which no package registry has.
_MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "markdown": {}}}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_LOGICAL = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "fullyQualifiedName": {"type": "string"}, "kind": {"type": "string"}},
}
_LOCATION = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "message": _MESSAGE,
        "logicalLocations": {"type": "array", "items": _LOGICAL},
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {
                    "properties": {
                        "uri": {"type": "string", "format": "uri-reference"},
                        "uriBaseId": {"type": "string"},
                    }
                },
                "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
            },
        },
    },
}
_RESULT = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "ruleId": {"enum": list(RULES)},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": _LEVEL,
        "message": _MESSAGE,
        "locations": {"type": "array", "items": _LOCATION},
        "relatedLocations": {"type": "array", "items": _LOCATION},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_DESCRIPTOR = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "shortDescription": _MESSAGE,
        "fullDescription": _MESSAGE,
        "help": _MESSAGE,
        "defaultConfiguration": {"properties": {"level": _LEVEL}},
        "properties": {"properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
    },
}
_DRIVER = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "semanticVersion": {"type": "string"},
        "rules": {"type": "array", "items": _DESCRIPTOR},
    },
}
_RUN = {
    "type": "object",
    "required": ["tool", "results"],
    "properties": {
        "tool": {"type": "object", "required": ["driver"], "properties": {"driver": _DRIVER}},
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": _RESULT},
    },
}
_LOG: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": _RUN},
    },
}


def closed(schema: Any) -> Any:
    """Forbid properties that the schema does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    named: dict[str, Any] = given.get("properties", {})
    inside = {key: closed(value) for key, value in given.items() if key != "properties"}
    shut: dict[str, Any] = {"additionalProperties": False} if named else {}
    return {**shut, **inside, "properties": {name: closed(value) for name, value in named.items()}}


def test_a_sarif_log_is_valid_and_points_into_the_file(definitions: Path) -> None:
    done = toolcrib_process("lint", "--tools", "desk.json", "--sarif", cwd=definitions.parent)
    assert done.code == 1
    assert Schema(closed(_LOG)).violations(done.json) == ()
    (one_run,) = done.json["runs"]
    described = one_run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in described] == list(RULES)
    assert all(rule["help"]["text"] for rule in described)
    assert [described[each["ruleIndex"]]["id"] for each in one_run["results"]] == [
        each["ruleId"] for each in one_run["results"]
    ]
    result = next(each for each in one_run["results"] if each["ruleId"] == "parameter-undocumented")
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "desk.json", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 3},
    }
    (logical,) = location["logicalLocations"]
    assert logical["fullyQualifiedName"] == "desk.open_ticket/inputSchema/properties/title"


def test_sarif_paths_are_relative_even_at_the_file_system_root(definitions: Path) -> None:
    done = toolcrib_process("lint", "--tools", definitions, "--sarif", cwd=Path(definitions.anchor))
    (location, *_) = done.json["runs"][0]["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {
        "uri": quote(definitions.relative_to(definitions.anchor).as_posix()),
        "uriBaseId": "SRCROOT",
    }


def test_sarif_lists_all_tools_of_a_group_with_distinct_fingerprints(tmp_path: Path) -> None:
    servers = {name: {"tools": DEFINITIONS} for name in ("a", "b")}
    path = tmp_path / "both.json"
    path.write_text(json.dumps(servers))
    (one_run,) = toolcrib("lint", "--tools", path, "--sarif").json["runs"]
    group = next(each for each in one_run["results"] if each["ruleId"] == "near-duplicate")
    assert [each["message"]["text"] for each in group["relatedLocations"]] == ["b.close_ticket"]
    marks = [each["partialFingerprints"]["toolcrib/v1"] for each in one_run["results"]]
    assert len(marks) == len(set(marks))
    assert toolcrib("lint", "--tools", path, "--sarif", "--json").code == 2
