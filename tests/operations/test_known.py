"""Searches and expansions with vectors and the history of calls, and pages while these change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.catalogs import registry_of, tool
from tests.knowing import FAR, NEAR, NEARER, Knowing, past_of, past_of_traces, vectors_of

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidCursor
from toolcrib.core.principal import CallContext, Principal, new_trace_id
from toolcrib.core.tools import Tool
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.protocol_messages import Expansion, ListPage, SearchPage
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


# -- the tools of a trace ---------------------------------------------------------------------------------------------

GIT = [tool(f"git.{name}", "Reads a file.") for name in ("blame", "show")]

AGAIN = past_of_traces(*["git.blame git.show", "files.read_1 files.read_2"] * 9, query="unlike")
"""In all past traces, the source was used again. No past request has a word of `QUERY`."""

ADA, EVE = Principal("ada"), Principal("eve")


class Client:
    """Sends operations in one trace."""

    def __init__(self, dispatcher: Dispatcher, view: View, trace_id: str | None = None) -> None:
        self.dispatcher, self.view = dispatcher, view
        self.context = CallContext(view.principal, trace_id)

    async def found(self, **more: object) -> SearchPage:
        answer = await self.dispatcher.perform(self.view, self.context, "search_tools", {"query": QUERY, **more})
        assert isinstance(answer, SearchPage)
        return answer

    async def expanded(self, tool_id: str) -> Expansion:
        answer = await self.dispatcher.perform(self.view, self.context, "expand_tool", {"tool_id": tool_id})
        assert isinstance(answer, Expansion)
        return answer


@pytest.mark.anyio
async def test_after_an_expansion_later_searches_of_the_trace_prefer_its_source() -> None:
    dispatcher, view = Dispatcher(), view_of(Knowing(history=AGAIN), *TOOLS, *GIT)
    trace_id = new_trace_id()
    client, other_trace = Client(dispatcher, view, trace_id), Client(dispatcher, view, new_trace_id())
    stranger = Client(dispatcher, replace(view, principal=EVE), trace_id)
    without = Client(dispatcher, view)
    before = await client.found()
    assert before.tool_ids[0] == TOOLS[0].id
    await client.expanded("git.show")
    after = await client.found()
    assert after.tool_ids[0] == "git.blame"
    assert (await other_trace.found()).to_wire() == before.to_wire(), "only in this trace"
    assert (await stranger.found()).results == before.results, "only for this principal"
    assert (await without.found()).to_wire() == before.to_wire()
    page = await client.found(category=["files"])
    assert page.tool_ids == (await other_trace.found(category=["files"])).tool_ids


@pytest.mark.anyio
async def test_a_call_counts_as_use_of_its_source_in_the_trace_of_its_handle() -> None:
    dispatcher, view = Dispatcher(), view_of(Knowing(history=AGAIN), *TOOLS, *GIT)
    trace_id = new_trace_id()
    handle = f"{view.tools['git.show'].handle}.{trace_id.lstrip('0')}"
    await dispatcher.call_tool(view, CallContext(), handle, {})
    assert (await Client(dispatcher, view, trace_id).found()).tool_ids[0] == "git.blame"


@pytest.mark.anyio
@pytest.mark.parametrize("history", [None, past_of_traces(*["git.blame files.read_1"] * 9)])
async def test_a_trace_changes_nothing_while_the_past_says_nothing_of_sources(history: History | None) -> None:
    dispatcher, view = Dispatcher(), view_of(Knowing(history=history), *TOOLS, *GIT)
    client = Client(dispatcher, view, new_trace_id())
    first, second = await client.found(limit=2), await client.found()
    await client.expanded("git.show")
    assert (await client.found()).to_wire() == second.to_wire()
    await client.found(limit=2, cursor=first.next_cursor)


@pytest.mark.anyio
async def test_a_cursor_is_refused_after_the_trace_has_changed_the_order() -> None:
    dispatcher, view = Dispatcher(), view_of(Knowing(history=AGAIN), *TOOLS, *GIT)
    client = Client(dispatcher, view, new_trace_id())
    first = await client.found(limit=2)
    await client.found(limit=2, cursor=first.next_cursor)
    await client.expanded("git.show")
    with pytest.raises(InvalidCursor):
        await client.found(limit=2, cursor=first.next_cursor)
    again = await client.found(limit=2)
    await client.found(limit=2, cursor=again.next_cursor)


@pytest.mark.anyio
async def test_the_trace_signal_can_be_switched_off() -> None:
    view = view_of(Knowing(history=AGAIN), *TOOLS, *GIT)
    registry = registry_of(*TOOLS, *GIT)
    registry.set_weights(WEIGHTS.without("meaning", "trace"))
    view = replace(View.of(registry.state), knowledge=Knowing(history=AGAIN))
    client = Client(Dispatcher(), view, new_trace_id())
    before = await client.found()
    await client.expanded("git.show")
    assert (await client.found()).to_wire() == before.to_wire()


# -- tools that often follow ------------------------------------------------------------------------------------------


def test_an_expansion_names_at_most_three_tools_that_often_follow() -> None:
    knowing = Knowing()
    view = view_of(knowing, *TOOLS)
    assert "often_next" not in OPERATIONS.expand_tool(view, TOOLS[0].id).to_wire()
    traces = [f"{TOOLS[0].id} {TOOLS[at].id}" for at in (1, 2, 3, 4)]
    knowing.history = past_of_traces(*traces * 2)
    assert "often_next" not in OPERATIONS.expand_tool(view, TOOLS[0].id).to_wire(), "each of them followed only twice"
    several = " ".join(each.id for each in TOOLS[:5])
    knowing.history = past_of_traces(*[several] * 3, traces[3])
    wire = OPERATIONS.expand_tool(view, TOOLS[0].id).to_wire()
    assert wire["often_next"] == [TOOLS[4].id, TOOLS[1].id, TOOLS[2].id]
    (one,) = OPERATIONS.expand_tools(view, [TOOLS[0].id]).to_wire()["tools"]
    assert one == wire
    assert "often_next" not in OPERATIONS.expand_tool(view, TOOLS[4].id).to_wire(), "nothing follows the last one"


def test_only_tools_that_this_principal_may_call_are_named_and_hidden_ones_leave_no_trace() -> None:
    registry = registry_of(*TOOLS, *GIT)
    traces = ["files.read_0 git.show git.blame files.read_1 files.read_2"] * 3
    rules = Rules((Rule(Access.HIDDEN, tools=("git.*",)), Rule(Access.SEE, tools=("files.read_2",))), Access.CALL)
    guest = View.of(registry.state, EVE, rules)
    knowing = Knowing(history=past_of_traces(*traces))
    seen = OPERATIONS.expand_tool(replace(guest, knowledge=knowing), "files.read_0")
    assert seen.often_next == ("files.read_1",)
    all_seen = OPERATIONS.expand_tool(replace(View.of(registry.state, ADA), knowledge=knowing), "files.read_0")
    assert all_seen.often_next == ("files.read_1", "files.read_2", "git.blame")
    knowing.history = past_of_traces(*["files.read_0 files.read_1 files.read_2"] * 3)
    assert OPERATIONS.expand_tool(replace(guest, knowledge=knowing), "files.read_0") == seen


def test_nothing_follows_if_learning_from_history_is_switched_off() -> None:
    registry = registry_of(*TOOLS)
    registry.set_weights(WEIGHTS.without("history"))
    knowing = Knowing(history=past_of_traces(*["files.read_0 files.read_1"] * 9))
    view = replace(View.of(registry.state), knowledge=knowing)
    assert OPERATIONS.expand_tool(view, "files.read_0").often_next == ()
