"""A list shows a tool at the path of its pointer, and a search for nodes finds nodes that a list shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalog.strategies import SET_UP, many_tools
from tests.catalogs import registry_of, tool
from tests.examples import examples

from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.view import View
from toolcrib.core.principal import CallContext
from toolcrib.core.tools import ROOT, Path, Tool
from toolcrib.operations.catalog_operations import DEFAULT_LIMIT, MAX_LIMIT, Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.next_actions import answer_within
from toolcrib.operations.operation_table import SETS
from toolcrib.operations.protocol_messages import NodePage

OPERATIONS = Operations()


def view_of(tools: Sequence[Tool], categories: Sequence[Category]) -> View:
    registry = registry_of(*tools)
    registry.set_categories(Categories(categories))
    return View.of(registry.state)


def walk(view: View, path: Sequence[str], limit: int | None) -> Iterator[str]:
    """The ids of the tools on all pages of a list."""
    cursor = None
    while True:
        page = OPERATIONS.list(view, path, limit=limit, cursor=cursor)
        yield from page.tool_ids
        if (cursor := page.next_cursor) is None:
            return


@pytest.mark.parametrize("limit", [1, DEFAULT_LIMIT, MAX_LIMIT])
@settings(max_examples=examples(60), deadline=None)
@given(tools=many_tools(), made=SET_UP)
def test_a_list_at_the_path_of_a_pointer_shows_its_tool(limit: int, tools: list[Tool], made: list[Category]) -> None:
    view = view_of(tools, made)
    there = {path: [*walk(view, path, limit)] for path in {view.ontology.places(each)[0] for each in tools}}

    for each in tools:
        assert there[view.ontology.places(each)[0]].count(each.id) == 1


@settings(max_examples=examples(60), deadline=None)
@given(tools=many_tools(), made=SET_UP)
def test_a_list_without_a_limit_shows_the_tool_itself_or_in_a_group(tools: list[Tool], made: list[Category]) -> None:
    view = view_of(tools, made)
    for path in {view.ontology.places(each)[0] for each in tools}:
        at_path = {each.id for each in tools if view.ontology.places(each)[0] == path}
        groups = [node.node.path for node in OPERATIONS.list(view, path).nodes]
        inside = {tool_id for group in groups for tool_id in walk(view, group, MAX_LIMIT)}

        assert at_path <= {*walk(view, path, None)} | inside


@pytest.mark.parametrize("limit", [None, 5, MAX_LIMIT])
def test_a_category_of_more_than_a_dozen_tools_lists_all_of_them(limit: int | None) -> None:
    tools = [tool(f"store.{verb}_{thing}") for verb in ("get", "put", "copy", "list") for thing in "abcde"]
    view = view_of(tools, [Category(("Storage", "Buckets"), tools=("store.*",))])

    assert OPERATIONS.list(view, ["Storage", "Buckets"], limit=limit).nodes == ()
    assert [*walk(view, ["Storage", "Buckets"], limit)] == sorted(each.id for each in tools)


def shown_from_the_top(view: View) -> set[Path]:
    """The paths of all nodes that are reachable with `list`, starting at the root."""
    shown, waiting = set[Path](), [ROOT]
    while waiting:
        page = OPERATIONS.list(view, waiting.pop(), limit=MAX_LIMIT)
        assert page.nodes == () or page.next_cursor is None or len(page.nodes) < MAX_LIMIT
        new = {node.node.path for node in page.nodes} - shown
        shown |= new
        waiting += new
    return shown


@settings(max_examples=examples(80), deadline=None)
@given(tools=many_tools(), made=SET_UP, query=st.sampled_from(["git", "files", "code read", "invoice", "shared beta"]))
def test_a_search_for_nodes_finds_only_nodes_reachable_from_the_root(
    tools: list[Tool], made: list[Category], query: str
) -> None:
    view = view_of(tools, made)

    found = [node.node.path for node in OPERATIONS.search_nodes(view, query, limit=MAX_LIMIT).results]

    assert len({*found}) == len(found)
    assert {*found} <= shown_from_the_top(view)


def test_a_source_with_all_tools_in_categories_is_not_a_result() -> None:
    log_in = tool("auth.oauth_login", "Log a user in by OAuth.")
    renew = tool("identity.renew_login", "Renew the login of a service.")
    made = [Category(("User", "Auth"), tools=("auth.*",)), Category(("System",), tools=("identity.*",))]
    view = view_of([log_in, renew], made)

    found = OPERATIONS.search_nodes(view, "oauth login", limit=2)

    assert [node.node.path for node in found.results] == [("User", "Auth"), ("System",)]


def test_a_category_below_a_source_without_other_tools_is_reachable() -> None:
    made = [Category(("Made",), tools=("s.*",)), Category(("s", "Deep"), tools=("other.*",), tagged=("x",))]
    view = view_of([tool("s.one"), tool("other.two"), tool("s.three", tags=("x",))], [*made])

    assert ("s", "Deep") in shown_from_the_top(view)


@pytest.mark.parametrize("query", ["quantum chromodynamics", "", "!!!"])
@pytest.mark.anyio
async def test_a_search_for_nodes_without_matches_returns_a_next_action(query: str) -> None:
    view = view_of([tool("git.log", "Show the history.")], [])
    answer = await Dispatcher(OPERATIONS).perform(view, CallContext(view.principal), "search_nodes", {"query": query})

    assert isinstance(answer, NodePage)
    assert answer.to_wire()["results"] == []
    assert answer.to_wire()["hints"]
    assert answer.to_wire()["next_action"] == {"operation": "list", "arguments": {}}
    in_discovery = answer_within(answer, SETS["discovery"]).to_wire()
    assert in_discovery["next_action"] == {"operation": "list_categories", "arguments": {}}
