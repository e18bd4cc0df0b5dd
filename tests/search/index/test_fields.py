"""What of a definition is searched, and odd schemas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import Tool
from toolcrib.search.index.fields import (
    MAX_EMBEDDED_CHARS,
    MAX_ENUM_VALUES,
    MAX_SCHEMA_CHARS,
    Document,
    document,
    embedded_text,
)


def test_every_field_holds_what_belongs_to_it() -> None:
    tool = Tool(
        "github",
        "create_issue",
        "Opens an issue.",
        {
            "type": "object",
            "title": "CreateIssueArguments",
            "properties": {
                "labelName": {"type": "string", "description": "A tag", "enum": ["bug", "chore", 3]},
            },
        },
    )

    found = document(tool, category=["Coding", "Tracking"], source_text="GitHub server")

    assert found == Document(
        tool_id="github.create_issue",
        name=("creat", "issu"),
        description=("open", "issu"),
        parameter_names=("label", "name", "labelnam"),
        parameter_texts=("tag", "bug", "chore"),
        category=("code", "track"),
        source=("git", "hub", "github", "server"),
        origin="github",
        key=found.key,
        texts=(
            *("create_issue\n", "Opens an issue.\n", "labelName", "A tag\nbug\nchore"),
            *("Coding\nTracking", "GitHub server"),
        ),
    )


def test_what_an_owner_adds_is_searched_too() -> None:
    tool = Tool(
        "mail",
        "send_message",
        title="Send Message",
        metadata=ToolMetadata(
            tags=("outbox",),
            aliases=("post_letter",),
            intents=("reply to a customer",),
            usage_hint="Only in office hours",
        ),
    )

    found = document(tool)

    assert found.name == ("send", "messag", "post", "letter")
    assert found.category == ("outbox",)
    assert set(found.description) >= {"repli", "custom", "offic", "hour"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"outer": {"properties": {"inner": {"description": "deep"}}}}},
        {"properties": {"outer": {"type": "array", "items": {"properties": {"inner": {"const": "deep"}}}}}},
        {"properties": {"outer": {"anyOf": [{"type": "null"}, {"properties": {"inner": {"title": "deep"}}}]}}},
        {"properties": {"outer": {"$ref": "#/$defs/o"}}, "$defs": {"o": {"properties": {"inner": {"enum": ["deep"]}}}}},
        {"properties": {"outer": {"prefixItems": [{"properties": {"inner": {"description": "deep"}}}]}}},
        {"properties": {"outer": {"additionalProperties": {"properties": {"inner": {"description": "deep"}}}}}},
    ],
)
def test_parameters_are_read_at_any_depth(schema: dict[str, Any]) -> None:
    found = document(Tool("s", "t", input_schema=schema))

    assert found.parameter_names == ("outer", "inner")
    assert found.parameter_texts == ("deep",)


def test_a_schema_that_holds_itself_ends() -> None:
    schema: dict[str, Any] = {"properties": {"child": {"description": "node"}}}
    schema["properties"]["child"]["items"] = schema
    schema["properties"]["child"]["anyOf"] = [schema, schema]

    assert set(document(Tool("s", "t", input_schema=schema)).parameter_names) == {"child"}


def test_a_huge_schema_is_read_to_its_bound() -> None:
    properties = {f"p{at}": {"description": "word " * 100} for at in range(10_000)}
    enum = {"properties": {"currency": {"enum": [f"value {at}" for at in range(10_000)]}}}

    wide = document(Tool("s", "t", input_schema={"properties": properties}))
    listed = document(Tool("s", "t", input_schema=enum))

    assert len(wide.parameter_names) + len(wide.parameter_texts) < MAX_SCHEMA_CHARS
    assert len(listed.parameter_texts) == 2 * MAX_ENUM_VALUES


ODD_SCHEMAS: list[Any] = [
    None,
    True,
    [],
    {"properties": ["a", "b"]},
    {"properties": {1: {"description": "x"}}},
    {"properties": {"a": None, "b": True, "c": [1], "d": "text"}},
    {"properties": {"a": {"description": 3, "enum": "abc", "title": ["t"], "const": {"x": 1}}}},
    {"anyOf": {"not": "a list"}, "$defs": [1], "items": [[[]]]},
]


@pytest.mark.parametrize("schema", ODD_SCHEMAS)
def test_an_odd_schema_is_passed_over(schema: Any) -> None:
    tool = Tool("s", "fine", "Does it", schema)

    assert document(tool).name == ("fine",)
    assert embedded_text(tool).startswith("fine: Does it")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "anyOf", "$defs", "enum", "description", "title", "const"])
            | st.text(),
            inner,
        )
    ),
)


@given(_json, st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_no_definition_raises(schema: Any, name: str, description: str) -> None:
    tool = Tool("s", name, description, schema)

    assert document(tool, category=[name], source_text=description).key != 0
    assert len(embedded_text(tool, category=[name], source_text=description)) <= MAX_EMBEDDED_CHARS


def test_what_is_embedded_is_all_that_a_model_may_go_by() -> None:
    tool = Tool(
        "mail",
        "send_message",
        "Sends a letter.",
        {"properties": {"to_address": {"description": "Who gets it"}, "body": {"items": {"properties": {"cc": {}}}}}},
        metadata=ToolMetadata(tags=("outbox",), intents=("reply to a customer",), usage_hint="Only by day"),
    )

    assert embedded_text(tool, category=["Office", "Post"], source_text="The mail server") == (
        "send message: Sends a letter.\n"
        "Office, Post, outbox, The mail server\n"
        "Only by day\n"
        "reply to a customer\n"
        "to address: Who gets it; body; cc"
    )
    assert embedded_text(Tool("mail", "x1", title="Post a letter")) == "post a letter"


def test_what_is_embedded_is_bounded_whatever_the_definition() -> None:
    many = {f"p{at}": {"description": "word " * 100} for at in range(10_000)}
    cycle: dict[str, Any] = {"properties": {"child": {"description": "node"}}}
    cycle["properties"]["child"]["items"] = cycle

    assert len(embedded_text(Tool("s", "t", input_schema={"properties": many}))) == MAX_EMBEDDED_CHARS
    assert len(embedded_text(Tool("s", "t", "x" * 100_000))) == MAX_EMBEDDED_CHARS
    assert len(embedded_text(Tool("s", "t", input_schema=cycle))) <= MAX_EMBEDDED_CHARS
    assert document(Tool("s", "t", input_schema=cycle)).key != 0


TOLD = Tool("s", "send", "Sends.", {"properties": {"to": {"description": "Who"}}}, title="Send", own_path=("a",))


@pytest.mark.parametrize(
    "other",
    [
        replace(TOLD, source="z"),
        replace(TOLD, name="post"),
        replace(TOLD, title="Post"),
        replace(TOLD, description="Posts."),
        replace(TOLD, input_schema={"properties": {"to": {"description": "Whom"}}}),
        replace(TOLD, input_schema={"properties": {"at": {"description": "Who"}}}),
        replace(TOLD, metadata=ToolMetadata(tags=("t",))),
        replace(TOLD, metadata=ToolMetadata(usage_hint="u")),
        replace(TOLD, metadata=ToolMetadata(intents=("i",))),
    ],
)
def test_the_key_changes_with_whatever_is_embedded(other: Tool) -> None:
    assert document(other).key != document(TOLD).key


def test_the_key_changes_with_the_category_and_the_source_and_with_nothing_else() -> None:
    keys = {
        document(TOLD, category=category, source_text=source).key
        for category, source in [((), ""), (("a",), ""), (("b",), ""), (("a", "b"), ""), (("ab",), ""), ((), "a")]
    }

    assert len(keys) == 6
    assert 0 not in keys
    assert document(replace(TOLD)).key == document(TOLD).key
