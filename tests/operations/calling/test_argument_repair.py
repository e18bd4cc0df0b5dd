"""Common mistakes of models in arguments: each is reported, and the next action is the corrected call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalogs import registry_of, source_of, tool, view_of

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Schema
from toolcrib.operations.calling.argument_repair import MAX_ALTERNATIVES, MAX_KEYS, MAX_LOOKS, MAX_OUTER, repaired
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_table import OPERATION_TABLE
from toolcrib.sources.functions import FunctionSource

Json = dict[str, Any]

OPERATIONS = Operations()
DISPATCHER = Dispatcher(OPERATIONS)
CONTEXT = CallContext()

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
DRAW = tool(
    "canvas.draw",
    properties={
        "file_path": {"type": "string"},
        "point": POINT,
        "colours": {"type": "array", "items": {"type": "string"}},
        "width": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "filled": {"type": ["boolean", "null"]},
    },
    required=("file_path",),
)
REFERRING = replace(
    DRAW,
    input_schema={
        **DRAW.input_schema,
        "properties": {
            **DRAW.input_schema["properties"],
            "point": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
        },
        "$defs": {"Point": POINT},
    },
)
HANDLE = DRAW.handle
MEANT = {"file_path": "a.svg", "point": {"x": 1, "y": 2}}

SLIPS: dict[str, dict[str, Any]] = {
    "one level too deep": {"tool_id": HANDLE, "arguments": {"arguments": MEANT}},
    "one level too deep, as a string": {"tool_id": HANDLE, "arguments": {"input": json.dumps(MEANT)}},
    "flattened into the nested object": {"tool_id": HANDLE, "arguments": {"file_path": "a.svg", "x": 1, "y": 2}},
    "flattened next to the tool": {"tool_id": HANDLE, **MEANT},
    "half of it flattened": {"tool_id": HANDLE, "arguments": {"file_path": "a.svg"}, "point": {"x": 1, "y": 2}},
    "flattened twice": {"tool_id": HANDLE, "file_path": "a.svg", "x": 1, "y": 2},
    "all as a JSON string": {"tool_id": HANDLE, "arguments": json.dumps(MEANT)},
    "a value as a JSON string": {"tool_id": HANDLE, "arguments": {**MEANT, "point": '{"x": 1, "y": 2}'}},
    "a misspelt key": {"tool_id": HANDLE, "arguments": {"filePath": "a.svg", "point": {"x": 1, "y": 2}}},
    "arguments under a similar name": {"tool_id": HANDLE, "args": MEANT},
    "arguments under a different name": {"tool_id": HANDLE, "parameters": MEANT},
    "the tool under a different name": {"toolId": HANDLE, "arguments": MEANT},
    "both under other names": {"tool": HANDLE, "argument": MEANT},
    "misspelt and flattened": {"tool_id": HANDLE, "FilePath": "a.svg", "point": {"x": 1, "y": 2}},
}


async def called(view: View, arguments: Mapping[str, Any]) -> Any:
    answer = await DISPATCHER.perform(view, CONTEXT, "call_tool", arguments)
    assert isinstance(answer, ToolResult)
    return answer.structured_content


@pytest.mark.anyio
@pytest.mark.parametrize("shown", [DRAW, REFERRING], ids=["written out", "by reference"])
@pytest.mark.parametrize("slip", SLIPS)
async def test_a_mistake_is_named_and_the_next_action_is_the_corrected_call(slip: str, shown: Any) -> None:
    view = view_of(shown)
    given_ = json.loads(json.dumps(SLIPS[slip]).replace(HANDLE, shown.handle))

    with pytest.raises(InvalidArguments) as wrong:
        await called(view, given_)

    assert source_of(view, "canvas").calls == []
    assert wrong.value.hints
    step = wrong.value.next_action
    assert step is not None
    assert step.operation == "call_tool"
    assert OPERATION_TABLE["call_tool"].arguments.is_valid(step.arguments)
    assert await called(view, step.arguments) == MEANT


class Counted(dict[str, Any]):
    """Counts the calls of `get`."""

    looks = 0

    def get(self, key: str, default: object = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def test_many_unknown_keys_do_not_increase_the_number_of_schema_lookups() -> None:
    def looks(count: int) -> int:
        document = Counted(DRAW.input_schema)
        assert repaired(document, DRAW.arguments, {f"k{number}": "1" for number in range(count)}) is None
        return document.looks

    assert looks(1_000) == looks(100)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("colours", '["red", "blue"]', ["red", "blue"]),
        ("width", "2", 2),
        ("width", "1.5", 1.5),
        ("filled", "true", True),
    ],
)
async def test_a_value_sent_as_a_string_is_parsed_in_the_next_action(key: str, text: str, value: object) -> None:
    view = view_of(DRAW)

    with pytest.raises(InvalidArguments) as wrong:
        await called(view, {"tool_id": HANDLE, "arguments": {"file_path": "a.svg", key: text}})

    assert wrong.value.hints == (f"`{key}` was sent as a string.",)
    assert wrong.value.next_action is not None
    assert await called(view, wrong.value.next_action.arguments) == {"file_path": "a.svg", key: value}


@pytest.mark.anyio
async def test_missing_arguments_are_named_and_lead_to_an_expansion() -> None:
    view = view_of(DRAW)

    with pytest.raises(InvalidArguments, match="the required key `file_path` is missing") as wrong:
        await called(view, {"tool_id": HANDLE})

    step = wrong.value.next_action
    assert step is not None
    await DISPATCHER.perform(view, CONTEXT, step.operation, step.arguments)
    assert step.operation == "expand_tool"


@pytest.mark.anyio
async def test_optional_arguments_may_be_left_out() -> None:
    view = view_of(tool("clock.now"))

    assert await called(view, {"tool_id": tool("clock.now").handle}) == {}


@pytest.mark.anyio
async def test_a_call_of_a_function_with_a_dataclass_parameter_is_corrected() -> None:
    registry, source = registry_of(), FunctionSource()
    shown = source.add(draw)
    registry.register_source(SourceEntry(source, SourceStatus.READY), [shown])
    view = View.of(registry.state)

    for slip in ({"x": 1, "y": 2}, {"point": '{"x": 1, "y": 2}'}, {"Point": {"x": 1, "y": 2}}):
        with pytest.raises(InvalidArguments) as wrong:
            await called(view, {"tool_id": shown.handle, "arguments": slip})
        assert wrong.value.next_action is not None
        assert await called(view, wrong.value.next_action.arguments) == {"result": 3}


@dataclass
class Point:
    x: int
    y: int


def draw(point: Point, end: Point | None = None) -> int:
    return point.x + point.y + (end.x if end else 0)


@pytest.mark.anyio
async def test_a_key_of_the_tool_that_looks_like_a_mistake_is_respected() -> None:
    shell = tool("shell.run", properties={"args": {"type": "object"}}, required=("args",))
    view = view_of(shell)

    with pytest.raises(InvalidArguments) as wrong:
        await called(view, {"tool_id": shell.handle, "args": {"a": 1}})

    assert wrong.value.next_action is not None
    assert await called(view, wrong.value.next_action.arguments) == {"args": {"a": 1}}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "given_",
    [
        {},
        {"tool_id": 5, "path": "."},
        {"tool_id": None, "arguments": {}},
        {"tool_id": ["a"], "x": 1},
        {"arguments": MEANT},
        {"zebra": 1},
        {"tool_id": HANDLE, "\ud800": "x"},
        {"tool_id": HANDLE, "arguments": "no json", "x": 1},
    ],
    ids=ascii,
)
async def test_a_next_action_never_violates_the_schema_of_its_operation(given_: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments) as wrong:
        await called(view_of(DRAW), given_)

    step = wrong.value.next_action
    assert step is None or OPERATION_TABLE[step.operation].arguments.is_valid(step.arguments)


@pytest.mark.anyio
async def test_a_mistake_in_a_call_of_an_unknown_tool_is_still_corrected() -> None:
    with pytest.raises(InvalidArguments, match="unknown key `x`") as wrong:
        await called(view_of(), {"tool_id": "canvas.draw", "x": 1})

    assert wrong.value.next_action is not None
    assert wrong.value.next_action.arguments == {"tool_id": "canvas.draw", "arguments": {"x": 1}}


# -- properties of repairs --------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["5", "[1]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["file_path", "FilePath", "point", "x", "y", "arguments"]), inner, max_size=3)
    ),
)


@given(JSON)
def test_any_correction_matches_the_schema_and_differs_from_the_input(value: object) -> None:
    schema = REFERRING.arguments

    repair = repaired(REFERRING.input_schema, schema, value)

    if repair is not None:
        assert schema.is_valid(repair.arguments)
        assert repair.arguments != value
        assert repair.what.endswith(".")


def test_an_object_in_its_own_property_is_not_used_as_the_arguments() -> None:
    name = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {"name": name, "filter": {"type": "object", "properties": {"name": name}}},
        "required": ["name"],
    }

    assert repaired(schema, Schema(schema), {"filter": {"name": "a"}}) is None


def test_arguments_with_too_many_unknown_keys_are_not_corrected() -> None:
    properties: dict[str, Any] = {f"key_{n}": {} for n in range(99)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}

    assert repaired(schema, Schema(schema), {f"kye_{n}": n for n in range(99)}) is None
    assert repaired(schema, Schema(schema), {"kye_1": 1}) is not None


def test_all_misspelt_keys_share_one_limit_of_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[object] = []

    def note(_word: str, _candidates: object, compared: object = None) -> None:
        bounds.append(compared)

    monkeypatch.setattr("toolcrib.operations.calling.argument_repair.nearest", note)
    schema: dict[str, Any] = {"type": "object", "properties": {"key": {}}, "additionalProperties": False}
    repaired(schema, Schema(schema), {"kye": 1, "yek": 2})

    assert bounds[0] is not None
    assert bounds == [bounds[0]] * 2


def shared_alternatives(count: int, properties: int) -> Json:
    """Many properties that all refer to the same large set of alternatives."""
    alternatives = [CountedLooks({"properties": {f"p{n}_{key}": {} for key in "abcde"}}) for n in range(count)]
    return {
        "type": "object",
        "required": ["zzz"],
        "$defs": {"b": {"anyOf": alternatives}},
        "properties": {f"o{n}": {"$ref": "#/$defs/b"} for n in range(properties)},
    }


class CountedLooks(dict[str, Any]):
    """Counts how often `properties` is read from schemas of this class."""

    count = 0

    def get(self, key: str, default: object = None) -> Any:
        CountedLooks.count += key == "properties"
        return super().get(key, default)


@pytest.mark.parametrize("wrong", [{}, {"p9_c": 1}, {f"p{n}_a": n for n in range(1, 16)}, {"o1": 1}], ids=str)
def test_shared_alternatives_are_read_a_limited_number_of_times(wrong: Json) -> None:
    for count, properties in ((MAX_ALTERNATIVES - 10, 4 * MAX_OUTER), (40 * MAX_ALTERNATIVES, 10 * MAX_OUTER)):
        CountedLooks.count = 0
        repaired(shared_alternatives(count, properties), Schema({"not": {}}), wrong)
        assert CountedLooks.count <= MAX_LOOKS


def test_properties_are_not_read_if_all_keys_are_known() -> None:
    document = shared_alternatives(10, 10)
    CountedLooks.count = 0

    repaired(document, Schema({"not": {}}), {"o1": None})

    assert CountedLooks.count == 0


def test_a_type_is_not_derived_from_only_some_of_the_alternatives() -> None:
    arrays: list[Json] = [{"type": "array", "minItems": n} for n in range(MAX_ALTERNATIVES + 1)]
    schema: Json = {
        "properties": {"path": {"anyOf": [*arrays, {"type": "string"}]}, "file_mode": {}},
        "additionalProperties": False,
    }

    repair = repaired(schema, Schema(schema), {"path": "a", "fileMode": 1})

    assert repair is not None
    assert repair.arguments == {"path": "a", "file_mode": 1}


def test_a_wrapper_with_too_many_keys_is_not_unwrapped() -> None:
    schema: Json = {"type": "object", "required": ["k1"], "properties": {"k1": {}}}

    assert repaired(schema, Schema(schema), {"arguments": {f"k{n}": n for n in range(MAX_KEYS)}}) is not None
    assert repaired(schema, Schema(schema), {"arguments": {f"k{n}": n for n in range(MAX_KEYS + 1)}}) is None


def test_a_correction_does_not_modify_the_input() -> None:
    value = {"arguments": {"FilePath": "a", "x": 1, "y": "2"}}
    before = json.dumps(value)

    repaired(DRAW.input_schema, DRAW.arguments, value)

    assert json.dumps(value) == before


def test_recursive_alternatives_of_a_schema_are_read_once() -> None:
    alternatives = [{"$ref": "#/$defs/any"}] * 200 + [{"anyOf": [{"$ref": "#/$defs/any"}] * 200}]
    document = {
        "type": "object",
        "properties": {"value": {"$ref": "#/$defs/any"}},
        "$defs": {"any": {"anyOf": alternatives}},
        "additionalProperties": False,
    }

    assert repaired(document, Schema({"not": {}}), {"valeu": "5"}) is None


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "1" * 10_000, "NaN", "\x00", "{", '{"a": "\\ud800"}'], ids=lambda t: t[:5]
)
def test_a_string_that_is_not_a_valid_value_is_not_parsed(text: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "l": {"type": "array"}}}

    for value in (text, {"n": text}, {"l": text}):
        repair = repaired(schema, Schema(schema), value)
        assert repair is None or Schema(schema).is_valid(repair.arguments)
