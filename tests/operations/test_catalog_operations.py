"""Listing, searching and expanding: every page, and every error with its next action."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import registry_of, source_of, tool, view_of
from tests.examples import examples

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    InvalidArguments,
    InvalidCursor,
    NextAction,
    NoMatchInCategory,
    SourceUnavailable,
    ToolcribError,
    ToolNotFound,
    UnknownPath,
)
from toolcrib.core.metadata import ToolExample
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.schema import MAX_COMPARED
from toolcrib.core.tools import Tool
from toolcrib.operations.catalog_operations import MAX_EXPANDED, MAX_LIMIT, Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.protocol_messages import Expansion, ListPage, SearchPage
from toolcrib.search.index.searching import Ranking
from toolcrib.search.index.weights import WEIGHTS
from toolcrib.testing.scripted_source import ScriptedSource

OPERATIONS = Operations()
DISPATCHER = Dispatcher(OPERATIONS)

VIEW = view_of(
    tool("git.commit", "Record changes to the repository.", category=("write",), tags=("vcs", "write")),
    tool("git.log", "Show the history of commits.", tags=("vcs",)),
    tool("git.status", "Show what has changed.", tags=("vcs",)),
    tool("files.read", "Read a file."),
    tool("files.write", "Write a file."),
)


async def sent(view: View, step: NextAction | None) -> object:
    """Send a next action unchanged and return the answer."""
    assert step is not None
    return await DISPATCHER.perform(view, CallContext(view.principal), step.operation, step.arguments)


# -- list -------------------------------------------------------------------------------------------------------------


def test_the_root_lists_every_source_with_a_summary_of_its_tools() -> None:
    page = OPERATIONS.list(VIEW).to_wire()
    summaries = [node.pop("summary") for node in page["nodes"]]

    assert page == {
        "path": [],
        "nodes": [
            {"name": "files", "path": ["files"], "tool_count": 2},
            {"name": "git", "path": ["git"], "tool_count": 3},
        ],
        "tools": [],
        "next_cursor": None,
    }
    assert all(name in summaries[0] for name in ("read", "write"))
    assert all(name in summaries[1] for name in ("commit", "log", "status"))


def test_nodes_come_before_tools_and_tools_are_pointers_without_schemas() -> None:
    page = OPERATIONS.list(VIEW, ["git"]).to_wire()

    assert [node["name"] for node in page["nodes"]] == ["write"]
    assert page["tools"][0] == {
        "tool_id": "git.log",
        "path": ["git"],
        "summary": "Show the history of commits.",
        "tags": ["vcs"],
    }


@pytest.mark.holds("list.cursor")
@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=2).map(tuple), max_size=14),
    st.integers(1, MAX_LIMIT),
)
def test_the_pages_of_a_list_return_all_nodes_then_all_tools_once(
    categories: list[tuple[str, ...]], limit: int
) -> None:
    view = view_of(*(tool(f"s.t{number:02}", category=path) for number, path in enumerate(categories)))
    walked: list[str] = []
    cursor: str | None = None
    while True:
        page = OPERATIONS.list(view, ["s"] if categories else [], limit=limit, cursor=cursor)
        assert len(page.nodes) + len(page.tools) <= limit
        walked += [f"node {node.node.name}" for node in page.nodes] + [pointer.tool_id for pointer in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break

    nodes = sorted({f"node {path[0]}" for path in categories if path})
    tools = [f"s.t{number:02}" for number, path in enumerate(categories) if not path]
    assert walked == nodes + tools


@pytest.mark.holds("list.filters-by-query")
def test_a_list_with_a_query_ranks_tools_at_or_below_the_path() -> None:
    page = OPERATIONS.list(VIEW, ["git"], query="record changes")

    assert page.tools[0].tool_id == "git.commit"
    assert page.tools[0].confidence is not None
    assert page.nodes == ()
    assert all(pointer.tool_id.startswith("git.") for pointer in page.tools)


@pytest.mark.holds("list.filters-by-tags")
@pytest.mark.parametrize("path", [["git/write"], ["git", "write"], ["git/", "/write"], ["GIT/Write"]])
def test_a_path_may_be_written_with_slashes(path: list[str]) -> None:
    assert OPERATIONS.list(VIEW, path).path == ("git", "write")
    assert OPERATIONS.search_tools(VIEW, "record", category=path).tool_ids == ("git.commit",)


def test_a_name_with_a_slash_matches_the_node_with_this_name() -> None:
    view = view_of(tool("s.t", category=("CI/CD",)), tool("s.u", category=("CI", "CD")))
    assert OPERATIONS.list(view, ["s", "CI/CD"]).tool_ids == ("s.t",)
    assert OPERATIONS.list(view, ["s", "CI", "CD"]).tool_ids == ("s.u",)


def test_a_search_shows_that_a_visible_tool_is_not_callable() -> None:
    view = View.of(VIEW.visible.state, VIEW.principal, Rules((Rule(Access.SEE, tools=("git.commit",)),), Access.CALL))
    told = {each.tool_id: each.unavailable for each in OPERATIONS.search_tools(view, "commits").results}
    assert told == {"git.commit": "You can see this tool, but you are not allowed to call it.", "git.log": None}


def test_a_list_with_tags_returns_only_tools_that_have_all_tags() -> None:
    assert OPERATIONS.list(VIEW, ["git"], tags=["vcs", "write"]).tools == ()
    assert [t.tool_id for t in OPERATIONS.list(VIEW, ["git", "write"], tags=["write", "vcs"]).tools] == ["git.commit"]
    assert [t.tool_id for t in OPERATIONS.list(VIEW, query="changes", tags=["write"]).tools] == ["git.commit"]


def test_a_list_with_tags_returns_and_counts_only_nodes_with_matching_tools() -> None:
    def nodes(path: list[str], *tags: str) -> list[tuple[str, int]]:
        return [(pointer.node.name, pointer.tool_count) for pointer in OPERATIONS.list(VIEW, path, tags=tags).nodes]

    assert nodes([], "vcs") == [("git", 3)]
    assert nodes([], "write") == [("git", 1)]
    assert nodes(["git"], "vcs") == [("write", 1)]
    assert nodes([], "zebra") == []

    page = OPERATIONS.list(VIEW, ["git"], tags=["vcs"])
    assert [pointer.tool_id for pointer in page.tools] == ["git.log", "git.status"]
    empty = OPERATIONS.list(VIEW, ["files"], tags=["vcs"])
    assert (empty.nodes, empty.tools, empty.next_cursor) == ((), (), None)


@pytest.mark.parametrize("limit", [1, 2])
def test_following_the_nodes_of_a_list_with_tags_reaches_every_matching_tool_once(limit: int) -> None:
    view = view_of(
        *(tool(f"s{n % 3}.t{n}", category=("a", f"c{n % 2}")[: n % 4], tags=("odd",) * (n % 2)) for n in range(24))
    )
    found: list[str] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        path, cursor = waiting.pop(), None
        while True:
            page = OPERATIONS.list(view, path, tags=["odd"], limit=limit, cursor=cursor)
            waiting += [pointer.node.path for pointer in page.nodes]
            found += [pointer.tool_id for pointer in page.tools]
            if (cursor := page.next_cursor) is None:
                break

    assert sorted(found) == sorted(f"s{n % 3}.t{n}" for n in range(1, 24, 2))


def test_starting_and_unavailable_sources_are_listed_on_a_page() -> None:
    registry = registry_of(tool("git.log", "History"))
    registry.register_source(SourceEntry(ScriptedSource("slow")))
    registry.register_source(SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="it exited"))
    view = View.of(registry.state)

    for page in (OPERATIONS.list(view), OPERATIONS.search_tools(view, "history")):
        wire = page.to_wire()
        assert (wire["starting"], wire["unavailable"]) == (["slow"], ["broken"])
    assert "starting" not in OPERATIONS.list(view, ["git"]).to_wire()


# -- search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_the_pages_of_a_search_return_every_match_once_and_best_first(limit: int) -> None:
    tools = [tool(f"s.t{number:02}", "match " * (1 + number % 3)) for number in range(20)]
    view = view_of(*tools, tool("s.other"), weights=WEIGHTS.without("meaning"))
    found: list[tuple[str, float]] = []
    cursor: str | None = None
    while True:
        page = OPERATIONS.search_tools(view, "match", limit=limit, cursor=cursor)
        assert len(page.results) <= limit
        found += [(hit.tool_id, hit.confidence or 0.0) for hit in page.results]
        if (cursor := page.next_cursor) is None:
            break

    assert len(found) == len({tool_id for tool_id, _ in found}) == 20
    assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))


def test_a_search_in_a_category_finds_no_tools_outside_of_it() -> None:
    found = OPERATIONS.search_tools(VIEW, "changes", category=["git", "write"])

    assert [hit.tool_id for hit in found.results] == ["git.commit"]


@pytest.mark.holds("errors.no-match-in-category.hints")
@pytest.mark.anyio
async def test_a_search_without_a_match_in_its_category_names_categories_with_matches() -> None:
    with pytest.raises(NoMatchInCategory, match="No tool in files matches this query") as caught:
        OPERATIONS.search_tools(VIEW, "history of commits", category=["files"])

    (hint,) = caught.value.hints
    assert hint.startswith("These categories have matches: ")
    categories = hint.removeprefix("These categories have matches: ").split(", ")
    assert "git" in categories
    for category in categories:
        assert OPERATIONS.search_tools(VIEW, "history of commits", category=category.split("/")).results
    page = await sent(VIEW, caught.value.next_action)
    assert isinstance(page, SearchPage)
    assert page.results[0].tool_id == "git.log"


def test_naming_the_categories_with_matches_takes_only_a_few_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    search = View.search

    def counted(view: View, *given: Any, **more: Any) -> Ranking:
        found = search(view, *given, **more)
        searched.append(len(found.hits))
        return found

    letter = tool("post.send_mail_letter", "Sends a letter by mail to a recipient abroad, express.")
    walls = [tool(f"s{n}.paint", "Paints walls, roofs and floors of a house; says so in a letter.") for n in range(9)]
    view = view_of(tool("notes.read", "Reads a note."), letter, *walls)
    monkeypatch.setattr(View, "search", counted)
    with pytest.raises(NoMatchInCategory) as caught:
        OPERATIONS.search_tools(view, "send an express letter by mail to a recipient abroad", category=["notes"])

    assert caught.value.hints == ("These categories have matches: post",)
    assert searched == [0, 3, 1, 1, 1]


@pytest.mark.anyio
async def test_a_search_in_a_category_without_any_match_leads_to_a_list() -> None:
    with pytest.raises(NoMatchInCategory) as caught:
        OPERATIONS.search_tools(VIEW, "zebra", category=["git", "write"])

    assert caught.value.hints[0] == "No tool in any other category matches either."
    assert "with different words" in caught.value.hints[1]
    assert isinstance(await sent(VIEW, caught.value.next_action), ListPage)


@pytest.mark.anyio
async def test_a_search_without_matches_is_an_answer_with_a_next_action() -> None:
    page = OPERATIONS.search_tools(VIEW, "zebra")
    told = page.to_wire()
    assert (told["results"], told["next_cursor"]) == ([], None)
    assert told["hints"][0] == "No tool matches this query well."
    assert page.suggestion is not None
    assert isinstance(await sent(VIEW, page.suggestion.next_action), ListPage)
    assert OPERATIONS.search_tools(view_of(), "zebra").to_wire() == {"results": [], "next_cursor": None}
    assert "hints" not in OPERATIONS.search_tools(VIEW, " ", tags=["none"]).to_wire()
    assert OPERATIONS.list(view_of(), query="zebra").tools == ()


@pytest.mark.anyio
async def test_a_search_without_good_matches_returns_weak_results_and_marks_them() -> None:
    walls = [tool(f"s{n}.paint", "Paints walls, roofs and floors of a house; says so in a letter.") for n in range(9)]
    view = view_of(*walls, weights=WEIGHTS.without("meaning"))
    query = "how many people live in a house of stone in each province of canada today"

    page = OPERATIONS.search_tools(view, query)

    assert page.is_weak
    wire = page.to_wire()
    assert (len(wire["results"]), wire["weak"], wire["next_cursor"]) == (3, True, None)
    assert all(0 < result["confidence"] < 0.25 for result in wire["results"])
    assert wire["hints"][0] == "No tool matches this query well."
    assert OPERATIONS.list(view, query=query).tools == ()
    assert OPERATIONS.search_nodes(view, query).to_wire()["results"] == []
    with pytest.raises(NoMatchInCategory):
        OPERATIONS.search_tools(view, query, category=["s1"])


@pytest.mark.anyio
async def test_a_search_without_matches_because_of_tags_suggests_a_search_without_tags() -> None:
    page = OPERATIONS.search_tools(VIEW, "read a file", tags=["vcs"])
    assert page.suggestion is not None
    assert page.suggestion.hints == ("There are matches without the tag filter.",)
    found = await sent(VIEW, page.suggestion.next_action)
    assert isinstance(found, SearchPage)
    assert found.results[0].tool_id == "files.read"


@pytest.mark.anyio
async def test_a_search_whose_matches_are_unavailable_suggests_a_search_that_shows_them() -> None:
    lost = tool("broken.print", "Prints a page.")
    registry = registry_of(*VIEW.tools.values())
    registry.register_source(
        SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="no program", is_lasting=True), [lost]
    )
    view = View.of(registry.state)
    page = OPERATIONS.search_tools(view, "print a page")
    assert page.results == ()
    assert page.suggestion is not None
    found = await sent(view, page.suggestion.next_action)
    assert isinstance(found, SearchPage)
    assert [pointer.tool_id for pointer in found.results] == [lost.id]
    assert found.results[0].unavailable is not None


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(InvalidArguments, match="1 to 50"):
        OPERATIONS.list(VIEW, limit=limit)
    with pytest.raises(InvalidArguments, match="1 to 50"):
        OPERATIONS.search_tools(VIEW, "x", limit=limit)


@pytest.mark.anyio
async def test_an_integral_float_is_accepted_as_a_limit() -> None:
    listed = await sent(VIEW, NextAction("list", {"limit": 1.0}))
    found = await sent(VIEW, NextAction("search_tools", {"query": "changes", "limit": 1.0}))

    assert isinstance(listed, ListPage)
    assert listed.next_cursor is not None
    assert isinstance(found, SearchPage)
    assert len(found.results) == 1


# -- cursors ----------------------------------------------------------------------------------------------------------


def first_list_cursor(view: View) -> str:
    cursor = OPERATIONS.list(view, ["git"], limit=1).next_cursor
    assert cursor is not None
    return cursor


@given(st.integers(0, 20), st.sampled_from("ABCabc012-_=+ é"))
def test_an_altered_cursor_is_refused(position: int, letter: str) -> None:
    cursor = first_list_cursor(VIEW)
    altered = cursor[:position] + letter + cursor[position + 1 :]
    if altered == cursor:
        return

    with pytest.raises(InvalidCursor):
        OPERATIONS.list(VIEW, ["git"], limit=1, cursor=altered)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "=" * 8, "é", "\x00", "\ud800", "A" * 100_000, "AAAAAA=="])
def test_a_string_that_is_not_a_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        OPERATIONS.list(VIEW, cursor=cursor)
    with pytest.raises(InvalidCursor):
        OPERATIONS.search_tools(VIEW, "x", cursor=cursor)


@pytest.mark.holds("errors.invalid-cursor")
def test_a_cursor_is_only_valid_for_its_own_request() -> None:
    cursor = first_list_cursor(VIEW)

    for other in (
        lambda: OPERATIONS.list(VIEW, ["files"], limit=1, cursor=cursor),
        lambda: OPERATIONS.list(VIEW, ["git"], limit=2, cursor=cursor),
        lambda: OPERATIONS.list(VIEW, ["git"], limit=1, tags=["vcs"], cursor=cursor),
        lambda: OPERATIONS.list(VIEW, ["git"], limit=1, query="changes", cursor=cursor),
        lambda: OPERATIONS.search_tools(VIEW, "changes", limit=1, cursor=cursor),
        lambda: OPERATIONS.list(replace(VIEW, principal=Principal("grace")), ["git"], limit=1, cursor=cursor),
        lambda: Operations().list(VIEW, ["git"], limit=1, cursor=cursor),
    ):
        with pytest.raises(InvalidCursor):
            other()
    assert OPERATIONS.list(VIEW, ["git"], limit=1, cursor=cursor).tools[0].tool_id == "git.log"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "request_",
    [
        NextAction("list", {"path": ["git"], "limit": 1}),
        NextAction("list", {"tags": ["vcs"], "query": "changes", "limit": 1}),
        NextAction("list", {}),
        NextAction("search_tools", {"query": "changes", "category": ["git"], "limit": 1}),
        NextAction("search_tools", {"query": ""}),
    ],
    ids=str,
)
async def test_the_next_action_after_a_refused_cursor_requests_the_first_page(request_: NextAction) -> None:
    first = await sent(VIEW, request_)

    with pytest.raises(InvalidCursor) as refused:
        await sent(VIEW, NextAction(request_.operation, {**request_.arguments, "cursor": "stale"}))

    assert await sent(VIEW, refused.value.next_action) == first


@pytest.mark.anyio
async def test_a_cursor_from_before_a_catalog_change_is_refused_with_a_restart() -> None:
    registry = registry_of(tool("git.log"), tool("git.tag"))
    cursor = OPERATIONS.list(View.of(registry.state), ["git"], limit=1).next_cursor
    registry.register(tool("git.add"))
    view = View.of(registry.state)

    with pytest.raises(InvalidCursor) as refused:
        OPERATIONS.list(view, ["git"], limit=1, cursor=cursor)

    page = await sent(view, refused.value.next_action)
    assert isinstance(page, ListPage)
    assert page.tools[0].tool_id == "git.add"


def test_a_cursor_stays_valid_if_the_catalog_is_equal_again() -> None:
    registry = registry_of(tool("git.log"), tool("git.tag"))
    cursor = OPERATIONS.list(View.of(registry.state), ["git"], limit=1).next_cursor
    registry.register(tool("git.add"))
    registry.unregister("git.add")

    assert OPERATIONS.list(View.of(registry.state), ["git"], limit=1, cursor=cursor).tools[0].tool_id == "git.tag"


# -- unknown paths ----------------------------------------------------------------------------------------------------


@pytest.mark.holds("errors.unknown-path.closest")
@pytest.mark.anyio
async def test_an_unknown_path_names_the_closest_category_and_leads_there() -> None:
    with pytest.raises(UnknownPath) as unknown:
        OPERATIONS.list(VIEW, ["git", "wirte", "deep"])

    error = unknown.value
    assert error.message == "Category git/wirte/deep not found."
    assert error.hints == ("The closest existing category is git/write.", "Categories in git: write")
    page = await sent(VIEW, error.next_action)
    assert isinstance(page, ListPage)
    assert page.path == ("git", "write")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("operation", "asked", "meant"),
    [
        (
            "search_tools",
            {"query": "history of commits", "category": "gti"},
            {"query": "history of commits", "category": ["git"]},
        ),
        (
            "search_tools",
            {"query": "log", "category": ["gti"], "tags": ["vcs"], "detail_level": "full", "limit": 50},
            {"query": "log", "category": ["git"], "tags": ["vcs"], "detail_level": "full", "limit": 10},
        ),
        (
            "search_tool_by_category",
            {"query": "log", "category_path": ["gti"], "limit": 3},
            {"query": "log", "category_path": ["git"], "limit": 3},
        ),
        (
            "list",
            {"path": ["gti"], "query": "log", "tags": ["vcs"], "limit": 5},
            {"path": ["git"], "query": "log", "tags": ["vcs"], "limit": 5},
        ),
        ("list", {"path": ["gti"]}, {"path": ["git"]}),
    ],
)
async def test_an_unknown_path_leads_to_the_same_request_at_the_closest_path(
    operation: str, asked: dict[str, Any], meant: dict[str, Any]
) -> None:
    with pytest.raises(UnknownPath) as unknown:
        await sent(VIEW, NextAction(operation, asked))

    assert unknown.value.next_action == NextAction(operation, meant)
    await sent(VIEW, unknown.value.next_action)


@pytest.mark.anyio
async def test_a_search_without_matches_at_the_closest_path_is_not_repeated() -> None:
    with pytest.raises(UnknownPath) as unknown:
        OPERATIONS.search_tools(VIEW, "zebra", category="gti")

    assert unknown.value.next_action == NextAction("list", {"path": ["git"]})


@pytest.mark.anyio
async def test_an_unknown_path_without_a_close_match_names_existing_categories() -> None:
    with pytest.raises(UnknownPath) as unknown:
        OPERATIONS.search_tools(VIEW, "x", category=["zebra"])

    assert unknown.value.hints == ("Categories in the root: files, git",)
    assert isinstance(await sent(VIEW, unknown.value.next_action), ListPage)


def test_an_unknown_path_below_a_node_without_categories_says_so() -> None:
    with pytest.raises(UnknownPath) as unknown:
        OPERATIONS.list(VIEW, ["files", "deep"])

    assert unknown.value.hints == ("Categories in files: none, only tools",)


def test_a_path_is_matched_ignoring_case_if_it_is_unambiguous() -> None:
    assert OPERATIONS.list(VIEW, ["GIT", "Write"]).path == ("git", "write")

    twins = view_of(tool("git.a"), tool("Git.b"))
    assert OPERATIONS.list(twins, ["Git"]).path == ("Git",)
    with pytest.raises(UnknownPath):
        OPERATIONS.list(twins, ["GIT"])


# -- expand -----------------------------------------------------------------------------------------------------------


@pytest.mark.holds("schemas.full")
def test_an_expansion_contains_everything_that_a_call_needs() -> None:
    shown = tool("git.commit", " Record changes. Then push. ", properties={"message": {"type": "string"}})
    shown = replace(
        shown,
        output_schema={"type": "object"},
        metadata=replace(
            shown.metadata,
            usage_hint="After add.",
            examples=(ToolExample("First", {"message": "x"}), ToolExample("Other", {}, "done")),
        ),
    )

    assert OPERATIONS.expand_tool(view_of(shown), "git.commit").to_wire() == {
        "tool_id": "git.commit",
        "handle": shown.handle,
        "path": ["git"],
        "summary": "Record changes.",
        "description": "Record changes. Then push.",
        "usage_hint": "After add.",
        "args_schema": shown.input_schema,
        "result_schema": {"type": "object"},
        "examples": [
            {"description": "First", "input": {"message": "x"}},
            {"description": "Other", "input": {}, "output": "done"},
        ],
        "annotations": shown.annotations.to_wire(),
    }


@pytest.mark.parametrize(
    "name", ["git.commit", "git__commit", "git.commit@000000000000", "git__commit@old", "git.commit@"]
)
def test_a_tool_is_expanded_by_any_of_its_names_or_an_old_handle(name: str) -> None:
    assert OPERATIONS.expand_tool(VIEW, name).tool_id == "git.commit"


def test_a_description_equal_to_its_summary_is_left_out() -> None:
    assert "description" not in OPERATIONS.expand_tool(VIEW, "git.log").to_wire()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("asked", "nearest", "clearly_meant"),
    [
        ("git.comit", "git.commit", True),
        ("commit", "git.commit", True),
        ("files.raed", "files.read", True),
        ("read a file", "files.read", False),
    ],
)
async def test_an_unknown_tool_names_the_closest_tool(asked: str, nearest: str, clearly_meant: bool) -> None:
    with pytest.raises(ToolNotFound) as missing:
        OPERATIONS.expand_tool(VIEW, asked)

    assert missing.value.message == f"Tool `{asked}` not found."
    assert f"`{nearest}`" in missing.value.hints[0]
    answer = await sent(VIEW, missing.value.next_action)
    if clearly_meant:
        assert isinstance(answer, Expansion)
        assert answer.tool_id == nearest
    else:
        assert isinstance(answer, SearchPage)


def test_in_a_large_catalog_an_unknown_tool_names_the_closest_of_its_source() -> None:
    view = view_of(tool("git.commit"), *(tool(f"many.t{number}") for number in range(MAX_COMPARED)))

    with pytest.raises(ToolNotFound) as missing:
        OPERATIONS.expand_tool(view, "git.comimt")

    assert missing.value.hints == ("Did you mean `git.commit`?",)


def test_an_unknown_tool_without_a_close_match_has_no_hints() -> None:
    with pytest.raises(ToolNotFound) as missing:
        OPERATIONS.expand_tool(VIEW, "zebra")

    assert missing.value.hints == ()


@pytest.mark.parametrize("asked", ["slow.anything", "slow__anything", "slow.anything@000000000000", "slow"])
def test_a_tool_of_a_starting_source_is_reported_as_retryable(asked: str) -> None:
    registry = registry_of(tool("git.log"))
    registry.register_source(SourceEntry(ScriptedSource("slow")))

    with pytest.raises(SourceUnavailable) as missing:
        OPERATIONS.expand_tool(View.of(registry.state), asked)

    assert missing.value.message == "The source `slow` is still starting."
    assert missing.value.retryable


@pytest.mark.anyio
async def test_a_tool_of_a_failed_source_is_reported_with_the_reason() -> None:
    registry = registry_of(tool("git.log"))
    registry.register_source(SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="it exited."))
    view = View.of(registry.state)

    with pytest.raises(SourceUnavailable) as missing:
        OPERATIONS.expand_tool(view, "broken.anything")

    assert missing.value.message == "The source `broken` is unavailable: it exited."
    page = await sent(view, missing.value.next_action)
    assert isinstance(page, ListPage)
    assert page.missing.unavailable == ("broken",)


def test_a_known_tool_of_a_failed_source_can_be_expanded() -> None:
    registry = registry_of(tool("git.log"))
    entry = registry.state.sources["git"]
    registry.register_source(replace(entry, status=SourceStatus.FAILED, reason="it exited"))

    assert OPERATIONS.expand_tool(View.of(registry.state), "git.log").tool_id == "git.log"


@pytest.mark.holds("expand.several")
def test_an_unknown_tool_does_not_affect_other_tools_of_one_expansion() -> None:
    told = OPERATIONS.expand_tools(VIEW, ["git.log", "git.lgo", "files.read", "git.log"]).to_wire()

    assert [shown["tool_id"] for shown in told["tools"]] == ["git.log", "files.read"]
    (missing,) = told["errors"]
    assert missing["tool_id"] == "git.lgo"
    assert missing["error"]["code"] == "TOOL_NOT_FOUND"


@pytest.mark.parametrize("count", [0, MAX_EXPANDED + 1])
def test_expanding_too_many_or_no_tools_is_refused(count: int) -> None:
    with pytest.raises(InvalidArguments, match="1 to 10"):
        OPERATIONS.expand_tools(VIEW, [f"git.t{number}" for number in range(count)])


def test_repeated_ids_count_as_one_tool_in_an_expansion() -> None:
    assert len(OPERATIONS.expand_tools(VIEW, ["git.log"] * 50).tools) == 1


# -- odd input --------------------------------------------------------------------------------------------------------

ODD = [
    "",
    " ",
    "x" * 100_000,
    "file " * 20_000,
    "\x00",
    "read\x00file",
    "🧰" * 50,
    "ファイルを読む",
    "\ud800",
    "a\udfffb",
    "' OR 1=1 --",
    "${jndi:ldap://x}",
    "@",
    ".",
    "..",
    "__",
    "git.",
    ".commit",
    "%s%n{0}",
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: ascii(odd[:20]))
@pytest.mark.parametrize("view", [VIEW, view_of()], ids=["tools", "empty"])
def test_unusual_input_gets_a_short_answer_or_error(odd: str, view: View) -> None:
    for ask in (
        lambda: OPERATIONS.search_tools(view, odd),
        lambda: OPERATIONS.list(view, query=odd),
        lambda: OPERATIONS.list(view, [odd]),
        lambda: OPERATIONS.list(view, tags=[odd]),
        lambda: OPERATIONS.search_tools(view, "read", category=["git", odd]),
        lambda: OPERATIONS.expand_tool(view, odd),
        lambda: OPERATIONS.expand_tools(view, [odd]),
    ):
        try:
            told: dict[str, Any] = ask().to_wire()
        except ToolcribError as error:
            told = error.to_wire()
        assert len(json.dumps(told)) < 10_000


def test_a_japanese_query_finds_tools_with_japanese_descriptions() -> None:
    view = view_of(tool("jp.yomu", "ファイルを読む。"), tool("jp.kaku", "手紙を書く。"))

    assert OPERATIONS.search_tools(view, "ファイル").results[0].tool_id == "jp.yomu"


def test_only_the_beginning_of_a_very_long_query_is_read() -> None:
    found = OPERATIONS.search_tools(VIEW, "record changes " + "zebra " * 20_000)

    assert found.results[0].tool_id == "git.commit"


def walk_of(view: View) -> Iterator[Tool]:
    yield from view.tools.values()


def test_searching_and_expanding_does_not_call_any_tool() -> None:
    for known in walk_of(VIEW):
        OPERATIONS.expand_tool(VIEW, known.id)
    OPERATIONS.search_tools(VIEW, "commit")

    assert source_of(VIEW, "git").calls == []


def test_an_empty_registry_returns_an_empty_list() -> None:
    view = View.of(ToolRegistry().state)

    assert OPERATIONS.list(view).to_wire() == {"path": [], "nodes": [], "tools": [], "next_cursor": None}
    with pytest.raises(UnknownPath):
        OPERATIONS.list(view, ["git"])
