"""Where a pointer says that a tool is, a list shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from tests.catalog.strategies import SET_UP, many_tools
from tests.catalogs import registry_of, tool

from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.view import View
from toolcrib.core.tools import Tool
from toolcrib.disclosure.operations import DEFAULT_LIMIT, MAX_LIMIT, Operations

OPERATIONS = Operations()


def view_of(tools: Sequence[Tool], categories: Sequence[Category]) -> View:
    registry = registry_of(*tools)
    registry.set_categories(Categories(categories))
    return View.of(registry.state)


def walk(view: View, path: Sequence[str], limit: int | None) -> Iterator[str]:
    """Ids of the tools on the pages of a list."""
    cursor = None
    while True:
        page = OPERATIONS.list(view, path, limit=limit, cursor=cursor)
        yield from page.tool_ids
        if (cursor := page.next_cursor) is None:
            return


@pytest.mark.parametrize("limit", [1, DEFAULT_LIMIT, MAX_LIMIT])
@settings(max_examples=60, deadline=None)
@given(tools=many_tools(), made=SET_UP)
def test_the_pages_of_a_list_at_a_pointers_path_show_its_tool(
    limit: int, tools: list[Tool], made: list[Category]
) -> None:
    view = view_of(tools, made)
    there = {path: [*walk(view, path, limit)] for path in {view.ontology.places(each)[0] for each in tools}}

    for each in tools:
        assert there[view.ontology.places(each)[0]].count(each.id) == 1


@settings(max_examples=60, deadline=None)
@given(tools=many_tools(), made=SET_UP)
def test_without_a_limit_a_group_on_the_first_page_may_show_it_instead(tools: list[Tool], made: list[Category]) -> None:
    view = view_of(tools, made)
    for path in {view.ontology.places(each)[0] for each in tools}:
        at_path = {each.id for each in tools if view.ontology.places(each)[0] == path}
        groups = [node.node.path for node in OPERATIONS.list(view, path).nodes]
        inside = {tool_id for group in groups for tool_id in walk(view, group, MAX_LIMIT)}

        assert at_path <= {*walk(view, path, None)} | inside


@pytest.mark.parametrize("limit", [None, 5, MAX_LIMIT])
def test_a_category_of_more_than_a_dozen_tools_shows_them_all_and_no_other_node(limit: int | None) -> None:
    tools = [tool(f"store.{verb}_{thing}") for verb in ("get", "put", "copy", "list") for thing in "abcde"]
    view = view_of(tools, [Category(("Storage", "Buckets"), tools=("store.*",))])

    assert OPERATIONS.list(view, ["Storage", "Buckets"], limit=limit).nodes == ()
    assert [*walk(view, ["Storage", "Buckets"], limit)] == sorted(each.id for each in tools)
