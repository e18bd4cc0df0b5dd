"""The discovery protocol, requirement by requirement, with the same results through Python, MCP and HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from tests.catalogs import tool
from tests.contract.ways import WAYS, Ask, Json, Way, asking

from toolcrib import Access, Category, Rule, Rules, Toolcrib, ToolMetadata
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.errors import SourceUnavailable, ToolFailed
from toolcrib.core.events import OperationPerformed
from toolcrib.core.handles import Handle
from toolcrib.core.schema import Schema
from toolcrib.core.tools import Tool
from toolcrib.operations.calling.limits import Rate
from toolcrib.operations.operation_table import LOOKING, OPERATION_TABLE, OPERATIONS, SETS, message_schema
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

CANARY = "zebra_stripes"
"""A word that is only in schemas."""

PUT = tool(
    "storage.put_object",
    "Uploads an object to a bucket. It stands in the place of one that was there.",
    tags=("storage", "upload"),
    properties={"bucket": {"type": "string"}, CANARY: {"type": "integer", "default": 3}},
    required=("bucket",),
)
GET = tool("storage.get_object", "Downloads an object from a bucket.", tags=("storage", "download"))
USAGE = tool("storage.usage", "Shows how much space is taken.")
RENAME = replace(
    tool("refactor.rename_symbol", "Renames a symbol.", tags=("refactor", "rename"), properties={CANARY: {}}),
    output_schema={"type": "object", "properties": {"changed_files": {"type": "integer"}}},
)
SHELVES = [
    *(tool(f"many.sort_{number:02}", "Sorts a shelf.", category=(f"c{number:02}",)) for number in range(45)),
    *(tool(f"many.sort_{number:02}", "Sorts a shelf.") for number in range(45, 57)),
]
LOCKED, HIDDEN = tool("vault.open", "Opens the vault."), tool("vault.empty", "Empties the vault.")
REFUSED, GONE = tool("flaky.refuse", "Refuses."), tool("flaky.vanish", "Goes away.")
LOST = tool("broken.print", "Prints a page.")
LACKING = replace(tool("flaky.etch", "Etches."), metadata=ToolMetadata(requires_capabilities=("acid",)))

CATEGORIES = (
    Category(("Storage",), summary="Files and objects", tools=("storage.usage",)),
    Category(
        ("Storage", "Buckets"),
        summary="Create and manage object storage buckets",
        tags=("storage", "objects"),
        tools=("storage.*_object",),
    ),
    Category(("Coding",), summary="Read and change source code"),
    Category(("Coding", "Refactoring"), summary="Change code, not what it does", tagged=("refactor",)),
    Category(("User",)),
    Category(("User", "Auth"), summary="Authentication and authorization workflows", tools=("login.*",)),
)

POLICY = Rules((Rule(Access.HIDDEN, tools=(HIDDEN.id,)), Rule(Access.SEE, tools=(LOCKED.id,))), Access.CALL)


class Counter:
    """A crib with all of these tools, and the recorded operations."""

    def __init__(self) -> None:
        self.recorded: list[OperationPerformed] = []
        self.crib = Toolcrib(policy=POLICY, record=self.recorded.append)
        for category in CATEGORIES:
            self.crib.add_category(category)
        self.storage = self._source("storage", PUT, GET, USAGE)
        self._source("refactor", RENAME)
        self._source("login", tool("login.oauth", "Starts an OAuth login."))
        self._source("many", *SHELVES)
        self._source("vault", LOCKED, HIDDEN)
        flaky = self._source("flaky", REFUSED, GONE, LACKING)
        flaky.answers |= {"refuse": ToolFailed("It refused."), "vanish": SourceUnavailable("It went away.")}
        broken = SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="no such program.", is_lasting=True)
        self.crib.registry.register_source(broken, [LOST])

    def _source(self, name: str, *tools: Tool) -> ScriptedSource:
        source = ScriptedSource(name, tools)
        self.crib.registry.register_source(SourceEntry(source, SourceStatus.READY), tools)
        return source


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture(params=WAYS)
async def ask(request: pytest.FixtureRequest, counter: Counter) -> AsyncGenerator[Ask]:
    way: Way = request.param
    async with asking(counter.crib, way) as ask:
        yield ask


async def code(ask: Ask, operation: str, /, **arguments: Any) -> str:
    """Return the code of the error that the operation must give."""
    return (await ask(operation, **arguments))["error"]["code"]


async def walk(ask: Ask, operation: str, /, **arguments: Any) -> list[Json]:
    """Request all pages."""
    pages = [await ask(operation, **arguments)]
    while pages[-1]["next_cursor"] is not None:
        pages.append(await ask(operation, **arguments, cursor=pages[-1]["next_cursor"]))
    return pages


def ids(page: Json) -> list[str]:
    return [pointer["tool_id"] for pointer in (page["tools"] if "tools" in page else page["results"])]


def untraced(handle: str) -> str:
    parsed = Handle.parse(handle)
    assert parsed is not None
    return str(replace(parsed, trace_id=None))


# -- list -------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("nodes.category", "list.path", "list.answer.path", "nodes.summary", "operations.every-way")
async def test_a_list_without_a_path_shows_the_root(ask: Ask) -> None:
    top = await ask("list")

    assert top == await ask("list", path=[])
    assert top["path"] == []
    nodes = {tuple(node["path"]): node["summary"] for node in top["nodes"]}
    assert nodes["Storage",] == "Files and objects"
    assert all(len(path) == 1 for path in nodes)
    assert all(nodes.values()), "what nobody described says what is in it"


@pytest.mark.holds(
    "nodes.children-and-tools",
    "nodes.name",
    "nodes.path",
    "nodes.tags",
    "pointers.minimal",
    "pointers.path",
    "pointers.summary",
    "list.nodes-and-tools",
    "list.answer.nodes",
    "list.answer.tools",
    "list.answer.next_cursor",
)
async def test_a_list_shows_the_nodes_and_tools_at_its_path(ask: Ask) -> None:
    page = await ask("list", path=["Storage"])

    assert page == {
        "path": ["Storage"],
        "nodes": [
            {
                "name": "Buckets",
                "path": ["Storage", "Buckets"],
                "summary": "Create and manage object storage buckets",
                "tool_count": 2,
                "tags": ["storage", "objects"],
            }
        ],
        "tools": [{"tool_id": "storage.usage", "path": ["Storage"], "summary": "Shows how much space is taken."}],
        "next_cursor": None,
    }
    assert ids(await ask("list", path=page["nodes"][0]["path"])) == ["storage.get_object", "storage.put_object"]


@pytest.mark.holds("list.filters-by-tags", "pointers.tags")
async def test_a_list_with_tags_shows_only_what_has_all_tags(ask: Ask) -> None:
    above = await ask("list", path=["Storage"], tags=["storage", "upload"])
    at = await ask("list", path=["Storage", "Buckets"], tags=["storage", "upload"])

    assert [(node["name"], node["tool_count"]) for node in above["nodes"]] == [("Buckets", 1)]
    assert above["tools"] == []
    assert [(pointer["tool_id"], pointer["tags"]) for pointer in at["tools"]] == [(PUT.id, ["storage", "upload"])]


@pytest.mark.holds("list.filters-by-query", "pointers.confidence")
async def test_a_list_with_a_query_shows_matches_within_its_path(ask: Ask) -> None:
    page = await ask("list", path=["Storage"], query="uploads an object")

    assert ids(page)[0] == PUT.id
    assert {*ids(page)} <= {PUT.id, GET.id, USAGE.id}
    assert all(0 <= pointer["confidence"] <= 1 for pointer in page["tools"])
    assert ids(await ask("list", path=["Coding"], query="uploads an object")) == []


@pytest.mark.holds("list.limit", "list.limit.default", "list.limit.most", "list.cursor", "list.all-nodes")
async def test_a_list_has_all_nodes_ten_tools_and_at_most_fifty_entries(ask: Ask) -> None:
    def sizes(pages: list[Json]) -> list[tuple[int, int]]:
        return [(len(page["nodes"]), len(page["tools"])) for page in pages]

    all_of_it = [await walk(ask, "list", path=["many"], **given) for given in ({}, {"limit": 20}, {"limit": 50})]

    assert [sizes(pages) for pages in all_of_it] == [[(45, 5), (0, 7)], [(20, 0), (20, 0), (5, 12)], [(45, 5), (0, 7)]]
    for pages in all_of_it:
        assert [node["name"] for page in pages for node in page["nodes"]] == [f"c{n:02}" for n in range(45)]
        assert [tool_id for page in pages for tool_id in ids(page)] == [f"many.sort_{n}" for n in range(45, 57)]
    few = await ask("list", path=["many"], query="sorts a shelf")
    assert len(few["tools"]) == 10
    assert await code(ask, "list", path=["many"], limit=51) == "INVALID_ARGUMENTS"


# -- search_tool_by_category ------------------------------------------------------------------------------------------


@pytest.mark.holds(
    "category-search.words",
    "category-search.scoped",
    "category-search.answer.category_path",
    "category-search.answer.results",
    "category-search.answer.next_cursor",
    "pointers.minimal",
)
async def test_a_category_search_takes_natural_language_and_returns_pointers(ask: Ask) -> None:
    request = {"query": "rename a symbol across the codebase", "category_path": ["Coding"], "limit": 5, "cursor": None}
    page = await ask("search_tool_by_category", **request)

    (found,) = page["results"]
    assert 0 <= found.pop("confidence") <= 1
    assert found == {
        "tool_id": "refactor.rename_symbol",
        "path": ["Coding", "Refactoring"],
        "summary": "Renames a symbol.",
        "tags": ["refactor", "rename"],
    }
    assert page == {"category_path": ["Coding"], "results": [found], "next_cursor": None, "unavailable": ["broken"]}


@pytest.mark.holds("category-search.ranked")
async def test_category_search_results_are_ordered_by_confidence(ask: Ask) -> None:
    query = "uploads an object to a bucket"
    results = (await ask("search_tool_by_category", query=query, category_path=["Storage"]))["results"]

    assert [pointer["tool_id"] for pointer in results][:2] == [PUT.id, GET.id]
    confidences = [pointer["confidence"] for pointer in results]
    assert confidences == sorted(confidences, reverse=True)


@pytest.mark.holds("category-search.query", "category-search.category_path")
async def test_a_category_search_requires_a_query_and_a_category(ask: Ask) -> None:
    assert await code(ask, "search_tool_by_category", query="x") == "INVALID_ARGUMENTS"
    assert await code(ask, "search_tool_by_category", category_path=["Coding"]) == "INVALID_ARGUMENTS"


@pytest.mark.holds("category-search.limit", "category-search.cursor")
async def test_a_category_search_is_paged_like_a_list(ask: Ask) -> None:
    request = {"query": "sorts a shelf", "category_path": ["many"]}

    assert len((await ask("search_tool_by_category", **request))["results"]) == 10
    assert len((await ask("search_tool_by_category", **request, limit=50))["results"]) == 50
    assert await code(ask, "search_tool_by_category", **request, limit=51) == "INVALID_ARGUMENTS"
    walked = [
        tool_id for page in await walk(ask, "search_tool_by_category", **request, limit=25) for tool_id in ids(page)
    ]
    assert sorted(walked) == [shelf.id for shelf in SHELVES]


# -- search_nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.holds(
    "node-search.where-to-start",
    "node-search.paths",
    "node-search.query",
    "node-search.answer.results",
    "nodes.confidence",
)
async def test_a_node_search_finds_a_category_by_description(ask: Ask) -> None:
    page = await ask("search_nodes", query="oauth login", limit=5)

    found = page["results"]
    assert {
        "name": "Auth",
        "path": ["User", "Auth"],
        "summary": "Authentication and authorization workflows",
        "tool_count": 1,
        "confidence": found[0]["confidence"],
    } == found[0]
    confidences = [node["confidence"] for node in found]
    assert confidences == sorted(confidences, reverse=True)
    assert all(0 <= confidence <= 1 for confidence in confidences)
    for node in found:
        assert (await ask("list", path=node["path"]))["path"] == node["path"]
    inside = await ask("search_tool_by_category", query="oauth login", category_path=found[0]["path"])
    assert ids(inside) == ["login.oauth"]
    assert await code(ask, "search_nodes") == "INVALID_ARGUMENTS"


@pytest.mark.holds("node-search.limit")
async def test_a_node_search_returns_at_most_the_requested_number(ask: Ask) -> None:
    assert len((await ask("search_nodes", query="sorts a shelf"))["results"]) == 10
    assert len((await ask("search_nodes", query="sorts a shelf", limit=50))["results"]) > 45
    assert len((await ask("search_nodes", query="sorts a shelf", limit=1))["results"]) == 1
    assert await code(ask, "search_nodes", query="sorts a shelf", limit=51) == "INVALID_ARGUMENTS"


# -- search_tools -----------------------------------------------------------------------------------------------------


@pytest.mark.holds("search_tools.everywhere", "goals.escape-hatch")
async def test_after_no_match_in_a_category_the_next_action_searches_the_whole_catalog(ask: Ask) -> None:
    wrong = await ask("search_tool_by_category", query="upload an object", category_path=["Coding"])
    assert wrong["error"]["code"] == "NO_MATCH_IN_CATEGORY"

    page = await ask(wrong["error"]["next_action"]["operation"], **wrong["error"]["next_action"]["arguments"])

    assert ids(page)[0] == PUT.id
    assert ids(await ask("search_tools", query="object", tags=["download"])) == [GET.id]
    assert {*ids(await ask("search_tools", query="object", category=["Storage", "Buckets"]))} == {PUT.id, GET.id}


@pytest.mark.holds("search_tools.detail_level")
async def test_the_detail_level_selects_ids_pointers_or_expansions(ask: Ask) -> None:
    query = "rename a symbol"
    (name,) = (await ask("search_tools", query=query, detail_level="name"))["results"]
    (summary,) = (await ask("search_tools", query=query, detail_level="summary"))["results"]
    (full,) = (await ask("search_tools", query=query, detail_level="full"))["results"]

    assert name == {"tool_id": RENAME.id}
    assert summary.keys() == {"tool_id", "path", "summary", "tags", "confidence"}
    assert summary == {key: full[key] for key in summary}
    assert (await ask("search_tools", query=query))["results"] == [summary]


@pytest.mark.holds("search_tools.one-door", "expand.answer.handle")
async def test_a_search_in_full_expands_like_expand_tool(ask: Ask, counter: Counter) -> None:
    (full,) = (await ask("search_tools", query="rename a symbol", detail_level="full"))["results"]
    expanded = await ask("expand_tool", tool_id=RENAME.id)

    assert untraced(full.pop("handle")) == untraced(expanded.pop("handle")) == RENAME.handle
    assert expanded.items() <= full.items()
    searched, shown = counter.recorded
    assert (searched.tool_ids, searched.outcome) == (shown.tool_ids, shown.outcome) == ((RENAME.id,), "ok")
    assert await code(ask, "search_tools", query="sorts", detail_level="full", limit=11) == "INVALID_ARGUMENTS"


@pytest.mark.holds("search_tools.one-door")
async def test_a_handle_from_a_search_in_full_is_called_in_the_same_trace(ask: Ask, counter: Counter) -> None:
    (full,) = (await ask("search_tools", query="rename a symbol", detail_level="full"))["results"]
    assert (await ask("call_tool", tool_id=full["handle"], arguments={CANARY: 1}))["structuredContent"] == {CANARY: 1}

    searched, called = counter.recorded
    assert searched.trace_id == called.trace_id


@pytest.mark.holds("search_tools.include_unavailable")
async def test_unavailable_tools_are_found_only_on_request_with_a_reason(ask: Ask) -> None:
    plain = await ask("search_tools", query="print a page")
    assert LOST.id not in ids(plain)
    assert plain["unavailable"] == ["broken"]

    found = (await ask("search_tools", query="print a page", include_unavailable=True))["results"]

    assert found[0]["tool_id"] == LOST.id
    assert "no such program" in found[0]["unavailable"]


# -- expand_tool and call_tool ----------------------------------------------------------------------------------------


@pytest.mark.holds(
    "schemas.full",
    "expand.one",
    "expand.answer.tool_id",
    "expand.answer.path",
    "expand.answer.summary",
    "expand.answer.args_schema",
    "expand.answer.result_schema",
    "pointers.tool_id",
)
async def test_an_expansion_has_the_complete_schemas_of_the_tool(ask: Ask) -> None:
    (found,) = (await ask("search_tool_by_category", query="rename", category_path=["Coding"]))["results"]

    expanded = await ask("expand_tool", tool_id=found["tool_id"])

    handle = expanded.pop("handle")
    assert untraced(handle) == RENAME.handle
    assert expanded == {
        "tool_id": found["tool_id"],
        "path": found["path"],
        "summary": found["summary"],
        "args_schema": RENAME.input_schema,
        "result_schema": RENAME.output_schema,
        "annotations": RENAME.annotations.to_wire(),
    }
    assert "result_schema" not in await ask("expand_tool", tool_id=PUT.id)


@pytest.mark.holds("expand.several")
async def test_several_tools_are_expanded_at_once_even_if_one_is_unknown(ask: Ask) -> None:
    told = await ask("expand_tool", tool_ids=[PUT.id, "storage.nothing", RENAME.id])

    assert ids(told) == [PUT.id, RENAME.id]
    assert [untraced(each["handle"]) for each in told["tools"]] == [PUT.handle, RENAME.handle]
    assert [(each["tool_id"], each["error"]["code"]) for each in told["errors"]] == [
        ("storage.nothing", "TOOL_NOT_FOUND")
    ]


@pytest.mark.holds("call.conform", "expand.answer.handle", "errors.invalid-arguments", "errors.not-expanded")
async def test_a_tool_runs_only_with_arguments_that_match_the_shown_schema(ask: Ask, counter: Counter) -> None:
    assert await code(ask, "call_tool", tool_id=PUT.id, arguments={"bucket": "b"}) == "NOT_EXPANDED"
    expanded = await ask("expand_tool", tool_id=PUT.id)
    shown = Schema(expanded["args_schema"])
    for wrong in ({}, {"bucket": 5}, {"bucket": "b", "zoo": 1}):
        assert not shown.is_valid(wrong)
        assert await code(ask, "call_tool", tool_id=expanded["handle"], arguments=wrong) == "INVALID_ARGUMENTS"
    assert counter.storage.calls == []

    arguments = {"bucket": "b", CANARY: 2}
    assert shown.is_valid(arguments)
    answer = await ask("call_tool", tool_id=expanded["handle"], arguments=arguments)

    assert answer["structuredContent"] == arguments
    assert counter.storage.calls == [("put_object", arguments)]


@pytest.mark.holds("schemas.one-door", "pointers.everywhere", "goals.little-until-chosen", "interaction.small")
async def test_only_an_expansion_contains_parts_of_a_schema(ask: Ask) -> None:
    looks: list[tuple[str, Json]] = [
        ("list", {"path": ["Storage", "Buckets"]}),
        ("list", {"query": "upload an object"}),
        ("search_tools", {"query": "upload an object"}),
        ("search_tools", {"query": "upload an object", "detail_level": "name"}),
        ("search_tools", {"query": CANARY}),
        ("search_tools", {"query": ""}),
        ("search_tool_by_category", {"query": "upload an object", "category_path": ["Storage"]}),
        ("search_nodes", {"query": "upload an object"}),
        ("expand_tool", {"tool_id": "storage.put_objekt"}),
        ("call_tool", {"tool_id": PUT.id}),
    ]
    for operation, arguments in looks:
        told = json.dumps(await ask(operation, **arguments)).replace(json.dumps(arguments.get("query", "")), "")
        assert "storage.put_object" in told or operation == "search_nodes" or arguments.get("query") == ""
        assert CANARY not in told, (operation, arguments)
        assert "args_schema" not in told
    assert CANARY in json.dumps(await ask("expand_tool", tool_id=PUT.id))


# -- list_categories --------------------------------------------------------------------------------------------------


@pytest.fixture(params=WAYS)
async def by_category(request: pytest.FixtureRequest, counter: Counter) -> AsyncGenerator[Ask]:
    """Ask with the operations of the set `discovery`."""
    way: Way = request.param
    async with asking(counter.crib, way, "discovery") as ask:
        yield ask


@pytest.mark.holds(
    "list_categories.top",
    "list_categories.tools",
    "list_categories.version",
    "messages.conform",
    "operations.every-way",
)
async def test_list_categories_shows_the_top_nodes_with_their_tools(by_category: Ask, counter: Counter) -> None:
    for name in ("many", "login"):  # the tools of `many` are in its node, those of `login` are elsewhere
        counter.crib.registry.register_source(replace(counter.crib.view().sources[name], version="2.1.0"))
    top = counter.crib.list()

    page = await by_category("list_categories")

    assert Schema(message_schema(OPERATION_TABLE["list_categories"].response_name)).violations(page) == ()
    shown = {category["category"]: category for category in page["categories"]}
    assert [*shown] == [pointer.node.name for pointer in top.nodes]
    assert shown["Storage"] == {
        "category": "Storage",
        "path": ["Storage"],
        "summary": "Files and objects",
        "tool_count": 3,
        "tools": [GET.id, PUT.id, USAGE.id],
    }
    assert shown["many"]["tool_count"] == len(SHELVES)
    assert shown["many"]["tools"] == [shelf.id for shelf in SHELVES[:20]]
    assert {name: each["version"] for name, each in shown.items() if "version" in each} == {"many": "2.1.0"}
    assert HIDDEN.id not in json.dumps(page)
    assert page["unavailable"] == ["broken"]
    rest = await by_category("list_categories", cursor=page["next_cursor"])
    assert rest["categories"] == [{**shown["many"], "tools": [shelf.id for shelf in SHELVES[20:]]}]
    assert rest["next_cursor"] is None


@pytest.mark.holds("list_categories.pages")
async def test_list_categories_is_paged(by_category: Ask) -> None:
    (whole, rest) = await walk(by_category, "list_categories")
    pages = await walk(by_category, "list_categories", limit=2)

    assert [each for page in pages for each in page["categories"]] == [*whole["categories"], *rest["categories"]]
    assert all(len(page["categories"]) == 2 for page in pages[: len(whole["categories"]) // 2])
    assert await code(by_category, "list_categories", limit=51) == "INVALID_ARGUMENTS"
    error = (await by_category("list_categories", cursor=NO_CURSOR))["error"]
    assert (error["code"], error["next_action"]) == (
        "INVALID_CURSOR",
        {"operation": "list_categories", "arguments": {}},
    )


@pytest.mark.holds("search_tools.all", "search_tools.category")
async def test_a_category_can_be_a_string_and_be_searched_without_a_query(by_category: Ask) -> None:
    of_path = await by_category("search_tools", query="", category=["Storage", "Buckets"])

    assert ids(of_path) == [GET.id, PUT.id]
    assert await by_category("search_tools", category="Storage/buckets") == of_path
    assert ids(await by_category("search_tools", category="refactor")) == [RENAME.id]
    assert await by_category("search_tools", category="") == await by_category("search_tools", query="")
    assert await code(by_category, "search_tools", category="bugtracker") == "UNKNOWN_PATH"


# -- errors -----------------------------------------------------------------------------------------------------------

HANDLE, NO_CURSOR = PUT.handle, "bm90IGEgY3Vyc29y"

ERRORS: list[tuple[str, str, Json]] = [
    ("NO_MATCH_IN_CATEGORY", "search_tool_by_category", {"query": "upload", "category_path": ["Coding"]}),
    ("NO_MATCH_IN_CATEGORY", "search_tools", {"query": "upload", "category": ["Coding"]}),
    ("NO_MATCH_IN_CATEGORY", "search_tools", {"query": "xyzzy", "category": ["Coding"]}),
    ("UNKNOWN_PATH", "list", {"path": ["Storge", "Buckets"]}),
    ("UNKNOWN_PATH", "list", {"path": ["xyzzy"]}),
    ("UNKNOWN_PATH", "search_tools", {"query": "upload", "category": ["Storge"]}),
    ("UNKNOWN_PATH", "search_tool_by_category", {"query": "upload", "category_path": ["Storge"]}),
    ("TOOL_NOT_FOUND", "expand_tool", {"tool_id": "storage.put"}),
    ("TOOL_NOT_FOUND", "expand_tool", {"tool_id": HIDDEN.id}),
    ("TOOL_NOT_FOUND", "call_tool", {"tool_id": HIDDEN.handle}),
    ("NOT_AUTHORIZED", "call_tool", {"tool_id": LOCKED.handle}),
    ("NOT_EXPANDED", "call_tool", {"tool_id": PUT.id, "arguments": {"bucket": "b"}}),
    ("STALE_EXPANSION", "call_tool", {"tool_id": f"{PUT.id}@000000000000", "arguments": {"bucket": "b"}}),
    ("INVALID_ARGUMENTS", "call_tool", {"tool_id": HANDLE, "arguments": {"bucket": 5}}),
    ("INVALID_ARGUMENTS", "search_tools", {"querry": "upload"}),
    ("INVALID_ARGUMENTS", "search_tools", {"query": "upload", "detail_level": "full", "limit": 20}),
    ("INVALID_ARGUMENTS", "expand_tool", {}),
    ("INVALID_ARGUMENTS", "expand_tool", {"tool_ids": []}),
    ("INVALID_CURSOR", "list", {"cursor": NO_CURSOR}),
    ("INVALID_CURSOR", "search_tools", {"query": "upload", "cursor": NO_CURSOR}),
    ("INVALID_CURSOR", "search_tool_by_category", {"query": "sort", "category_path": ["many"], "cursor": NO_CURSOR}),
    ("CAPABILITY_MISSING", "call_tool", {"tool_id": LACKING.handle}),
    ("SOURCE_UNAVAILABLE", "call_tool", {"tool_id": GONE.handle}),
    ("SOURCE_UNAVAILABLE", "expand_tool", {"tool_id": "broken.nothing"}),
    ("TOOL_FAILED", "call_tool", {"tool_id": REFUSED.handle}),
]


@pytest.mark.holds(
    "errors.no-match-in-category",
    "errors.unknown-path",
    "errors.tool-not-found",
    "errors.not-authorized",
    "errors.not-expanded",
    "errors.stale-expansion",
    "errors.invalid-arguments",
    "errors.invalid-cursor",
    "errors.capability-missing",
    "errors.source-unavailable",
    "errors.tool-failed",
    "errors.message",
    "errors.hints",
    "errors.next-action",
    "errors.retryable",
)
async def test_every_error_has_its_code_a_message_and_a_working_next_action(ask: Ask) -> None:
    for expected, operation, arguments in ERRORS:
        told = await ask(operation, **arguments)
        error = told["error"]
        assert error["code"] == expected, (operation, arguments)
        assert Schema(message_schema("Error")).violations(told) == ()
        assert error["message"].endswith((".", "?")), error["message"]
        assert all(isinstance(hint, str) and hint for hint in error.get("hints", []))
        assert isinstance(error["retryable"], bool)
        step = error["next_action"]
        assert OPERATION_TABLE[step["operation"]].arguments.violations(step["arguments"]) == ()
        after = await ask(step["operation"], **step["arguments"])
        assert "error" not in after, (error, after)


@pytest.mark.holds("errors.no-match-in-category.hints")
async def test_no_match_in_a_category_gives_hints_at_categories_with_matches(ask: Ask) -> None:
    error = (await ask("search_tool_by_category", query="upload an object", category_path=["Coding"]))["error"]

    assert error["hints"] == ["These categories have matches: Storage/Buckets"]
    assert ids(await ask("search_tool_by_category", query="upload an object", category_path=["Storage", "Buckets"]))


@pytest.mark.holds("errors.unknown-path.closest")
@pytest.mark.parametrize(
    ("path", "closest"),
    [
        (["Storge"], ["Storage"]),
        (["storages", "Buckets"], ["Storage"]),
        (["Storage", "Bukets"], ["Storage", "Buckets"]),
        (["Buckets"], ["Storage", "Buckets"]),
    ],
)
async def test_an_unknown_path_is_answered_with_the_closest_existing_path(
    path: list[str], closest: list[str], ask: Ask
) -> None:
    error = (await ask("list", path=path))["error"]

    assert error["hints"][0] == f"The closest existing category is {'/'.join(closest)}."
    assert error["next_action"] == {"operation": "list", "arguments": {"path": closest}}


@pytest.mark.holds("errors.unknown-path.closest")
async def test_an_unknown_path_without_similar_paths_is_answered_with_the_top_level(ask: Ask) -> None:
    error = (await ask("list", path=["xyzzy"]))["error"]

    assert all(name in error["hints"][0] for name in ("Coding", "Storage", "User"))
    assert error["next_action"] == {"operation": "list", "arguments": {}}


@pytest.mark.holds("errors.leak-nothing", "errors.tool-not-found")
async def test_a_hidden_tool_gets_the_same_errors_as_an_unknown_tool(ask: Ask) -> None:
    for operation, named in [("expand_tool", "{}"), ("call_tool", "{}"), ("call_tool", "{}@000000000000")]:
        told = [json.dumps(await ask(operation, tool_id=named.format(name))) for name in (HIDDEN.id, "vault.faked")]
        assert told[0].replace(HIDDEN.id, "").replace(" empty", "") == told[1].replace("vault.faked", "").replace(
            " faked", ""
        )
    shown = [await ask("search_tools", query="empties the vault"), await ask("list", path=["vault"])]
    assert HIDDEN.id not in json.dumps(shown)
    assert (await ask("list", query="vault"))["nodes"][0]["tool_count"] == 1


@pytest.mark.holds("errors.rate-limited", "errors.next-action")
async def test_a_rate_limited_call_says_when_to_retry(ask: Ask, counter: Counter) -> None:
    counter.crib.dispatcher.runner.limits.rate = Rate(1, 1)
    call = {"tool_id": PUT.handle, "arguments": {"bucket": "b"}}
    assert "error" not in await ask("call_tool", **call)

    error = (await ask("call_tool", **call))["error"]

    assert (error["code"], error["retryable"]) == ("RATE_LIMITED", True)
    assert error["details"]["retry_after_s"] > 0
    step = error["next_action"]
    assert untraced((await ask(step["operation"], **step["arguments"]))["handle"]) == call["tool_id"]
    assert len(counter.storage.calls) == 1


# -- all operations ---------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations.few", "messages.conform")
async def test_every_operation_answers_according_to_its_schema(ask: Ask) -> None:
    requests: dict[str, Json] = {
        "list": {},
        "search_tools": {"query": "object"},
        "search_tool_by_category": {"query": "object", "category_path": []},
        "search_nodes": {"query": "object"},
        "expand_tool": {"tool_id": PUT.id},
        "call_tool": {"tool_id": PUT.handle, "arguments": {"bucket": "b"}},
    }
    assert {*requests} == {*SETS["full"]}
    assert {*OPERATIONS} - {*requests} == {"list_categories", "call_read_only_tool"}
    assert len(requests) < 8
    for operation, arguments in requests.items():
        answer = await ask(operation, **arguments)
        assert "error" not in answer
        assert Schema(message_schema(OPERATION_TABLE[operation].response_name)).violations(answer) == ()


@pytest.mark.holds("operations.every-way")
async def test_python_mcp_and_http_give_the_same_answers(counter: Counter) -> None:
    requests = [(operation, arguments) for _, operation, arguments in ERRORS if operation in LOOKING]
    requests += [
        ("list", {}),
        ("list", {"path": ["Storage"], "tags": ["storage"], "query": "bucket", "limit": 3}),
        ("search_tools", {"query": "object", "detail_level": "name"}),
        ("search_tool_by_category", {"query": "object", "category_path": ["Storage"]}),
        ("search_nodes", {"query": "oauth login"}),
    ]
    told: dict[Way, list[Json]] = {}
    for way in WAYS:
        async with asking(counter.crib, way) as ask:
            told[way] = [await ask(operation, **arguments) for operation, arguments in requests]
    assert told["Python"] == told["MCP"] == told["HTTP"]


@pytest.mark.holds("call.not-needed")
async def test_discovery_works_without_call_operations(ask: Ask, counter: Counter) -> None:
    top = await ask("list", query="objects")
    found = await ask("search_tool_by_category", query="upload", category_path=top["nodes"][0]["path"])
    assert (await ask("expand_tool", tool_id=ids(found)[0]))["args_schema"] == PUT.input_schema
    assert [event.operation for event in counter.recorded] == ["list", "search_tool_by_category", "expand_tool"]
    assert counter.storage.calls == []
