"""Declarations: reading them, writing them again, and refusing invalid ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.declared.declaring import declared, properties

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import Optionality
from toolcrib.core.tools import DECLARATION
from toolcrib.sources.declared.command_line import CommandLine
from toolcrib.sources.declared.definition import DeclaredTools, read_declared, read_declared_source
from toolcrib.sources.declared.http_endpoint import Endpoint

DISK_FREE: Mapping[str, Any] = {
    "title": "Disk space",
    "description": "How much room is left on a disk.",
    "command": ["df", "-h", ["--", "{path}"]],
    "cwd": "~",
    "env": {"TOKEN": "${env:TOKEN}"},
    "stdin": "{text}",
    "allow_options": False,
    "timeout_s": 30,
    "input_schema": properties(path="string", text="string"),
    "output_schema": {"type": "object"},
    "annotations": {"read_only": True, "destructive": False},
    "metadata": {"tags": ["disk"], "optionality": "required", "examples": [{"description": "all", "input": {}}]},
}

WEATHER: Mapping[str, Any] = {
    "description": "The weather of a city.",
    "http": {
        "method": "POST",
        "url": "https://api.example.com/v1/{city}?k=${env:KEY}",
        "query": {"units": "{units}"},
        "headers": {"Authorization": "Bearer ${env:TOKEN}"},
        "json": {"days": "{days}", "deep": [1, None, "{{x}}"]},
        "allow_private": True,
    },
    "input_schema": {**properties(city="string", units="string", days="integer"), "required": ["city"]},
}


def test_every_field_of_a_command_is_read() -> None:
    tool = read_declared("ops", "disk_free", DISK_FREE)
    assert (tool.tool.id, tool.tool.title, tool.timeout_s) == ("ops.disk_free", "Disk space", 30.0)
    assert (tool.tool.annotations.read_only, tool.tool.annotations.destructive) == (True, False)
    assert (tool.tool.annotations.idempotent, tool.tool.annotations.open_world) == (False, True)
    assert (tool.tool.metadata.tags, tool.tool.metadata.optionality) == (("disk",), Optionality.REQUIRED)
    assert tool.tool.output_schema == {"type": "object"}
    assert isinstance(tool.action, CommandLine)
    assert (tool.action.program, tool.action.cwd, tool.action.env) == ("df", "~", {"TOKEN": "${env:TOKEN}"})


def test_every_field_of_an_endpoint_is_read() -> None:
    tool = read_declared("ops", "weather", WEATHER)
    assert isinstance(tool.action, Endpoint)
    assert (tool.action.method, tool.action.url.origin) == ("POST", "https://api.example.com")
    assert tool.action.names == {"city", "units", "days"}
    assert tool.action.allow_private


def test_a_definition_shown_to_a_model_hides_its_command_and_request() -> None:
    for tool in (read_declared("ops", "a", DISK_FREE), read_declared("ops", "b", WEATHER)):
        told = json.dumps(tool.tool.wire)
        assert not any(secret in told for secret in ("-h", "TOKEN", "example.com", "Bearer", "cwd"))


def test_a_changed_command_changes_the_wire_digest_but_not_the_handle() -> None:
    one = declared({"command": ["df"]}).tool
    other = declared({"command": ["rm"]}).tool
    assert one.wire["_meta"][DECLARATION] != other.wire["_meta"][DECLARATION]
    assert one.digests.wire != other.digests.wire
    assert one.handle == other.handle  # the model sees the same definition


NAMES = st.sampled_from(["path", "depth", "text"])
TEXTS = st.one_of(
    st.text(max_size=5).map(lambda text: text.replace("\0", "").replace("{", "{{").replace("}", "}}").replace("$", "")),
    NAMES.map(lambda name: f"{{{name}}}"),
    NAMES.map(lambda name: f"--{name}={{{name}}}"),
)
GROUPS = st.lists(NAMES.map(lambda name: f"{{{name}}}"), min_size=1, max_size=3)
MORE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "title": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        "timeout_s": st.one_of(st.integers(1, 3600), st.floats(0.1, 3600)),
        "annotations": st.dictionaries(st.sampled_from(["read_only", "idempotent"]), st.booleans()),
        "metadata": st.sampled_from([{}, {"tags": ["a", "b"]}, {"risk": "none", "requires_permission": True}]),
        "output_schema": st.just({"type": "object"}),
        "allow_options": st.booleans(),
    },
)


@given(st.lists(st.one_of(TEXTS, GROUPS), max_size=4), MORE)
def test_a_declaration_that_is_read_is_written_unchanged(elements: list[Any], more: dict[str, Any]) -> None:
    wire = {
        "description": "Runs it.",
        "command": ["run", *elements, "{path}", "{depth}", "{text}"],
        "input_schema": properties(path="string", depth="integer", text="array"),
        **more,
    }
    before = copy.deepcopy(wire)
    tool = read_declared("ops", "run", wire)
    assert tool.to_wire() == before
    assert read_declared("ops", "run", json.loads(json.dumps(tool.to_wire()))) == tool


def test_a_declared_source_is_written_unchanged() -> None:
    wire = {"title": "Operations", "summary": "What keeps it running.", "tools": {"disk": DISK_FREE, "sky": WEATHER}}
    source = read_declared_source("ops", wire)
    assert source.to_wire() == wire
    assert read_declared_source("ops", source.to_wire()) == source
    assert read_declared_source("ops", {}).to_wire() == {"tools": {}}


def test_tools_are_added_replaced_and_removed_one_by_one() -> None:
    one, other = declared({"command": ["df"]}, "one"), declared({"command": ["du"]}, "other")
    changed = declared({"command": ["dd"]}, "one")
    source = DeclaredTools("ops").having(one).having(other).having(changed)
    assert source.tools == (changed, other)
    assert source.without("one").without("none").tools == (other,)


def test_changing_the_wire_object_does_not_change_the_declaration() -> None:
    wire = copy.deepcopy(dict(DISK_FREE))
    tool = read_declared("ops", "disk_free", wire)
    wire["env"]["TOKEN"] = "another"
    assert tool.to_wire() == DISK_FREE


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"comand": []}, "ops.tool: unknown key `comand` (did you mean `command`?)"),
        ({"http": {}}, "ops.tool: needs either `command` or `http`, not both"),
        ({"description": " "}, "ops.tool.description: must be a string that tells"),
        ({"title": 1}, "ops.tool.title: must be a string"),
        ({"title": None}, "ops.tool.title: must be a string"),
        ({"env": {"A": None}}, "ops.tool.env.A: must be a string"),
        ({"stdin": None}, "ops.tool.stdin: must be a string"),
        ({"command": {}}, "ops.tool.command: must be a list, for example"),
        ({"metadata": None}, "ops.tool.metadata: must be an object"),
        ({"timeout_s": 0}, "ops.tool.timeout_s: must be a number of seconds, greater than 0 and at most 3600"),
        ({"timeout_s": True}, "ops.tool.timeout_s: must be a number of seconds"),
        ({"env": {"A": 1}}, "ops.tool.env.A: must be a string"),
        ({"env": {"A=B": ""}}, "ops.tool.env: `A=B` is not a valid environment variable"),
        ({"env": []}, "ops.tool.env: must be an object"),
        ({"allow_options": "yes"}, "ops.tool.allow_options: must be true or false"),
        ({"annotations": {"readOnly": True}}, "ops.tool.annotations: unknown key `readOnly` (did you mean `read_only`"),
        ({"annotations": {"read_only": 1}}, "ops.tool.annotations.read_only: must be true or false"),
        ({"metadata": {"tag": "x"}}, "ops.tool.metadata.tag: unknown key (did you mean `tags`?)"),
        ({"metadata": {"optionality": "conditional"}}, "ops.tool: condition: "),
        ({"metadata": {"examples": [{"description": "e", "input": {"x": 1}}]}}, "ops.tool: "),
        ({"input_schema": properties(a="string")}, "ops.tool.input_schema.properties.a: it is not used"),
        ({"input_schema": {"required": ["a"]}}, "ops.tool.input_schema.properties.a: it is not used"),
        ({"input_schema": {"additionalProperties": True}}, "ops.tool.input_schema: only `properties` are supported"),
        ({"input_schema": {"patternProperties": {}}}, "ops.tool.input_schema: only `properties` are supported"),
        ({"input_schema": {"type": "array"}}, "ops.tool: its input schema has the type 'array'"),
        ({"input_schema": {"properties": 1}}, "ops.tool: its schema is not usable"),
        ({"output_schema": {"type": "array"}}, "ops.tool.output_schema: must be the schema of an object"),
        ({"output_schema": {"type": "object", "properties": 1}}, "ops.tool: its schema is not usable"),
        ({"timeout_s": float("nan")}, "ops.tool: cannot be written as JSON"),
        ({"title": "\ud800"}, "ops.tool: cannot be written as JSON"),
    ],
)  # fmt: skip
def test_an_invalid_declaration_is_refused_with_its_path(change: Mapping[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidTool) as refused:
        declared({"command": ["df"], **change})
    assert refused.value.message.startswith(complaint)


@pytest.mark.parametrize(
    ("name", "wire", "complaint"),
    [
        ("o.p", {}, "o.p: `o.p` is not a valid source name; use `o-p`"),
        ("", {}, ": `` contains no letter"),
        ("ops", [], "ops: must be an object"),
        ("ops", {"tool": {}}, "ops: unknown key `tool` (did you mean `tools`?)"),
        ("ops", {"tools": []}, "ops.tools: must be an object"),
        ("ops", {"tools": {"x": 1}}, "ops.tools.x: must be an object"),
        ("ops", {"tools": {"x": {"http": {"url": 1}, "description": "d"}}}, "ops.tools.x.http.url: must be a string"),
        ("ops", {"tools": {"x": {"http": {"url": "http://h/"}, "cwd": "/", "description": "d"}}}, "ops.tools.x.cwd:"),
    ],
)  # fmt: skip
def test_an_invalid_declared_source_is_refused_with_its_path(name: str, wire: object, complaint: str) -> None:
    with pytest.raises(InvalidTool) as refused:
        read_declared_source(name, wire)
    assert refused.value.message.startswith(complaint)
