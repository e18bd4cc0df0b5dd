"""Running a tool: all checks run in order, and the source is not called before the last check."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.catalogs import registry_of, source_of, tool, view_of

from toolcrib.catalog.access import Access, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.view import Overlay, View
from toolcrib.core.errors import (
    InvalidArguments,
    InvalidTool,
    NextAction,
    NotAuthorized,
    NotExpanded,
    SourceUnavailable,
    StaleExpansion,
    ToolFailed,
    ToolNotFound,
)
from toolcrib.core.handles import Handle
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.operations.calling import Runner
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.protocol_messages import Answer, Expansion
from toolcrib.sources.base import ProgressListener
from toolcrib.sources.functions import FunctionSource
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

OPERATIONS = Operations()
RUNNER = Runner()
DISPATCHER = Dispatcher(OPERATIONS, RUNNER)
CONTEXT = CallContext(LOCAL)
READ = tool("files.read", "Read a file.", properties={"path": {"type": "string"}}, required=("path",))


def only(access: Access) -> Rules:
    """The same access for everything."""
    return Rules((), access)


async def sent(view: View, step: NextAction | None) -> Answer | ToolResult:
    """Send a next action unchanged and return the answer."""
    assert step is not None
    return await DISPATCHER.perform(view, CONTEXT, step.operation, step.arguments)


# -- successful calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference", [READ.handle, READ.handle.replace("files.read", "files__read")], ids=["by id", "by model name"]
)
async def test_an_expanded_tool_runs_with_the_given_arguments(reference: str) -> None:
    view = view_of(READ)

    result = await RUNNER.call_tool(view, reference, {"path": "."}, CONTEXT)

    assert result.structured_content == {"path": "."}
    assert result.warnings == ()
    assert source_of(view, "files").calls == [("read", {"path": "."})]


async def test_a_tool_without_parameters_runs_without_arguments() -> None:
    view = view_of(tool("clock.now"))

    assert (await RUNNER.call_tool(view, tool("clock.now").handle, None, CONTEXT)).structured_content == {}


async def test_the_context_and_progress_listener_are_passed_to_the_source() -> None:
    class Recording(ScriptedSource):
        kept: tuple[object, ...] = ()

        async def call_tool(
            self, tool: Tool, arguments: Any, context: CallContext, *, progress: ProgressListener | None = None
        ) -> ToolResult:
            self.kept = (context, progress)
            return await super().call_tool(tool, arguments, context, progress=progress)

    async def hear(progress: float, total: float | None, message: str | None) -> None: ...

    registry, source = registry_of(), Recording("files", [READ])
    registry.register_source(SourceEntry(source, SourceStatus.READY), [READ])

    await RUNNER.call_tool(View.of(registry.state), READ.handle, {"path": "."}, CONTEXT, progress=hear)

    assert source.kept == (CONTEXT, hear)


async def test_a_function_is_expanded_and_called_like_any_tool() -> None:
    def double(number: int) -> int:
        return 2 * number

    registry, source = registry_of(), FunctionSource()
    shown = source.add(double)
    registry.register_source(SourceEntry(source, SourceStatus.READY), [shown])
    view = View.of(registry.state)

    expansion = OPERATIONS.expand_tool(view, "functions.double")
    result = await RUNNER.call_tool(view, expansion.handle, {"number": 21}, CONTEXT)

    assert result.text == "42"
    assert result.warnings == ()


async def test_a_session_tool_is_called_at_its_own_source() -> None:
    mine = tool("desk.mark", "Mark a line.", properties={"line": {"type": "integer"}}, required=("line",))
    desk = ScriptedSource("desk", [mine])
    overlay = Overlay({mine.id: mine}, {"desk": SourceEntry(desk, SourceStatus.READY)})
    view = View.of(registry_of(READ).state, overlay=overlay)

    expansion = OPERATIONS.expand_tool(view, "desk.mark")
    result = await RUNNER.call_tool(view, expansion.handle, {"line": 7}, CONTEXT)

    assert result.structured_content == {"line": 7}
    assert desk.calls == [("mark", {"line": 7})]
    assert source_of(view, "files").calls == []


async def test_a_view_of_one_principal_cannot_serve_a_call_of_a_different_principal() -> None:
    view = view_of(READ)

    with pytest.raises(ValueError, match="a view for local cannot serve a call for somebody else"):
        await RUNNER.call_tool(view, READ.handle, {"path": "."}, CallContext(Principal("somebody else")))
    assert source_of(view, "files").calls == []


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_function_is_abandoned_after_the_deadline_of_the_caller(blocking: bool) -> None:
    released = threading.Event()

    async def wait() -> None:
        await anyio.sleep_forever()

    def block() -> None:
        released.wait()

    function: Callable[[], Any] = block if blocking else wait
    source = FunctionSource()
    shown = source.add(function, name="hold")
    registry = registry_of()
    registry.register_source(SourceEntry(source, SourceStatus.READY), [shown])
    try:
        with (
            anyio.fail_after(30),
            pytest.raises(SourceUnavailable, match="within the time limit of your request") as late,
        ):
            await RUNNER.call_tool(View.of(registry.state), shown.handle, {}, CONTEXT.within(0.05))
    finally:
        released.set()

    assert not late.value.retryable


# -- the order of checks ----------------------------------------------------------------------------------------------


async def test_the_first_failing_check_determines_the_error() -> None:
    """Each call contains the errors of all later calls as well."""
    changed = replace(READ, description="Read another file.")
    view = view_of(changed)
    state = replace(view.visible.state, sources={})
    wrong: dict[str, Any] = {"path": 5}

    with pytest.raises(ToolNotFound):
        await RUNNER.call_tool(View.of(state, policy=only(Access.HIDDEN)), "files.read", wrong, CONTEXT)
    with pytest.raises(NotAuthorized):
        await RUNNER.call_tool(View.of(state, policy=only(Access.SEE)), "files.read", wrong, CONTEXT)
    with pytest.raises(NotExpanded):
        await RUNNER.call_tool(View.of(state), "files.read", wrong, CONTEXT)
    with pytest.raises(StaleExpansion):
        await RUNNER.call_tool(View.of(state), READ.handle, wrong, CONTEXT)
    with pytest.raises(InvalidArguments):
        await RUNNER.call_tool(View.of(state), changed.handle, wrong, CONTEXT)
    with pytest.raises(SourceUnavailable, match="no longer exists"):
        await RUNNER.call_tool(View.of(state), changed.handle, {"path": "."}, CONTEXT)
    assert source_of(view, "files").calls == []


@pytest.mark.holds("errors.leak-nothing")
async def test_the_error_about_a_hidden_tool_equals_the_error_about_an_unknown_tool() -> None:
    hidden = View.of(registry_of(READ).state, LOCAL, only(Access.HIDDEN))

    with pytest.raises(ToolNotFound) as missing:
        await RUNNER.call_tool(hidden, READ.handle, {}, CONTEXT)
    with pytest.raises(ToolNotFound) as never:
        await RUNNER.call_tool(view_of(), READ.handle, {}, CONTEXT)

    assert missing.value.to_wire() == never.value.to_wire()


@pytest.mark.holds("errors.not-authorized")
async def test_an_error_about_access_names_the_tool_and_the_principal() -> None:
    view = View.of(registry_of(READ).state, LOCAL, only(Access.SEE))

    with pytest.raises(NotAuthorized, match=r"`local` is not allowed to call `files\.read`"):
        await RUNNER.call_tool(view, READ.handle, {"path": "."}, CONTEXT)


# -- expansion --------------------------------------------------------------------------------------------------------


@pytest.mark.holds("errors.not-expanded")
@pytest.mark.parametrize("reference", ["files.read", "files__read"])
async def test_calling_a_tool_that_was_not_expanded_leads_to_its_expansion(reference: str) -> None:
    view = view_of(READ)

    with pytest.raises(NotExpanded) as refused:
        await RUNNER.call_tool(view, reference, {"path": "."}, CONTEXT)

    shown = await sent(view, refused.value.next_action)
    assert isinstance(shown, Expansion)
    assert (await RUNNER.call_tool(view, shown.handle, {"path": "."}, CONTEXT)).structured_content == {"path": "."}
    assert len(source_of(view, "files").calls) == 1


@pytest.mark.holds("errors.stale-expansion")
@pytest.mark.parametrize(
    "changed",
    [
        replace(READ, description="Read a file and mail it."),
        replace(READ, input_schema={"type": "object"}),
        replace(READ, output_schema={"type": "object"}),
        replace(READ, annotations=ToolAnnotations(destructive=False)),
    ],
    ids=["description", "input schema", "output schema", "annotations"],
)
@pytest.mark.parametrize("old", [READ.handle, READ.handle.replace(".", "__", 1)])
async def test_a_tool_that_changed_after_its_expansion_must_be_expanded_again(changed: Tool, old: str) -> None:
    registry = registry_of(READ)
    registry.replace(changed)
    view = View.of(registry.state)

    with pytest.raises(StaleExpansion) as stale:
        await RUNNER.call_tool(view, old, {"path": "."}, CONTEXT)

    shown = await sent(view, stale.value.next_action)
    assert isinstance(shown, Expansion)
    shown_now = Handle.parse(shown.handle)
    assert shown_now is not None
    assert str(replace(shown_now, trace_id=None)) == changed.handle != READ.handle
    assert source_of(view, "files").calls == []


@pytest.mark.parametrize(
    "digest", ["", "0", "000000000000", READ.handle[-12:-1], READ.handle[-12:] + "0", "é", "\ud800"]
)
async def test_a_made_up_digest_is_refused(digest: str) -> None:
    with pytest.raises(StaleExpansion):
        await RUNNER.call_tool(view_of(READ), f"files.read@{digest}", {"path": "."}, CONTEXT)


async def test_the_handle_of_one_tool_is_refused_for_a_different_tool() -> None:
    twin = replace(READ, name="delete")

    with pytest.raises(StaleExpansion):
        await RUNNER.call_tool(view_of(READ, twin), f"files.delete@{READ.handle[-12:]}", {"path": "."}, CONTEXT)


async def test_a_tool_name_with_an_at_sign_works_in_a_handle() -> None:
    odd = tool("mail.send@once")

    assert (await RUNNER.call_tool(view_of(odd), odd.handle, {}, CONTEXT)).structured_content == {}
    with pytest.raises(NotExpanded):
        await RUNNER.call_tool(view_of(odd), odd.id, {}, CONTEXT)


async def test_a_stale_expansion_reported_by_the_source_leads_to_a_new_expansion() -> None:
    view = view_of(READ)
    source_of(view, "files").answers["read"] = StaleExpansion("It changed while its server was away.")

    with pytest.raises(StaleExpansion) as stale:
        await RUNNER.call_tool(view, READ.handle, {"path": "."}, CONTEXT)

    assert isinstance(await sent(view, stale.value.next_action), Expansion)


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.holds("errors.invalid-arguments", "call.conform")
@pytest.mark.parametrize("arguments", [None, {}, {"path": 5}, {"path": ".", "x": 1}, [], "x", 5, True, {"path": None}])
async def test_arguments_that_violate_the_schema_run_nothing_and_list_violations(arguments: object) -> None:
    view = view_of(READ)

    with pytest.raises(InvalidArguments) as wrong:
        await RUNNER.call_tool(view, READ.handle, arguments, CONTEXT)

    error = wrong.value
    assert error.message.startswith("The arguments of `files.read` do not match its input schema: ")
    assert error.details["violations"]
    assert not error.retryable
    assert source_of(view, "files").calls == []


async def test_a_violation_contains_the_path_the_allowed_values_and_the_nearest_value() -> None:
    forecast = tool("weather.get", properties={"unit": {"enum": ["celsius", "fahrenheit"]}})

    with pytest.raises(InvalidArguments) as wrong:
        await RUNNER.call_tool(view_of(forecast), forecast.handle, {"unit": "celcius"}, CONTEXT)

    assert wrong.value.to_wire()["error"]["details"]["violations"] == [
        {
            "place": "/unit",
            "message": '`/unit` must be one of "celsius", "fahrenheit", not "celcius"',
            "allowed": ["celsius", "fahrenheit"],
            "nearest": "celsius",
        }
    ]


async def test_arguments_that_cannot_be_serialized_run_nothing() -> None:
    anything = replace(READ, input_schema={"type": "object"})
    view = view_of(anything)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]

    for odd in ({"path": "\ud800"}, {"\ud800": 1}, {"path": [{"a": "x\udfff"}]}, {"path": deep}, {"path": {("a",): 1}}):
        with pytest.raises(InvalidArguments):
            await RUNNER.call_tool(view, anything.handle, odd, CONTEXT)

    assert source_of(view, "files").calls == []


async def test_arguments_that_cannot_be_corrected_lead_to_an_expansion() -> None:
    view = view_of(READ)

    with pytest.raises(InvalidArguments) as wrong:
        await RUNNER.call_tool(view, READ.handle, {"zebra": [1]}, CONTEXT)

    assert wrong.value.hints == ()
    assert isinstance(await sent(view, wrong.value.next_action), Expansion)


async def test_an_empty_schema_still_requires_an_object() -> None:
    anything = replace(tool("any.thing"), input_schema={})

    with pytest.raises(InvalidArguments, match="not an object"):
        await RUNNER.call_tool(view_of(anything), anything.handle, [1], CONTEXT)


async def test_a_tool_with_an_invalid_schema_cannot_be_called() -> None:
    broken = replace(READ, input_schema={"type": "nothing"})

    with pytest.raises(InvalidTool):
        await RUNNER.call_tool(view_of(broken), broken.handle, {}, CONTEXT)


@pytest.mark.parametrize("value", ["\x00", "🧰", "ファイル", "x" * 100_000, ""])
async def test_unusual_valid_values_reach_the_source_unchanged(value: str) -> None:
    view = view_of(READ)

    await RUNNER.call_tool(view, READ.handle, {"path": value}, CONTEXT)

    assert source_of(view, "files").calls == [("read", {"path": value})]


# -- answers ----------------------------------------------------------------------------------------------------------


COUNT = replace(tool("files.count"), output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})


@pytest.mark.parametrize(
    "wire",
    [
        {"content": [], "structuredContent": {"n": "5"}},
        {"content": [], "structuredContent": [5]},
        {"content": [{"type": "text", "text": "five"}]},
        {"content": [], "structuredContent": None},
        {"content": [], "structuredContent": {"n": float("nan")}},
        {"structuredContent": {"n": "x"}, "_meta": {"kept": True}, "new": 1},
    ],
    ids=str,
)
async def test_an_answer_that_violates_the_output_schema_is_returned_with_a_warning(
    wire: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    view = view_of(COUNT)
    source_of(view, "files").answers["count"] = ToolResult(wire, ("odd",))

    result = await RUNNER.call_tool(view, COUNT.handle, {}, CONTEXT)

    assert result.wire is wire
    first, mine = result.warnings
    assert first == "odd"
    assert "output schema" in mine
    assert "files.count" in caplog.text


async def test_an_answer_with_an_invalid_output_schema_is_returned_with_a_warning() -> None:
    broken = replace(COUNT, output_schema={"type": "nothing"})

    result = await RUNNER.call_tool(view_of(broken), broken.handle, {}, CONTEXT)

    assert result.structured_content == {}
    assert "the answer cannot be checked" in result.warnings[0]


async def test_an_answer_that_cannot_be_serialized_is_returned_with_a_warning() -> None:
    view = view_of(replace(COUNT, output_schema={"properties": {"n": {"enum": [1]}}}))
    handle = next(iter(view.tools.values())).handle
    source_of(view, "files").answers["count"] = ToolResult({"structuredContent": {"n": "\ud800"}})

    result = await RUNNER.call_tool(view, handle, {}, CONTEXT)

    assert result.structured_content == {"n": "\ud800"}
    assert len(result.warnings) == 1


async def test_a_valid_answer_and_a_failed_answer_have_no_warning() -> None:
    view = view_of(COUNT)
    wires: list[dict[str, Any]] = [{"structuredContent": {"n": 5}}, {"content": [], "isError": True}]
    for wire in wires:
        source_of(view, "files").answers["count"] = ToolResult(wire)
        result = await RUNNER.call_tool(view, COUNT.handle, {}, CONTEXT)
        assert (result.wire, result.warnings) == (wire, ())


@pytest.mark.holds("errors.tool-failed")
async def test_a_failure_of_the_source_is_returned_with_its_details() -> None:
    view = view_of(READ)
    source_of(view, "files").answers["read"] = ToolFailed("No.", details={"upstream": {"code": -32000}})

    with pytest.raises(ToolFailed) as refused:
        await RUNNER.call_tool(view, READ.handle, {"path": "."}, CONTEXT)

    assert refused.value.details == {"upstream": {"code": -32000}}


@pytest.mark.holds("errors.source-unavailable", "errors.retryable")
@pytest.mark.parametrize("nothing_sent", [True, False])
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("trusted", [True, False])
async def test_an_unavailable_source_is_retryable_only_if_nothing_can_run_twice(
    nothing_sent: bool, idempotent: bool, trusted: bool
) -> None:
    shown = replace(READ, annotations=ToolAnnotations(idempotent=idempotent))
    view = view_of(shown)
    entry = replace(view.sources["files"], trusted=trusted)
    view = View.of(replace(view.visible.state, sources={"files": entry}))
    source_of(view, "files").failure = SourceUnavailable("It went away.", retryable=nothing_sent)

    with pytest.raises(SourceUnavailable) as gone:
        await RUNNER.call_tool(view, shown.handle, {"path": "."}, CONTEXT)

    assert gone.value.retryable == (nothing_sent or (idempotent and trusted))


async def test_the_retry_delay_of_a_source_is_returned_to_the_caller() -> None:
    view = view_of(READ)
    source_of(view, "files").failure = SourceUnavailable("It is busy.", retryable=True, retry_after_s=7.5)

    with pytest.raises(SourceUnavailable) as busy:
        await RUNNER.call_tool(view, READ.handle, {"path": "."}, CONTEXT)

    assert busy.value.retry_after_s == 7.5
    assert busy.value.to_wire()["error"]["details"] == {"retry_after_s": 7.5}


async def test_read_only_alone_does_not_make_a_failed_call_retryable() -> None:
    shown = replace(READ, annotations=ToolAnnotations(read_only=True))
    view = view_of(shown)
    source_of(view, "files").failure = SourceUnavailable("It went away.")

    with pytest.raises(SourceUnavailable) as gone:
        await RUNNER.call_tool(view, shown.handle, {"path": "."}, CONTEXT)

    assert not gone.value.retryable
