"""The discovery plugin, the set of operations with the same name, and how many tokens both save."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from tests.catalog.strategies import PRINCIPALS, RULES, SET_UP, TAGS, many_tools, tools
from tests.catalogs import registry_of, tool
from tests.examples import examples
from tests.servers.launching import faulty_entry, write_config
from tests.surfaces.serving import Json, ask, served, text_of

from toolcrib import Access, Category, DiscoveryPlugin, Plugin, Rule, Rules, Toolcrib
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories
from toolcrib.catalog.view import View
from toolcrib.config import Config
from toolcrib.core.errors import NextAction, SourceUnavailable, ToolNotFound
from toolcrib.core.events import OperationPerformed
from toolcrib.core.handles import Handle
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.operations.catalog_operations import MAX_LIMIT, MAX_NAMED, MAX_NAMED_ON_PAGE, Operations
from toolcrib.operations.discovery import DESCRIPTIONS
from toolcrib.operations.next_actions import answer_within, leading_within
from toolcrib.operations.operation_table import OPERATION_TABLE, SETS, message_document
from toolcrib.operations.protocol_messages import CategoryPage, Expansions
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.testing.plugins import check_plugin
from toolcrib.testing.scripted_source import ScriptedSource

OPERATIONS = Operations()
GIVEN = SETS["discovery"]

COMMIT = tool(
    "git.commit", "Record changes. Then push.", properties={"message": {"type": "string"}}, required=("message",)
)
LOG = tool("git.log", "Show the history of commits.")
FILE_BUG = tool("tracker.file_bug", "Report a bug.")
SECRET = tool("tracker.secret_bug", "Report a bug in secret.")
GRACE = Principal("grace")


class Counter:
    """A crib with two sources, its recorded events, and the plugin."""

    def __init__(self) -> None:
        self.recorded: list[OperationPerformed] = []
        policy = Rules((Rule(Access.HIDDEN, tools=(SECRET.id,), principals=(LOCAL.id,)),), Access.CALL)
        self.crib = Toolcrib(policy=policy, record=self.recorded.append)
        for name, offered, version in (("git", (COMMIT, LOG), "2.4.1"), ("tracker", (FILE_BUG, SECRET), None)):
            source = ScriptedSource(name, offered)
            self.crib.registry.register_source(SourceEntry(source, SourceStatus.READY, version=version), offered)
        self.plugin = DiscoveryPlugin(self.crib)

    async def run(self, name: str, /, *, principal: Principal = LOCAL, **arguments: Any) -> ToolResult:
        return await self.plugin.execute(name, arguments, CallContext(principal))

    async def told(self, name: str, /, **arguments: Any) -> Json:
        """The structured content of an answer, which equals the text of the answer."""
        answer = await self.run(name, **arguments)
        assert json.loads(answer.text) == answer.structured_content
        assert answer.is_error == ("error" in answer.structured_content)
        return answer.structured_content


@pytest.fixture
def counter() -> Counter:
    return Counter()


# -- list_categories --------------------------------------------------------------------------------------------------


def walk(view: View, limit: int | None) -> Iterator[CategoryPage]:
    page = OPERATIONS.list_categories(view, limit=limit)
    yield page
    while page.next_cursor is not None:
        page = OPERATIONS.list_categories(view, limit=limit, cursor=page.next_cursor)
        yield page


@settings(max_examples=examples(60), deadline=None)
@given(tools() | many_tools(), SET_UP, RULES, st.sampled_from(PRINCIPALS), st.integers(1, 50) | st.none())
def test_the_pages_of_categories_return_each_top_node_and_tool_once(
    known: list[Tool], categories: list[Category], rules: Rules, principal: Principal, limit: int | None
) -> None:
    registry = registry_of(*known)
    registry.set_categories(Categories(categories))
    view = View.of(registry.state, principal, rules)
    listed = OPERATIONS.list(view, limit=MAX_LIMIT)
    assert listed.next_cursor is None

    pages = [*walk(view, limit)]

    walked = [each for page in pages for each in page.categories]
    first = walked[: len(listed.nodes)]
    assert [(each.node, each.tool_count) for each in first] == [(n.node, n.tool_count) for n in listed.nodes]
    assert all(len(page.categories) == limit for page in pages[: len(first) // (limit or MAX_LIMIT)] if limit)
    assert all(len(page.tool_ids) <= MAX_NAMED_ON_PAGE for page in pages)
    named = defaultdict[tuple[str, ...], list[str]](list)
    for each in walked:
        assert each.tools
        named[each.node.path] += each.tools
    for each in first:
        branch = view.ontology.find(each.node.path)
        assert branch is not None
        assert named.pop(each.node.path) == sorted(view.ontology.within(branch))
    assert named == {}


def test_a_category_names_a_few_tools_and_counts_all_of_them() -> None:
    crowd = [tool(f"s{source}.t{n:04}", "Sorts a shelf.") for source in range(40) for n in range(250)]
    view = View.of(registry_of(*crowd).state)

    page = OPERATIONS.list_categories(view)

    named = [each for each in page.categories if each.node.name.startswith("s")]
    assert {each.tool_count for each in named} == {250}
    assert len(page.tool_ids) <= MAX_NAMED_ON_PAGE
    assert len(json.dumps(page.to_wire())) < 20_000
    (one,) = OPERATIONS.list_categories(view, limit=1).categories
    assert len(one.tools) == MAX_NAMED
    later = [*walk(view, None)][1:]
    assert all(len(page.tool_ids) == MAX_NAMED_ON_PAGE for page in later[:-1])
    assert sum(len(page.tool_ids) for page in (page, *later)) == len(crowd)


def test_a_source_with_all_tools_in_categories_is_not_listed_but_searchable() -> None:
    registry = registry_of(tool("git.log", "Show changes."), tool("clock.now", "Tell the time."))
    registry.set_categories(Categories([Category(("History",), tools=("git.*",))]))
    view = View.of(registry.state)

    assert [each.node.name for each in OPERATIONS.list_categories(view).categories] == ["clock", "History"]
    assert [each.tool_id for each in OPERATIONS.search_tools(view, category="GIT").results] == ["git.log"]


def test_unavailable_and_starting_sources_are_not_listed_as_categories() -> None:
    registry = registry_of(COMMIT)
    broken = SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="no such program.", is_lasting=True)
    registry.register_source(broken, [tool("broken.print", "Prints.")])
    registry.register_source(SourceEntry(ScriptedSource("slow"), SourceStatus.STARTING))

    told = OPERATIONS.list_categories(View.of(registry.state)).to_wire()

    assert [each["category"] for each in told["categories"]] == ["git"]
    assert (told["starting"], told["unavailable"]) == (["slow"], ["broken"])


# -- the plugin -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_discovery_plugin_fulfills_the_plugin_contract() -> None:
    def make() -> Plugin:
        return DiscoveryPlugin(Counter().crib)

    await check_plugin(
        make,
        tool="search_tools",
        arguments={"query": "commit", "detail_level": "name"},
        other_arguments={"query": "bug", "detail_level": "name"},
    )


def test_the_discovery_plugin_offers_two_operations_as_tools(counter: Counter) -> None:
    offered = counter.plugin.tools()

    assert (counter.plugin.name, counter.plugin.is_available()) == ("discovery", True)
    assert {each.name: each.input_schema for each in offered} == {
        name: OPERATION_TABLE[name].arguments.document for name in ("search_tools", "list_categories")
    }
    assert all(each.source == "discovery" and each.annotations.read_only for each in offered)
    assert all(level in DESCRIPTIONS["search_tools"] for level in ("detail_level", "name", "summary", "full"))


@pytest.mark.anyio
async def test_list_categories_returns_versions_counts_and_tools(counter: Counter) -> None:
    told = await counter.told("list_categories")

    assert [
        {key: each[key] for key in ("category", "version", "tool_count", "tools") if key in each}
        for each in told["categories"]
    ] == [
        {"category": "git", "version": "2.4.1", "tool_count": 2, "tools": [COMMIT.id, LOG.id]},
        {"category": "tracker", "tool_count": 1, "tools": [FILE_BUG.id]},
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("category", ["tracker", "Tracker", ["tracker"]])
async def test_search_tools_accepts_a_query_or_a_category_or_both_or_neither(
    counter: Counter, category: object
) -> None:
    async def found(**arguments: Any) -> list[str]:
        return [each["tool_id"] for each in (await counter.told("search_tools", **arguments))["results"]]

    assert await found() == [COMMIT.id, LOG.id, FILE_BUG.id]
    assert await found(category=category) == [FILE_BUG.id]
    assert await found(query="history", category="git") == [LOG.id]
    assert (await found(query="report a bug"))[0] == FILE_BUG.id


@settings(max_examples=examples(40), deadline=None)
@given(tools(), st.sampled_from(["", "read a file", "shared"]), st.lists(st.sampled_from(TAGS), max_size=1))
def test_each_detail_level_includes_the_values_of_the_lower_level(
    known: list[Tool], query: str, tags: list[str]
) -> None:
    crib = Toolcrib()
    for name in dict.fromkeys(each.source for each in known):
        mine = [each for each in known if each.source == name]
        crib.registry.register_source(SourceEntry(ScriptedSource(name, mine), SourceStatus.READY), mine)

    async def main() -> list[list[Json]]:
        plugin, told = DiscoveryPlugin(crib), list[list[Json]]()
        for level in ("name", "summary", "full"):
            given = {"query": query, "tags": tags, "detail_level": level}
            answer = await plugin.execute("search_tools", given, CallContext())
            results: list[Json] = answer.structured_content["results"]
            told.append(results)
        return told

    by_name, by_summary, in_full = anyio.run(main)

    for name, summary, full in zip(by_name, by_summary, in_full, strict=True):
        assert name.items() <= summary.items()
        assert summary.items() <= full.items()
        assert full["args_schema"] == crib.view().tools[name["tool_id"]].input_schema
        assert name.keys() == {"tool_id"}
        assert not {"handle", "args_schema"} & summary.keys()


@pytest.mark.anyio
async def test_a_search_with_full_details_expands_its_results_and_is_recorded_once(counter: Counter) -> None:
    (full,) = (await counter.told("search_tools", query="history", detail_level="full"))["results"]

    (searched,) = counter.recorded
    assert (searched.operation, searched.tool_ids, searched.outcome) == ("search_tools", (LOG.id,), "ok")
    handle = Handle.parse(full["handle"])
    assert handle is not None
    assert handle.trace_id == searched.trace_id
    assert not (await counter.crib.call_tool(full["handle"], {})).is_error
    assert counter.recorded[1].trace_id == searched.trace_id


@pytest.mark.anyio
async def test_each_principal_only_sees_its_visible_tools(counter: Counter) -> None:
    hidden = [
        await counter.told(name, **arguments)
        for name, arguments in [
            ("list_categories", {}),
            ("search_tools", {"query": "secret bug"}),
            ("search_tools", {"category": "tracker", "detail_level": "full"}),
        ]
    ]
    shown = await counter.run("list_categories", principal=GRACE)

    assert SECRET.id not in json.dumps(hidden)
    assert SECRET.id in shown.text
    assert [event.principal for event in counter.recorded] == [LOCAL.id] * 3 + [GRACE.id]
    cursor = (await counter.told("list_categories", limit=1))["next_cursor"]
    refused = await counter.run("list_categories", principal=GRACE, limit=1, cursor=cursor)
    assert refused.structured_content["error"]["code"] == "INVALID_CURSOR"


ERRORS: list[tuple[str, Json, str, tuple[str, Json] | None]] = [
    ("search_tools", {"category": "trakker"}, "UNKNOWN_PATH", ("search_tools", {"category": ["tracker"]})),
    ("search_tools", {"category": "xyzzy"}, "UNKNOWN_PATH", ("list_categories", {})),
    (
        "search_tools",
        {"query": "xyzzy", "category": "git"},
        "NO_MATCH_IN_CATEGORY",
        ("search_tools", {"category": ["git"]}),
    ),
    ("search_tools", {"query": 5}, "INVALID_ARGUMENTS", ("list_categories", {})),
    ("search_tools", {"detail_level": "full", "limit": 50}, "INVALID_ARGUMENTS", None),
    ("search_tools", {"cursor": "made up"}, "INVALID_CURSOR", None),
    ("list_categories", {"limit": 0}, "INVALID_ARGUMENTS", None),
    ("list_categories", {"cursor": "made up"}, "INVALID_CURSOR", ("list_categories", {})),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "arguments", "code", "step"), ERRORS)
async def test_an_error_leads_to_a_tool_of_the_plugin(
    name: str, arguments: Json, code: str, step: tuple[str, Json] | None, counter: Counter
) -> None:
    error = (await counter.told(name, **arguments))["error"]

    assert error["code"] == code
    led = error["next_action"]["operation"], error["next_action"]["arguments"]
    assert step is None or led == step
    assert led[0] in DESCRIPTIONS
    assert "error" not in await counter.told(led[0], **led[1])


@pytest.mark.anyio
async def test_an_unknown_tool_of_the_plugin_is_an_error_and_calls_nothing(counter: Counter) -> None:
    answer = await counter.run("call_tool", tool_id=COMMIT.handle, arguments={"message": "x"})

    assert answer.is_error
    assert answer.text == "Unknown tool: call_tool"
    assert counter.recorded == []


@pytest.mark.anyio
async def test_the_discovery_plugin_can_be_found_expanded_and_called_in_a_crib(counter: Counter) -> None:
    other = Toolcrib()
    other.add_plugin(counter.plugin)
    async with other:
        assert await other.ready(30)
        handle = other.expand_tool("discovery.search_tools").handle
        answer = await other.call_tool(handle, {"query": "history"})
        refused = await other.call_tool(handle, {"category": "xyzzy"})

    assert [each["tool_id"] for each in answer.structured_content["results"]] == [LOG.id]
    assert (refused.is_error, refused.structured_content["error"]["code"]) == (True, "UNKNOWN_PATH")


# -- the set ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{}, {"path": []}, {"limit": 5}])
def test_a_next_action_to_list_the_root_becomes_list_categories(arguments: Json) -> None:
    error = SourceUnavailable("It is gone.", next_action=NextAction("list", arguments))

    led = leading_within(error, GIVEN)

    assert led.next_action == NextAction("list_categories")
    assert led.to_wire()["error"] | {"next_action": {}} == error.to_wire()["error"] | {"next_action": {}}


def test_a_next_action_within_the_set_stays_unchanged() -> None:
    for exposed in SETS.values():
        for operation in exposed:
            error = ToolNotFound("No.", next_action=NextAction(operation, {"query": "x"}))
            assert leading_within(error, exposed) is error


def test_errors_within_an_expansion_also_get_next_actions_of_the_set() -> None:
    gone = SourceUnavailable("It is gone.", next_action=NextAction("list"))

    answer = answer_within(Expansions((), {"a.b": gone}), GIVEN)

    (error,) = answer.to_wire()["errors"]
    assert error["error"]["next_action"] == {"operation": "list_categories", "arguments": {}}


REQUESTS: list[tuple[str, Json]] = [
    ("search_tools", {"category": "trakker"}),
    ("search_tools", {"category": "xyzzy"}),
    ("search_tools", {"query": "xyzzy", "category": ["git"]}),
    ("search_tools", {"query": "bug", "category": ["git"]}),
    ("search_tools", {"query": 5}),
    ("search_tools", {"query": "bug", "limit": 50, "detail_level": "full"}),
    ("search_tools", {"cursor": "x"}),
    ("list_categories", {"limit": 51}),
    ("list_categories", {"cursor": "x"}),
    ("expand_tool", {}),
    ("expand_tool", {"tool_ids": []}),
    ("expand_tool", {"tool_id": "tracker.file_bugs"}),
    ("expand_tool", {"tool_id": "xyzzy"}),
    ("expand_tool", {"tool_id": "broken.xyzzy"}),
    ("expand_tool", {"tool_ids": ["broken.xyzzy", "tracker.file_bug", "git.comit"]}),
    ("call_tool", {}),
    ("call_tool", {"tool_id": COMMIT.id}),
    ("call_tool", {"tool_id": "git.commit@000000000000"}),
    ("call_tool", {"tool_id": COMMIT.handle, "arguments": {"message": 5}}),
    ("call_tool", {"tool_id": COMMIT.handle, "arguments": {"massage": "x"}}),
    ("call_tool", {"tool_id": "broken.xyzzy@000000000000"}),
    ("call_tool", {"tool_id": FILE_BUG.handle}),
]


@pytest.mark.anyio
@pytest.mark.parametrize("name", SETS)
async def test_no_error_leads_to_an_operation_outside_of_the_set(name: str, counter: Counter) -> None:
    broken = SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="no such program.", is_lasting=True)
    counter.crib.registry.register_source(broken)
    tracker = counter.crib.view().sources["tracker"].source
    assert isinstance(tracker, ScriptedSource)
    tracker.answers["file_bug"] = SourceUnavailable("It went away.")
    gateway = Gateway(counter.crib, Config(Path("mcp.json")), principal=LOCAL, exposed=name)
    led: list[str] = []
    async with counter.crib, gateway, Client(gateway.server) as client:
        for operation, arguments in REQUESTS:
            if operation not in SETS[name]:
                continue
            told = json.loads(text_of(await client.call_tool(operation, arguments)))
            for step in steps(told):
                assert step["operation"] in SETS[name], (operation, arguments, step)
                assert OPERATION_TABLE[step["operation"]].arguments.violations(step["arguments"]) == ()
                led.append(step["operation"])
    assert {*led} == {*SETS[name]} - {"search_tool_by_category", "search_nodes", "call_read_only_tool"}


def steps(told: object) -> Iterator[Json]:
    """All next actions in an answer."""
    if isinstance(told, dict):
        for key, value in cast("Json", told).items():
            if key == "next_action":
                yield value
            else:
                yield from steps(value)
    elif isinstance(told, list):
        for each in cast("list[object]", told):
            yield from steps(each)


def test_the_published_document_contains_the_category_messages() -> None:
    assert {"ListCategoriesRequest", "ListCategoriesResponse", "CategoryPointer"} <= message_document()["$defs"].keys()


@pytest.mark.anyio
async def test_discovery_over_stdio_costs_a_fraction_of_the_full_tool_list(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("many-tools=300"))

    async def listed(client: Client) -> tuple[set[str], int]:
        """The names of all tools, and the bytes of their definitions."""
        names, size, page = set[str](), 0, await client.list_tools()
        while True:
            names |= {each.name for each in page.tools}
            size += sum(len(each.model_dump_json(by_alias=True, exclude_none=True)) for each in page.tools)
            if page.next_cursor is None:
                return names, size
            page = await client.list_tools(cursor=page.next_cursor)

    async with served(config, operations="all") as client:
        every, whole = await listed(client)
    async with served(config, operations="discovery") as client:
        given, small = await listed(client)
        assert given == {*GIVEN}
        top = await ask(client, "list_categories")
        (found,) = (
            await ask(client, "search_tools", query="add two integers", category="bench", limit=1, detail_level="full")
        )["results"]
        answer = await client.call_tool("call_tool", {"tool_id": found["handle"], "arguments": {"a": 2, "b": 3}})

    assert len(every) > 300
    assert top["categories"][0]["tool_count"] == len(every)
    assert found["tool_id"] == "bench.add"
    assert answer.structured_content == {"sum": 5}
    spent = small + len(json.dumps(top)) + len(json.dumps(found))
    assert spent < whole / 5, (spent, whole)
