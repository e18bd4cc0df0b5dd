"""The published schemas, the OpenAPI document and the MCP definitions accept exactly what the operations accept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import tool, view_of
from tests.docs.exchanges import EXCHANGES, asked
from tests.examples import examples

from toolcrib.core.errors import InvalidArguments, InvalidConfig, NextAction
from toolcrib.core.principal import CallContext
from toolcrib.core.schema import Schema
from toolcrib.operations.arguments import checked
from toolcrib.operations.briefing import operation_tools
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_table import CALLS, OPERATION_TABLE, OPERATIONS, message_document, message_schema
from toolcrib.surfaces.http.openapi import openapi
from toolcrib.surfaces.http.problems import RefusedRequest, problem_of

Json = Mapping[str, Any]

VIEW = view_of(tool("git.commit", "Record changes."), tool("git.log", "Show changes."))

DOCUMENTS_OWN: list[tuple[str, str]] = [
    ("list", '{"path": ["Storage"], "tags": ["auth", "oauth"], "query": "upload file", "limit": 10, "cursor": "x"}'),
    (
        "search_tool_by_category",
        """{
          "query": "rename a symbol across the codebase",
          "category_path": ["Coding", "Refactoring"],
          "limit": 5,
          "cursor": null
        }""",
    ),
    ("search_nodes", '{ "query": "oauth login", "limit": 5 }'),
    ("expand_tool", '{ "tool_id": "refactor.rename_symbol" }'),
]
"""Source: discovery protocol v0.1, the requests of its examples."""


def published(operation: str) -> dict[str, Schema]:
    """Return the schemas of the arguments of `operation`, by the place of publication."""
    components = openapi(asks=False, url="http://localhost")["components"]
    (mcp,) = operation_tools([operation])
    return {
        "the schema": Schema(message_schema(OPERATION_TABLE[operation].request_name)),
        "OpenAPI": Schema(
            {"$ref": f"#/components/schemas/{OPERATION_TABLE[operation].request_name}", "components": components}
        ),
        "MCP": Schema(mcp.to_wire()["inputSchema"]),
    }


PUBLISHED = {operation: published(operation) for operation in OPERATIONS}


def takes(operation: str, arguments: Json) -> bool:
    """Return whether the operation accepts the arguments."""
    try:
        checked(VIEW, OPERATION_TABLE[operation], arguments)
    except InvalidArguments:
        return False
    return True


@pytest.mark.holds("messages.conform", "category-search.cursor")
@pytest.mark.parametrize(("operation", "request_text"), DOCUMENTS_OWN)
def test_the_example_requests_of_the_protocol_match_every_published_schema(operation: str, request_text: str) -> None:
    arguments = json.loads(request_text)
    assert takes(operation, arguments)
    assert [where for where, schema in PUBLISHED[operation].items() if not schema.is_valid(arguments)] == []


@pytest.mark.parametrize(("operation", "arguments"), EXCHANGES)
def test_an_optional_argument_may_be_null_in_every_published_schema(operation: str, arguments: Json) -> None:
    (definition,) = operation_tools([operation])
    optional = {*definition.input_schema["properties"]} - {*definition.input_schema.get("required", ())}
    nulls = {**dict.fromkeys(optional), **arguments}
    assert optional
    assert None in nulls.values() or optional <= arguments.keys()
    assert takes(operation, nulls)
    assert [where for where, schema in PUBLISHED[operation].items() if not schema.is_valid(nulls)] == []


ANYTHING = st.sampled_from(
    [None, 5, 51, 0, 1.5, True, "x", "full", "everything", [], ["x"], ["x"] * 11, [None], [5], {}, {"x": 1}]
)


@pytest.mark.holds("messages.strict")
@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(OPERATIONS), st.data())
def test_an_operation_accepts_exactly_what_its_published_schemas_accept(operation: str, data: st.DataObject) -> None:
    (definition,) = operation_tools([operation])
    names = [*definition.input_schema["properties"], "zebra"]
    arguments = data.draw(st.dictionaries(st.sampled_from(names), ANYTHING))
    if arguments.get("zebra", 1) is None:
        del arguments["zebra"]  # the operation ignores an unknown argument that is null
    if operation in CALLS and not isinstance(arguments.get("arguments"), dict | None):
        del arguments["arguments"]  # these are checked by the tool's own schema
    said = {where: schema.is_valid(arguments) for where, schema in PUBLISHED[operation].items()}
    assert said == dict.fromkeys(said, takes(operation, arguments))


def test_references_have_no_sibling_keywords() -> None:
    """json-schema-to-typescript reads only the other keywords, and other generators read only the reference."""

    def references(value: object) -> Iterator[Json]:
        match value:
            case dict():
                members = cast("dict[str, object]", value)
                if "$ref" in members:
                    yield members
                for member in members.values():
                    yield from references(member)
            case list():
                for item in cast("list[object]", value):
                    yield from references(item)
            case _:
                pass

    for published_document in (message_document(), openapi(asks=True, url="http://localhost")):
        found = [*references(published_document)]
        assert len(found) > 20
        assert [each for each in found if [*each] != ["$ref"]] == []


def test_a_found_tool_must_have_exactly_the_members_of_its_detail_level() -> None:
    results = Schema(message_schema(OPERATION_TABLE["search_tools"].response_name))
    page: dict[str, Any] = {"next_cursor": None}
    pointer = {"tool_id": "git.log", "path": ["git"], "summary": "Show changes."}

    assert results.is_valid({**page, "results": [{"tool_id": "git.log"}, pointer]})
    assert not results.is_valid({**page, "results": [{"tool_id": "git.log", "path": ["git"]}]})
    assert not results.is_valid({**page, "results": [{**pointer, "handle": "git.log@1"}]})


def test_the_exchanges_in_the_documentation_match_the_schemas() -> None:
    *exchanges, (_, _, error), (_, _, problem) = asked()

    assert {operation for operation, _, _ in exchanges} == {*OPERATIONS}
    for operation, arguments, answer in exchanges:
        assert [where for where, schema in PUBLISHED[operation].items() if not schema.is_valid(arguments)] == []
        assert Schema(message_schema(OPERATION_TABLE[operation].response_name)).violations(answer) == ()
    assert Schema(message_schema("Error")).violations(error) == ()
    assert Schema(message_schema("Problem")).violations(problem) == ()
    assert {**error["error"], **problem} == problem


@pytest.mark.holds("messages.conform")
def test_an_http_error_matches_the_problem_schema_and_other_errors_do_not() -> None:
    schema = Schema(message_schema("Problem"))
    refused = RefusedRequest(HTTPStatus.NOT_FOUND, "There is nothing here.", hints=["See /openapi.json."]).to_wire()
    failed = problem_of(InvalidArguments("No.", next_action=NextAction("list"), details={"violations": []}))[1]

    assert schema.violations(refused) == schema.violations(failed) == ()
    assert not schema.is_valid(InvalidConfig("No.").to_wire())
    for problem in (refused, failed):
        needed = {name for name in problem if not schema.is_valid({k: v for k, v in problem.items() if k != name})}
        assert needed == {"type", "title", "status", "detail", "code", "message", "retryable"}


@pytest.mark.parametrize("query", ["!!!", " ", "?", "📁", "!" * 2_000 + " commit"])
def test_a_query_without_letters_and_digits_returns_all_tools(query: str) -> None:
    async def found(operation: str, **arguments: Any) -> list[str]:
        answer = (await Dispatcher().perform(VIEW, CallContext(), operation, {"query": query, **arguments})).to_wire()
        assert "hints" not in answer
        return [pointer["tool_id"] for pointer in answer.get("results", answer.get("tools", ()))]

    async def main() -> list[list[str]]:
        return [
            await found("search_tools"),
            await found("search_tools", category="git"),
            await found("search_tool_by_category", category_path=["git"]),
            await found("list", path=["git"]),
        ]

    assert anyio.run(main) == [["git.commit", "git.log"]] * 4
