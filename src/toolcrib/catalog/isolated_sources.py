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

from toolcrib.catalog.catalog_state import CatalogState, SourceEntry, SourceStatus
from toolcrib.catalog.categories import NO_CATEGORIES, Categories
from toolcrib.catalog.intake import Intake, Judge
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import NO_OVERLAY, Overlay
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import Principal
from toolcrib.sources.base import UnavailableSource
from toolcrib.sources.wrapper import UsedSource

logger = logging.getLogger(__name__)

MAX_ISOLATED_PRINCIPALS = 100
"""The default for how many principals can have running isolated sources at the same time."""

UNSEEN_S = 3_600.0
"""How long isolated sources keep running after the last request of their principal, in seconds."""

PlanT = TypeVar("PlanT")
"""The description from which a source is made. Equal plans make equal sources."""


class IsolatedSources(Generic[PlanT]):
    """The isolated sources of all principals. No principal sees those of another principal.

    The first request of a principal opens its sources: they start in the background. Only `most` principals have open
    sources at the same time. To make room, the sources that were unused for the longest time close. Sources with a
    running request or a watched resource do not close.
    """

    def __init__(
        self,
        plans: Callable[[str], Mapping[str, PlanT]],
        make: Callable[[str, PlanT], SourceEntry],
        *,
        most: int = MAX_ISOLATED_PRINCIPALS,
        judge: Judge | None = None,
    ) -> None:
        """Make isolated sources. All are closed.

        `plans` returns the plans of a principal, given by its id, by source name. `make` makes the source for a
        principal's id and a plan. `judge` is passed to every `Intake`.
        """
        self.are_configured = True
        """Whether any principal can have isolated sources. A request that finds this false asks no further."""
        self._plans = plans
        self._make = make
        self._judge = judge
        self._most = most
        self._tokens = anyio.CapacityLimiter(most)
        """Limits how many principals have running sources. Each holds one token until all its sources have ended."""
        self._open_by_id: dict[str, _PrincipalSources[PlanT]] = {}
        """The open sources, by the principal's id."""
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
        for own in self._open_by_id.values():
            self._tasks.start_soon(self._run, own)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all sources concurrently, and wait for them to end."""
        self.close()
        await self._stack.aclose()
        self._tasks = self._token = None
        self._is_closing = False

    def close(self) -> None:
        """Begin to close all sources. None opens until this object is entered again."""
        self._is_closing = True
        for own in [*self._open_by_id.values()]:
            self._let_go(own)

    @property
    def most(self) -> int:
        """How many principals can have open sources. If this is lowered, sources in use close when they are unused."""
        return self._most

    @most.setter
    def most(self, most: int) -> None:
        self._most = self._tokens.total_tokens = most
        self._make_room(most)

    def set_overrides(self, overrides: Overrides) -> None:
        """Set the metadata overrides for all principals."""
        self._overrides = overrides
        for own in [*self._open_by_id.values()]:
            own.registry.set_overrides(overrides)

    def set_categories(self, categories: Categories) -> None:
        """Set the categories for all principals. Their names are among the searched words of the tools."""
        self._categories = categories
        for own in [*self._open_by_id.values()]:
            own.registry.set_categories(categories)

    async def rejudge(self) -> None:
        """Judge and publish the tools of all open sources again."""
        for own in [*self._open_by_id.values()]:
            await own.intake.rejudge()

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The ids of the principals whose sources are open."""
        return (*self._open_by_id,)

    def overlay(self, principal: Principal) -> Overlay:
        """Return the isolated tools of `principal` as they are now. The object stays the same until something changes.

        The first call starts the principal's sources. If too many principals have open sources, they are listed as
        failed.
        """
        if (own := self._open_by_id.get(principal.id)) is None:
            return self._opened(principal.id)
        own.seen_at = time.monotonic()
        return own.overlay

    def open_overlay(self, principal_id: str) -> Overlay:
        """Return the isolated tools of a principal without starting its sources, and without counting as a request."""
        own = self._open_by_id.get(principal_id)
        return own.overlay if own is not None else NO_OVERLAY

    def open_state(self, principal_id: str) -> CatalogState | None:
        """Return the catalog state of a principal's sources without opening them; None if they are closed."""
        own = self._open_by_id.get(principal_id)
        return own.registry.state if own is not None else None

    async def ready(
        self, principal: Principal, timeout_s: float | None = None, sources: Collection[str] | None = None
    ) -> bool:
        """Wait until every source of `principal`, or each of `sources`, has listed its tools or failed.

        Returns False if `timeout_s` runs out first, or if this object is not entered.
        """
        self.overlay(principal)
        if (own := self._open_by_id.get(principal.id)) is None:
            return True
        if self._tasks is None:
            return False
        with anyio.move_on_after(timeout_s), own.in_use():
            await own.begun.wait()
            return await own.intake.ready(None, sources)
        return False

    def starting(self, principal: Principal) -> tuple[str, ...]:
        """Return the names of the sources of `principal` that have not yet listed their tools or failed."""
        own = self._open_by_id.get(principal.id)
        return own.intake.starting if own is not None else ()

    def open_for_s(self, principal: Principal) -> float:
        """Return the seconds since the sources of `principal` were opened; 0 if they are closed."""
        own = self._open_by_id.get(principal.id)
        return time.monotonic() - own.opened_at if own is not None else 0.0

    def closed_names(self, principal_id: str) -> Collection[str]:
        """Return the names of a principal's sources that its next request would start, because they are closed."""
        return () if principal_id in self._open_by_id else self._plans(principal_id).keys()

    def remove_outdated(self) -> None:
        """Remove the open sources whose plan was removed or changed. They disappear immediately."""
        for own in [*self._open_by_id.values()]:
            plans = self._plans(own.principal_id)
            own.remove([name for name, plan in own.plans.items() if plans.get(name) != plan])

    def refit(self) -> None:
        """Adjust the open sources to the current plans of their principals.

        Sources whose plan was removed or changed stop. New ones start after those have ended. Other sources are not
        touched.
        """
        self.remove_outdated()
        for own in [*self._open_by_id.values()]:
            plans = self._plans(own.principal_id)
            if not plans:
                self._let_go(own)
            for name, plan in plans.items():
                if name not in own.plans:
                    own.put(name, plan, self._make(own.principal_id, plan))

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a principal's id whenever its isolated tools change or its sources close.

        The listener must not ask for an overlay: that would open closing sources again.
        """
        self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        """Stop calling `listener`. This is not an error if it is not subscribed."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def _opened(self, principal_id: str) -> Overlay:
        if not self._plans(principal_id):
            return NO_OVERLAY
        if self._token is not None and threading.get_ident() != self._thread:
            # Only the event loop's thread can start tasks. There, two first requests cannot interfere with each other.
            return from_thread.run_sync(self._open, principal_id, token=self._token)
        return self._open(principal_id)

    def _open(self, principal_id: str) -> Overlay:
        if (known := self._open_by_id.get(principal_id)) is not None:
            return known.overlay
        plans = self._plans(principal_id)
        if not plans or self._is_closing:
            return NO_OVERLAY
        if not self._make_room(self._most - 1):
            return _refused(plans)
        own = self._open_by_id[principal_id] = _PrincipalSources[PlanT](principal_id, self._judge)
        own.registry.set_overrides(self._overrides)
        own.registry.set_categories(self._categories)
        for name, plan in plans.items():
            own.put(name, plan, self._make(principal_id, plan))
        # Subscribe last: a listener that reads the overlay during `put` would call this function again.
        own.registry.subscribe(lambda event: self._note(own, event))
        if self._tasks is not None:
            self._tasks.start_soon(self._run, own, name=f"sources of {principal_id}")
        return own.overlay

    def _make_room(self, most: int) -> bool:
        """Close sources until at most `most` principals have some. Return False if too many are in use."""
        while len(self._open_by_id) > most:
            idle = [own for own in self._open_by_id.values() if not own.is_in_use]
            if not idle:
                return False
            self._let_go(min(idle, key=lambda own: own.seen_at))
        return True

    def _let_go(self, own: _PrincipalSources[PlanT]) -> None:
        own.leaving.set()
        if self._open_by_id.get(own.principal_id) is own:
            del self._open_by_id[own.principal_id]
            self._announce(own.principal_id)

    async def _run(self, own: _PrincipalSources[PlanT]) -> None:
        """Run the sources of a principal until they close, or until it sent no request for `UNSEEN_S`."""
        try:
            # The sources that were closed to make room can still be running.
            async with self._tokens:
                if not own.leaving.is_set():
                    logger.info("starting the isolated sources of `%s`", own.principal_id)
                    async with own.intake:
                        own.begun.set()
                        await own.until_gone()
        finally:
            own.begun.set()
            self._let_go(own)

    def _note(self, own: _PrincipalSources[PlanT], event: Event) -> None:
        if isinstance(event, CatalogPublished) and not own.leaving.is_set():
            self._announce(own.principal_id)

    def _announce(self, principal_id: str) -> None:
        for listener in self._listeners:
            listener(principal_id)


class _PrincipalSources(Generic[PlanT]):
    """The isolated sources of one principal."""

    def __init__(self, principal_id: str, judge: Judge | None) -> None:
        self.principal_id = principal_id
        self.registry = ToolRegistry()
        self.intake = Intake(self.registry, judge)
        self.plans: dict[str, PlanT] = {}
        """The plans of its sources, by name."""
        self.begun = anyio.Event()
        """Set when its sources are starting, or will never start."""
        self.leaving = anyio.Event()
        """Set when its sources close."""
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
        """Keep the sources open during the block.

        Raises:
            SourceUnavailable: the sources have closed; nothing was sent.
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
        """Return when the sources close, or when there was no request for `UNSEEN_S`."""
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
