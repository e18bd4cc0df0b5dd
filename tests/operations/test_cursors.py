"""Cursors: paging returns each entry once, and a cursor is valid only for its own request and catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalog.strategies import SET_UP, TAGS, many_tools, tools
from tests.catalogs import registry_of, tool
from tests.examples import examples

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidCursor, NextAction, NoMatchInCategory, ToolcribError
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Node, Tool
from toolcrib.operations.cursors import CursorSeal
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_table import OPERATION_TABLE
from toolcrib.operations.protocol_messages import Answer, CategoryPage, ListPage, SearchPage

DISPATCHER = Dispatcher()
ADA = Principal("ada")


def answer(view: View, request: NextAction) -> Answer | ToolResult:
    async def main() -> Answer | ToolResult:
        return await DISPATCHER.perform(
            view, CallContext(view.principal, f"{1:032x}"), request.operation, request.arguments
        )

    return anyio.run(main)


def page(view: View, operation: str, **arguments: Any) -> ListPage | SearchPage:
    found = answer(view, NextAction(operation, arguments))
    assert isinstance(found, ListPage | SearchPage)
    return found


def walk(view: View, operation: str, **arguments: Any) -> Iterator[ListPage | SearchPage]:
    cursor: str | None = None
    while True:
        here = page(view, operation, **arguments, cursor=cursor)
        yield here
        if (cursor := here.next_cursor) is None:
            return


# -- the seal ---------------------------------------------------------------------------------------------------------

RESTART = NextAction("list", {"path": []})


def is_refused(seal: CursorSeal, cursor: str, bound_to: Mapping[str, Any]) -> bool:
    try:
        seal.open(cursor, bound_to, restart=RESTART)
    except InvalidCursor:
        return True
    return False


@given(st.integers(0, 2**32 - 1))
def test_a_cursor_contains_the_offset_of_the_next_page(offset: int) -> None:
    seal = CursorSeal(b"key")

    assert seal.open(seal.make(offset, {"path": ["a"]}), {"path": ["a"]}, restart=RESTART) == offset


def test_a_cursor_can_only_be_opened_with_its_key() -> None:
    cursor = CursorSeal(b"key").make(5, {})

    assert not is_refused(CursorSeal(b"key"), cursor, {})
    assert is_refused(CursorSeal(b"other"), cursor, {})
    default = CursorSeal()
    assert not is_refused(default, default.make(5, {}), {})
    assert is_refused(CursorSeal(), default.make(5, {}), {})


REWRITTEN: list[Callable[[str], str]] = [
    lambda cursor: "",
    lambda cursor: cursor[:-1],
    lambda cursor: cursor.rstrip("="),
    lambda cursor: cursor + "=",
    lambda cursor: cursor + "\n",
    lambda cursor: cursor[:8] + " " + cursor[8:],
    lambda cursor: cursor[:8] + "é" + cursor[8:],
    lambda cursor: cursor[:8] + "\ud800" + cursor[8:],
    lambda cursor: cursor.replace("-", "+").replace("_", "/"),
    lambda cursor: cursor[:-3] + chr(ord(cursor[-3]) + 1) + "==",
    lambda cursor: "A" * len(cursor),
    lambda cursor: cursor.swapcase(),
]


@pytest.mark.parametrize("changed", REWRITTEN, ids=range(len(REWRITTEN)))
def test_a_cursor_with_a_changed_spelling_is_refused(changed: Callable[[str], str]) -> None:
    seal, bound_to = CursorSeal(b"key"), {"query": "q14"}
    cursor = seal.make(5, bound_to)
    assert {"-", "_"} < set(cursor)
    assert changed(cursor) != cursor

    assert is_refused(seal, changed(cursor), bound_to)


def test_a_refused_cursor_has_a_reason_a_hint_and_a_next_action() -> None:
    with pytest.raises(InvalidCursor) as refused:
        CursorSeal().open("made up", {}, restart=RESTART)

    assert (
        str(refused.value) == "This cursor is invalid: it belongs to a different request, or the catalog has changed."
    )
    assert refused.value.hints == ("Send the request again without `cursor`.",)
    assert refused.value.next_action == RESTART


# -- paging -----------------------------------------------------------------------------------------------------------

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.lists(st.sampled_from(TAGS), max_size=2),
        "query": st.sampled_from(["", " ", "shared", "read file", "change the calendar"]),
    },
)


@pytest.mark.holds("list.cursor", "list.answer.next_cursor")
@settings(max_examples=examples(60), deadline=None)
@given(tools() | many_tools(), SET_UP, OPTIONS, st.integers(1, 50))
def test_the_pages_of_a_list_return_every_entry_once_and_nodes_before_tools(
    known: list[Tool], categories: list[Category], options: dict[str, Any], limit: int
) -> None:
    registry = registry_of(*known)
    registry.set_categories(Categories(categories))
    view = View.of(registry.state, ADA)
    for path in [(), *view.ontology.nodes][:6]:
        pages = [
            here for here in walk(view, "list", path=[*path], limit=limit, **options) if isinstance(here, ListPage)
        ]
        entries = [
            entry
            for here in pages
            for entry in [*(("node", node.node.path) for node in here.nodes), *(("tool", t) for t in here.tool_ids)]
        ]
        assert len(entries) == len(set(entries))
        assert entries == sorted(entries, key=lambda entry: entry[0])
        assert all(len(here.nodes) + len(here.tools) == limit for here in pages[:-1])
        whole = page(view, "list", path=[*path], limit=50, **options)
        assert isinstance(whole, ListPage)
        if whole.next_cursor is None:
            assert entries == [
                *(("node", node.node.path) for node in whole.nodes),
                *(("tool", t) for t in whole.tool_ids),
            ]


@pytest.mark.holds("category-search.cursor", "category-search.ranked")
@settings(max_examples=examples(80), deadline=None)
@given(tools() | many_tools(), SET_UP, OPTIONS, st.integers(1, 50), st.data())
def test_the_pages_of_a_search_return_every_match_once_and_best_first(
    known: list[Tool], categories: list[Category], options: dict[str, Any], limit: int, data: st.DataObject
) -> None:
    registry = registry_of(*known)
    registry.set_categories(Categories(categories))
    view = View.of(registry.state, ADA)
    path = data.draw(st.sampled_from([(), *view.ontology.nodes]))
    query, tags = options.get("query", ""), options.get("tags", [])
    searches: list[tuple[str, dict[str, Any]]] = [
        ("search_tools", {"query": query, "category": [*path], "tags": tags}),
        ("search_tool_by_category", {"query": query, "category_path": [*path]}),
    ]
    for operation, request in searches:
        try:
            pages = [*walk(view, operation, limit=limit, **request)]
        except NoMatchInCategory:
            assert query.strip()
            continue
        hits = [hit for here in pages if isinstance(here, SearchPage) for hit in here.results]
        ids = [hit.tool_id for hit in hits]
        assert len(ids) == len(set(ids))
        inside = view.ontology.within(view.ontology.find(path) or view.ontology.root)
        allowed = {i for i in inside if {*request.get("tags", ())} <= {*view.tools[i].metadata.tags}}
        if query.strip():
            # Confidences are rounded to four digits, so the order of equal values is not checked.
            assert hits == sorted(hits, key=lambda hit: -(hit.confidence or 0.0))
            assert set(ids) <= allowed
        else:
            assert ids == sorted(allowed)
        assert all(len(here.tool_ids) == limit for here in pages[:-1])


# -- validity ---------------------------------------------------------------------------------------------------------


def catalog() -> ToolRegistry:
    registry = registry_of(
        *(tool(f"git.t{number}", "Show what changed.", tags=("vcs",), category=("read",)) for number in range(4)),
        tool("files.read", "Read a file."),
    )
    registry.set_categories(Categories([Category(("code",), tools=("git.t[01]",))]))
    return registry


REQUESTS: list[NextAction] = [
    NextAction("list", {"path": ["git", "read"], "tags": ["vcs"], "query": None, "limit": 1}),
    NextAction("list", {"path": [], "tags": [], "query": "changed", "limit": 1}),
    NextAction("search_tools", {"query": "changed", "category": [], "tags": ["vcs"], "limit": 1}),
    NextAction("search_tools", {"query": "", "category": ["git"], "detail_level": "full", "limit": 1}),
    NextAction("list_categories", {"limit": 1}),
    NextAction("search_tool_by_category", {"query": "changed", "category_path": ["git"], "limit": 1}),
    NextAction("search_tool_by_category", {"query": "", "category_path": [], "limit": 1}),
]
EACH = pytest.mark.parametrize("request_", REQUESTS, ids=str)


def with_cursor(request: NextAction, cursor: str) -> NextAction:
    return NextAction(request.operation, {**request.arguments, "cursor": cursor})


def first(view: View, request: NextAction) -> tuple[ListPage | SearchPage | CategoryPage, str]:
    """The first page, and the cursor of the next."""
    here = answer(view, request)
    assert isinstance(here, ListPage | SearchPage | CategoryPage)
    assert here.next_cursor is not None
    return here, here.next_cursor


def refused(view: View, request: NextAction) -> InvalidCursor:
    with pytest.raises(InvalidCursor) as error:
        answer(view, request)
    return error.value


@EACH
def test_a_cursor_returns_the_page_after_the_one_it_came_with(request_: NextAction) -> None:
    view = View.of(catalog().state)
    here, cursor = first(view, request_)
    following = answer(view, with_cursor(request_, cursor))

    assert isinstance(following, ListPage | SearchPage | CategoryPage)
    assert not {*here.tool_ids} & {*following.tool_ids}
    assert answer(view, with_cursor(request_, cursor)) == following


OTHERS: list[dict[str, Any]] = [
    {"limit": 2},
    {"query": "changed!"},
    {"query": "show"},
    {"tags": ["vcs", "x"]},
    {"path": ["git"]},
    {"category": ["git", "read"]},
    {"category_path": ["git", "read"]},
    {"detail_level": "name"},
    {"include_unavailable": True},
]


@pytest.mark.holds("errors.invalid-cursor")
@pytest.mark.parametrize(
    ("request_", "other"),
    [
        (request, other)
        for request in REQUESTS
        for other in OTHERS
        if OPERATION_TABLE[request.operation].arguments.is_valid({**request.arguments, "query": "", **other})
    ],
    ids=str,
)
def test_a_cursor_is_refused_for_a_changed_request(request_: NextAction, other: Mapping[str, Any]) -> None:
    view = View.of(catalog().state)
    _, cursor = first(view, request_)

    changed = NextAction(request_.operation, {**request_.arguments, **other, "cursor": cursor})
    assert refused(view, changed).next_action is not None


def test_a_cursor_is_refused_for_every_different_request() -> None:
    view = View.of(catalog().state)
    for one in REQUESTS:
        _, cursor = first(view, one)
        for other in REQUESTS:
            if other is not one:
                refused(view, with_cursor(other, cursor))


@EACH
def test_a_cursor_is_refused_for_a_different_principal(request_: NextAction) -> None:
    state = catalog().state
    _, cursor = first(View.of(state, ADA), request_)

    refused(View.of(state, Principal("grace")), with_cursor(request_, cursor))
    assert answer(View.of(state, replace(ADA, scopes=frozenset({"more"}))), with_cursor(request_, cursor))


@EACH
def test_a_cursor_with_one_altered_character_is_refused(request_: NextAction) -> None:
    view = View.of(catalog().state)
    _, cursor = first(view, request_)
    for position, letter in enumerate(cursor):
        altered = cursor[:position] + ("A" if letter != "A" else "B") + cursor[position + 1 :]
        refused(view, with_cursor(request_, altered))
    for altered in (cursor[:-1], cursor + "A", cursor + "=", cursor * 2, cursor.swapcase()):
        refused(view, with_cursor(request_, altered))


def _fail(registry: ToolRegistry) -> None:
    entry = registry.state.sources["git"]
    registry.register_source(replace(entry, status=SourceStatus.FAILED, is_lasting=True, reason="it is not installed"))


CHANGES: Mapping[str, Callable[[ToolRegistry], None]] = {
    "an added tool": lambda registry: registry.register(tool("git.t9", "Show what changed.")),
    "a removed tool": lambda registry: registry.unregister("git.t3"),
    "a changed description": lambda registry: registry.replace(
        replace(registry.state.tools["git.t3"], description="x")
    ),
    "a changed schema": lambda registry: registry.replace(
        replace(registry.state.tools["git.t3"], input_schema={"type": "object", "properties": {"x": {}}})
    ),
    "changed tags": lambda registry: registry.replace(
        replace(registry.state.tools["git.t3"], metadata=replace(registry.state.tools["git.t3"].metadata, tags=("y",)))
    ),
    "a renamed source": lambda registry: registry.register_source(replace(registry.state.sources["git"], title="Git!")),
    "a changed source summary": lambda registry: registry.register_source(
        replace(registry.state.sources["git"], summary="Git!")
    ),
    "a described node": lambda registry: registry.register_source(
        replace(registry.state.sources["git"], nodes=(Node(("git", "read"), summary="Reading."),))
    ),
    "an added category": lambda registry: registry.set_categories(
        Categories([*registry.state.categories.given, Category(("more",), tools=("git.t2",))])
    ),
    "a renamed category": lambda registry: registry.set_categories(Categories([Category(("code",), title="Code!")])),
    "an unavailable source": _fail,
}


@pytest.mark.holds("errors.invalid-cursor")
@EACH
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_a_catalog_change_a_cursor_is_refused_with_a_restart(
    request_: NextAction, change: Callable[[ToolRegistry], None]
) -> None:
    registry = catalog()
    _, cursor = first(View.of(registry.state), request_)
    change(registry)
    view = View.of(registry.state)

    def afresh(request: NextAction) -> object:
        try:
            return answer(view, request)
        except ToolcribError as error:
            return error.to_wire()

    again = afresh(with_cursor(request_, cursor))
    if isinstance(again, dict) and again["error"]["code"] in {"UNKNOWN_PATH", "SOURCE_UNAVAILABLE"}:
        return  # there are no pages left
    step = refused(view, with_cursor(request_, cursor)).next_action
    assert step is not None
    assert afresh(step) == afresh(request_)


@EACH
def test_a_cursor_is_valid_if_the_catalog_is_equal_again(request_: NextAction) -> None:
    registry = catalog()
    _, cursor = first(View.of(registry.state), request_)
    before = answer(View.of(registry.state), with_cursor(request_, cursor))
    kept = registry.state.tools["git.t3"]

    registry.unregister(kept.id)
    registry.register(replace(kept))
    registry.register_source(
        registry.state.sources["git"], [t for t in registry.state.tools.values() if t.source == "git"]
    )
    registry.set_categories(Categories(registry.state.categories.given))
    _fail(registry)
    registry.register_source(replace(registry.state.sources["git"], status=SourceStatus.READY))

    assert answer(View.of(registry.state), with_cursor(request_, cursor)) == before
    assert answer(View.of(catalog().state), with_cursor(request_, cursor)) == before


@EACH
def test_changes_of_hidden_tools_do_not_invalidate_a_cursor(request_: NextAction) -> None:
    registry = catalog()
    rules = Rules((Rule(Access.HIDDEN, tools=("git.hidden*",)),), Access.CALL)
    _, cursor = first(View.of(registry.state, ADA, rules), request_)
    registry.register(tool("git.hidden", "Show what changed.", tags=("vcs",), category=("read",)))

    assert answer(View.of(registry.state, ADA, rules), with_cursor(request_, cursor))


@EACH
def test_hiding_a_visible_tool_invalidates_a_cursor(request_: NextAction) -> None:
    state = catalog().state
    _, cursor = first(View.of(state, ADA, Rules((), Access.CALL)), request_)

    refused(
        View.of(state, ADA, Rules((Rule(Access.HIDDEN, tools=("git.t3",)),), Access.CALL)),
        with_cursor(request_, cursor),
    )
