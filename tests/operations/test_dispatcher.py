"""The dispatcher: from the name and arguments of an operation to its answer, and the next action of every error."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import registry_of, tool
from tests.examples import examples

from toolcrib.catalog.catalog_state import CatalogState, SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    ErrorCode,
    InvalidArguments,
    NextAction,
    NotFound,
    RateLimited,
    ToolcribError,
    UnknownPath,
)
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import ToolAnnotations
from toolcrib.operations.calling.limits import DEFAULT_LOOKUP_RATE, DEFAULT_RATE, CallLimits, Rate
from toolcrib.operations.calling.runner import Runner
from toolcrib.operations.dispatcher import REFUSAL_INTERVAL_S, Dispatcher
from toolcrib.operations.operation_table import OPERATION_TABLE
from toolcrib.operations.operation_table import OPERATIONS as NAMES
from toolcrib.operations.protocol_messages import (
    Answer,
    CategoryPage,
    Expansion,
    Expansions,
    ListPage,
    NodePage,
    SearchPage,
)
from toolcrib.testing.scripted_source import ScriptedSource

DISPATCHER = Dispatcher()

MAX_ERROR_BYTES = 16_000
"""The limit for an error about a request, as JSON."""

READ = tool("files.read", "Read a file.", properties={"path": {"type": "string"}}, required=("path",))
COUNT = replace(tool("known.count", "Count.", properties={}), annotations=ToolAnnotations(read_only=True))


def catalog() -> CatalogState:
    registry = registry_of(READ, tool("git.commit", category=("write",)), tool("git.log"), tool("git.tag"))
    known = [COUNT, replace(COUNT, name="empty", annotations=ToolAnnotations())]
    registry.register_source(SourceEntry(ScriptedSource("known", known), SourceStatus.READY, trusted=True), known)
    registry.register_source(SourceEntry(ScriptedSource("slow")))
    registry.register_source(SourceEntry(ScriptedSource("broken"), SourceStatus.FAILED, reason="it exited"))
    return registry.state


VIEW_STATE = catalog()
VIEW = View.of(VIEW_STATE)


async def asked(name: str, arguments: Mapping[str, Any], view: View = VIEW) -> Answer | ToolResult:
    return await DISPATCHER.perform(view, CallContext(), name, arguments)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("list", {}, ListPage),
        ("list", {"path": ["git"], "tags": [], "query": "log", "limit": 5, "cursor": None}, ListPage),
        ("search_tools", {"query": "read"}, SearchPage),
        (
            "search_tools",
            {"query": "", "category": ["git"], "tags": [], "detail_level": "full", "include_unavailable": True},
            SearchPage,
        ),
        ("search_tool_by_category", {"query": "read", "category_path": ["files"], "limit": 5}, SearchPage),
        ("search_tool_by_category", {"query": "read", "category_path": []}, SearchPage),
        ("search_nodes", {"query": "read", "limit": 5}, NodePage),
        ("list_categories", {}, CategoryPage),
        ("list_categories", {"limit": 1}, CategoryPage),
        ("search_tools", {"category": "files"}, SearchPage),
        ("expand_tool", {"tool_id": "files.read"}, Expansion),
        ("expand_tool", {"tool_ids": ["files.read"]}, Expansions),
        ("call_tool", {"tool_id": READ.handle, "arguments": {"path": "."}}, ToolResult),
        ("call_read_only_tool", {"tool_id": COUNT.handle}, ToolResult),
    ],
)
async def test_every_operation_returns_its_type_of_answer(name: str, arguments: dict[str, Any], kind: type) -> None:
    assert isinstance(await asked(name, arguments), kind)


@pytest.mark.anyio
async def test_null_counts_as_missing_for_optional_arguments() -> None:
    given = {"query": "commit", "category": None, "limit": None, "cursor": None}
    assert await asked("search_tools", given) == await asked("search_tools", {"query": "commit"})
    with pytest.raises(InvalidArguments, match="query"):
        await asked("search_nodes", {"query": None})


@pytest.mark.anyio
async def test_the_dispatcher_does_not_modify_the_arguments() -> None:
    sent = {"path": ["git"], "limit": 1}

    await asked("list", sent)

    assert sent == {"path": ["git"], "limit": 1}


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", [{}, {"tool_id": "files.read", "tool_ids": ["git.log"]}])
async def test_expand_tool_needs_either_one_id_or_a_list_of_ids(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match=r"either `tool_id`.* or `tool_ids`"):
        await asked("expand_tool", arguments)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "slip", "meant"),
    [
        ("list", {"path": '["git"]'}, {"path": ["git"]}),
        ("list", {"paths": ["git"]}, {"path": ["git"]}),
        ("list", {"limit": "5"}, {"limit": 5}),
        ("list", {"arguments": {"path": ["git"]}}, {"path": ["git"]}),
        ("search_tools", {"Query": "read"}, {"query": "read"}),
        ("search_tools", {"input": {"query": "read"}}, {"query": "read"}),
        ("search_tool_by_category", {"query": "read", "categoryPath": []}, {"query": "read", "category_path": []}),
        ("search_nodes", {"querry": "read"}, {"query": "read"}),
        ("expand_tool", {"toolId": "files.read"}, {"tool_id": "files.read"}),
        ("expand_tool", {"tool_ids": '["files.read"]'}, {"tool_ids": ["files.read"]}),
        ("expand_tool", {"tool_id": ["files.read", "git.log"]}, {"tool_ids": ["files.read", "git.log"]}),
        ("expand_tool", {"tool_ids": "files.read"}, {"tool_ids": ["files.read"]}),
        ("search_tools", {"query": "log", "detail_level": "ful"}, {"query": "log", "detail_level": "full"}),
        (
            "search_tools",
            {"query": "log", "detail_level": "FULL", "limit": "3", "tags": "vcs"},
            {"query": "log", "detail_level": "full", "limit": 3, "tags": ["vcs"]},
        ),
        ("list", {"path": ["git"], "limit": 51}, {"path": ["git"], "limit": 50}),
        ("list", {"path": ["git"], "limit": 0, "tags": []}, {"path": ["git"], "limit": 1, "tags": []}),
        (
            "search_tools",
            {"query": "log", "category": "git", "limit": "99"},
            {"query": "log", "category": "git", "limit": 50},
        ),
    ],
)
async def test_the_next_action_corrects_a_mistake_in_the_arguments_of_an_operation(
    name: str, slip: dict[str, Any], meant: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArguments) as wrong:
        await asked(name, slip)

    assert wrong.value.next_action == NextAction(name, meant)
    assert wrong.value.hints
    await asked(name, meant)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "wrong", "kept"),
    [
        ("list", {"path": ["git"], "cursor": 5}, NextAction("list", {"path": ["git"]})),
        ("list", {"path": ["git"], "limit": {}, "depth": 3}, NextAction("list", {"path": ["git"]})),
        (
            "search_tools",
            {"query": "read", "tags": {}, "detail_level": "all"},
            NextAction("search_tools", {"query": "read"}),
        ),
        ("search_tool_by_category", {"category_path": ["git"]}, NextAction("list", {"path": ["git"]})),
        ("search_nodes", {"query": {}, "limit": 5}, NextAction("list")),
        ("list", {"path": {}}, NextAction("list")),
        ("call_tool", {"tool_id": {}}, NextAction("list")),
    ],
)
async def test_the_next_action_retains_valid_arguments_if_no_mistake_is_recognized(
    name: str, wrong: dict[str, Any], kept: NextAction
) -> None:
    with pytest.raises(InvalidArguments) as error:
        await asked(name, wrong)

    assert error.value.next_action == kept
    await asked(kept.operation, kept.arguments)


@pytest.mark.anyio
async def test_the_next_action_combines_tool_id_and_tool_ids() -> None:
    with pytest.raises(InvalidArguments) as error:
        await asked("expand_tool", {"tool_id": "git.log", "tool_ids": ["files.read", "git.log"]})

    assert error.value.next_action == NextAction("expand_tool", {"tool_ids": ["git.log", "files.read"]})


@pytest.mark.anyio
async def test_an_error_about_operation_arguments_names_the_path_of_each_value() -> None:
    with pytest.raises(InvalidArguments) as wrong:
        await asked("search_tools", {"query": 5, "limit": 500})

    message = wrong.value.message
    assert message.startswith("The arguments of `search_tools` do not match its input schema: ")
    assert {violation["place"] for violation in wrong.value.details["violations"]} == {"/query", "/limit"}


@pytest.mark.anyio
async def test_an_error_that_ends_with_a_question_has_no_second_full_stop() -> None:
    with pytest.raises(InvalidArguments) as wrong:
        await asked("search_tools", {"query": "read", "limti": 5})

    assert wrong.value.message.endswith("unknown key `limti` (did you mean `limit`?).")


@pytest.mark.anyio
async def test_unusual_strings_in_paths_and_queries_get_an_answer_or_an_error() -> None:
    for odd in ("", "\x00", "🧰", "ファイル", "x" * 100_000):
        assert isinstance(await asked("search_tools", {"query": odd}), SearchPage)
        if odd:
            with pytest.raises(UnknownPath):
                await asked("list", {"path": [odd[:1_000]]})
    for top in ("", "/", "//"):
        page = await asked("list", {"path": [top]})
        assert isinstance(page, ListPage)
        assert page.path == (), "a person may write the root like this"


WORDS = st.sampled_from(
    [
        "files.read",
        READ.handle,
        f"{READ.handle}.7",
        COUNT.handle,
        "files.read@0",
        "git.lgo",
        "slow.x",
        "broken.x",
        "git",
        "GIT",
        "write",
        "",
        "\ud800",
        "5",
        "full",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 60)
    | st.floats()
    | WORDS
    | st.sampled_from(['["git"]', '{"path": "."}']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "query", "Path", "arguments", "tool_id"]), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "path",
        "tags",
        "query",
        "limit",
        "cursor",
        "category",
        "category_path",
        "detail_level",
        "include_unavailable",
        "tool_id",
        "tool_ids",
        "arguments",
        "args",
        "Query",
        "toolId",
    ]
)


@pytest.mark.holds("errors.next-action")
@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(sorted(NAMES)), st.dictionaries(KEYS, VALUES, max_size=3))
def test_any_request_gets_an_answer_or_an_error_with_a_valid_next_action(name: str, arguments: dict[str, Any]) -> None:
    async def main() -> None:
        errors: list[ToolcribError] = []
        try:
            answer = await asked(name, arguments)
        except ToolcribError as error:
            errors.append(error)
        else:
            if isinstance(answer, Expansions):
                errors += answer.errors.values()
        for step in (error.next_action for error in errors if error.next_action is not None):
            assert OPERATION_TABLE[step.operation].arguments.violations(step.arguments) == ()
            after: NextAction | None = None
            try:
                await asked(step.operation, step.arguments)
            except ToolcribError as error:
                after = error.next_action
            assert after != step, "the next action leads in a circle"

    anyio.run(main)


@pytest.mark.anyio
async def test_following_next_actions_after_a_mistake_leads_to_the_call() -> None:
    view = replace(VIEW)
    shown = await asked("expand_tool", {"tool_id": "files.read"}, view)
    assert isinstance(shown, Expansion)
    request: NextAction | None = NextAction("call_tool", {"tool_id": shown.handle, "Path": "."})
    for _ in range(3):
        assert request is not None
        try:
            answer = await asked(request.operation, request.arguments, view)
        except ToolcribError as error:
            request = error.next_action
        else:
            assert isinstance(answer, ToolResult)
            assert answer.structured_content == {"path": "."}
            return
    raise AssertionError("the next actions do not lead to an answer")


# -- errors are short -------------------------------------------------------------------------------------------------

LONG = "x" * 1_000_000


def nested(times: int) -> object:
    value: object = 1
    for _ in range(times):
        value = [value]
    return value


LARGE: dict[str, dict[str, object]] = {
    "a long key": {LONG: 1},
    "long keys": {f"{number}{'x' * 10_000}": 1 for number in range(90)},
    "many keys": {f"k{number}": 1 for number in range(200_000)},
    "many of a wrong type": {"path": [1] * 2_000_000},
    "some of a wrong type": {"path": [1] * 2_000},
    "a long name": {"path": [LONG]},
    "long names, and a key that is not known": {"path": ["x" * 1_000] * 2_000, "pth": 1},
    "a long string for a list": {"path": LONG},
    "deep lists": {"tags": nested(100)},
}

WRONG = {name: arguments for name, arguments in LARGE.items() if name != "a long string for a list"}
"""The arguments that the tool refuses as well: its `path` is a string."""


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("operation", ["list", "search_tools", "expand_tool", "call_tool"])
async def test_an_error_about_operation_arguments_is_short_for_any_input(
    operation: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(InvalidArguments) as wrong:
        await asked(operation, arguments)

    assert len(json.dumps(wrong.value.to_wire())) < MAX_ERROR_BYTES


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [*WRONG.values(), {"arguments": {"path": LONG}}, json.dumps({"path": LONG}), {"pth": LONG}, {"path": {"a": LONG}}],
    ids=[*WRONG, "wrapped", "as a string", "a misspelt key", "of a wrong type"],
)
async def test_an_error_about_tool_arguments_is_short_for_any_input(arguments: object) -> None:
    with pytest.raises(InvalidArguments) as wrong:
        await asked("call_tool", {"tool_id": READ.handle, "arguments": arguments})

    wire = wrong.value.to_wire()
    assert len(json.dumps(wire)) < MAX_ERROR_BYTES
    assert wire["error"]["next_action"] == {"operation": "expand_tool", "arguments": {"tool_id": READ.handle}} or (
        wire["error"]["next_action"] == {"operation": "expand_tool", "arguments": {"tool_id": READ.id}}
    )


@pytest.mark.anyio
async def test_a_value_that_is_too_long_is_reported_with_its_length() -> None:
    with pytest.raises(InvalidArguments, match=r"`/path/1` has 5,000 characters; at most 1,000 are allowed"):
        await asked("list", {"path": ["git", "x" * 5_000]})
    with pytest.raises(InvalidArguments, match=r"`/path` has 2,000,000 items; at most 2000 are allowed"):
        await asked("list", {"path": [1] * 2_000_000})


# -- rate limits ------------------------------------------------------------------------------------------------------


CALL = {"tool_id": READ.handle, "arguments": {"path": "."}}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("operation", "arguments"), [("search_tools", {"query": "read"}), ("call_tool", CALL)], ids=["a search", "a call"]
)
async def test_a_request_over_the_rate_is_refused_and_not_recorded(operation: str, arguments: dict[str, Any]) -> None:
    recorded: list[str] = []
    dispatcher = Dispatcher(recorders=[lambda event: recorded.append(event.operation)])
    dispatcher.lookups.rate = Rate(1, 2)
    ada, eve = CallContext(Principal("ada")), CallContext(Principal("eve"))
    of_ada, of_eve = View.of(VIEW_STATE, ada.principal), View.of(VIEW_STATE, eve.principal)
    for _ in range(2):
        await dispatcher.perform(of_eve, eve, operation, arguments)

    with pytest.raises(RateLimited, match=r"1 operations per minute.*Retry in [56][0-9.]+ s") as refused:
        await dispatcher.perform(of_eve, eve, operation, arguments)

    assert refused.value.next_action == NextAction(operation, arguments)
    assert recorded == [operation] * 2
    assert await dispatcher.perform(of_ada, ada, operation, arguments)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"tool_id": "files.raed"}, ErrorCode.TOOL_NOT_FOUND),
        ({"tool_id": "files.read"}, ErrorCode.NOT_EXPANDED),
        ({"tool_id": READ.handle, "arguments": {"path": 1}}, ErrorCode.INVALID_ARGUMENTS),
        ({"tool": "files.read"}, ErrorCode.INVALID_ARGUMENTS),
    ],
    ids=["an unknown id", "a bare id", "bad arguments of a tool", "bad arguments of the operation"],
)
async def test_calls_that_fail_before_they_run_are_rate_limited(arguments: dict[str, Any], code: ErrorCode) -> None:
    outcomes: list[str] = []
    dispatcher = Dispatcher(recorders=[lambda event: outcomes.append(event.outcome)])
    dispatcher.lookups.rate = dispatcher.runner.limits.rate = Rate(1, 1)
    codes: list[ErrorCode] = []
    for _ in range(3):
        with pytest.raises(ToolcribError) as refused:
            await dispatcher.perform(VIEW, CallContext(), "call_tool", arguments)
        codes.append(refused.value.code)

    assert codes == [code, ErrorCode.RATE_LIMITED, ErrorCode.RATE_LIMITED]
    assert outcomes == [code.value]


@pytest.mark.anyio
async def test_requests_for_unknown_prompts_and_resources_are_rate_limited() -> None:
    outcomes: list[str] = []
    dispatcher = Dispatcher(recorders=[lambda event: outcomes.append(event.outcome)])
    dispatcher.lookups.rate = Rate(1, 3)
    reference = {"ref": {"type": "ref/prompt", "name": "nothing"}}

    def requests() -> list[Awaitable[object]]:
        return [
            dispatcher.get_prompt(VIEW, CallContext(), "nothing", None),
            dispatcher.read_resource(VIEW, CallContext(), "memo://nothing"),
            dispatcher.complete(VIEW, CallContext(), reference),
        ]

    for expected in (NotFound, RateLimited):
        for request in requests():
            with pytest.raises(expected):
                await request

    assert outcomes == [ErrorCode.NOT_FOUND.value] * 3


@pytest.mark.anyio
async def test_lookups_do_not_use_up_the_rate_of_calls() -> None:
    dispatcher = Dispatcher(
        lookups=CallLimits(DEFAULT_LOOKUP_RATE, now_ns=lambda: 0),
        runner=Runner(limits=CallLimits(DEFAULT_RATE, now_ns=lambda: 0)),
    )
    for _ in range(DEFAULT_LOOKUP_RATE.burst_calls - DEFAULT_RATE.burst_calls):
        await dispatcher.perform(VIEW, CallContext(), "list_categories", {})
    for _ in range(DEFAULT_RATE.burst_calls):
        await dispatcher.perform(VIEW, CallContext(), "call_tool", CALL)
    with pytest.raises(RateLimited):
        await dispatcher.perform(VIEW, CallContext(), "call_tool", CALL)


@pytest.mark.anyio
@pytest.mark.parametrize("operation", ["search_tools", "call_tool"])
async def test_refusals_of_one_principal_are_delayed_one_after_the_other(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, refused_at = 0.0, list[float]()

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        await anyio.lowlevel.checkpoint()
        now_s += delay_s

    monkeypatch.setattr(anyio, "sleep", sleep)
    once = Rate(60, 1)
    limits = CallLimits(once, now_ns=lambda: 0)
    dispatcher = Dispatcher(runner=Runner(limits=limits)) if operation == "call_tool" else Dispatcher(lookups=limits)
    view, context = View.of(VIEW_STATE), CallContext()
    given = {"tool_id": READ.handle, "arguments": {"path": "."}} if operation == "call_tool" else {"query": "read"}

    async def refused() -> None:
        with pytest.raises(RateLimited):
            await dispatcher.perform(view, context, operation, given)
        refused_at.append(now_s)

    await dispatcher.perform(view, context, operation, given)
    assert now_s == 0
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(refused)
    assert refused_at == pytest.approx([REFUSAL_INTERVAL_S * count for count in (1, 2, 3)])


@pytest.mark.anyio
async def test_direct_method_calls_of_a_program_are_not_rate_limited() -> None:
    dispatcher = Dispatcher(lookups=CallLimits(Rate(1, 1)))
    for _ in range(10):
        assert dispatcher.perform_method("list_categories", dispatcher.operations.list_categories, VIEW, CallContext())
