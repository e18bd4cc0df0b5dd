"""Very deep, wide or unusual catalogs and requests: each gets an answer, or an error with a next action."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from tests.catalogs import registry_of, tool, view_of

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_table import LOOKING, MAX_NAME_CHARS, OPERATION_TABLE
from toolcrib.operations.protocol_messages import ListPage
from toolcrib.search.index.weights import WEIGHTS
from toolcrib.testing.scripted_source import ScriptedSource

OPERATIONS = Operations()
DISPATCHER = Dispatcher(OPERATIONS)


def told(view: View, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The answer or the error. The next action of an error is sent as well and must succeed."""

    async def ask(name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], ToolcribError | None]:
        try:
            return dict((await DISPATCHER.perform(view, CallContext(), name, arguments)).to_wire()), None
        except ToolcribError as error:
            return error.to_wire(), error

    async def main() -> dict[str, Any]:
        wire, error = await ask(name, arguments)
        if error is not None and error.next_action is not None:
            _, after = await ask(error.next_action.operation, error.next_action.arguments)
            assert after is None, "the next action failed"
        return wire

    return anyio.run(main)


def code(wire: Mapping[str, Any]) -> str:
    return wire["error"]["code"] if "error" in wire else "ok"


# -- deep and wide catalogs -------------------------------------------------------------------------------------------

DEEP = tuple(f"n{depth}" for depth in range(1_000))


def test_a_path_of_a_thousand_levels_can_be_listed_searched_and_misspelled() -> None:
    view = view_of(tool("s.deep", "Dig a hole.", category=DEEP), tool("s.flat", "Fill a hole."))

    page = OPERATIONS.list(view, ["s", *DEEP])
    assert [t.tool_id for t in page.tools] == ["s.deep"]
    assert [n.node.path for n in OPERATIONS.list(view, ["s", *DEEP[:-1]]).nodes] == [("s", *DEEP)]
    assert code(told(view, "search_tool_by_category", {"query": "dig", "category_path": ["s", *DEEP]})) == "ok"
    assert code(told(view, "search_tool_by_category", {"query": "fill", "category_path": ["s", *DEEP]})) == (
        "NO_MATCH_IN_CATEGORY"
    )
    assert code(told(view, "list", {"path": ["s", *DEEP, "more"]})) == "UNKNOWN_PATH"
    assert code(told(view, "list", {"path": ["s", "none", *DEEP]})) == "UNKNOWN_PATH"
    assert OPERATIONS.search_nodes(view, "n500").results[0].node.path == ("s", *DEEP[:501])
    assert OPERATIONS.expand_tool(view, "s.deep").path == ("s", *DEEP)


def test_a_node_with_ten_thousand_children_can_be_paged_searched_and_misspelled() -> None:
    many = [
        tool(f"s.t{n}", f"Thing {n}.", category=(f"c{n:05}",), tags=("even",) * (n % 2 == 0)) for n in range(10_000)
    ]
    view = view_of(*many)

    page = OPERATIONS.list(view, ["s"], limit=50)
    assert len(page.nodes) == 50
    again = OPERATIONS.list(view, ["s"], limit=50, cursor=page.next_cursor)
    assert not {n.node.path for n in page.nodes} & {n.node.path for n in again.nodes}
    assert OPERATIONS.list(view).nodes[0].tool_count == 10_000
    assert OPERATIONS.list(view, ["s", "c09999"]).tools[0].tool_id == "s.t9999"
    assert len(OPERATIONS.list(view, ["s"], tags=["even"], limit=50).nodes) == 50
    assert OPERATIONS.search_nodes(view, "c04711").results[0].node.path == ("s", "c04711")
    error = told(view, "list", {"path": ["s", "zebra"]})
    assert code(error) == "UNKNOWN_PATH"
    assert len(json.dumps(error)) < 2_000


@pytest.mark.slow
def test_a_category_with_ten_thousand_tools_shows_groups_that_contain_each_tool() -> None:
    things = ["invoice", "calendar", "picture", "message", "meeting", "contract"]
    registry = registry_of(*(tool(f"s.t{n}", f"Change the {things[n % 6]} number {n}.") for n in range(10_000)))
    registry.set_categories(Categories([Category(("office",), tools=("s.*",))]))
    view = View.of(registry.state)
    found, waiting = set[str](), [("office",)]
    while waiting:
        path = waiting.pop()
        cursor: str | None = None
        while True:
            page = OPERATIONS.list(view, path, limit=50, cursor=cursor)
            found |= {*page.tool_ids}
            waiting += [node.node.path for node in page.nodes]
            if (cursor := page.next_cursor) is None:
                break

    assert found == {*view.tools}


