"""What is recorded about each operation, for every outcome, and how records are connected to traces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.catalogs import registry_of, tool
from tests.operations.calling.test_approver import Person, saying
from tests.operations.calling.test_fetching import Library, only
from tests.operations.calling.test_fetching import catalog as library_catalog

from toolcrib.audit.audit_reader import SHOWING_NODES
from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.bundles import ToolBundle
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.client import Client, Resumption, SilentClient
from toolcrib.core.errors import ErrorCode, NotAuthorized, SourceUnavailable, ToolcribError, ToolFailed
from toolcrib.core.events import OperationPerformed
from toolcrib.core.handles import Handle
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations import dispatcher
from toolcrib.operations.calling import CallLimits, Runner
from toolcrib.operations.calling.limits import Rate
from toolcrib.operations.dispatcher import FAULT, GIVEN_UP, Dispatcher
from toolcrib.operations.operation_table import OPERATION_TABLE
from toolcrib.operations.protocol_messages import Answer, Expansion, Expansions, ListPage
from toolcrib.sources.base import Extras, ProgressListener
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

READ = tool("files.read", "Read a file.", properties={"path": {"type": "string"}}, required=("path",))
LOG = replace(tool("git.log", "Show history."), annotations=ToolAnnotations(read_only=True))
PUSH = tool("git.push", "Send commits away.")
ADA, GRACE = Principal("ada"), Principal("grace")
TRACE = f"{7:032x}"


def catalog(*tools: Tool, trusted: bool = True) -> tuple[ToolRegistry, ScriptedSource]:
    """The registry, and its source `git`."""
    registry = registry_of(*(tools or (READ, LOG, PUSH)))
    mine = [t for t in registry.state.tools.values() if t.source == "git"]
    git = ScriptedSource("git", mine)
    registry.register_source(SourceEntry(git, SourceStatus.READY, trusted=trusted), mine)
    return registry, git


class Counter:
    """A dispatcher for one catalog, with its recorded events."""

    def __init__(self, dispatcher: Dispatcher | None = None, policy: Rules | None = None) -> None:
        registry, self.git = catalog()
        self.state, self.policy = registry.state, policy or Rules((), Access.CALL)
        self.dispatcher = dispatcher or Dispatcher()
        self.told: list[OperationPerformed] = []
        self.dispatcher.recorders.append(self.told.append)

    async def ask(
        self, name: str, arguments: Mapping[str, Any], principal: Principal = ADA, trace_id: str | None = None
    ) -> Answer | ToolResult:
        view = View.of(self.state, principal, self.policy)
        return await self.dispatcher.perform(view, CallContext(principal, trace_id), name, arguments)

    async def expand(self, tool_id: str, principal: Principal = ADA) -> str:
        """Expand a tool and return its handle."""
        shown = await self.ask("expand_tool", {"tool_id": tool_id}, principal)
        assert isinstance(shown, Expansion)
        return shown.handle

    @property
    def traces(self) -> list[str]:
        return [event.trace_id for event in self.told]


# -- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.holds("goals.trace")
async def test_a_search_the_expansion_of_its_result_and_the_call_share_one_trace() -> None:
    counter = Counter()
    await counter.ask("search_tools", {"query": "read a file"})
    handle = await counter.expand("files.read")
    await counter.ask("call_tool", {"tool_id": handle, "arguments": {"path": "."}})

    assert [event.operation for event in counter.told] == ["search_tools", "expand_tool", "call_tool"]
    assert len(set(counter.traces)) == 1
    assert Handle.parse(handle) == Handle("files.read", READ.handle.partition("@")[2], counter.traces[0])


async def test_expanding_a_tool_again_after_its_call_starts_a_new_trace() -> None:
    counter = Counter()
    for _ in range(2):
        handle = await counter.expand("files.read")
        await counter.ask("call_tool", {"tool_id": handle, "arguments": {"path": "."}})

    first, again = counter.traces[:2], counter.traces[2:]
    assert first[0] == first[1] != again[0] == again[1]


async def test_each_run_of_a_client_has_a_separate_trace() -> None:
    policy = Rules((Rule(Access.SEE, tools=("git.push",)),), Access.CALL)
    counter = Counter(policy=policy)
    for run in range(3):
        handle = await counter.expand("git.push")
        if run < 2:
            with pytest.raises(NotAuthorized):
                await counter.ask("call_tool", {"tool_id": handle, "arguments": {}})

    first, second, third = counter.traces[:2], counter.traces[2:4], counter.traces[4:]
    assert [len(set(each)) for each in (first, second, third)] == [1, 1, 1]
    assert len({*first, *second, *third}) == 3


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("files.read", ErrorCode.NOT_EXPANDED),
        ("files.read@0", ErrorCode.STALE_EXPANSION),
        (READ.handle, ErrorCode.INVALID_ARGUMENTS),
    ],
)
async def test_an_expansion_that_corrects_a_call_stays_in_the_same_trace(reference: str, code: ErrorCode) -> None:
    counter = Counter()
    await counter.ask("search_tools", {"query": "read a file"})
    await counter.expand("files.read")
    with pytest.raises(ToolcribError) as failed:
        await counter.ask("call_tool", {"tool_id": reference, "arguments": {"lines": 5}})
    assert failed.value.code is code
    handle = await counter.expand("files.read")
    await counter.ask("call_tool", {"tool_id": handle, "arguments": {"path": "."}})

    assert len(set(counter.traces)) == 1


async def test_a_different_replica_reads_the_trace_from_the_handle() -> None:
    here, there = Counter(), Counter()
    handle = await here.expand("files.read")
    await there.ask("call_tool", {"tool_id": handle, "arguments": {"path": "."}})

    assert there.traces == here.traces


async def test_results_shown_to_one_principal_do_not_affect_traces_of_others() -> None:
    counter = Counter()
    await counter.ask("search_tools", {"query": "read a file"}, ADA)
    await counter.expand("files.read", GRACE)
    await counter.expand("files.read", ADA)

    search, graces, adas = counter.traces
    assert search == adas != graces


async def test_searches_of_one_principal_do_not_displace_traces_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.operations.trace_memory.MAX_SHOWN", 1)
    counter = Counter()
    await counter.ask("search_tools", {"query": "read a file", "limit": 1}, ADA)
    for tool_id in ("git.log", "git.push", "files.read"):
        await counter.expand(tool_id, GRACE)
    await counter.expand("files.read", ADA)
    await counter.expand("git.log", GRACE)

    assert counter.traces[0] == counter.traces[4]
    assert counter.traces[1] != counter.traces[5], "the memory of one principal is bounded"


async def test_the_traces_of_the_least_recent_principal_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.operations.trace_memory.MAX_PRINCIPALS", 2)
    counter = Counter()
    for principal in (ADA, GRACE, ADA, Principal("linus")):
        await counter.ask("search_tools", {"query": "read a file"}, principal)
    for principal in (ADA, GRACE):
        await counter.expand("files.read", principal)

    adas, graces = counter.traces[4], counter.traces[5]
    assert adas == counter.traces[2]
    assert graces not in counter.traces[:5]


async def test_an_expansion_joins_the_trace_of_the_last_operation_that_showed_the_tool() -> None:
    counter = Counter()
    await counter.ask("search_tools", {"query": "read a file"})
    await counter.ask("list", {"path": ["files"]})
    await counter.expand("files.read")
    await counter.ask("search_nodes", {"query": "read a file"})
    await counter.expand("git.log")

    first, second, expanded, nodes, other = counter.traces
    assert second == expanded
    assert len({first, second, nodes, other}) == 4


@pytest.mark.holds("search_tools.one-door")
async def test_all_tools_expanded_by_one_answer_share_its_trace() -> None:
    counter = Counter()
    shown = await counter.ask("expand_tool", {"tool_ids": ["git.log", "files.read", "nothing.x"]})
    assert isinstance(shown, Expansions)
    full = await counter.ask("search_tools", {"query": "read a file", "detail_level": "full"})

    handles = [Handle.parse(tool.handle) for tool in shown.tools]
    assert [handle and handle.trace_id for handle in handles] == [counter.traces[0]] * 2
    (found, *_) = full.to_wire()["results"]
    assert (Handle.parse(found["handle"]) or Handle("", "")).trace_id == counter.traces[1]


async def test_an_explicit_trace_id_applies_unless_a_handle_contains_one() -> None:
    counter = Counter()
    handle = await counter.expand("files.read")
    await counter.ask("expand_tool", {"tool_id": "files.read"}, trace_id=TRACE)
    await counter.ask("call_tool", {"tool_id": READ.handle, "arguments": {"path": "."}}, trace_id=TRACE)
    await counter.ask("call_tool", {"tool_id": handle, "arguments": {"path": "."}}, trace_id=TRACE)

    assert counter.traces == [counter.traces[0], TRACE, TRACE, counter.traces[0]]


async def test_following_a_next_action_stays_in_the_trace() -> None:
    counter = Counter()
    handle = await counter.expand("files.read")
    with pytest.raises(ToolcribError) as wrong:
        await counter.ask("call_tool", {"tool_id": handle, "arguments": {"Path": "."}})
    step = wrong.value.next_action
    assert step is not None
    await counter.ask(step.operation, step.arguments)

    assert len(set(counter.traces)) == 1


async def test_an_at_sign_in_a_tool_name_is_not_read_as_a_trace() -> None:
    odd = tool("mail.send@once.beef")
    counter = Counter()
    counter.state = catalog(odd, tool("mail.send"))[0].state
    handle = await counter.expand(odd.id)
    await counter.ask("call_tool", {"tool_id": handle})

    assert [event.tool_ids for event in counter.told] == [(odd.id,)] * 2
    assert counter.traces[0] == counter.traces[1] != f"{0xBEEF:032x}"


# -- outcomes ---------------------------------------------------------------------------------------------------------


async def test_every_outcome_is_recorded_with_its_code() -> None:
    policy = Rules((Rule(Access.SEE, tools=("git.push",)), Rule(Access.HIDDEN, tools=("git.none",))), Access.CALL)
    counter = Counter(Dispatcher(runner=Runner(CallLimits(Rate(1, 3)))), policy)
    counter.git.answers["log"] = ToolResult({"content": [], "isError": True})
    ends: list[tuple[str, Mapping[str, Any], str]] = [
        ("list", {}, "ok"),
        ("list", {"path": ["none"]}, "UNKNOWN_PATH"),
        ("list", {"cursor": "x"}, "INVALID_CURSOR"),
        ("search_tool_by_category", {"query": "zebra", "category_path": ["git"]}, "NO_MATCH_IN_CATEGORY"),
        ("search_nodes", {"query": 5}, "INVALID_ARGUMENTS"),
        ("expand_tool", {"tool_id": "git.none"}, "TOOL_NOT_FOUND"),
        ("call_tool", {"tool_id": "git.log"}, "NOT_EXPANDED"),
        ("call_tool", {"tool_id": "git.log@0"}, "STALE_EXPANSION"),
        ("call_tool", {"tool_id": PUSH.handle}, "NOT_AUTHORIZED"),
        ("call_read_only_tool", {"tool_id": READ.handle, "arguments": {"path": "."}}, "NOT_AUTHORIZED"),
        ("call_tool", {"tool_id": READ.handle, "arguments": {"path": "."}}, "ok"),
        ("call_read_only_tool", {"tool_id": LOG.handle}, "TOOL_ERROR"),
        ("call_tool", {"tool_id": LOG.handle}, "TOOL_ERROR"),
        ("call_tool", {"tool_id": LOG.handle}, "RATE_LIMITED"),
    ]
    for name, arguments, outcome in ends:
        told = ""
        try:
            await counter.ask(name, arguments)
        except ToolcribError as error:
            told = error.code.value
        event = counter.told[-1]
        assert (event.operation, event.outcome) == (name, outcome)
        assert told in {"", outcome}
        assert event.answer_bytes > 0
        assert event.duration_s >= 0
        assert event.principal == "ada"
        assert (event.node_count is not None) == (outcome == "ok" and name in SHOWING_NODES)
    assert len(counter.told) == len(ends)


async def test_the_number_of_returned_nodes_is_recorded() -> None:
    counter = Counter()
    for name, arguments in (("list", {}), ("list_categories", {}), ("search_nodes", {"query": "files"})):
        answer = (await counter.ask(name, arguments)).to_wire()
        (nodes,) = (answer[key] for key in ("nodes", "categories", "results") if key in answer)
        assert counter.told[-1].node_count == len(nodes) > 0


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (SourceUnavailable("It went away."), "SOURCE_UNAVAILABLE"),
        (ToolFailed("No."), "TOOL_FAILED"),
    ],
)
async def test_the_failure_of_a_source_is_recorded(failure: ToolcribError, outcome: str) -> None:
    counter = Counter()
    counter.git.failure = failure
    with pytest.raises(type(failure)):
        await counter.ask("call_tool", {"tool_id": LOG.handle})

    assert [event.outcome for event in counter.told] == [outcome]


async def test_a_call_whose_caller_disconnects_is_recorded_as_given_up() -> None:
    class Slow(ScriptedSource):
        async def call_tool(
            self, tool: Tool, arguments: Any, context: CallContext, *, progress: ProgressListener | None = None
        ) -> ToolResult:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    counter = Counter()
    registry = registry_of(LOG)
    registry.register_source(SourceEntry(Slow("git", [LOG]), SourceStatus.READY))
    counter.state = registry.state
    with anyio.CancelScope() as scope:
        await counter.ask("call_tool", {"tool_id": LOG.handle})

    (event,) = counter.told
    assert (event.outcome, event.tool_ids) == (GIVEN_UP, ("git.log",))


async def test_an_internal_error_is_recorded_as_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> ListPage:
        raise KeyError("x")

    table = {**OPERATION_TABLE, "list": replace(OPERATION_TABLE["list"], answer=broken)}
    monkeypatch.setattr(dispatcher, "OPERATION_TABLE", table)
    counter = Counter(Dispatcher())
    with pytest.raises(KeyError):
        await counter.ask("list", {})

    assert [event.outcome for event in counter.told] == [FAULT]


# -- approvals --------------------------------------------------------------------------------------------------------

ASK_FOR_PUSH = Rules((Rule(Access.ASK, tools=("git.push",)),), Access.CALL)


async def approval(
    dispatcher: Dispatcher, person: Client | None, resumed: Resumption | None = None
) -> tuple[str | None, str]:
    """The recorded approval and outcome of a call that needs approval."""
    counter = Counter(dispatcher, ASK_FOR_PUSH)
    context = CallContext(ADA, client=person, resumed=resumed)
    with suppress(ToolcribError):
        await dispatcher.call_tool(View.of(counter.state, ADA, ASK_FOR_PUSH), context, PUSH.handle, {})
    (event,) = counter.told
    assert bool(counter.git.calls) == (event.outcome == "ok")
    return event.approval, event.outcome


async def test_the_approval_of_a_call_that_ran_is_recorded() -> None:
    dispatcher = Dispatcher()
    assert await approval(dispatcher, saying("once")) == ("once", "ok")
    assert await approval(dispatcher, saying("always")) == ("always", "ok")
    assert await approval(dispatcher, saying("no")) == ("kept", "ok")
    assert await approval(dispatcher, None) == ("kept", "ok")


@pytest.mark.parametrize(
    ("person", "told"),
    [
        (None, "unasked"),
        (SilentClient({}), "unasked"),
        (saying("no"), "refused"),
        (Person({"action": "decline"}), "refused"),
        (Person({"action": "cancel"}), "unanswered"),
        (Person({"action": "accept", "content": {"answer": "yes"}}), "unanswered"),
        (Person(ToolFailed("The client did not answer.")), "unanswered"),
    ],
    ids=repr,
)
async def test_the_reason_why_an_unapproved_call_did_not_run_is_recorded(person: Client | None, told: str) -> None:
    assert await approval(Dispatcher(), person) == (told, "NOT_AUTHORIZED")


async def test_a_caller_that_disconnects_during_an_approval_is_recorded_as_unanswered() -> None:
    class Cancelling(Person):
        async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    counter = Counter(policy=ASK_FOR_PUSH)
    context = CallContext(ADA, client=Cancelling({}))
    with anyio.CancelScope() as scope:
        await counter.dispatcher.perform(
            View.of(counter.state, ADA, ASK_FOR_PUSH), context, "call_tool", {"tool_id": PUSH.handle}
        )

    assert [(event.approval, event.outcome) for event in counter.told] == [("unanswered", GIVEN_UP)]


async def test_a_resumed_call_is_recorded_with_its_earlier_approval() -> None:
    counter = Counter(policy=ASK_FOR_PUSH)
    view = View.of(counter.state, ADA, ASK_FOR_PUSH)
    counter.git.answers["push"] = ToolResult({"resultType": "input_required", "inputRequests": {}})
    paused = await counter.dispatcher.call_tool(view, CallContext(ADA, client=saying("once")), PUSH.handle, {})
    back = Resumption.of({}, paused.wire["requestState"])
    await counter.dispatcher.call_tool(view, CallContext(ADA, client=saying("no"), resumed=back), PUSH.handle, {})

    assert [event.approval for event in counter.told] == ["once", "once"]


async def test_no_approval_is_recorded_if_no_person_had_to_be_asked() -> None:
    counter = Counter(policy=Rules((Rule(Access.SEE, tools=("git.push",)),), Access.CALL))
    await counter.ask("call_tool", {"tool_id": LOG.handle})
    await counter.ask("search_tools", {"query": "history"})
    with pytest.raises(NotAuthorized):
        await counter.ask("call_tool", {"tool_id": PUSH.handle})

    assert [event.approval for event in counter.told] == [None, None, None]


# -- contents ---------------------------------------------------------------------------------------------------------


async def test_a_record_contains_the_request_and_the_returned_tools() -> None:
    counter = Counter()
    await counter.ask("search_tools", {"query": "history", "category": ["git"]})
    await counter.ask("list", {"path": ["git"], "query": "history"})
    await counter.ask("call_tool", {"tool_id": READ.handle.replace(".", "__", 1), "arguments": {"path": "."}})

    search, listed, called = counter.told
    assert (search.query, search.path, search.tool_ids) == ("history", ("git",), ("git.log",))
    assert (listed.query, listed.path, listed.tool_ids) == ("history", ("git",), ("git.log",))
    assert (called.tool_ids, called.arguments, called.input_schema) == (
        ("files.read",),
        {"path": "."},
        READ.input_schema,
    )
    assert (search.arguments, search.input_schema) == (None, None)


@pytest.mark.parametrize("odd", ["x" * 100_000, "\ud800", "\x00", "🧰"], ids=ascii)
async def test_the_record_of_an_unusual_request_is_small(odd: str) -> None:
    counter = Counter()
    for name, arguments in [
        ("search_tools", {"query": odd}),
        ("list", {"path": [odd]}),
        ("list", {"path": ["x"] * 100_000}),
        ("expand_tool", {"tool_id": odd}),
        ("expand_tool", {"tool_ids": [odd]}),
        ("call_tool", {"tool_id": odd}),
        ("call_tool", {"tool_id": f"{odd}@0"}),
    ]:
        with suppress(ToolcribError):
            await counter.ask(name, arguments)
        event = counter.told[-1]
        assert len(repr((event.query, event.path, event.tool_ids))) < 10_000


async def test_a_recorder_that_raises_does_not_affect_operations(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: OperationPerformed) -> None:
        raise OSError("the disk is full")

    counter = Counter(Dispatcher(recorders=[broken]))
    assert isinstance(await counter.ask("list", {}), ListPage)
    with pytest.raises(ToolcribError):
        await counter.ask("list", {"path": ["none"]})

    assert [event.outcome for event in counter.told] == ["ok", "UNKNOWN_PATH"]
    assert "a recorder failed on list" in caplog.text


async def test_python_method_calls_are_recorded_like_requests_of_a_surface() -> None:
    told: list[OperationPerformed] = []
    crib = Toolcrib(record=told.append)

    def read(path: str) -> str:
        """Read a file."""
        return path

    crib.add(read)
    crib.list(["functions"])
    crib.search_tools("read")
    crib.search_tool_by_category("read", ["functions"])
    crib.search_nodes("read")
    crib.list_categories()
    handle = crib.expand_tool("functions.read").handle
    crib.expand_tools(["functions.read"])
    await crib.call_tool(handle, {"path": "."})
    crib.registry.register_source(replace(crib.view().sources["functions"], trusted=False))
    with pytest.raises(NotAuthorized):
        await crib.call_tool(handle, {"path": "."}, only_read=True)

    searching = ["list", "search_tools", "search_tool_by_category", "search_nodes", "list_categories"]
    calling = ["expand_tool", "expand_tool", "call_tool", "call_read_only_tool"]
    assert [event.operation for event in told] == [*searching, *calling]
    assert {event.principal for event in told} == {LOCAL.id}


async def test_a_record_contains_the_bundle_of_the_request() -> None:
    counter = Counter()
    view, few = View.of(counter.state, ADA), CallContext(ADA, bundle="few")
    counter.dispatcher.perform_method("list", counter.dispatcher.operations.list, view, few)
    await counter.dispatcher.perform(view, few, "expand_tool", {"tool_id": "git.log"})
    await counter.dispatcher.call_tool(view, few, LOG.handle, {})
    await counter.ask("list", {})

    assert [event.bundle for event in counter.told] == ["few", "few", "few", None]


async def test_a_record_names_the_requested_bundle_and_not_the_confining_one() -> None:
    told: list[OperationPerformed] = []
    crib = Toolcrib(record=told.append)
    for name in ("wide", "narrow"):
        crib.add_bundle(ToolBundle(name, optional=("*",)))
    crib.confine("wide")
    crib.list()
    crib.list(context=CallContext(bundle="narrow"))

    assert [event.bundle for event in told] == ["wide", "narrow"]


# -- prompts and resources --------------------------------------------------------------------------------------------

MEMO = "toolcrib://library/memo://"


def told_by(dispatcher: Dispatcher) -> list[OperationPerformed]:
    told: list[OperationPerformed] = []
    dispatcher.recorders.append(told.append)
    return told


async def test_a_prompt_or_resource_is_recorded_by_name_with_its_arguments_separate() -> None:
    dispatcher, view, context = Dispatcher(), library_catalog(Library()), CallContext(bundle="few")
    told = told_by(dispatcher)
    template = {"type": "ref/resource", "uri": f"{MEMO}{{n}}"}
    await dispatcher.get_prompt(view, context, "library__plan", {"day": "1"})
    for uri in (f"{MEMO}1", f"{MEMO}2", "toolcrib://library/other://x"):
        await dispatcher.read_resource(view, context, uri)
    await dispatcher.complete(view, context, {"ref": template, "argument": {"name": "n", "value": "a"}})
    await dispatcher.complete(view, context, {"ref": {"type": "ref/prompt", "name": "library__plan"}})

    assert [(event.operation, event.item, event.arguments) for event in told] == [
        ("prompts/get", "library__plan", {"day": "1"}),
        ("resources/read", f"{MEMO}1", None),
        ("resources/read", f"{MEMO}{{n}}", {"n": "2"}),
        ("resources/read", "toolcrib://library/", {"uri": "toolcrib://library/other://x"}),
        ("completion/complete", f"{MEMO}{{n}}", {"n": "a"}),
        ("completion/complete", "library__plan", None),
    ]
    assert {(event.outcome, event.principal, event.bundle) for event in told} == {("ok", "local", "few")}
    assert min(event.answer_bytes for event in told) > 20


@pytest.mark.parametrize(
    ("template", "filled", "arguments"),
    [
        ("vault://{+token}/get", "vault://hunter2/get", {"token": "hunter2"}),
        ("vault://{token}-{name}", "vault://hunt-er2-x", {"token, name": "hunt-er2-x"}),
        ("search://all{?q,token}", "search://all?q=1&token=hunter2", {"q,token": "?q=1&token=hunter2"}),
    ],
)
async def test_template_arguments_are_recorded_under_their_variable_names(
    template: str, filled: str, arguments: Mapping[str, Any]
) -> None:
    dispatcher, (registry, _), library = Dispatcher(), catalog(), Library()
    told = told_by(dispatcher)
    extras = Extras(templates=({"uriTemplate": template, "name": "any"},))
    registry.register_source(SourceEntry(library, SourceStatus.READY, extras=extras))
    await dispatcher.read_resource(View.of(registry.state), CallContext(), f"toolcrib://library/{filled}")

    assert [(event.item, event.arguments) for event in told] == [(f"toolcrib://library/{template}", arguments)]


async def test_every_outcome_of_a_prompt_or_resource_request_is_recorded() -> None:
    dispatcher, library = Dispatcher(), Library()
    told = told_by(dispatcher)
    free, shown, hidden = (library_catalog(library, only(each)) for each in (Access.CALL, Access.SEE, Access.HIDDEN))
    asking = library_catalog(library, only(Access.ASK))
    person = CallContext(client=saying("once"))
    for requested in (
        dispatcher.get_prompt(shown, CallContext(), "library__plan", None),
        dispatcher.get_prompt(hidden, CallContext(), "library__plan", None),
        dispatcher.read_resource(hidden, CallContext(), f"{MEMO}1"),
        dispatcher.read_resource(free, CallContext(), "toolcrib://nobody/x"),
        dispatcher.complete(free, CallContext(), {"ref": "plan"}),
        dispatcher.get_prompt(asking, CallContext(), "library__plan", None),
    ):
        with pytest.raises(ToolcribError):
            await requested
    await dispatcher.read_resource(asking, person, f"{MEMO}1")

    assert [(event.outcome, event.item, event.approval) for event in told] == [
        ("NOT_AUTHORIZED", "library__plan", None),
        ("NOT_FOUND", "library__plan", None),
        ("NOT_FOUND", None, None),
        ("NOT_FOUND", None, None),
        ("NOT_FOUND", None, None),
        ("NOT_AUTHORIZED", "library__plan", "unasked"),
        ("ok", f"{MEMO}1", "once"),
    ]
    assert min(event.answer_bytes for event in told) > 20
    assert len({event.trace_id for event in told}) == len(told)


async def test_prompts_and_resources_fetched_with_python_methods_are_recorded() -> None:
    told: list[OperationPerformed] = []
    library = Library()
    crib = Toolcrib(record=told.append)
    crib.registry.register_source(SourceEntry(library, SourceStatus.READY, extras=Extras(prompts=({"name": "plan"},))))
    await crib.get_prompt("library__plan")
    await crib.read_resource(f"{MEMO}1")
    await crib.complete({"ref": {"type": "ref/prompt", "name": "library__plan"}})

    assert [event.operation for event in told] == ["prompts/get", "resources/read", "completion/complete"]


# -- read-only calls --------------------------------------------------------------------------------------------------


async def test_a_read_only_call_of_a_writing_tool_leads_to_call_tool() -> None:
    counter = Counter()
    for handle, arguments in ((READ.handle, {"path": "."}), (PUSH.handle, {})):
        with pytest.raises(NotAuthorized, match="may change something") as refused:
            await counter.ask("call_read_only_tool", {"tool_id": handle, "arguments": arguments})
        step = refused.value.next_action
        assert step is not None
        assert step.operation == "call_tool"
        answer = await counter.ask(step.operation, step.arguments)
        assert isinstance(answer, ToolResult)
        assert answer.structured_content == arguments
    assert counter.git.calls == [("push", {})]
    assert (await counter.ask("call_read_only_tool", {"tool_id": LOG.handle})).to_wire()["structuredContent"] == {}


async def test_a_read_only_claim_of_an_untrusted_source_is_refused() -> None:
    counter = Counter()
    registry, git = catalog(trusted=False)
    counter.state = registry.state

    with pytest.raises(NotAuthorized, match="may change something"):
        await counter.ask("call_read_only_tool", {"tool_id": LOG.handle})
    assert git.calls == []
