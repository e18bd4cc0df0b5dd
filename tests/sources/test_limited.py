"""A limit on the calls of a source: running calls, the queue, refused calls and cancelled calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import tool
from tests.examples import examples
from tests.servers.launching import faulty_server, received

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import SourceUnavailable, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.operations.calling import Runner
from toolcrib.sources.base import FetchMethod, ProgressListener, Source
from toolcrib.sources.functions import FunctionSource
from toolcrib.sources.limited import Capacity, LimitedSource
from toolcrib.sources.mcp import Patience
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.testing.scripted_source import ScriptedSource
from toolcrib.testing.sources import check_listing, check_source

pytestmark = pytest.mark.anyio

SAW = tool("bench.saw", "Cut a board.")
PATIENT = Patience(start_s=30, list_s=30, call_s=30)


class Held(ScriptedSource):
    """Starts every call and ends it only after `let_go`; `begun` lists the calls in order."""

    def __init__(self) -> None:
        super().__init__("bench", [SAW])
        self.begun: list[Any] = []
        self.running = 0
        self.most = 0
        self._gates: dict[Any, anyio.Event] = {}

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        await self._hold(arguments["n"])
        return await super().call_tool(tool, arguments, context, progress=progress)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await self._hold(params["n"])
        return {"read": params["n"]}

    async def _hold(self, number: Any) -> None:
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        gate = self._gates[number] = anyio.Event()
        try:
            await gate.wait()
        finally:
            self.running -= 1
            del self._gates[number]

    def let_go(self, number: Any) -> None:
        self._gates[number].set()


class Callers:
    """Callers of `limited`, by number: their results, and a way to cancel them."""

    def __init__(self, limited: LimitedSource, tasks: TaskGroup) -> None:
        self._limited = limited
        self._tasks = tasks
        self._scopes: dict[int, anyio.CancelScope] = {}
        self.got: dict[int, int] = {}
        self.refused: dict[int, SourceUnavailable] = {}
        self.left: set[int] = set()

    async def come(self, number: int, *, fetching: bool = False, context: CallContext | None = None) -> None:
        self._tasks.start_soon(self._call, number, fetching, context or CallContext())
        await anyio.wait_all_tasks_blocked()

    async def leave(self, number: int) -> None:
        self._scopes[number].cancel()
        await anyio.wait_all_tasks_blocked()

    async def _call(self, number: int, fetching: bool, context: CallContext) -> None:
        with anyio.CancelScope() as self._scopes[number]:
            try:
                if fetching:
                    self.got[number] = (await self._limited.fetch("resources/read", {"n": number}, context))["read"]
                else:
                    result = await self._limited.call_tool(SAW, {"n": number}, context)
                    self.got[number] = result.structured_content["n"]
            except SourceUnavailable as error:
                self.refused[number] = error
            return
        self.left.add(number)


@asynccontextmanager
async def callers(*, at_once: int, in_line: int) -> AsyncGenerator[tuple[Callers, Held, LimitedSource]]:
    held = Held()
    limited = LimitedSource(held, Capacity(at_once, in_line))
    async with limited, anyio.create_task_group() as tasks:
        yield Callers(limited, tasks), held, limited
        tasks.cancel_scope.cancel()


# -- the contract -----------------------------------------------------------------------------------------------------


async def greet(name: str) -> str:
    return f"Hello, {name}"


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("capacity", [Capacity(), Capacity(1, 16), Capacity(16, 0)])
async def test_a_limited_source_passes_the_source_contract(capacity: Capacity) -> None:
    def make() -> Source:
        source = FunctionSource()
        source.add(double)
        source.add(greet)
        return LimitedSource(source, capacity)

    await check_source(make, tool="double", arguments={"number": 1}, other_arguments={"number": 2})
    await check_source(make, tool="greet", arguments={"name": "Ada"}, other_arguments={"name": "Grace"})
    await check_listing(make)


async def test_a_limited_server_passes_the_source_contract() -> None:
    def make() -> Source:
        return LimitedSource(McpSource("bench", faulty_server(), patience=PATIENT), Capacity(2, 14))

    await check_source(make, tool="add", arguments={"a": 1, "b": 2}, other_arguments={"a": 3, "b": 4})


async def test_progress_context_and_changes_pass_through() -> None:
    class Keeping(ScriptedSource):
        kept: tuple[object, ...] = ()

        async def call_tool(
            self,
            tool: Tool,
            arguments: Mapping[str, Any],
            context: CallContext,
            *,
            progress: ProgressListener | None = None,
        ) -> ToolResult:
            self.kept = (context, progress)
            return ToolResult.of(None, text="")

    async def hear(progress: float, total: float | None, message: str | None) -> None: ...

    source, context = Keeping("bench", [SAW]), CallContext()
    limited = LimitedSource(source)
    await limited.call_tool(SAW, {}, context, progress=hear)
    assert source.kept == (context, hear)

    async def heard() -> None:
        await anext(limited.changes())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heard)
            await anyio.wait_all_tasks_blocked()
            source.offer(SAW)


async def test_a_limited_source_refuses_prompts_if_the_inner_source_has_none() -> None:
    with pytest.raises(ToolFailed, match="no prompts or resources"):
        await LimitedSource(ScriptedSource("bench")).fetch("prompts/get", {}, CallContext())


# -- turns ------------------------------------------------------------------------------------------------------------


async def test_only_a_limited_number_run_at_once_and_the_others_follow_in_order() -> None:
    async with callers(at_once=2, in_line=3) as (who, held, limited):
        for number in range(5):
            await who.come(number, fetching=number % 2 == 1)
        assert held.begun == [0, 1]
        assert (limited.running, limited.waiting) == (2, 3)
        for number in (1, 0, 2, 3, 4):
            held.let_go(number)
            await anyio.wait_all_tasks_blocked()
        assert held.begun == [0, 1, 2, 3, 4]
        assert (held.most, limited.running, limited.waiting) == (2, 0, 0)
        assert who.got == {number: number for number in range(5)}


async def test_a_call_beyond_the_queue_is_refused_at_once_with_the_number_waiting() -> None:
    async with callers(at_once=2, in_line=1) as (who, held, _):
        for number in range(4):
            await who.come(number)
        error = who.refused.pop(3)
        assert error.retryable
        assert "`bench` is busy" in error.message
        assert "2 calls are running and 1 more wait" in error.message
        assert who.refused == {}
        held.let_go(0)
        await anyio.wait_all_tasks_blocked()
        assert held.begun == [0, 1, 2]
        await who.come(4)
        assert who.refused == {}, "there is room in the line again"


async def test_without_a_queue_a_call_over_the_limit_is_refused() -> None:
    async with callers(at_once=1, in_line=0) as (who, held, _):
        await who.come(0)
        await who.come(1)
        assert who.refused[1].retryable
        held.let_go(0)
        await anyio.wait_all_tasks_blocked()
        await who.come(2)
        assert held.begun == [0, 2]


async def test_a_call_cancelled_in_the_queue_leaves_it_and_is_never_sent() -> None:
    async with callers(at_once=1, in_line=2) as (who, held, limited):
        for number in range(3):
            await who.come(number)
        await who.leave(1)
        assert limited.waiting == 1
        held.let_go(0)
        await anyio.wait_all_tasks_blocked()
        assert held.begun == [0, 2]


async def test_a_call_cancelled_while_running_makes_room_for_the_next() -> None:
    async with callers(at_once=1, in_line=1) as (who, held, limited):
        await who.come(0)
        await who.come(1)
        await who.leave(0)
        assert held.begun == [0, 1]
        assert (limited.running, limited.waiting) == (1, 0)


async def test_a_slot_that_frees_up_as_its_caller_cancels_goes_to_the_next_caller() -> None:
    async with callers(at_once=1, in_line=2) as (who, held, limited):
        for number in range(3):
            await who.come(number)
        held.let_go(0)
        await who.leave(1)  # at the same moment
        assert held.begun[-1] == 2
        assert (limited.running, limited.waiting) == (1, 0)


async def test_a_source_that_fails_releases_its_slot() -> None:
    source = ScriptedSource("bench", [SAW])
    limited = LimitedSource(source, Capacity(1, 0))
    source.failure = SourceUnavailable("The bench is locked.")
    for _ in range(3):
        with pytest.raises(SourceUnavailable, match="locked"):
            await limited.call_tool(SAW, {}, CallContext())
    assert limited.running == 0


# -- deadlines --------------------------------------------------------------------------------------------------------


async def test_a_deadline_that_passes_in_the_queue_is_retryable_because_nothing_was_sent() -> None:
    async with callers(at_once=1, in_line=1) as (who, held, limited):
        await who.come(0)
        with pytest.raises(SourceUnavailable, match="nothing was sent") as over:
            await limited.call_tool(SAW, {"n": 1}, CallContext().within(0.01))
        assert over.value.retryable
        assert (held.begun, limited.waiting) == ([0], 0)


async def test_a_tool_call_whose_deadline_passes_in_the_queue_is_retryable() -> None:
    """The same deadline cancels the whole call. A call in the queue was not sent, so a retry does no harm."""
    held = Held()
    registry = ToolRegistry()
    registry.register_source(SourceEntry(LimitedSource(held, Capacity(1, 50)), SourceStatus.READY), [SAW])
    view = View.of(registry.state)
    errors: list[SourceUnavailable] = []

    async def call(number: int, context: CallContext) -> None:
        try:
            await Runner().call_tool(view, SAW.handle, {"n": number}, context)
        except SourceUnavailable as error:
            errors.append(error)

    async with anyio.create_task_group() as first:
        first.start_soon(call, 0, CallContext())
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:
            for number in range(1, 51):
                tasks.start_soon(call, number, CallContext().within(0.01 + number / 5000))
        assert [error.retryable for error in errors] == [True] * 50
        assert held.begun == [0]
        first.cancel_scope.cancel()


async def test_a_deadline_that_passes_while_the_tool_runs_is_not_retryable() -> None:
    held = Held()
    registry = ToolRegistry()
    registry.register_source(SourceEntry(LimitedSource(held, Capacity(1, 1)), SourceStatus.READY), [SAW])

    with pytest.raises(SourceUnavailable, match="within the time limit of your request") as over:
        await Runner().call_tool(View.of(registry.state), SAW.handle, {"n": 0}, CallContext().within(0.01))

    assert not over.value.retryable
    assert held.begun == [0]


# -- many -------------------------------------------------------------------------------------------------------------


async def test_with_half_of_a_hundred_callers_cancelled_the_others_are_each_served_once(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    source = McpSource("bench", faulty_server("--log", str(log)), patience=PATIENT)
    limited = LimitedSource(source, Capacity(3, 97))
    async with limited:
        tools = {offered.name: offered for offered in (await limited.list_tools()).tools}
        scopes = [anyio.CancelScope() for _ in range(100)]
        got: dict[int, Any] = {}

        async def call(number: int) -> None:
            with scopes[number]:
                if number < 3:  # holds its slot until the others are cancelled
                    result = await limited.call_tool(tools["slow"], {"steps": 0, "hold": True}, CallContext())
                else:
                    result = await limited.call_tool(tools["add"], {"a": number, "b": 1000}, CallContext())
                got[number] = result.structured_content

        with anyio.fail_after(60):
            async with anyio.create_task_group() as calls:
                for number in range(100):
                    calls.start_soon(call, number)
                await anyio.wait_all_tasks_blocked()
                assert (limited.running, limited.waiting) == (3, 97)
                for number in range(0, 100, 2):
                    scopes[number].cancel()
                scopes[1].cancel()
        assert (limited.running, limited.waiting) == (0, 0)
    stayed = range(3, 100, 2)
    assert got == {number: {"sum": number + 1000} for number in stayed}
    sent = [m["params"]["arguments"]["a"] for m in received(log, "tools/call") if m["params"]["name"] == "add"]
    assert sent == [*stayed], "in the order in which they came, each once"


Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["come", "leave", "end"]), st.integers(0, 30)), max_size=60)


@settings(max_examples=examples(60), deadline=None)
@given(at_once=st.integers(1, 4), in_line=st.integers(0, 5), steps=STEPS)
def test_running_and_waiting_calls_match_a_model_of_two_lists(at_once: int, in_line: int, steps: list[Step]) -> None:
    """Compare with the simplest model: two lists."""

    async def main() -> None:
        running: list[int] = []
        waiting: list[int] = []
        begun: list[int] = []
        refused: set[int] = set()

        def fill() -> None:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                begun.append(running[-1])

        async with callers(at_once=at_once, in_line=in_line) as (who, held, limited):
            for number, (step, which) in enumerate(steps):
                if step == "come":
                    await who.come(number)
                    if len(running) < at_once or len(waiting) < in_line:
                        waiting.append(number)
                    else:
                        refused.add(number)
                elif step == "end" and running:
                    held.let_go(running.pop(which % len(running)))
                    await anyio.wait_all_tasks_blocked()
                elif step == "leave" and running + waiting:
                    leaving = (running + waiting)[which % len(running + waiting)]
                    (running if leaving in running else waiting).remove(leaving)
                    await who.leave(leaving)
                fill()
                assert held.begun == begun
                assert (limited.running, limited.waiting) == (len(running), len(waiting))
                assert who.refused.keys() == refused

    anyio.run(main)