# -- unusual strings --------------------------------------------------------------------------------------------------

ODD = [
    "",
    " ",
    "a/b",
    "\x00",
    "🧰",
    "ファイル",
    "ملفات",
    "\ud800",
    "x" * 100_000,
    "zebra " * 15_000,
    "!?",
    "the of and",
]


@pytest.mark.holds("errors.next-action")
@pytest.mark.parametrize("odd", ODD, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize("empty", [True, False])
def test_an_unusual_string_gets_an_answer_or_a_usable_next_action(odd: str, empty: bool) -> None:
    view = View.of(ToolRegistry().state) if empty else view_of(tool("git.log", "History", category=(odd,), tags=(odd,)))
    requests: list[tuple[str, dict[str, Any]]] = [
        ("list", {"query": odd}),
        ("list", {"path": ["git", odd]}),
        ("list", {"path": [odd] * 50}),
        ("list", {"tags": [odd], "query": odd}),
        ("list", {"cursor": odd}),
        ("search_tools", {"query": odd, "tags": [odd], "detail_level": "full"}),
        ("search_tools", {"query": odd, "category": ["git", odd], "include_unavailable": True}),
        ("search_tool_by_category", {"query": odd, "category_path": []}),
        ("search_tool_by_category", {"query": odd, "category_path": ["git", odd]}),
        ("search_tool_by_category", {"query": "history", "category_path": ["git", odd], "cursor": odd}),
        ("search_nodes", {"query": odd}),
        ("expand_tool", {"tool_id": odd}),
        ("expand_tool", {"tool_ids": [odd, f"git.{odd}", f"git.log@{odd}"]}),
        ("call_tool", {"tool_id": f"git.log@{odd}", "arguments": {odd: odd}}),
        ("call_read_only_tool", {"tool_id": odd}),
    ]
    for name, arguments in requests:
        wire = told(view, name, arguments)
        assert len(json.dumps(wire)) < 1_000_000
        if not empty and len(odd) <= MAX_NAME_CHARS and name == "list" and arguments == {"path": ["git", odd]}:
            assert [t["tool_id"] for t in wire["tools"]] == ["git.log"]


def test_an_empty_catalog_answers_every_lookup() -> None:
    view = View.of(ToolRegistry().state)
    for name in LOOKING:
        possible: dict[str, Any] = {"query": "x", "tool_id": "x", "category_path": []}
        takes = OPERATION_TABLE[name].arguments.document["properties"]
        wire = told(view, name, {key: value for key, value in possible.items() if key in takes})
        assert code(wire) in {"ok", "TOOL_NOT_FOUND", "NO_MATCH_IN_CATEGORY"}
    nodes = told(view, "search_nodes", {"query": ""})
    assert (nodes["results"], nodes["next_action"]) == ([], {"operation": "list", "arguments": {}})
    assert told(view, "search_tools", {"query": ""}) == {"results": [], "next_cursor": None}


def test_the_end_of_a_long_query_is_ignored() -> None:
    view = view_of(tool("git.log", "Show the history."), tool("fs.read", "Read a file."))
    query = "history " * 300

    assert (
        OPERATIONS.search_tools(view, query + "file " * 20_000).results == OPERATIONS.search_tools(view, query).results
    )
    assert OPERATIONS.search_nodes(view, "x" * 100_000).results == ()


class Counted(str):
    """Counts the calls of `casefold`."""

    folded = 0

    def casefold(self) -> str:
        Counted.folded += 1
        return super().casefold()


def test_a_very_long_name_is_not_compared_with_known_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> list[str]:
        raise AssertionError("it was compared letter by letter")

    monkeypatch.setattr("difflib.get_close_matches", refuse)
    view = view_of(*(tool(f"s{number}.log", "History") for number in range(200)))
    long = Counted("q" * 1_000_000)
    for ask in (
        lambda: OPERATIONS.list(view, [long]),
        lambda: OPERATIONS.list(view, ["s1", long]),
        lambda: OPERATIONS.expand_tool(view, long),
        lambda: OPERATIONS.expand_tool(view, f"s1.{long}@1"),
    ):
        with pytest.raises(ToolcribError) as refused:
            ask()
        assert len(refused.value.message) < 1_000
    assert 0 < Counted.folded < 20


def test_many_unknown_keys_are_refused_with_a_short_error() -> None:
    wire = told(view_of(tool("git.log")), "list", {f"k{number}": number for number in range(50_000)})
    assert code(wire) == "INVALID_ARGUMENTS"
    assert len(json.dumps(wire)) < 5_000


# -- unavailable tools ------------------------------------------------------------------------------------------------


@pytest.mark.holds("search_tools.include_unavailable")
def test_unavailable_tools_are_shown_with_the_reason_only_on_request() -> None:
    registry = registry_of(tool("git.log", "Show the history."), tool("hg.log", "Show the history.", tags=("old",)))
    entry = SourceEntry(ScriptedSource("hg"), SourceStatus.FAILED, reason="HG_TOKEN is not set", is_lasting=True)
    registry.register_source(entry)
    view = View.of(registry.state)

    assert OPERATIONS.search_tools(view, "history").tool_ids == ("git.log",)
    assert OPERATIONS.search_tools(view, "").tool_ids == ("git.log",)
    assert [node.node.name for node in OPERATIONS.list(view).nodes] == ["git"]
    assert OPERATIONS.list(view).to_wire()["unavailable"] == ["hg"]
    shown = OPERATIONS.search_tools(view, "history", include_unavailable=True, tags=["old"]).results
    assert [(hit.tool_id, hit.unavailable) for hit in shown] == [
        ("hg.log", "Its source is unavailable: HG_TOKEN is not set")
    ]
    within = OPERATIONS.search_tools(view, "history", category=["hg"], include_unavailable=True)
    assert within.tool_ids == ("hg.log",)
    assert "HG_TOKEN" in (OPERATIONS.expand_tool(view, "hg.log").obstacle or "")
    for operation, key in (("search_tools", "category"), ("search_tool_by_category", "category_path")):
        assert code(told(view, operation, {"query": "history", key: ["hg"]})) == "SOURCE_UNAVAILABLE"


def test_a_category_with_matches_is_suggested_only_if_they_are_available() -> None:
    registry = registry_of(
        tool("git.log", "Show it."), tool("hg.log", "Show the history."), tool("git.x", "", tags=("t",))
    )
    registry.register_source(SourceEntry(ScriptedSource("hg"), SourceStatus.FAILED, reason="gone", is_lasting=True))
    registry.set_weights(WEIGHTS.without("meaning"))
    view = View.of(registry.state)

    error = told(view, "search_tool_by_category", {"query": "history", "category_path": ["git"]})
    assert error["error"]["hints"] == [
        "There are matches, but they are unavailable. Search with `include_unavailable` to see the reasons."
    ]
    found = told(view, "search_tools", error["error"]["next_action"]["arguments"])
    assert [each["tool_id"] for each in found["results"]] == ["hg.log"]
    error = told(view, "search_tools", {"query": "show", "category": ["git"], "tags": ["t"]})
    assert error["error"]["hints"] == ["There are matches without the tag filter."]
    assert told(view, "search_tools", error["error"]["next_action"]["arguments"])["results"]


def test_a_misspelled_path_through_a_link_suggests_the_primary_path() -> None:
    registry = registry_of(tool("ruff.check", category=("styles",)), tool("git.log"))
    linked = Category(("deep", "down", "lint"), tools=("ruff.check",), also_under=(("quality",),))
    inner = Category(("deep", "down", "lint", "strict"), tools=("git.log",))
    registry.set_categories(Categories([linked, inner]))
    view = View.of(registry.state)

    error = told(view, "list", {"path": ["quality", "lint", "stricct", "x"]})["error"]
    assert error["next_action"] == {
        "operation": "list",
        "arguments": {"path": ["deep", "down", "lint", "strict"]},
    }
    page = OPERATIONS.list(view, ["quality", "lint"])
    assert isinstance(page, ListPage)
    assert page.path == ("deep", "down", "lint")
