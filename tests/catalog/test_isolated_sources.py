"""Isolated sources: each principal has its own, they start and end on demand, and their number is limited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest
from tests.catalogs import tool
from tests.until import until

from toolcrib.catalog import isolated_sources as module
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.isolated_sources import IsolatedSources
from toolcrib.catalog.view import NO_OVERLAY
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import ProgressListener, unwatch, watch
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

ADA, BOB, CYD = Principal("ada"), Principal("bob"), Principal("cyd")


class Own(ScriptedSource):
    """A principal's own source: its only tool names the principal, and calls and the exit can be delayed."""

    def __init__(self, workshop: Workshop, whose: str, plan: str) -> None:
        super().__init__("desk", [tool(f"desk.{plan}")])
        self.label = f"{whose}: {plan}"
        self._workshop = workshop
        self.held = anyio.Event()
        self.release = anyio.Event()
        self.watching: list[str] = []

    async def __aenter__(self) -> Self:
        self._workshop.started.append(self.label)
        self._workshop.running.append(self.label)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._workshop.may_end.wait()
        self._workshop.running.remove(self.label)
        await super().__aexit__(kind, error, traceback)

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        if arguments.get("hold"):
            self.held.set()
            await self.release.wait()
        return ToolResult.of({"by": self.label}, text=self.label)

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        self.watching.append(uri)

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        self.watching.remove(uri)


class Workshop:
    """Isolated sources in which every expected principal has a source `desk`, and a record of what happened to them."""

    def __init__(self, *expected: Principal, most: int = 10) -> None:
        self.plans: dict[str, dict[str, str]] = {each.id: {"desk": "saw"} for each in expected}
        self.started: list[str] = []
        self.running: list[str] = []
        self.made: dict[str, Own] = {}
        """The last source of each principal."""
        self.made_in: set[int] = set()
        """Ids of threads."""
        self.may_end = anyio.Event()
        self.may_end.set()
        self.isolated_sources = IsolatedSources(lambda whose: self.plans.get(whose, {}), self._make, most=most)

    def _make(self, whose: str, plan: str) -> SourceEntry:
        self.made_in.add(threading.get_ident())
        own = self.made[whose] = Own(self, whose, plan)
        return SourceEntry(own)

    async def call(self, principal: Principal, **arguments: Any) -> str:
        overlay = self.isolated_sources.overlay(principal)
        (only,) = overlay.tools.values()
        result = await overlay.sources["desk"].source.call_tool(only, arguments, CallContext(principal))
        return result.text

    def status(self, principal: Principal) -> SourceStatus:
        return self.isolated_sources.overlay(principal).sources["desk"].status


async def test_each_principal_only_has_the_sources_that_are_planned_for_it() -> None:
    shop = Workshop(ADA, BOB)
    shop.plans["bob"] = {"desk": "file"}
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        assert await isolated_sources.ready(BOB, 30)
        assert await isolated_sources.ready(CYD, 30)
        assert set(isolated_sources.overlay(ADA).tools) == {"desk.saw"}
        assert set(isolated_sources.overlay(BOB).tools) == {"desk.file"}
        assert isolated_sources.overlay(CYD) is NO_OVERLAY
        assert await shop.call(ADA) == "ada: saw"
        assert await shop.call(BOB) == "bob: file"
        assert shop.started == ["ada: saw", "bob: file"]


async def test_a_source_starts_in_the_background_when_its_principal_first_needs_it() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:
        await anyio.wait_all_tasks_blocked()
        assert shop.started == []
        assert shop.status(ADA) is SourceStatus.STARTING
        assert isolated_sources.starting(ADA) == ("desk",)
        assert isolated_sources.starting(BOB) == ()
        await until(lambda: shop.status(ADA) is SourceStatus.READY, "it was listed")
        assert isolated_sources.starting(ADA) == ()
        assert shop.started == ["ada: saw"]


async def test_concurrent_first_requests_start_one_source_from_any_thread() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:

        async def ask() -> None:
            assert await isolated_sources.ready(ADA, 30)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(anyio.to_thread.run_sync, isolated_sources.overlay, ADA)
                tasks.start_soon(anyio.to_thread.run_sync, isolated_sources.overlay, BOB)
                tasks.start_soon(ask)
        assert await isolated_sources.ready(BOB, 30)
        assert sorted(shop.started) == ["ada: saw", "bob: saw"]
        assert shop.made_in == {threading.get_ident()}  # no other thread may start tasks
        assert await anyio.to_thread.run_sync(isolated_sources.overlay, ADA) is isolated_sources.overlay(ADA)


async def test_sources_requested_earlier_start_when_isolated_sources_are_entered() -> None:
    shop = Workshop(ADA)
    assert shop.status(ADA) is SourceStatus.STARTING
    assert not await shop.isolated_sources.ready(ADA, 30)
    async with shop.isolated_sources as isolated_sources:
        with pytest.raises(RuntimeError, match="already entered"):
            await isolated_sources.__aenter__()
        assert await isolated_sources.ready(ADA, 30)
        assert set(isolated_sources.overlay(ADA).tools) == {"desk.saw"}
    assert shop.running == []


