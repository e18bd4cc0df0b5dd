"""`toolcrib grammar` over definitions in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import toolcrib
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.peers import Matcher

from toolcrib.definitions.grammars import STYLES, arguments_grammar, call_grammar

WATER = {
    "type": "object",
    "properties": {"litres": {"type": "number", "minimum": 0}, "by": {"type": "string", "format": "uri"}},
    "required": ["litres"],
}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    definitions = [
        {"name": "water", "description": "Water the garden.", "inputSchema": WATER},
        {"name": "dig", "description": "Dig. Deep.", "inputSchema": {"type": "object"}},
    ]
    (path := tmp_path / "garden.json").write_text(json.dumps({"tools": definitions}))
    return path


def test_the_grammar_goes_to_standard_output_and_unenforced_keywords_to_standard_error(tools: Path) -> None:
    made = toolcrib("grammar", "garden.water", "--tools", tools)
    assert made.code == 0
    assert made.out == call_grammar({"garden__water": WATER}).text
    assert "garden__water /properties/by/format" in made.err
    matcher = Matcher(made.out)
    assert matcher.accepts('{"name": "garden__water", "arguments": {"litres": 2.5}}')
    assert not matcher.accepts('{"name": "garden__dig", "arguments": {}}')


def test_without_a_tool_the_grammar_covers_all_tools_in_the_requested_style(tools: Path) -> None:
    of_all = {"garden__water": WATER, "garden__dig": {"type": "object"}}
    assert toolcrib("grammar", "--tools", tools, "--style", "hermes").out == call_grammar(of_all, STYLES["hermes"]).text
    arguments = toolcrib("grammar", "garden__water", "--tools", tools, "--of", "arguments")
    assert arguments.out == arguments_grammar(WATER).text
    text_or_call = Matcher(toolcrib("grammar", "--tools", tools, "--of", "text-or-call").out)
    assert text_or_call.accepts("The garden is wet.")
    assert text_or_call.accepts('{"name": "garden__dig", "arguments": {}}')


def test_json_output_has_the_grammar_and_its_reports(tools: Path) -> None:
    made = toolcrib("grammar", "garden.water", "--tools", tools, "--json").json
    assert set(made) == {"text", "unenforced", "degraded"}
    assert Read(made["text"]).rules
    assert [each["pointer"] for each in made["unenforced"]] == ["/properties/by"]


def test_strict_prints_provider_schemas_and_lost_keywords(tools: Path) -> None:
    made = toolcrib("grammar", "--tools", tools, "--strict").json
    assert made["garden__dig"]["schema"] is None
    assert made["garden__water"]["schema"]["required"] == ["litres", "by"]
    assert [each["keyword"] for each in made["garden__water"]["lost"]] == ["minimum", "format"]


def test_an_unknown_tool_and_the_arguments_of_several_tools_are_refused(tools: Path) -> None:
    missing = toolcrib("grammar", "garden.watr", "--tools", tools)
    assert missing.code == 1
    assert "garden.water" in missing.err
    assert toolcrib("grammar", "--tools", tools, "--of", "arguments").code == 2
