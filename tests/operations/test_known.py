"""Pages of a search while vectors and the history of calls change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.catalogs import registry_of, tool
from tests.knowing import FAR, NEAR, NEARER, Knowing, past_of, vectors_of

from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidCursor
from toolcrib.core.principal import CallContext
from toolcrib.core.tools import Tool
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.protocol_messages import ListPage, SearchPage
from toolcrib.search.index.history import History
from toolcrib.search.index.meaning import Understood, Vectors
from toolcrib.search.index.query import Query
from toolcrib.search.index.weights import WEIGHTS

OPERATIONS = Operations()

TOOLS = [tool(f"files.read_{number}", "Reads a file.") for number in range(9)]
OTHER = tool("post.deliver", "Takes a letter to somebody.")

QUERY = "read a file"


def view_of(knowledge: Knowing | None, *tools: Tool) -> View:
    registry = registry_of(*tools)
    registry.set_weights(WEIGHTS.without("meaning"))
    return replace(View.of(registry.state), knowledge=knowledge)


def vectors(view: View, count: int = 9) -> Vectors:
    """Vectors of the first `count` tools; the last tools are closest to the query."""
    ways = [FAR, FAR, FAR, FAR, FAR, FAR, NEAR, NEAR, NEARER]
    return vectors_of(view, {each.id: way for each, way in zip(TOOLS[:count], ways, strict=False)})


def walked(view: View, limit: int = 2) -> list[str]:
    """The ids on all pages."""
    page = OPERATIONS.search_tools(view, QUERY, limit=limit)
    found = [*page.tool_ids]
    while page.next_cursor is not None:
        page = OPERATIONS.search_tools(view, QUERY, limit=limit, cursor=page.next_cursor)
        found += page.tool_ids
    return found


def test_pages_return_each_result_once_while_the_ranking_is_stable() -> None:
    knowing = Knowing()
    view = view_of(knowing, *TOOLS)
    by_words = walked(view)
    assert by_words == [each.id for each in TOOLS]
    knowing.vectors, knowing.history = vectors(view), past_of([(QUERY, TOOLS[4].id)])
    otherwise = walked(view)
    # The history mentions only one tool, so most of the other tools become too unlikely to be returned.
    assert otherwise[0] == TOOLS[4].id
    assert len(otherwise) >= 3
    assert {*otherwise} < {*by_words}
    assert otherwise == [*OPERATIONS.search_tools(view, QUERY, limit=50).tool_ids]


def vectors_arrive(knowing: Knowing, view: View) -> None:
    knowing.vectors = vectors(view)


def more_vectors_arrive(knowing: Knowing, view: View) -> None:
    knowing.vectors = vectors(view, 8)


def vectors_disappear(knowing: Knowing, view: View) -> None:
    knowing.vectors = None


def a_history_is_learned(knowing: Knowing, view: View) -> None:
    knowing.history = past_of([(QUERY, TOOLS[5].id)])


def the_history_is_forgotten(knowing: Knowing, view: View) -> None:
    knowing.history = None


@pytest.mark.parametrize(
    ("knows", "change"),
    [
        (False, vectors_arrive),
        (True, more_vectors_arrive),
        (True, vectors_disappear),
        (False, a_history_is_learned),
        (True, a_history_is_learned),
        (True, the_history_is_forgotten),
    ],
)
@pytest.mark.anyio
async def test_a_cursor_is_refused_with_a_restart_after_the_ranking_changed(
    knows: bool, change: Callable[[Knowing, View], None]
) -> None:
    knowing = Knowing()
    view = view_of(knowing, *TOOLS)
    if knows:
        knowing.vectors, knowing.history = vectors(view, 7), past_of([("read", TOOLS[3].id)])
    searches: list[Callable[..., SearchPage | ListPage]] = [
        partial(OPERATIONS.search_tools, view, QUERY, limit=2),
        partial(OPERATIONS.search_tool_by_category, view, QUERY, category_path=["files"], limit=2),
        partial(OPERATIONS.list, view, query=QUERY, limit=2),
    ]
    first = [search() for search in searches]
    by_id = OPERATIONS.search_tools(view, limit=2)
    change(knowing, view)
    for search, page in zip(searches, first, strict=True):
        with pytest.raises(InvalidCursor) as caught:
            search(cursor=page.next_cursor)
        step = caught.value.next_action
        assert step is not None
        again = await Dispatcher(OPERATIONS).perform(view, CallContext(), step.operation, step.arguments)
        assert again.to_wire() == search().to_wire()
    # Paging without a query does not depend on vectors or history.
    assert OPERATIONS.search_tools(view, limit=2, cursor=by_id.next_cursor).tool_ids == (TOOLS[2].id, TOOLS[3].id)


def test_a_ranking_that_changes_while_a_page_is_created_invalidates_its_cursor() -> None:
    """Vectors arrive in a different thread, so they may arrive between a ranking and the creation of its cursor."""
    knowing = Knowing()
    view = view_of(knowing, *TOOLS)

    class Learning:
        """Has one more vector each time it is queried."""

        def __init__(self) -> None:
            self.asked = 0

        def understood(self, query: Query) -> Understood | None:
            self.asked += 1
            return Knowing(vectors(view, self.asked)).understood(query)

        def history_for(self, principal: object) -> History | None:
            return None

    learning = Learning()
    page = OPERATIONS.search_tools(replace(view, knowledge=learning), QUERY, limit=2)
    assert learning.asked == 1
    knowing.vectors = vectors(view, 1)  # the same vectors as when the page was created
    assert OPERATIONS.search_tools(view, QUERY, limit=2, cursor=page.next_cursor).tool_ids
    knowing.vectors = vectors(view, 2)
    with pytest.raises(InvalidCursor):
        OPERATIONS.search_tools(view, QUERY, limit=2, cursor=page.next_cursor)


def test_changed_signal_weights_invalidate_a_cursor() -> None:
    registry = registry_of(*TOOLS)
    page = OPERATIONS.search_tools(View.of(registry.state), QUERY, limit=2)
    registry.set_weights(WEIGHTS.without("brevity"))
    with pytest.raises(InvalidCursor):
        OPERATIONS.search_tools(View.of(registry.state), QUERY, limit=2, cursor=page.next_cursor)
    registry.set_weights(WEIGHTS)
    assert OPERATIONS.search_tools(View.of(registry.state), QUERY, limit=2, cursor=page.next_cursor).tool_ids


def test_changes_that_no_signal_uses_do_not_invalidate_a_cursor() -> None:
    knowing = Knowing()
    registry = registry_of(*TOOLS)
    registry.set_weights(WEIGHTS.without("meaning", "embedding", "history"))
    view = replace(View.of(registry.state), knowledge=knowing)
    page = OPERATIONS.search_tools(view, QUERY, limit=5)
    knowing.vectors, knowing.history = vectors(view), past_of([(QUERY, TOOLS[4].id)])
    second = OPERATIONS.search_tools(view, QUERY, limit=5, cursor=page.next_cursor)
    assert [*page.tool_ids, *second.tool_ids] == [each.id for each in TOOLS]


def test_a_tool_is_found_by_meaning_but_not_by_a_blank_query() -> None:
    knowing = Knowing()
    view = view_of(knowing, *TOOLS, OTHER)
    assert OPERATIONS.search_tools(view, "dispatch parcel").results == ()
    knowing.vectors = vectors_of(view, {OTHER.id: NEARER} | {each.id: FAR for each in TOOLS})
    page = OPERATIONS.search_tools(view, "dispatch parcel")
    assert isinstance(page, SearchPage)
    assert page.tool_ids[0] == OTHER.id
    assert OPERATIONS.search_nodes(view, " ").results == ()