async def test_an_overlay_is_the_same_object_until_it_changes() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        before = isolated_sources.overlay(ADA)
        assert await isolated_sources.ready(BOB, 30)
        assert isolated_sources.overlay(ADA) is before
        shop.made["ada"].offer(tool("desk.plane"))
        await until(lambda: "desk.plane" in isolated_sources.overlay(ADA).tools, "the change came through")
        assert set(isolated_sources.overlay(BOB).tools) == {"desk.saw"}


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_the_least_recently_seen_principal_makes_room() -> None:
    shop = Workshop(ADA, BOB, CYD, most=2)
    async with shop.isolated_sources as isolated_sources:
        for principal in (ADA, BOB):
            assert await isolated_sources.ready(principal, 30)
        isolated_sources.overlay(ADA)
        assert await isolated_sources.ready(CYD, 30)
        await until(lambda: shop.running == ["ada: saw", "cyd: saw"], "the one of bob ended")
        assert await isolated_sources.ready(BOB, 30)
        assert shop.started == ["ada: saw", "bob: saw", "cyd: saw", "bob: saw"]


async def test_a_new_source_waits_for_the_end_of_the_source_it_replaces() -> None:
    shop = Workshop(ADA, BOB, most=1)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        shop.may_end = anyio.Event()
        assert shop.status(BOB) is SourceStatus.STARTING
        await anyio.wait_all_tasks_blocked()
        assert shop.running == ["ada: saw"]
        shop.may_end.set()
        assert await isolated_sources.ready(BOB, 30)
        assert shop.running == ["bob: saw"]


async def test_a_new_principal_is_refused_while_calls_of_others_are_running() -> None:
    shop = Workshop(ADA, BOB, most=1)
    async with shop.isolated_sources as isolated_sources, anyio.create_task_group() as tasks:
        assert await isolated_sources.ready(ADA, 30)
        answers: list[str] = []

        async def hold() -> None:
            answers.append(await shop.call(ADA, hold=True))

        tasks.start_soon(hold)
        await shop.made["ada"].held.wait()
        assert await isolated_sources.ready(BOB, 30)
        refused = isolated_sources.overlay(BOB)
        assert refused.tools == {}
        assert refused.sources["desk"].status is SourceStatus.FAILED
        assert not refused.sources["desk"].is_lasting
        assert "Try again later" in (refused.sources["desk"].reason or "")

        shop.made["ada"].release.set()
        await until(lambda: answers, "the call ended")
        assert answers == ["ada: saw"]
        assert await isolated_sources.ready(BOB, 30)
        assert await shop.call(BOB) == "bob: saw"


async def test_a_principal_that_watches_a_resource_is_not_evicted() -> None:
    shop = Workshop(ADA, BOB, most=1)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        source = isolated_sources.overlay(ADA).sources["desk"].source

        def updated() -> None:
            raise AssertionError

        await watch(source, "desk://board", updated)
        assert shop.status(BOB) is SourceStatus.FAILED
        unwatch(source, "desk://board", updated)
        assert shop.made["ada"].watching == []
        assert shop.status(BOB) is SourceStatus.STARTING


async def test_a_call_to_an_evicted_source_can_be_retried() -> None:
    shop = Workshop(ADA, BOB, most=1)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        late = isolated_sources.overlay(ADA)
        assert await isolated_sources.ready(BOB, 30)
        with pytest.raises(SourceUnavailable, match="Send the request again") as raised:
            await late.sources["desk"].source.call_tool(late.tools["desk.saw"], {}, CallContext(ADA))
        assert raised.value.retryable


async def test_lowering_the_limit_evicts_sources_immediately() -> None:
    shop = Workshop(ADA, BOB, CYD)
    async with shop.isolated_sources as isolated_sources:
        for principal in (ADA, BOB, CYD):
            assert await isolated_sources.ready(principal, 30)
        isolated_sources.most = 1
        await until(lambda: shop.running == ["cyd: saw"], "the others ended")
        assert await isolated_sources.ready(ADA, 30)
        assert shop.running == ["ada: saw"]


async def test_a_hundred_principals_over_time_leave_no_running_sources() -> None:
    everybody = [Principal(f"person-{number}") for number in range(100)]
    shop = Workshop(*everybody, most=3)
    async with shop.isolated_sources as isolated_sources:
        for principal in everybody:
            assert await isolated_sources.ready(principal, 30)
            assert await shop.call(principal) == f"{principal.id}: saw"
            assert len(shop.running) <= 3
        assert len(shop.started) == 100
    assert shop.running == []


# -- shutdown ---------------------------------------------------------------------------------------------------------


async def test_the_sources_of_a_principal_end_after_a_period_without_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSEEN_S", 0.05)
    shop = Workshop(ADA)
    async with shop.isolated_sources as isolated_sources:
        isolated_sources.overlay(ADA)
        await until(lambda: shop.started, "it was started")
        await until(lambda: not shop.running, "it ended")
        assert await isolated_sources.ready(ADA, 30)
        assert shop.started == ["ada: saw", "ada: saw"]


