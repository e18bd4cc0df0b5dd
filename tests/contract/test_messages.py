"""The published schemas and the messages: sent messages are valid, and messages without a required member are not."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import tool, view_of
from tests.examples import examples

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import SourceUnavailable, ToolcribError, ToolFailed
from toolcrib.core.metadata import ToolExample, ToolMetadata
from toolcrib.core.principal import CallContext
from toolcrib.core.schema import Schema
from toolcrib.core.subschemas import at_reference
from toolcrib.core.tools import Tool
from toolcrib.operations.calling import Runner
from toolcrib.operations.calling.limits import CallLimits, Rate
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_table import LOOKING, OPERATION_TABLE, OPERATIONS, message_document, message_schema
from toolcrib.testing.scripted_source import ScriptedSource

Json = dict[str, Any]

SCHEMAS = {name: Schema(message_schema(name)) for name in message_document()["$defs"]}

DISPATCHER = Dispatcher()


def told(
    view: View, operation: str, arguments: Mapping[str, Any], dispatcher: Dispatcher = DISPATCHER
) -> tuple[str, Json]:
    """Return the name of the response message, and the message."""

    async def main() -> tuple[str, Json]:
        try:
            answer = await dispatcher.perform(view, CallContext(), operation, arguments)
        except ToolcribError as error:
            return "Error", error.to_wire()
        return OPERATION_TABLE[operation].response_name, dict(answer.to_wire())

    return anyio.run(main)


def undescribed(value: object, *schemas: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the members, at any depth, that none of `schemas` describes, for schemas with properties."""
    parts = [*_parts(schemas)]
    if isinstance(value, list):
        items = [part["items"] for part in parts if "items" in part]
        for item in cast("list[object]", value):
            yield from undescribed(item, *items)
    elif isinstance(value, dict) and any("properties" in part for part in parts):
        for name, member in cast("Json", value).items():
            said = [part["properties"][name] for part in parts if name in part.get("properties", {})]
            if not said:
                yield name
            yield from undescribed(member, *(each for each in said if each is not False))


