"""Plugins in a catalog: what their authors may write, and that their faults do not affect other sources."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest
from tests.until import until

from toolcrib import CallContext, Plugin, Tool, Toolcrib, ToolExample, ToolMetadata, ToolResult
from toolcrib.catalog import intake
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.tools import ToolAnnotations
from toolcrib.sources import plugins
from toolcrib.sources.plugins import PluginAnswer, PluginDispatcher
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

HERE: ContextVar[str] = ContextVar("HERE", default="nowhere")

NUMBER = {"type": "object", "properties": {"number": {"type": "number"}}}

Execute = Callable[[str, Mapping[str, Any], CallContext], Any]


def double(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
    return {"result": 2 * arguments.get("number", 0)}


@dataclass
class Made(Plugin):
    """A plugin that does what a test wants."""

    name: str = "made"
    version: str = "3.1"
    description: str = "Doubles numbers.\nAnd nothing else."
    availability_hint: str = ""
    offered: Sequence[Any] = field(default_factory=lambda: [Tool("made", "double", "Double it.", input_schema=NUMBER)])
    run: Execute = double
    available: Any = True

    def tools(self) -> Sequence[Tool]:
        if isinstance(self.offered, BaseException):
            raise self.offered
        return self.offered

    def execute(
        self, tool_name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> PluginAnswer | Awaitable[PluginAnswer]:
        return self.run(tool_name, arguments, context)

    def is_available(self) -> bool:
        if isinstance(self.available, BaseException):
            raise self.available
        return self.available


class Async(Made):
    """A `Made` plugin whose `execute` runs on the event loop."""

    async def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> PluginAnswer:  # type: ignore[override]
        await anyio.lowlevel.checkpoint()
        return self.run(tool_name, arguments, context)


def raising(error: BaseException) -> Execute:
    def run(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
        raise error

    return run


def answering(value: Any) -> Execute:
    return lambda tool_name, arguments, context: value


@asynccontextmanager
async def crib_of(*those: Plugin) -> AsyncGenerator[Toolcrib]:
    """A crib with these plugins and a function `beside`, which must still work at the end."""
    crib = Toolcrib()
    crib.add(lambda: "fine", name="beside", description="Works.")
    for plugin in those:
        crib.add_plugin(plugin)
    async with crib:
        assert await crib.ready(30)
        yield crib
        assert (await call(crib, "functions.beside")).text == "fine"


async def call(crib: Toolcrib, tool_id: str, /, **arguments: Any) -> ToolResult:
    return await crib.call_tool(crib.expand_tool(tool_id).handle, arguments)


def entry_of(crib: Toolcrib, name: str = "made") -> SourceEntry:
    return crib.registry.state.sources[name]


def reason(crib: Toolcrib, name: str = "made") -> str:
    entry = entry_of(crib, name)
    assert entry.status is SourceStatus.FAILED
    assert entry.reason is not None
    return entry.reason


# -- what works -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Made, Async])
async def test_a_plugin_passes_the_source_contract(kind: type[Made]) -> None:
    await check_source(
        lambda: PluginDispatcher().add(kind()), tool="double", arguments={"number": 1}, other_arguments={"number": 2}
    )


async def test_the_tools_of_a_plugin_can_be_found_expanded_and_called() -> None:
    async with crib_of(Made()) as crib:
        assert crib.search_tools("double a number").results[0].tool_id == "made.double"
        assert (await call(crib, "made.double", number=4)).structured_content == {"result": 8}
        entry = entry_of(crib)
        assert (entry.status, entry.version, entry.summary) == (SourceStatus.READY, "3.1", "Doubles numbers.")
        assert entry.trusted


async def test_a_synchronous_execute_runs_in_a_thread_and_an_async_one_on_the_event_loop() -> None:
    def where(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        return f"{threading.current_thread() is threading.main_thread()} {HERE.get()}"

    HERE.set("in the test")
    threaded, looped = Made(run=where), Async(name="looped", offered=[Tool("looped", "double")], run=where)
    async with crib_of(threaded, looped) as crib:
        assert (await call(crib, "made.double")).text == "False in the test"
        assert (await call(crib, "looped.double")).text == "True in the test"


async def test_a_blocking_call_of_a_plugin_does_not_delay_other_calls() -> None:
    go_on = threading.Event()

    def wait(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        return str(go_on.wait(30)) if arguments else "at once"

    async with crib_of(Made(run=wait)) as crib, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(crib, "made.double", number=1))
        await anyio.wait_all_tasks_blocked()
        assert (await call(crib, "made.double")).text == "at once"
        go_on.set()


async def test_calls_that_never_end_occupy_a_limited_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MOST_CALLS", 2)
    go_on = threading.Event()

    def wait(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        return str(go_on.wait(30))

    async with crib_of(Made(run=wait)) as crib:
        for _ in range(2):  # the caller gives up, and the call runs on
            handle, hurried = crib.expand_tool("made.double").handle, CallContext().within(0.01)
            with pytest.raises(SourceUnavailable, match="within the time limit of your request"):
                await crib.call_tool(handle, context=hurried)
        with pytest.raises(SourceUnavailable, match="already runs 2 calls"):
            await call(crib, "made.double")
        go_on.set()

        async def again() -> None:
            while True:
                try:
                    assert (await call(crib, "made.double")).text == "True"
                except SourceUnavailable:
                    await anyio.sleep(0.01)
                else:
                    return

        with anyio.fail_after(30):
            await again()


async def test_a_call_that_gets_no_thread_does_not_count_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(plugins, "MOST_CALLS", 1)
    async with crib_of(Made()) as crib:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            for _ in range(2):
                with pytest.raises(SourceUnavailable, match="no free thread"):
                    await call(crib, "made.double")
        assert (await call(crib, "made.double")).structured_content == {"result": 0}


async def test_a_plugin_may_run_its_own_event_loop() -> None:
    async def answer() -> str:
        return "from within"

    def run(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        return asyncio.run(answer())

    async with crib_of(Made(run=run)) as crib:
        assert (await call(crib, "made.double")).text == "from within"


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("words", "words", None),
        (None, "", None),
        ({"a": [1, None]}, '{"a":[1,null]}', {"a": [1, None]}),
        ([1, 2], "[1,2]", {"result": [1, 2]}),
        (7, "7", {"result": 7}),
        (ToolResult.of({"a": 1}, text="one"), "one", {"a": 1}),
    ],
)
async def test_a_plugin_may_return_text_json_none_or_a_tool_result(value: Any, text: str, structured: Any) -> None:
    async with crib_of(Made(run=answering(value))) as crib:
        result = await call(crib, "made.double")
        assert (result.text, result.structured_content, result.is_error) == (text, structured, False)


async def test_a_text_answer_is_structured_if_the_tool_has_an_output_schema() -> None:
    schema = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    offered = [Tool("made", "double", output_schema=schema)]
    async with crib_of(Made(offered=offered, run=answering("words"))) as crib:
        result = await call(crib, "made.double")
        assert (result.text, result.structured_content, result.warnings) == ("words", {"result": "words"}, ())


async def test_a_plugin_cannot_change_the_arguments_of_its_caller() -> None:
    given = {"number": 1, "more": {"a": 1}}

    def greedy(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        cast("dict[str, Any]", arguments)["more"]["a"] = 2
        return "changed"

    async with crib_of(Made(run=greedy)) as crib:
        await crib.call_tool(crib.expand_tool("made.double").handle, given)
        assert given == {"number": 1, "more": {"a": 1}}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_second_plugin_with_the_same_name_is_refused() -> None:
    crib = Toolcrib()
    crib.add_plugin(Made())
    with pytest.raises(InvalidTool, match="a plugin named `made` already exists"):
        crib.add_plugin(Made())
    crib.add_plugin(Made(name="other"))


async def test_a_plugin_with_the_name_of_a_different_source_is_refused_every_time() -> None:
    crib = Toolcrib()
    crib.add(lambda: 1, name="one")
    for _ in range(2):
        with pytest.raises(InvalidTool, match="a source named `functions` already exists"):
            crib.add_plugin(Made(name="functions"))


def test_a_plugin_with_two_tools_of_the_same_name_is_refused() -> None:
    with pytest.raises(InvalidTool, match="two of its tools are named `a`"):
        Toolcrib().add_plugin(Made(offered=[Tool("made", "a"), Tool("made", "b"), Tool("made", "a")]))


@pytest.mark.parametrize("name", ["", "a.b", "two words", 7])
def test_a_plugin_with_an_invalid_source_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTool):
        Toolcrib().add_plugin(Made(name=name))


async def test_only_the_unusable_tools_of_a_plugin_are_set_aside() -> None:
    offered = [
        Tool("made", "good"),
        Tool("made", "schema", input_schema={"type": "nothing"}),
        Tool("other", "stray"),
        Tool("made", "example", input_schema=NUMBER, metadata=ToolMetadata(examples=(BAD_EXAMPLE,))),
        Tool("made", cast("str", 7)),
        Tool("made", "metadata", metadata=cast("ToolMetadata", "none")),
        {"name": "a dict"},
    ]
    async with crib_of(Made(offered=offered)) as crib:
        entry = entry_of(crib)
        assert entry.status is SourceStatus.READY
        assert [tool_id for tool_id in crib.view().tools if tool_id.startswith("made.")] == ["made.good"]
        aside = {each.name: each.reason for each in entry.set_aside}
        assert aside.keys() == {"schema", "stray", "example", "#5", "metadata", "#7"}
        assert "`source` is `other`" in aside["stray"]
        assert "example 1 (Wrong)" in aside["example"]
        assert "a `dict`, not a `Tool`" in aside["#7"]


BAD_EXAMPLE = ToolExample("Wrong", {"number": "many"})


@pytest.mark.parametrize(
    "wrong",
    [
        Tool("made", cast("str", ["bad"])),
        Tool("made", "bad", annotations=cast("ToolAnnotations", None)),
        Tool("made", "bad", metadata=ToolMetadata(usage_hint="half \ud800 a character")),
    ],
)
async def test_a_tool_with_an_invalid_value_is_set_aside_and_answers_stay_serializable(wrong: Tool) -> None:
    async with crib_of(Made(offered=[Tool("made", "good"), wrong])) as crib:
        assert [tool_id for tool_id in crib.view().tools if tool_id.startswith("made.")] == ["made.good"]
        assert len(entry_of(crib).set_aside) == 1
        answers = [crib.list(["made"]), crib.search_tools("good"), crib.describe(), crib.expand_tool("made.good")]
        for answer in answers:
            json.dumps(answer.to_wire(), ensure_ascii=False).encode()


async def test_lists_in_metadata_become_tuples_and_an_invalid_title_is_dropped() -> None:
    said = ToolMetadata(category=cast("tuple[str, ...]", ["tools"]), tags=cast("tuple[str, ...]", ["a"]))
    async with crib_of(Made(offered=[Tool("made", "good", title=cast("str", 7), metadata=said)])) as crib:
        assert crib.view().tools["made.good"].metadata == ToolMetadata(category=("tools",), tags=("a",))
        assert crib.view().tools["made.good"].title is None


# -- faults -----------------------------------------------------------------------------------------------------------

SECRET = "/home/ada/.token"


class Stop(BaseException):
    """A `BaseException` that is not an `Exception`, as some frameworks define."""


FAULTS: Mapping[str, tuple[Made, str]] = {
    "tools raises": (Made(offered=cast("Any", ValueError(SECRET))), "its `tools` raised ValueError"),
    "tools ends the program": (Made(offered=cast("Any", SystemExit(3))), "its `tools` raised SystemExit"),
    "tools is nothing": (Made(offered=cast("Any", None)), "its `tools` raised TypeError"),
    "is_available raises": (Made(available=OSError(2, "gone", SECRET)), "its `is_available` raised FileNotFoundError"),
    "is_available ends the program": (Made(available=SystemExit()), "its `is_available` raised SystemExit"),
    "is_available is nonsense": (Made(available="yes"), "its `is_available` returned a `str`"),
    "version is nonsense": (Made(version=cast("Any", 3)), "its `version` is a `int`, not a string"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_plugin_that_cannot_be_listed_is_reported_and_the_others_work(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    plugin, words = FAULTS[fault]
    async with crib_of(plugin, Made(name="sound", offered=[Tool("sound", "double")])) as crib:
        assert words in reason(crib)
        assert "/" not in reason(crib)
        assert "Traceback" not in reason(crib)
        with pytest.raises(SourceUnavailable, match=words):
            crib.expand_tool("made.double")
        assert (await call(crib, "sound.double")).structured_content == {"result": 0}
        if "raise" in fault:
            assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("kind", [Made, Async])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such unit"), "ValueError: no such unit"),
        (SystemExit(1), "SystemExit: 1"),
        (FileNotFoundError(2, "No such file or directory", SECRET), "FileNotFoundError: No such file or directory"),
        (BaseExceptionGroup("both", [SystemExit(1)]), "BaseExceptionGroup: both (1 sub-exception)"),
        (Stop("at once"), "Stop: at once"),
    ],
)
async def test_a_tool_that_raises_gives_an_error_result_and_logs_the_traceback(
    kind: type[Made], error: BaseException, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with crib_of(kind(run=raising(error))) as crib:
        result = await call(crib, "made.double")
        assert (result.is_error, result.text) == (True, told)
        (record,) = [record for record in caplog.records if "made.double" in record.getMessage()]
        assert record.exc_info is not None
        assert record.exc_info[1] is error


@pytest.mark.parametrize("kind", [Made, Async])
async def test_a_tool_failed_error_of_a_plugin_reaches_the_caller(kind: type[Made]) -> None:
    async with crib_of(kind(run=raising(ToolFailed("Use a number above 0.")))) as crib:
        with pytest.raises(ToolFailed, match="above 0"):
            await call(crib, "made.double")


@pytest.mark.parametrize("kind", [Made, Async])
@pytest.mark.parametrize(
    "nonsense",
    [
        object(),
        {"a": object()},
        ToolResult({}),
        ToolResult({"content": "text"}),
        ToolResult({"content": [{"text": "no type"}]}),
        ToolResult(cast("Any", None)),
        ToolResult({"content": [{"type": "text", "text": object()}]}),
    ],
)
async def test_an_invalid_answer_becomes_a_readable_error_result(kind: type[Made], nonsense: Any) -> None:
    async with crib_of(kind(run=answering(nonsense))) as crib:
        result = await call(crib, "made.double")
        assert result.is_error
        assert result.text.startswith("The tool ran, but its answer")
        assert "object at" not in result.text


async def test_a_lone_surrogate_in_an_answer_is_replaced_by_a_question_mark() -> None:
    async with crib_of(Made(run=answering("a\ud800"))) as crib:
        assert (await call(crib, "made.double")).text == "a?"


async def test_a_cancelled_task_inside_a_plugin_does_not_cancel_the_caller() -> None:
    async def wait(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        waited_for = asyncio.ensure_future(asyncio.sleep(30))
        waited_for.cancel()
        await waited_for
        return "never"

    async with crib_of(Made(run=wait)) as crib:
        result = await call(crib, "made.double")
        assert (result.is_error, "was cancelled" in result.text) == (True, True)


async def test_cancelling_a_call_cancels_the_plugin() -> None:
    heard: list[str] = []

    async def wait(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> str:
        heard.append("began")
        try:
            await anyio.sleep_forever()
        finally:
            heard.append("cancelled")
        return "never"

    async with crib_of(Made(run=wait)) as crib, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(crib, "made.double"))
        await until(lambda: heard, "it began")
        tasks.cancel_scope.cancel()
    assert heard == ["began", "cancelled"]


async def test_a_plugin_that_is_still_listing_fails_and_is_not_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "LIST_S", 0.01)
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.01)
    go_on, asked = threading.Event(), list[str]()

    def load() -> Plugin:
        asked.append("asked")
        go_on.wait(30)
        return Made()

    crib = Toolcrib()
    crib.add_source(PluginDispatcher().add_late("made", load))
    async with crib:
        assert await crib.ready(30)
        assert "did not list its tools within 0.01 s" in reason(crib)
        await until(lambda: "is still listing its tools" in reason(crib), "it is asked again")
        go_on.set()
        await until(lambda: entry_of(crib).status is SourceStatus.READY, "it is asked again, and answers")
        assert asked == ["asked"]


# -- availability -----------------------------------------------------------------------------------------------------


async def test_an_unavailable_plugin_reports_its_hint_and_is_checked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.01)
    plugin = Made(available=False, availability_hint="Start the workbench first.")
    async with crib_of(plugin) as crib:
        assert reason(crib) == "The plugin `made` is not available: Start the workbench first."
        with pytest.raises(SourceUnavailable, match="Start the workbench first"):
            crib.expand_tool("made.double")
        plugin.available = True
        await until(lambda: entry_of(crib).status is SourceStatus.READY, "it is available")
        assert (await call(crib, "made.double", number=1)).structured_content == {"result": 2}
    assert not caplog.records, "what a plugin says itself is no fault"


async def test_a_plugin_that_becomes_unavailable_is_not_run_and_is_marked_as_failed() -> None:
    ran: list[str] = []

    def run(tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> None:
        ran.append(tool_name)

    plugin = Made(availability_hint="Start the workbench first.", run=run)
    async with crib_of(plugin) as crib:
        handle = crib.expand_tool("made.double").handle
        plugin.available = False
        with pytest.raises(SourceUnavailable, match="Start the workbench first") as told:
            await crib.call_tool(handle)
        assert told.value.retryable
        assert "The tool may or may not have run." not in told.value.hints
        assert not ran
        await until(lambda: entry_of(crib).status is SourceStatus.FAILED, "the catalog says so")
        assert crib.search_tools("double", include_unavailable=True).results[0].unavailable is not None
