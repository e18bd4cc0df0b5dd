"""Tool descriptors of an editor: a malformed descriptor is set aside, and the others are used."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.sources.acp.editing import descriptor

from toolcrib.core.errors import InvalidTool
from toolcrib.sources.acp.descriptors import (
    KINDS,
    MAX_DESCRIPTOR_BYTES,
    MAX_TOOLS,
    ToolCatalog,
    ToolDescriptor,
    kind_of,
)

READ = ToolDescriptor("read_file", "read", "Reads.", {"type": "object"}, categories=("file", "io"))
WRITE = ToolDescriptor("write_file", "edit", "Writes.", {"type": "object"}, categories=("file",))
RENAME = ToolDescriptor("rename", "edit", "Renames.", {"type": "object"}, True, ("refactoring",))
CATALOG = ToolCatalog((READ, WRITE, RENAME))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("name", "kind", "description", "parameters", "requiresPermission", "requires_permission", "categories")
ALMOST = st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(["read", "a", {"type": "object"}, True]))


@st.composite
def good_descriptors(draw: st.DrawFn) -> ToolDescriptor:
    wire = {
        "name": draw(st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=20)),
        "kind": draw(st.sampled_from(KINDS)),
        "description": draw(st.text(st.characters(exclude_categories=["Cs"]))),
        "parameters": draw(
            st.sampled_from(
                [
                    {"type": "object"},
                    {"properties": {"path": {"type": "string"}}},
                    {"type": ["object", "null"], "x-more": [1, None]},
                ]
            )
        ),
        "requiresPermission": draw(st.booleans()),
        "categories": draw(st.lists(st.sampled_from(["a", "b", "ä b"]))),
    }
    return ToolDescriptor.from_wire(wire)


def test_a_descriptor_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        READ.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_catalog_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        CATALOG.tools = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_tool_is_found_by_its_exact_name() -> None:
    assert CATALOG.by_name("rename") is RENAME
    assert CATALOG.by_name("Rename") is None


def test_tools_are_found_by_their_kind() -> None:
    assert CATALOG.by_kind("edit") == (WRITE, RENAME)
    assert CATALOG.by_kind("think") == ()


def test_tools_are_found_by_each_of_their_categories() -> None:
    assert CATALOG.by_category("file") == (READ, WRITE)
    assert CATALOG.by_category("io") == (READ,)
    assert CATALOG.by_category("other") == ()


def test_the_wire_form_has_the_documented_fields_in_camel_case() -> None:
    assert RENAME.to_wire() == {
        "name": "rename",
        "kind": "edit",
        "description": "Renames.",
        "parameters": {"type": "object"},
        "requiresPermission": True,
        "categories": ["refactoring"],
    }
    assert ToolCatalog.from_wire(CATALOG.to_wire()) == (CATALOG, ())


@given(good_descriptors())
def test_a_descriptor_that_is_written_and_read_again_is_equal(read: ToolDescriptor) -> None:
    assert ToolDescriptor.from_wire(read.to_wire()) == read


@given(JSON | ALMOST)
@example(descriptor("a", parameters={"$ref": "#"}))
@example(descriptor("a", parameters={"properties": {"a": {"pattern": "("}}}))
def test_reading_any_value_gives_a_descriptor_or_an_error(wire: object) -> None:
    try:
        read = ToolDescriptor.from_wire(wire)
    except InvalidTool:
        return
    assert read.name.strip()
    assert read.kind in KINDS
    _ = read.as_tool("editor").arguments


@given(JSON | st.fixed_dictionaries({"tools": JSON | st.lists(ALMOST)}))
def test_reading_any_value_gives_a_catalog_or_an_error(wire: object) -> None:
    try:
        catalog, set_aside = ToolCatalog.from_wire(wire)
    except InvalidTool:
        return
    wires = cast("dict[str, list[object]]", wire)["tools"]
    assert len(catalog.tools) + len(set_aside) == len(wires)
    assert all(each.name and each.reason for each in set_aside)


@given(st.lists(good_descriptors(), unique_by=lambda each: each.name), st.data())
def test_valid_descriptors_among_invalid_ones_are_kept_in_order(
    good: list[ToolDescriptor], data: st.DataObject
) -> None:
    junk = data.draw(st.lists(st.none() | st.integers() | st.fixed_dictionaries({"name": st.just("no parameters")})))
    mixed: list[tuple[bool, Any]] = [(True, each.to_wire()) for each in good]
    for each in junk:
        mixed.insert(data.draw(st.integers(0, len(mixed))), (False, each))
    catalog, set_aside = ToolCatalog.from_wire({"tools": [wire for _, wire in mixed]})
    assert catalog.tools == tuple(good)
    assert len(set_aside) == len(junk)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"name": ""}, "it has no name"),
        ({"name": 3}, "its name is a number"),
        ({"name": "x" * 201}, "longer than 200 characters"),
        ({"kind": 3}, "its kind is a number"),
        ({"description": ["a"]}, "its description is a list"),
        ({"description": "\ud800"}, "half a surrogate pair"),
        ({"description": "x" * MAX_DESCRIPTOR_BYTES}, "larger than"),
        ({"parameters": None}, "it has no parameters"),
        ({"parameters": True}, "its parameters are a boolean, not an object"),
        ({"parameters": [{"type": "object"}]}, "its parameters are a list, not an object"),
        ({"parameters": {"type": "string"}}, "but must have the type `object`"),
        ({"parameters": {"type": "nothing"}}, "type"),
        ({"parameters": json.loads('{"properties":{"a":' * 100 + "{}" + "}}" * 100)}, "nested too deeply"),
        ({"parameters": {"$ref": "https://example.com/schema.json"}}, "remote references are refused"),
        ({"parameters": {"properties": {"a": {"description": "\ud800"}}}}, "surrogates not allowed"),
        ({"requiresPermission": "yes"}, "its requiresPermission is a string"),
        ({"categories": ["a", 3]}, "not a list of strings"),
        ({"categories": {"a": 1}}, "not a list of strings"),
        ({"categories": [f"c{number}" for number in range(21)]}, "more than 20 categories"),
    ],
)
def test_only_the_malformed_descriptor_is_set_aside_with_its_reason(broken: dict[str, Any], reason: str) -> None:
    wires = [descriptor("first"), {**descriptor("broken"), **broken}, descriptor("last")]
    catalog, (aside,) = ToolCatalog.from_wire({"tools": wires})
    assert [each.name for each in catalog.tools] == ["first", "last"]
    assert reason in aside.reason


def test_a_descriptor_without_a_name_is_identified_by_its_position() -> None:
    _, set_aside = ToolCatalog.from_wire({"tools": [descriptor("a"), "junk", {}]})
    assert [each.name for each in set_aside] == ["#2", "#3"]


def test_the_first_of_two_descriptors_with_the_same_name_is_kept() -> None:
    catalog, (aside,) = ToolCatalog.from_wire({"tools": [descriptor("a", "read"), descriptor("a", "edit")]})
    assert [each.kind for each in catalog.tools] == ["read"]
    assert (aside.name, aside.reason) == ("a", "an earlier descriptor has the same name")


def test_an_unknown_kind_counts_as_other_and_the_description_is_optional() -> None:
    read = ToolDescriptor.from_wire({"name": "a", "kind": "teleport", "parameters": {}, "more": 1})
    assert read == ToolDescriptor("a", "other", "", {"type": "object"})


def test_the_permission_is_read_in_camel_case_and_snake_case() -> None:
    both = {"requiresPermission": False, "requires_permission": True}
    assert ToolDescriptor.from_wire({**descriptor("a"), **both}).requires_permission


def test_descriptors_beyond_the_limit_are_dropped_and_counted() -> None:
    catalog, (aside,) = ToolCatalog.from_wire({"tools": [descriptor(f"t{n}") for n in range(MAX_TOOLS + 3)]})
    assert len(catalog.tools) == MAX_TOOLS
    assert "3 more" in aside.reason


@pytest.mark.parametrize("wire", [None, [], "tools", {}, {"tools": {}}, {"tools": None}])
def test_an_answer_without_a_list_of_tools_is_refused_as_a_catalog(wire: object) -> None:
    with pytest.raises(InvalidTool, match="the catalog is"):
        ToolCatalog.from_wire(wire)


@pytest.mark.parametrize("kind", ["edit", "delete", "move", "execute"])
def test_tools_of_kinds_that_change_something_require_permission(kind: str) -> None:
    tool = replace(READ, kind=kind).as_tool("editor")
    assert tool.metadata.requires_permission
    assert not tool.annotations.read_only


@pytest.mark.parametrize("kind", ["read", "search", "think", "fetch"])
def test_tools_of_kinds_that_only_read_require_permission_only_if_declared(kind: str) -> None:
    tool = replace(READ, kind=kind).as_tool("editor")
    assert tool.annotations.read_only
    assert not tool.metadata.requires_permission
    assert replace(READ, kind=kind, requires_permission=True).as_tool("editor").metadata.requires_permission


@pytest.mark.parametrize("kind", ["switch_mode", "other"])
def test_tools_of_other_kinds_are_neither_read_only_nor_require_permission(kind: str) -> None:
    tool = replace(READ, kind=kind).as_tool("editor")
    assert not tool.annotations.read_only
    assert not tool.metadata.requires_permission


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_can_be_read_from_the_tool(kind: str) -> None:
    assert kind_of(replace(READ, kind=kind).as_tool("editor")) == kind


def test_a_tool_without_a_descriptor_has_the_kind_other() -> None:
    tool = READ.as_tool("editor")
    assert kind_of(replace(tool, wire={})) == "other"
    assert kind_of(replace(tool, wire={"kind": ["read"]})) == "other"


def test_a_changed_permission_changes_the_wire_digest() -> None:
    tool = READ.as_tool("editor")
    assert tool.digests.wire != replace(READ, requires_permission=True).as_tool("editor").digests.wire