def _parts(schemas: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Iterate over the schemas and those that they reference or combine."""
    for schema in schemas:
        yield schema
        referred = at_reference(message_document(), schema.get("$ref"))
        inside = [*([] if referred is None else [referred]), *schema.get("anyOf", ()), *schema.get("allOf", ())]
        yield from _parts(inside)


# -- random requests to random catalogs -------------------------------------------------------------------------------

NAMES = ["read", "write", "list_all", "Read"]
SOURCES = ["files", "git", "broken", "slow"]
WORDS = ["read", "write a file", "shared", "zebra", "", " ", "\x00", "ファイル"]

METADATA = st.builds(
    ToolMetadata,
    category=st.sampled_from([(), ("deep",), ("deep", "er"), ("Deep",)]),
    tags=st.sampled_from([(), ("x",), ("x", "y")]),
    usage_hint=st.sampled_from([None, "After reading."]),
    examples=st.sampled_from([(), (ToolExample("One", {"path": "."}), ToolExample("Two", {}, "done"))]),
)
TOOLS = st.lists(
    st.builds(
        Tool,
        source=st.sampled_from(SOURCES),
        name=st.sampled_from(NAMES),
        description=st.sampled_from(["", "Read a file. Then close it.", "Write a shared file", "ファイルを読む。"]),
        input_schema=st.sampled_from(
            [{"type": "object"}, {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}]
        ),
        output_schema=st.sampled_from([None, {"type": "object"}]),
        title=st.sampled_from([None, "A title"]),
        metadata=METADATA,
    ),
    max_size=12,
    unique_by=lambda each: each.id,
)
POLICIES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(Access)).map(
    lambda by_name: Rules(tuple(Rule(then, tools=(f"*.{name}",)) for name, then in by_name.items()), Access.CALL)
)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Draw tools of sources that are ready, starting, and failed for a time or permanently."""
    tools = draw(TOOLS)
    registry = ToolRegistry()
    for name, status in zip(SOURCES, ["ready", "ready", "failed", "starting"], strict=True):
        mine = [each for each in tools if each.source == name]
        source = ScriptedSource(name, mine, answers={"write": ToolFailed("No.", details={"upstream": {"code": 1}})})
        if name == "git":
            source.failure = SourceUnavailable("It went away.", retryable=draw(st.booleans()), retry_after_s=1.5)
        lasting = draw(st.booleans())
        version = draw(st.sampled_from([None, "1.0.0"]))
        entry = SourceEntry(source, SourceStatus(status), version=version, reason="it exited.", is_lasting=lasting)
        registry.register_source(entry, mine)
    return View.of(registry.state, policy=draw(POLICIES))


def requests(view: View) -> st.SearchStrategy[tuple[str, Json]]:
    """Draw requests that are mostly valid."""
    known = [*view.visible.state.tools.values()]
    references = [each.id for each in known] + [each.handle for each in known]
    some: dict[str, st.SearchStrategy[Any]] = {
        "path": st.lists(st.sampled_from([*SOURCES, "deep", "er", "DEEP", "nowhere"]), max_size=3),
        "query": st.sampled_from(WORDS),
        "tags": st.lists(st.sampled_from("xyz"), max_size=2),
        "limit": st.sampled_from([1, 2, 10, 50, 51]),
        "cursor": st.sampled_from(["x", None]),
        "detail_level": st.sampled_from(["name", "summary", "full"]),
        "include_unavailable": st.booleans(),
        "tool_id": st.sampled_from([*references, "files.raed", "slow.other", "broken.other", "zebra"]),
        "arguments": st.sampled_from([{}, {"path": "."}, {"Path": "."}, {"path": 5}, None]),
    }
    some |= {
        "category": some["path"] | st.sampled_from(["", *SOURCES, "DEEP", "nowhere"]),
        "category_path": some["path"],
    }
    some["tool_ids"] = st.lists(some["tool_id"], min_size=1, max_size=11)

    def of(operation: str) -> st.SearchStrategy[tuple[str, Json]]:
        schema = OPERATION_TABLE[operation].arguments.document
        needed = {*schema.get("required", ())} | ({"tool_id"} if operation == "expand_tool" else set[str]())
        takes = {name: some[name] for name in schema["properties"]}
        arguments = st.fixed_dictionaries(
            {name: takes[name] for name in takes if name in needed},
            optional={name: takes[name] for name in takes if name not in needed},
        )
        return st.tuples(st.just(operation), arguments)

    return st.sampled_from(OPERATIONS).flatmap(of)


@pytest.mark.holds("messages.conform", "errors.next-action", "pointers.minimal")
@settings(max_examples=examples(150), deadline=None)
@given(views(), st.data())
def test_every_answer_matches_its_schema_and_has_no_undescribed_members(view: View, data: st.DataObject) -> None:
    for _ in range(8):
        operation, arguments = data.draw(requests(view))
        name, wire = told(view, operation, arguments)
        assert SCHEMAS[name].violations(wire) == (), (operation, arguments)
        if operation in LOOKING or name == "Error":
            assert [*undescribed(wire, message_schema(name))] == [], (operation, arguments)
        if (cursor := wire.get("next_cursor")) is not None:
            name, wire = told(view, operation, {**arguments, "cursor": cursor})
            assert SCHEMAS[name].violations(wire) == ()


# -- strictness -------------------------------------------------------------------------------------------------------

COMMIT = replace(
    tool("git.commit", "Record changes. Then push.", category=("write",), tags=("vcs",), properties={"message": {}}),
    output_schema={"type": "object"},
)
SHOWN = replace(
    COMMIT,
    metadata=replace(COMMIT.metadata, usage_hint="After add.", examples=(ToolExample("First", {"a": 1}, "done"),)),
)
VIEW = view_of(SHOWN, tool("git.log", "Show changes."))

HINTS = {f"annotations/{hint}" for hint in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")}
NODE = {"name", "path", "summary", "tool_count"}
POINTER = {"tool_id", "path", "summary"}
EXPANSION = {*POINTER, "handle", "args_schema", "annotations", *HINTS, "examples/*/description", "examples/*/input"}
STEP = {"error/next_action", "error/next_action/operation", "error/next_action/arguments"}
ERROR = {"error", "error/code", "error/message", "error/retryable", *STEP}


def each(of: str, names: Iterable[str]) -> set[str]:
    return {of, *(f"{of}/*/{name}" for name in names)}


NEEDED: list[tuple[str, Json, set[str]]] = [
    ("list", {"path": ["git"]}, {"path", "next_cursor", *each("nodes", NODE), *each("tools", POINTER)}),
    ("list_categories", {}, {"next_cursor", *each("categories", {"category", "path", "tool_count", "tools"})}),
    ("search_tools", {"query": "changes"}, {"next_cursor", *each("results", POINTER)}),
    ("search_tools", {"query": "commit", "detail_level": "full"}, {"next_cursor", *each("results", EXPANSION)}),
    ("search_tools", {"query": "commit", "detail_level": "name"}, {"next_cursor", *each("results", {"tool_id"})}),
    (
        "search_tool_by_category",
        {"query": "changes", "category_path": ["git"]},
        {"category_path", "next_cursor", *each("results", POINTER)},
    ),
    ("search_nodes", {"query": "write"}, each("results", {*NODE, "confidence"})),
    ("expand_tool", {"tool_id": "git.commit"}, EXPANSION),
    (
        "expand_tool",
        {"tool_ids": ["git.commit", "git.comit"]},
        {*each("tools", EXPANSION), *(name for name in each("errors", {"tool_id", *ERROR}) if name != "errors")},
    ),
    ("expand_tool", {"tool_id": "git.comit"}, ERROR),
    ("call_tool", {"tool_id": SHOWN.handle, "arguments": {"massage": ""}}, ERROR),
    ("list", {"path": ["nowhere"]}, ERROR),
]


def places(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Iterate over the paths of all members, at any depth."""
    if isinstance(value, dict):
        for name, member in cast("Json", value).items():
            yield (*above, name)
            yield from places(member, (*above, name))
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[object]", value)):
            yield from places(item, (*above, number))


def without(value: Json, place: tuple[str | int, ...]) -> Json:
    less = copy.deepcopy(value)
    holder: Any = less
    for step in place[:-1]:
        holder = holder[step]
    del holder[place[-1]]
    return less


@pytest.mark.holds("messages.strict", "errors.message", "errors.next-action")
@pytest.mark.parametrize(("operation", "arguments", "needed"), NEEDED)
def test_exactly_the_required_members_of_a_message_cannot_be_omitted(
    operation: str, arguments: Json, needed: set[str]
) -> None:
    name, wire = told(VIEW, operation, arguments)
    schema = SCHEMAS[name]
    assert schema.violations(wire) == ()

    missed = [place for place in places(wire) if not schema.is_valid(without(wire, place))]

    assert {"/".join("*" if isinstance(step, int) else step for step in place) for place in missed} == needed


@pytest.mark.holds("messages.strict")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_request_schema_requires_its_members_and_refuses_unknown_ones(operation: str) -> None:
    needed = {
        "search_tool_by_category": {"query", "category_path"},
        "search_nodes": {"query"},
        "call_tool": {"tool_id"},
        "call_read_only_tool": {"tool_id"},
    }.get(operation, set[str]())
    whole: Json = {"query": "x", "category_path": [], "tool_id": "x"}
    request = {name: value for name, value in whole.items() if name in needed}
    schema = SCHEMAS[OPERATION_TABLE[operation].request_name]

    assert schema.is_valid(request)
    assert not any(schema.is_valid({key: value for key, value in request.items() if key != name}) for name in needed)
    assert not schema.is_valid({**request, "zebra": 1})


@pytest.mark.holds("messages.conform", "errors.rate-limited", "errors.next-action")
def test_refusals_for_rate_limits_and_missing_approval_have_a_next_action() -> None:
    limited = Dispatcher(runner=Runner(limits=CallLimits(Rate(1, 1))))
    asked = View.of(VIEW.visible.state, policy=Rules((), Access.ASK))
    call = {"tool_id": SHOWN.handle, "arguments": {"message": ""}}
    assert told(VIEW, "call_tool", call, limited)[0] == OPERATION_TABLE["call_tool"].response_name

    refused = [told(VIEW, "call_tool", call, limited), told(asked, "call_tool", call)]

    assert [wire["error"]["code"] for _, wire in refused] == ["RATE_LIMITED", "NOT_AUTHORIZED"]
    assert [wire["error"]["next_action"]["operation"] for _, wire in refused] == ["expand_tool", "list"]
    for name, wire in refused:
        assert SCHEMAS[name].violations(wire) == ()