async def test_a_source_does_not_end_during_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSEEN_S", 0.05)
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources, anyio.create_task_group() as tasks:
        assert await isolated_sources.ready(ADA, 30)
        tasks.start_soon(lambda: shop.call(ADA, hold=True))
        await shop.made["ada"].held.wait()
        own = shop.made["ada"]
        for came in (1, 2):
            isolated_sources.overlay(BOB)
            await until(lambda: shop.started.count("bob: saw") == came, "a new source started")  # noqa: B023
            await until(lambda: "bob: saw" not in shop.running, "the new source ended")
        assert shop.running == ["ada: saw"]
        own.release.set()
        await until(lambda: not shop.running, "it ended after the call")


async def test_closing_ends_all_sources_concurrently_and_starts_no_new_ones() -> None:
    shop = Workshop(ADA, BOB, CYD)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        assert await isolated_sources.ready(BOB, 30)
        shop.may_end = anyio.Event()
        isolated_sources.close()
        assert isolated_sources.overlay(CYD) is NO_OVERLAY
        await anyio.wait_all_tasks_blocked()
        assert shop.running == ["ada: saw", "bob: saw"]
        shop.may_end.set()
    assert shop.running == []
    assert shop.started == ["ada: saw", "bob: saw"]


async def test_a_cancellation_ends_all_sources() -> None:
    shop = Workshop(ADA, BOB)
    with anyio.CancelScope() as scope:
        async with shop.isolated_sources as isolated_sources:
            assert await isolated_sources.ready(ADA, 30)
            isolated_sources.overlay(BOB)
            scope.cancel()
            await anyio.sleep_forever()
    assert shop.running == []


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_a_refit_only_restarts_sources_whose_plan_changed() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        assert await isolated_sources.ready(BOB, 30)
        shop.plans["bob"] = {"desk": "file"}
        isolated_sources.refit()
        assert await isolated_sources.ready(BOB, 30)
        assert await shop.call(ADA) == "ada: saw"
        assert await shop.call(BOB) == "bob: file"
        assert shop.started == ["ada: saw", "bob: saw", "bob: file"]
        assert shop.running == ["ada: saw", "bob: file"]


async def test_a_principal_without_a_plan_loses_its_sources_immediately() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        assert await isolated_sources.ready(BOB, 30)
        del shop.plans["ada"]
        isolated_sources.refit()
        assert isolated_sources.overlay(ADA) is NO_OVERLAY
        await until(lambda: shop.running == ["bob: saw"], "what ada had ended")


async def test_a_close_during_a_refit_ends_cleanly() -> None:
    shop = Workshop(ADA)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        shop.may_end = anyio.Event()
        shop.plans["ada"] = {"desk": "file"}
        isolated_sources.refit()
        await anyio.wait_all_tasks_blocked()
        isolated_sources.close()
        await anyio.wait_all_tasks_blocked()
        shop.may_end.set()
    assert shop.running == []
    assert shop.started == ["ada: saw"]


async def test_a_listener_is_notified_of_changes_until_it_unsubscribes() -> None:
    shop = Workshop(ADA, BOB)
    told: list[str] = []
    async with shop.isolated_sources as isolated_sources:
        isolated_sources.subscribe(told.append)
        assert await isolated_sources.ready(ADA, 30)
        assert set(told) == {"ada"}
        isolated_sources.unsubscribe(told.append)
        told.clear()
        assert await isolated_sources.ready(BOB, 30)
        assert told == []


async def test_an_outdated_source_is_hidden_immediately_and_restarts_after_its_end() -> None:
    shop = Workshop(ADA)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        shop.may_end = anyio.Event()
        shop.plans["ada"] = {"desk": "file"}
        isolated_sources.remove_outdated()
        withdrawn = dict(isolated_sources.overlay(ADA).tools)
        isolated_sources.refit()
        await anyio.wait_all_tasks_blocked()
        running, status = [*shop.running], shop.status(ADA)
        shop.may_end.set()
        assert withdrawn == {}
        assert (running, status) == (["ada: saw"], SourceStatus.STARTING)
        assert await isolated_sources.ready(ADA, 30)
        assert await shop.call(ADA) == "ada: file"


async def test_a_listener_is_notified_when_a_principal_loses_its_sources() -> None:
    shop = Workshop(ADA, BOB, most=1)
    told: list[str] = []
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        isolated_sources.subscribe(told.append)
        isolated_sources.overlay(BOB)
        assert told == ["ada"]
        assert (set(isolated_sources.closed_names("ada")), set(isolated_sources.closed_names("bob"))) == (
            {"desk"},
            set(),
        )
        del shop.plans["bob"]
        told.clear()
        isolated_sources.refit()
        assert "bob" in told
        assert not isolated_sources.closed_names("bob")
