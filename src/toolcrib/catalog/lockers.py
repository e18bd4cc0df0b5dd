"""Lockers: sources that each principal has for itself, started when it first asks and left when it is gone."""

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
from toolcrib.sources.unavailable import UnavailableSource
from toolcrib.sources.used import UsedSource

logger = logging.getLogger(__name__)

MAX_LOCKERS = 100
"""Principals whose own sources run at once, unless somebody says otherwise."""

UNSEEN_S = 3_600.0
"""How long after its last request a principal's own sources are kept, in seconds."""

PlanT = TypeVar("PlanT")
"""What a source is made from; two that are equal make the same one."""


class Lockers(Generic[PlanT]):
    """One locker for each principal that has sources of its own: what is in it, nobody else sees or calls.

    It is opened by the first request, and its sources are started in the background. Only so many are open at once:
    who was not seen for longest makes room, but nobody who has a request under way or watches a resource.
    """

    def __init__(
        self,
        plans: Callable[[str], Mapping[str, PlanT]],
        make: Callable[[str, PlanT], SourceEntry],
        *,
        most: int = MAX_LOCKERS,
        judge: Judge | None = None,
    ) -> None:
        """`plans` gives, by name, what the principal of an id is to have; `make` makes one of these for it.

        `judge` is that of every intake.
        """
        self._plans = plans
        self._make = make
        self._judge = judge
        self._most = most
        self._places = anyio.CapacityLimiter(most)
        """Held from the start of a locker's sources to the end of the last of them."""
        self._lockers: dict[str, _Locker[PlanT]] = {}
        """The open ones, by the principal's id."""
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
            raise RuntimeError("it was entered already")
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._token, self._thread = current_token(), threading.get_ident()
        for locker in self._lockers.values():
            self._tasks.start_soon(self._keep, locker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all, side by side, and wait for their sources to end."""
        self.close()
        await self._stack.aclose()
        self._tasks = self._token = None
        self._is_closing = False

    def close(self) -> None:
        """Begin to leave every source; no locker is opened from now on until this is entered again."""
        self._is_closing = True
        for locker in [*self._lockers.values()]:
            self._let_go(locker)

    @property
    def most(self) -> int:
        """How many are open at once. Where it is lowered, a locker in use stays until it is not."""
        return self._most

    @most.setter
    def most(self, most: int) -> None:
        self._most = self._places.total_tokens = most
        self._made_room(most)

    def set_overrides(self, overrides: Overrides) -> None:
        """Have exactly these said of tools, besides what their sources say."""
        self._overrides = overrides
        for locker in [*self._lockers.values()]:
            locker.registry.set_overrides(overrides)

    def set_categories(self, categories: Categories) -> None:
        """Have tools hang in exactly these categories, whose names are among their words."""
        self._categories = categories
        for locker in [*self._lockers.values()]:
            locker.registry.set_categories(categories)

    async def judge_again(self) -> None:
        """Publish what every open locker has anew, as it is judged by now."""
        for locker in [*self._lockers.values()]:
            await locker.intake.judge_again()

    @property
    def open_ids(self) -> tuple[str, ...]:
        """Of the principals whose lockers are open."""
        return (*self._lockers,)

    def overlay(self, principal: Principal) -> Overlay:
        """What `principal` has for itself as of now: the same object as long as nothing changes.

        From the first time on its sources are starting. Where all lockers are in use, they are named as failed.
        """
        if (locker := self._lockers.get(principal.id)) is None:
            return self._opened(principal.id)
        locker.seen_at = time.monotonic()
        return locker.overlay

    def open_overlay(self, principal_id: str) -> Overlay:
        """The same for whoever only looks: nothing is begun, and nobody was seen."""
        locker = self._lockers.get(principal_id)
        return locker.overlay if locker is not None else NO_OVERLAY

    def open_state(self, principal_id: str) -> CatalogState | None:
        """What the overlay is made of, likewise; None where it is not open."""
        locker = self._lockers.get(principal_id)
        return locker.registry.state if locker is not None else None

    async def ready(
        self, principal: Principal, timeout_s: float | None = None, sources: Collection[str] | None = None
    ) -> bool:
        """Wait until every source of `principal`, or each of `sources`, has listed its tools or failed to.

        False when `timeout_s` ran out first, or nothing is running.
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
        """Names of those sources of `principal` that have neither listed their tools nor failed to."""
        locker = self._lockers.get(principal.id)
        return locker.intake.starting if locker is not None else ()

    def open_for_s(self, principal: Principal) -> float:
        """Seconds since the sources of `principal` were begun; 0 where they are not."""
        locker = self._lockers.get(principal.id)
        return time.monotonic() - locker.opened_at if locker is not None else 0.0

    def put_away(self, principal_id: str) -> Collection[str]:
        """Names of what the principal of an id is to have and does not: it would be begun by the next request."""
        return () if principal_id in self._lockers else self._plans(principal_id).keys()

    def withdraw(self) -> None:
        """Leave, in every open locker, what its principal is to have no more, or otherwise: out of sight at once."""
        for locker in [*self._lockers.values()]:
            plans = self._plans(locker.whose)
            locker.remove([name for name, plan in locker.plans.items() if plans.get(name) != plan])

    def refit(self) -> None:
        """Bring every open locker in step with what its principal is to have by now.

        What is gone or planned otherwise is left, what is new is started once that has ended; nothing else is touched.
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
        """Call `listener` with the id of a principal whenever what it has for itself has become another, or is left.

        It must not ask for an overlay itself: one that is being left would be begun anew.
        """
        self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        """Tell it no more; no error where it was not subscribed."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def _opened(self, whose: str) -> Overlay:
        if not self._plans(whose):
            return NO_OVERLAY
        if self._token is not None and threading.get_ident() != self._thread:
            # Only the event loop's thread may start tasks, and there two first requests cannot be in each other's way.
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
        # Not before: whoever is told would look, and find itself here again.
        locker.registry.subscribe(lambda event: self._tell(locker, event))
        if self._tasks is not None:
            self._tasks.start_soon(self._keep, locker, name=f"sources of {whose}")
        return locker.overlay

    def _made_room(self, most: int) -> bool:
        """Let go of lockers until no more than `most` are open; False where too many are in use."""
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
        """Have the sources of a locker run until it is let go, or its principal was not seen for long enough."""
        try:
            # Whoever made room for it may still be ending.
            async with self._places:
                if not locker.leaving.is_set():
                    logger.info("the sources of `%s` are started", locker.whose)
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
    """What one principal has for itself."""

    def __init__(self, whose: str, judge: Judge | None) -> None:
        self.whose = whose
        self.registry = ToolRegistry()
        self.intake = Intake(self.registry, judge)
        self.plans: dict[str, PlanT] = {}
        """What its sources were made from, by name."""
        self.begun = anyio.Event()
        """Set once its sources are being started, or will never be."""
        self.leaving = anyio.Event()
        """Set when it has been let go."""
        self.opened_at = self.seen_at = time.monotonic()
        self.uses = 0
        """Requests that are under way."""
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
        """Take in the source of `entry`, made from `plan`."""
        source = self._sources[name] = UsedSource(entry.source, self.in_use)
        self.plans[name] = plan
        self.intake.add(source, replace(entry, source=source))

    def remove(self, names: Collection[str]) -> None:
        """Leave these sources; what is put in later starts once they have ended."""
        for name in names:
            del self.plans[name], self._sources[name]
        self.intake.remove(names)

    @contextmanager
    def in_use(self) -> Generator[None]:
        """For the block the locker makes room for nobody.

        Raises:
            SourceUnavailable: it has been let go; nothing was sent.
        """
        if self.leaving.is_set():
            raise SourceUnavailable("This source was put away while nobody used it; ask again.", retryable=True)
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1
            self.seen_at = time.monotonic()

    async def until_gone(self) -> None:
        """Return once it has been let go, or was neither used nor asked about for `UNSEEN_S`."""
        while (left_s := self.seen_at + UNSEEN_S - time.monotonic()) > 0:
            with anyio.move_on_after(left_s):
                await self.leaving.wait()
                return
            if self.is_in_use:
                self.seen_at = time.monotonic()


def _refused(names: Collection[str]) -> Overlay:
    reason = "As many principals as may be are using sources of their own just now; try again."
    return Overlay(
        sources={
            name: SourceEntry(UnavailableSource(name, reason), SourceStatus.FAILED, reason=reason) for name in names
        }
    )
