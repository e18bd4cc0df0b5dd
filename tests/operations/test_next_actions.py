"""Next actions of errors: the client has the operation, it fits the request, and it does not repeat the error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.catalogs import registry_of, source_of, tool

from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.config import Config
from toolcrib.core.errors import (
    ErrorCode,
    NextAction,
    NotAuthorized,
    NotExpanded,
    SourceUnavailable,
    ToolcribError,
    ToolNotFound,
)
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import MAX_COMPARED
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.next_actions import step_within
from toolcrib.operations.operation_table import ALL, LOOKING, OPERATION_TABLE, OPERATIONS
from toolcrib.operations.protocol_messages import Answer, Expansion, Expansions
from toolcrib.surfaces.mcp_gateway.gateway_answers import LISTING
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.testing.scripted_source import ScriptedSource

Json = dict[str, Any]

READ = tool("files.read", "Read a file.", properties={"path": {"type": "string"}}, required=("path",))
RENAME = tool("refactor.rename_symbol", "Rename a symbol everywhere.")
RENDER = tool("refactor.render_symbol", "Render a symbol as a picture.")
ADA, GRACE = Principal("ada"), Principal("grace")


class Asking:
    """A dispatcher and a principal that sends requests to it."""

    def __init__(self, registry: ToolRegistry, principal: Principal = LOCAL, policy: Rules | None = None) -> None:
        self.dispatcher, self.registry = Dispatcher(), registry
        self.principal, self.policy = principal, policy

    async def ask(self, operation: str, /, principal: Principal | None = None, **arguments: Any) -> Answer | ToolResult:
        who = principal or self.principal
        view = View.of(self.registry.state, who, self.policy) if self.policy else View.of(self.registry.state, who)
        return await self.dispatcher.perform(view, CallContext(who), operation, arguments)

    async def refused(self, operation: str, /, principal: Principal | None = None, **arguments: Any) -> ToolcribError:
        with pytest.raises(ToolcribError) as error:
            await self.ask(operation, principal, **arguments)
        return error.value

    async def follow(self, error: ToolcribError) -> Answer | ToolResult:
        """Send the next action unchanged."""
        assert error.next_action is not None
        return await self.ask(error.next_action.operation, **error.next_action.arguments)

    async def expand(self, tool_id: str) -> Expansion:
        answer = await self.ask("expand_tool", tool_id=tool_id)
        assert isinstance(answer, Expansion)
        return answer


# -- within a set of operations ---------------------------------------------------------------------------------------

STEPS = [
    NextAction("list"),
    NextAction("list", {"path": ["git"], "limit": 5}),
    NextAction("list", {"path": ["git"], "query": "log", "tags": ["x"]}),
    NextAction("list_categories"),
    NextAction("search_tools", {"query": "log"}),
    NextAction("search_tools", {"query": "log", "category": "git", "tags": ["x"], "include_unavailable": True}),
    NextAction("search_tools", {"category": ["git"]}),
    NextAction("search_tool_by_category", {"query": "log", "category_path": ["git"]}),
    NextAction("search_nodes", {"query": "log"}),
    NextAction("expand_tool", {"tool_id": "git.log"}),
    NextAction("expand_tool", {"tool_ids": ["git.log", "git.tag"]}),
    NextAction("call_tool", {"tool_id": "git.log@0", "arguments": {"n": 1}}),
    NextAction("call_read_only_tool", {"tool_id": "git.log@0"}),
]
SUBSETS = [*chain.from_iterable(combinations(OPERATIONS, size) for size in range(1, len(OPERATIONS) + 1))]


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_next_action_is_translated_to_an_available_operation_with_valid_arguments(step: NextAction) -> None:
    for operations in SUBSETS:
        own = step_within(step, operations)
        if own is None:
            assert {*LOOKING}.intersection(operations) <= {"expand_tool"}
            continue
        assert own.operation in operations
        assert OPERATION_TABLE[own.operation].arguments.violations(own.arguments) == ()
        if step.operation in operations:
            assert own is step


@pytest.mark.parametrize(
    ("step", "operations", "own"),
    [
        (STEPS[1], ["search_tools"], NextAction("search_tools", {"category": ["git"]})),
        (
            STEPS[1],
            ["search_tool_by_category"],
            NextAction("search_tool_by_category", {"query": "git", "category_path": ["git"]}),
        ),
        (STEPS[4], ["list", "expand_tool"], NextAction("list", {"query": "log"})),
        (STEPS[7], ["search_tools", "list"], NextAction("search_tools", {"query": "log", "category": ["git"]})),
        (STEPS[8], ["list_categories"], NextAction("list_categories")),
        (STEPS[12], ["call_tool"], NextAction("call_tool", {"tool_id": "git.log@0"})),
    ],
)
def test_a_translated_next_action_keeps_its_meaning_if_possible(
    step: NextAction, operations: Sequence[str], own: NextAction
) -> None:
    assert step_within(step, operations) == own


class Everything:
    """A crib whose tools are in the tool list of the client, as with `--operations all`."""

    def __init__(self) -> None:
        self.crib = Toolcrib(policy=Rules((Rule(Access.SEE, tools=("files.seen",)),), Access.CALL))
        tools = [READ, tool("files.seen"), tool("files.fails"), tool("files.flees")]
        self.source = ScriptedSource("files", tools)
        self.source.answers["flees"] = SourceUnavailable("It is busy.", retryable=True)
        self.source.answers["fails"] = SourceUnavailable("It went away.")
        self.crib.registry.register_source(SourceEntry(self.source, SourceStatus.READY), tools)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "arguments", "code", "step"),
    [
        ("files__read", {}, ErrorCode.INVALID_ARGUMENTS, LISTING),
        ("files__read", {"Path": "."}, ErrorCode.INVALID_ARGUMENTS, NextAction("files__read", {"path": "."})),
        ("files__seen", {}, ErrorCode.NOT_AUTHORIZED, LISTING),
        ("files__fails", {}, ErrorCode.SOURCE_UNAVAILABLE, LISTING),
        ("files__flees", {"n": 1}, ErrorCode.SOURCE_UNAVAILABLE, NextAction("files__flees", {"n": 1})),
        ("files__raed", {}, ErrorCode.TOOL_NOT_FOUND, LISTING),
        ("zebra", {}, ErrorCode.TOOL_NOT_FOUND, LISTING),
    ],
)
async def test_a_client_with_direct_tools_is_led_to_a_tool_or_their_list(
    name: str, arguments: Json, code: ErrorCode, step: NextAction
) -> None:
    crib = Everything().crib
    gateway = Gateway(crib, Config(Path("mcp.json")), principal=LOCAL, exposed=ALL)
    async with crib, gateway, Client(gateway.server) as client:
        try:
            error = (await client.call_tool(name, arguments)).structured_content["error"]
        except MCPError as refused:
            error = cast("Json", refused.error.data)["error"]

    assert (error["code"], error["next_action"]) == (code, step.to_wire())


# -- the intended tool or path ----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_refused_call_leads_to_a_list_of_the_same_category() -> None:
    policy = Rules((Rule(Access.SEE, tools=("git.push",)),), Access.CALL)
    push = tool("git.push", "Send commits away.", category=("remote",))
    asking = Asking(registry_of(push, tool("git.fetch", category=("remote",))), policy=policy)

    error = await asking.refused("call_tool", tool_id=(await asking.expand("git.push")).handle)

    assert isinstance(error, NotAuthorized)
    assert error.next_action == NextAction("list", {"path": ["git", "remote"]})
    await asking.follow(error)


SEARCH_RENAME = NextAction("search_tools", {"query": "refactor rename symbol"})


@pytest.mark.anyio
async def test_a_removed_tool_leads_to_a_search_instead_of_a_similar_id() -> None:
    asking = Asking(registry_of(RENAME, READ))
    handle = (await asking.expand(RENAME.id)).handle
    asking.registry.register_source(asking.registry.state.sources["refactor"], [RENDER])

    for operation, reference in [("expand_tool", RENAME.id), ("expand_tool", handle), ("call_tool", handle)]:
        error = await asking.refused(operation, tool_id=reference)
        assert isinstance(error, ToolNotFound)
        assert error.next_action == SEARCH_RENAME
        assert error.hints == (f"Did you mean `{RENDER.id}`?",)


@pytest.mark.anyio
async def test_a_similar_id_is_not_assumed_if_the_tool_was_shown_before() -> None:
    one, several = tool("notes.fetch_item"), tool("notes.fetch_items")
    asking = Asking(registry_of(several))
    error = await asking.refused("expand_tool", tool_id=one.id)
    assert error.next_action == NextAction("expand_tool", {"tool_id": several.id})

    asking.registry.register_source(asking.registry.state.sources["notes"], [one])
    await asking.ask("search_tools", query="fetch")
    asking.registry.register_source(asking.registry.state.sources["notes"], [several])

    error = await asking.refused("expand_tool", tool_id=one.id)
    assert error.next_action == NextAction("search_tools", {"query": "notes fetch item"})
    answer = await asking.ask("expand_tool", tool_ids=[one.id, several.id])
    assert isinstance(answer, Expansions)
    assert answer.errors[one.id].next_action == NextAction("search_tools", {"query": "notes fetch item"})


@pytest.mark.parametrize(
    ("asked", "there", "is_like"),
    [
        ("excel.create_chart", "git.git_create_branch", False),
        ("excel.create_chart", "git.git_add", False),
        ("excel.create_chart", "time.get_current_time", False),
        ("git.show", "git.log", False),
        ("time.get_time", "time.get_current_time", True),
        ("create_issue", "github.create_issue", True),
        ("github__create_isue", "github.create_issue", True),
        ("git.commit_list", "git.list_commits", True),
        ("refactor.rename_symbol", "refactor.render_symbol", True),
    ],
)
def test_only_similar_ids_are_suggested(asked: str, there: str, is_like: bool) -> None:
    view = View.of(registry_of(tool(there), tool("other.thing")).state)

    with pytest.raises(ToolNotFound) as error:
        Dispatcher().operations.expand_tool(view, asked)

    assert error.value.hints == ((f"Did you mean `{there}`?",) if is_like else ())


@pytest.mark.parametrize(
    ("asked", "there", "is_slip"),
    [
        ("Git.Git-Log", "git.git_log", True),
        ("git__git-log", "git.git_log", True),
        ("git_log", "git.git_log", True),
        ("git.comit", "git.commit", True),
        ("git.ocmmit", "git.commit", True),
        ("git.commits", "git.commit", True),
        ("config.get_key", "config.set_key", False),
        ("refactor.rename_symbol", "refactor.render_symbol", False),
        ("git.git_logg", "git.git_log", True),
        ("git.git_lgo", "git.git_log", True),
        ("git_lo", "git.git_log", True),
        ("gitt_log", "git.git_log", True),
        ("gti.git_log", "git.git_log", True),
        ("GIT_LGO", "git.git_log", True),
        ("get_weather_nwo", "weather.get_weather_now", True),
        ("git.commot", "git.commit", True),
        ("files.v1", "files.v2", False),
        ("ls", "files.rs", False),
        ("git.git_logggg", "git.git_log", False),
        ("git.comi", "git.commit", False),
        ("git.comit@0123456789ab", "git.commit", False),
    ],
)
def test_only_a_clear_typo_in_an_id_leads_to_an_expansion(asked: str, there: str, is_slip: bool) -> None:
    view = View.of(registry_of(tool(there)).state)

    with pytest.raises(ToolNotFound) as error:
        Dispatcher().operations.expand_tool(view, asked)

    step = error.value.next_action
    assert step is not None
    assert step.operation == ("expand_tool" if is_slip else "search_tools")


def test_an_ambiguous_typo_in_an_id_does_not_lead_to_an_expansion() -> None:
    view = View.of(registry_of(tool("git.log_all"), tool("svn.log_all"), tool("git.logs"), tool("git.logo")).state)

    def step(asked: str) -> NextAction | None:
        with pytest.raises(ToolNotFound) as error:
            Dispatcher().operations.expand_tool(view, asked)
        return error.value.next_action

    assert step("log_al") == NextAction("search_tools", {"query": "log al"})
    assert step("git.log_al") == NextAction("expand_tool", {"tool_id": "git.log_all"})
    assert step("git.log") == NextAction("search_tools", {"query": "git log"})
    assert step("git_logs") == NextAction("expand_tool", {"tool_id": "git.logs"})


def test_a_typo_is_found_in_a_large_catalog_unless_the_id_is_too_long() -> None:
    many = (tool(f"many{number % 9}.do_{number:05}_{'x' * 20}") for number in range(3 * MAX_COMPARED))
    view = View.of(registry_of(tool("git.git_log"), *many).state)

    with pytest.raises(ToolNotFound) as error:
        Dispatcher().operations.expand_tool(view, "gti_log")
    with pytest.raises(ToolNotFound) as long:
        Dispatcher().operations.expand_tool(view, "git_log" * 100_000)

    assert error.value.next_action == NextAction("expand_tool", {"tool_id": "git.git_log"})
    assert long.value.next_action is not None
    assert long.value.next_action.operation == "search_tools"


def test_an_id_is_compared_with_a_limited_number_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Counting:
        def __init__(self, _: object, asked: str, known: str, **__: object) -> None:
            read.append(known)

        def quick_ratio(self) -> float:
            return 1.0

        def ratio(self) -> float:
            return 1.0

    monkeypatch.setattr("toolcrib.operations.suggestions.difflib.SequenceMatcher", Counting)
    view = View.of(registry_of(*(tool(f"s.{number:04}{'x' * 300}") for number in range(2_000))).state)

    with pytest.raises(ToolNotFound):
        Dispatcher().operations.expand_tool(view, "s.x")

    assert sum(map(len, read)) < 110_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("list", {"path": ["dead"]}),
        ("list", {"path": ["dead", "deep"]}),
        ("search_tools", {"query": "x", "category": "dead"}),
        ("search_tool_by_category", {"query": "x", "category_path": ["dead"]}),
    ],
)
@pytest.mark.parametrize("status", [SourceStatus.FAILED, SourceStatus.STARTING])
async def test_the_path_of_an_unavailable_source_returns_the_reason(
    operation: str, arguments: Json, status: SourceStatus
) -> None:
    registry = registry_of(READ)
    registry.register_source(
        SourceEntry(ScriptedSource("dead"), status, reason="it exited.", diagnosis="secret", is_lasting=True)
    )

    error = await Asking(registry).refused(operation, **arguments)

    assert isinstance(error, SourceUnavailable)
    assert error.retryable == (status is SourceStatus.STARTING)
    assert error.message == f"The source `dead` is {'still starting' if error.retryable else 'unavailable: it exited'}."
    assert error.next_action == NextAction("list")
    assert "secret" not in str(error.to_wire())


@pytest.mark.anyio
async def test_the_path_of_a_hidden_source_is_unknown() -> None:
    registry = registry_of(READ)
    registry.register_source(SourceEntry(ScriptedSource("dead"), SourceStatus.FAILED, reason="it exited."))
    hidden = Rules((Rule(Access.HIDDEN, sources=("dead",)),), Access.CALL)

    error = await Asking(registry, policy=hidden).refused("list", path=["dead"])

    assert error.code is ErrorCode.UNKNOWN_PATH


# -- calls by a bare id -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_calling_an_expanded_tool_by_id_leads_to_the_call_by_handle() -> None:
    asking = Asking(registry_of(READ))
    handle = (await asking.expand(READ.id)).handle

    for _ in range(2):
        error = await asking.refused("call_tool", tool_id=READ.id, arguments={"path": "."})
        assert isinstance(error, NotExpanded)
        assert handle in error.message
        assert error.next_action == NextAction("call_tool", {"tool_id": handle, "arguments": {"path": "."}})
        answer = await asking.follow(error)
        assert isinstance(answer, ToolResult)  # the handle is still known after the call


@pytest.mark.anyio
async def test_a_search_with_full_details_counts_as_an_expansion() -> None:
    asking = Asking(registry_of(READ))
    await asking.ask("search_tools", query="read", detail_level="full")
    await asking.ask("search_tools", query="read")

    error = await asking.refused("call_read_only_tool", tool_id=READ.id)

    assert error.next_action is not None
    assert error.next_action.operation == "call_read_only_tool"
    assert error.next_action.arguments["tool_id"].startswith(READ.handle)


@pytest.mark.anyio
@pytest.mark.parametrize("shown_to", ["no principal", "a different principal", "an older definition"])
async def test_calling_an_unseen_definition_by_id_leads_to_its_expansion(
    shown_to: str,
) -> None:
    asking = Asking(registry_of(READ))
    if shown_to != "no principal":
        await asking.expand(READ.id)
    if shown_to == "an older definition":
        changed = replace(READ, description="Read a file, or a part of it.")
        asking.registry.register_source(asking.registry.state.sources["files"], [changed])

    error = await asking.refused("call_tool", GRACE if shown_to == "a different principal" else None, tool_id=READ.id)

    assert isinstance(error, NotExpanded)
    assert error.next_action == NextAction("expand_tool", {"tool_id": READ.id})
    assert "was not expanded" not in error.message  # a different replica may have expanded the tool
    assert source_of(View.of(asking.registry.state), "files").calls == []
