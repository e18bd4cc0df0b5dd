"""Isolated sources: what each principal has for itself, when it starts and ends, and who makes room for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest
from tests.catalogs import tool
from tests.waiting import until

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
    """A principal's own: its one tool says whose, a call can be held up, and so can its end."""

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
    """Isolated sources in which everybody who is expected has a desk, and what became of the desks."""

    def __init__(self, *expected: Principal, most: int = 10) -> None:
        self.plans: dict[str, dict[str, str]] = {each.id: {"desk": "saw"} for each in expected}
        self.started: list[str] = []
        self.running: list[str] = []
        self.made: dict[str, Own] = {}
        """The last one of each principal."""
        self.made_in: set[int] = set()
        """Threads."""
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


async def test_each_principal_has_its_own_and_nobody_has_what_is_not_planned_for_it() -> None:
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


async def test_nothing_is_started_for_whom_nobody_asks_and_what_is_asked_about_starts_in_the_background() -> None:
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


async def test_first_requests_at_the_same_time_start_one_source_whatever_thread_they_come_from() -> None:
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


async def test_what_was_asked_about_before_starts_when_the_lockers_are_entered_and_only_then() -> None:
    shop = Workshop(ADA)
    assert shop.status(ADA) is SourceStatus.STARTING
    assert not await shop.isolated_sources.ready(ADA, 30)
    async with shop.isolated_sources as isolated_sources:
        with pytest.raises(RuntimeError, match="already entered"):
            await isolated_sources.__aenter__()
        assert await isolated_sources.ready(ADA, 30)
        assert set(isolated_sources.overlay(ADA).tools) == {"desk.saw"}
    assert shop.running == []


async def test_an_overlay_is_the_same_object_until_something_of_it_changes() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        before = isolated_sources.overlay(ADA)
        assert await isolated_sources.ready(BOB, 30)
        assert isolated_sources.overlay(ADA) is before
        shop.made["ada"].offer(tool("desk.plane"))
        await until(lambda: "desk.plane" in isolated_sources.overlay(ADA).tools, "the change came through")
        assert set(isolated_sources.overlay(BOB).tools) == {"desk.saw"}


# -- room -------------------------------------------------------------------------------------------------------------


async def test_who_was_not_seen_for_longest_makes_room() -> None:
    shop = Workshop(ADA, BOB, CYD, most=2)
    async with shop.isolated_sources as isolated_sources:
        for principal in (ADA, BOB):
            assert await isolated_sources.ready(principal, 30)
        isolated_sources.overlay(ADA)
        assert await isolated_sources.ready(CYD, 30)
        await until(lambda: shop.running == ["ada: saw", "cyd: saw"], "the one of bob ended")
        assert await isolated_sources.ready(BOB, 30)
        assert shop.started == ["ada: saw", "bob: saw", "cyd: saw", "bob: saw"]


async def test_what_is_started_waits_for_the_end_of_what_made_room() -> None:
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


async def test_who_has_a_call_under_way_makes_no_room_and_a_newcomer_is_told_to_try_again() -> None:
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


async def test_who_watches_a_resource_makes_no_room() -> None:
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


async def test_a_call_that_comes_after_its_source_made_room_can_be_tried_again() -> None:
    shop = Workshop(ADA, BOB, most=1)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        late = isolated_sources.overlay(ADA)
        assert await isolated_sources.ready(BOB, 30)
        with pytest.raises(SourceUnavailable, match="Send the request again") as raised:
            await late.sources["desk"].source.call_tool(late.tools["desk.saw"], {}, CallContext(ADA))
        assert raised.value.retryable


async def test_where_there_is_to_be_less_room_some_leave_at_once() -> None:
    shop = Workshop(ADA, BOB, CYD)
    async with shop.isolated_sources as isolated_sources:
        for principal in (ADA, BOB, CYD):
            assert await isolated_sources.ready(principal, 30)
        isolated_sources.most = 1
        await until(lambda: shop.running == ["cyd: saw"], "the others ended")
        assert await isolated_sources.ready(ADA, 30)
        assert shop.running == ["ada: saw"]


async def test_a_hundred_principals_over_time_leave_nothing_behind() -> None:
    everybody = [Principal(f"person-{number}") for number in range(100)]
    shop = Workshop(*everybody, most=3)
    async with shop.isolated_sources as isolated_sources:
        for principal in everybody:
            assert await isolated_sources.ready(principal, 30)
            assert await shop.call(principal) == f"{principal.id}: saw"
            assert len(shop.running) <= 3
        assert len(shop.started) == 100
    assert shop.running == []


# -- ends -------------------------------------------------------------------------------------------------------------


async def test_what_a_principal_has_ends_when_it_was_not_seen_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSEEN_S", 0.05)
    shop = Workshop(ADA)
    async with shop.isolated_sources as isolated_sources:
        isolated_sources.overlay(ADA)
        await until(lambda: shop.started, "it was started")
        await until(lambda: not shop.running, "it ended")
        assert await isolated_sources.ready(ADA, 30)
        assert shop.started == ["ada: saw", "ada: saw"]


async def test_it_does_not_end_while_a_call_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSEEN_S", 0.05)
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources, anyio.create_task_group() as tasks:
        assert await isolated_sources.ready(ADA, 30)
        tasks.start_soon(lambda: shop.call(ADA, hold=True))
        await shop.made["ada"].held.wait()
        own = shop.made["ada"]
        for came in (1, 2):
            isolated_sources.overlay(BOB)
            await until(lambda: shop.started.count("bob: saw") == came, "another came")  # noqa: B023
            await until(lambda: "bob: saw" not in shop.running, "and was not seen for long enough")
        assert shop.running == ["ada: saw"]
        own.release.set()
        await until(lambda: not shop.running, "it ended after the call")


async def test_leaving_ends_all_side_by_side_and_nothing_starts_meanwhile() -> None:
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


async def test_a_cancellation_ends_all_as_well() -> None:
    shop = Workshop(ADA, BOB)
    with anyio.CancelScope() as scope:
        async with shop.isolated_sources as isolated_sources:
            assert await isolated_sources.ready(ADA, 30)
            isolated_sources.overlay(BOB)
            scope.cancel()
            await anyio.sleep_forever()
    assert shop.running == []


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_a_refit_touches_only_what_is_planned_otherwise() -> None:
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


async def test_a_principal_that_is_to_have_nothing_any_more_loses_all_at_once() -> None:
    shop = Workshop(ADA, BOB)
    async with shop.isolated_sources as isolated_sources:
        assert await isolated_sources.ready(ADA, 30)
        assert await isolated_sources.ready(BOB, 30)
        del shop.plans["ada"]
        isolated_sources.refit()
        assert isolated_sources.overlay(ADA) is NO_OVERLAY
        await until(lambda: shop.running == ["bob: saw"], "what ada had ended")


async def test_a_refit_and_the_end_do_not_hinder_each_other() -> None:
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


async def test_who_listens_is_told_whose_sources_changed_and_no_more_once_it_does_not() -> None:
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


async def test_what_is_withdrawn_is_out_of_sight_before_it_has_ended_and_starts_anew_only_then() -> None:
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


async def test_who_listens_is_told_of_whoever_is_left_without_and_what_would_be_there_again() -> None:
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
