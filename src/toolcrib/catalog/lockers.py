"""Isolated sources: each principal has separate instances, which start at its first request and stop when unused."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio import from_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import EventLoopToken, current_token

from toolcrib.catalog.categories import NO_CATEGORIES, Categories
from toolcrib.catalog.intake import Intake, Judge
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import CatalogState, SourceEntry, SourceStatus
from toolcrib.catalog.view import NO_OVERLAY, Overlay
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import Principal
from toolcrib.sources.base import UnavailableSource
from toolcrib.sources.wrapper import UsedSource

logger = logging.getLogger(__name__)

MAX_LOCKERS = 100
"""The default for how many principals can have running isolated sources at the same time."""

UNSEEN_S = 3_600.0
"""How long isolated sources keep running after the last request of their principal, in seconds."""

PlanT = TypeVar("PlanT")
"""The description from which a source is made. Equal plans make equal sources."""


class Lockers(Generic[PlanT]):
    """The isolated sources of all principals. A locker holds those of one principal; no other principal sees them.

    The first request of a principal opens its locker, and its sources start in the background. Only `most` lockers are
    open at the same time. To make room, the locker that was unused for the longest time closes. A locker with a running
    request or a watched resource does not close.
    """

    def __init__(
        self,
        plans: Callable[[str], Mapping[str, PlanT]],
        make: Callable[[str, PlanT], SourceEntry],
        *,
        most: int = MAX_LOCKERS,
        judge: Judge | None = None,
    ) -> None:
        """Make lockers, all closed.

        `plans` returns the plans of a principal, given by its id, by source name. `make` makes the source for a
        principal's id and a plan. `judge` is passed to every `Intake`.
        """
        self._plans = plans
        self._make = make
        self._judge = judge
        self._most = most
        self._places = anyio.CapacityLimiter(most)
        """Limits the running lockers. One place is held from the start of a locker's sources until all have ended."""
        self._lockers: dict[str, _Locker[PlanT]] = {}
        """The open lockers, by the principal's id."""
        self._overrides = NO_OVERRIDES
        self._categories = NO_CATEGORIES
        self._listeners: tuple[Callable[[str], None], ...] = ()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._token: EventLoopToken | None = None
        self._thread = 0
        self._is_closing = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("already entered")
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._token, self._thread = current_token(), threading.get_ident()
        for locker in self._lockers.values():
            self._tasks.start_soon(self._keep, locker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all lockers concurrently, and wait for their sources to end."""
        self.close()
        await self._stack.aclose()
        self._tasks = self._token = None
        self._is_closing = False

    def close(self) -> None:
        """Begin to close all lockers. No locker opens until this object is entered again."""
        self._is_closing = True
        for locker in [*self._lockers.values()]:
            self._let_go(locker)

    @property
    def most(self) -> int:
        """How many lockers can be open. If this is lowered, a locker that is in use stays open until it is unused."""
        return self._most

    @most.setter
    def most(self, most: int) -> None:
        self._most = self._places.total_tokens = most
        self._made_room(most)

    def set_overrides(self, overrides: Overrides) -> None:
        """Set the metadata overrides of all lockers."""
        self._overrides = overrides
        for locker in [*self._lockers.values()]:
            locker.registry.set_overrides(overrides)

    def set_categories(self, categories: Categories) -> None:
        """Set the categories of all lockers. The names of categories are among the searched words of their tools."""
        self._categories = categories
        for locker in [*self._lockers.values()]:
            locker.registry.set_categories(categories)

    async def judge_again(self) -> None:
        """Judge and publish the tools of every open locker again."""
        for locker in [*self._lockers.values()]:
            await locker.intake.judge_again()

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The ids of the principals whose lockers are open."""
        return (*self._lockers,)

    def overlay(self, principal: Principal) -> Overlay:
        """Return the isolated tools of `principal` as they are now. The object stays the same until something changes.

        The first call starts the principal's sources. If all lockers are in use, its sources are listed as failed.
        """
        if (locker := self._lockers.get(principal.id)) is None:
            return self._opened(principal.id)
        locker.seen_at = time.monotonic()
        return locker.overlay

    def open_overlay(self, principal_id: str) -> Overlay:
        """Return the isolated tools of a principal without starting its sources, and without counting as a request."""
        locker = self._lockers.get(principal_id)
        return locker.overlay if locker is not None else NO_OVERLAY

    def open_state(self, principal_id: str) -> CatalogState | None:
        """Return the catalog state of a principal's locker without opening it; None if it is not open."""
        locker = self._lockers.get(principal_id)
        return locker.registry.state if locker is not None else None

    async def ready(
        self, principal: Principal, timeout_s: float | None = None, sources: Collection[str] | None = None
    ) -> bool:
        """Wait until every source of `principal`, or each of `sources`, has listed its tools or failed.

        Returns False if `timeout_s` runs out first, or if this object is not entered.
        """
        self.overlay(principal)
        if (locker := self._lockers.get(principal.id)) is None:
            return True
        if self._tasks is None:
            return False
        with anyio.move_on_after(timeout_s), locker.in_use():
            await locker.begun.wait()
            return await locker.intake.ready(None, sources)
        return False

    def starting(self, principal: Principal) -> tuple[str, ...]:
        """Return the names of the sources of `principal` that have not yet listed their tools or failed."""
        locker = self._lockers.get(principal.id)
        return locker.intake.starting if locker is not None else ()

    def open_for_s(self, principal: Principal) -> float:
        """Return the seconds since the locker of `principal` was opened; 0 if it is not open."""
        locker = self._lockers.get(principal.id)
        return time.monotonic() - locker.opened_at if locker is not None else 0.0

    def put_away(self, principal_id: str) -> Collection[str]:
        """Return the names of a principal's sources that its next request would start, because its locker is closed."""
        return () if principal_id in self._lockers else self._plans(principal_id).keys()

    def withdraw(self) -> None:
        """Remove from every open locker the sources whose plan was removed or changed. They disappear immediately."""
        for locker in [*self._lockers.values()]:
            plans = self._plans(locker.whose)
            locker.remove([name for name, plan in locker.plans.items() if plans.get(name) != plan])

    def refit(self) -> None:
        """Adjust every open locker to the current plans of its principal.

        Sources whose plan was removed or changed stop. New ones start after those have ended. Other sources are not
        touched.
        """
        self.withdraw()
        for locker in [*self._lockers.values()]:
            plans = self._plans(locker.whose)
            if not plans:
                self._let_go(locker)
            for name, plan in plans.items():
                if name not in locker.plans:
                    locker.put(name, plan, self._make(locker.whose, plan))

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a principal's id whenever its isolated tools change or its locker closes.

        The listener must not ask for an overlay: that would open a closing locker again.
        """
        self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        """Stop calling `listener`. This is not an error if it is not subscribed."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def _opened(self, whose: str) -> Overlay:
        if not self._plans(whose):
            return NO_OVERLAY
        if self._token is not None and threading.get_ident() != self._thread:
            # Only the event loop's thread can start tasks. There, two first requests cannot interfere with each other.
            return from_thread.run_sync(self._open, whose, token=self._token)
        return self._open(whose)

    def _open(self, whose: str) -> Overlay:
        if (known := self._lockers.get(whose)) is not None:
            return known.overlay
        plans = self._plans(whose)
        if not plans or self._is_closing:
            return NO_OVERLAY
        if not self._made_room(self._most - 1):
            return _refused(plans)
        locker = self._lockers[whose] = _Locker[PlanT](whose, self._judge)
        locker.registry.set_overrides(self._overrides)
        locker.registry.set_categories(self._categories)
        for name, plan in plans.items():
            locker.put(name, plan, self._make(whose, plan))
        # Subscribe last: a listener that reads the overlay during `put` would call this function again.
        locker.registry.subscribe(lambda event: self._tell(locker, event))
        if self._tasks is not None:
            self._tasks.start_soon(self._keep, locker, name=f"sources of {whose}")
        return locker.overlay

    def _made_room(self, most: int) -> bool:
        """Close lockers until at most `most` are open. Return False if too many are in use."""
        while len(self._lockers) > most:
            idle = [locker for locker in self._lockers.values() if not locker.is_in_use]
            if not idle:
                return False
            self._let_go(min(idle, key=lambda locker: locker.seen_at))
        return True

    def _let_go(self, locker: _Locker[PlanT]) -> None:
        locker.leaving.set()
        if self._lockers.get(locker.whose) is locker:
            del self._lockers[locker.whose]
            self._announce(locker.whose)

    async def _keep(self, locker: _Locker[PlanT]) -> None:
        """Run the sources of a locker until it closes, or until its principal sent no request for `UNSEEN_S`."""
        try:
            # The sources of the locker that was closed to make room can still be running.
            async with self._places:
                if not locker.leaving.is_set():
                    logger.info("starting the isolated sources of `%s`", locker.whose)
                    async with locker.intake:
                        locker.begun.set()
                        await locker.until_gone()
        finally:
            locker.begun.set()
            self._let_go(locker)

    def _tell(self, locker: _Locker[PlanT], event: Event) -> None:
        if isinstance(event, CatalogPublished) and not locker.leaving.is_set():
            self._announce(locker.whose)

    def _announce(self, whose: str) -> None:
        for listener in self._listeners:
            listener(whose)


class _Locker(Generic[PlanT]):
    """The isolated sources of one principal."""

    def __init__(self, whose: str, judge: Judge | None) -> None:
        self.whose = whose
        self.registry = ToolRegistry()
        self.intake = Intake(self.registry, judge)
        self.plans: dict[str, PlanT] = {}
        """The plans of its sources, by name."""
        self.begun = anyio.Event()
        """Set when its sources are starting, or will never start."""
        self.leaving = anyio.Event()
        """Set when the locker closes."""
        self.opened_at = self.seen_at = time.monotonic()
        self.uses = 0
        """The number of running requests."""
        self._sources: dict[str, UsedSource] = {}
        self._last: tuple[CatalogState, Overlay] | None = None

    @property
    def overlay(self) -> Overlay:
        state = self.registry.state
        if self._last is None or self._last[0] is not state:
            self._last = state, Overlay(state.tools, state.sources)
        return self._last[1]

    @property
    def is_in_use(self) -> bool:
        return self.uses > 0 or any(source.is_watched for source in self._sources.values())

    def put(self, name: str, plan: PlanT, entry: SourceEntry) -> None:
        """Add the source of `entry`, which was made from `plan`."""
        source = self._sources[name] = UsedSource(entry.source, self.in_use)
        self.plans[name] = plan
        self.intake.add(source, replace(entry, source=source))

    def remove(self, names: Collection[str]) -> None:
        """Stop and remove these sources. Sources that are added later start after these have ended."""
        for name in names:
            del self.plans[name], self._sources[name]
        self.intake.remove(names)

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the locker open during the block.

        Raises:
            SourceUnavailable: the locker has closed; nothing was sent.
        """
        if self.leaving.is_set():
            raise SourceUnavailable(
                "This source was stopped because it was unused. Send the request again.", retryable=True
            )
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1
            self.seen_at = time.monotonic()

    async def until_gone(self) -> None:
        """Return when the locker closes, or when there was no request for `UNSEEN_S`."""
        while (left_s := self.seen_at + UNSEEN_S - time.monotonic()) > 0:
            with anyio.move_on_after(left_s):
                await self.leaving.wait()
                return
            if self.is_in_use:
                self.seen_at = time.monotonic()


def _refused(names: Collection[str]) -> Overlay:
    reason = "Too many principals are using isolated sources at the moment. Try again later."
    return Overlay(
        sources={
            name: SourceEntry(UnavailableSource(name, reason), SourceStatus.FAILED, reason=reason) for name in names
        }
    )
