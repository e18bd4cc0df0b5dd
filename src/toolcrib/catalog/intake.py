"""Adds sources to the catalog: lists each one in the background, and again when it reports a change."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.errors import InvalidTool, SignInRequired, SourceUnavailable, ToolcribError
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift import Judgement, suspicions_in_texts
from toolcrib.sources.base import Listing, Source

logger = logging.getLogger(__name__)

LISTED_AT_ONCE = 8
"""How many sources start and list their tools at the same time. More would only make each of them slower."""

TURN_S = 5.0
"""How long a source waits for its turn, in seconds. Then it starts anyway, so slow sources do not block the others."""

FIRST_RETRY_S = 5.0
LAST_RETRY_S = 300.0
"""The delays before a failed listing is repeated: the first, then twice as long each time, up to the last."""

DEFAULT_TTL_S = 86_400.0
"""How long a listing is valid if the source does not say, in seconds. After this time the source is listed again."""

MIN_TTL_S = 60.0
"""The shortest validity of a listing that a source can set, in seconds."""

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 30.0
"""The delays before a source is listed again that reports a change immediately after it was listed: the first, then
twice as long each time, up to the last."""


class Judge(Protocol):
    """Decides which tools of a source are shown, and with which definition."""

    async def judge(self, entry: SourceEntry, tools: Iterable[Tool]) -> Mapping[str, Judgement]:
        """Return judgements by tool name. A tool without a judgement is shown unchanged."""
        ...


@dataclass(slots=True)
class _Attended:
    """A source that was added, and the state of its task."""

    source: Source
    entry: SourceEntry
    listed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the source has listed its tools for the first time, or failed."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    after: tuple[anyio.Event, ...] = ()
    """Set when sources that were removed earlier have ended. This source starts after all of them."""
    scope: anyio.CancelScope | None = None
    """None until the task is started, because a cancel scope needs an event loop."""
    listing: Listing | None = None
    """The last listing."""
    publishing: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a listing is judged and published, so that a later listing always wins."""
    is_left: bool = False
    """Whether the source was removed. Anything it still lists is discarded."""


class Intake:
    """Keeps the registry up to date with its sources. Each source has its own task, so a failure affects no other.

    Sources can be added at any time. They start when the intake is entered.
    """

    def __init__(self, registry: ToolRegistry, judge: Judge | None = None) -> None:
        """Make an intake for `registry`. Without a `judge`, every tool is shown as its source offers it."""
        self._registry = registry
        self._judge = judge
        self._attended: dict[str, _Attended] = {}
        self._leaving: tuple[anyio.Event, ...] = ()
        """One event for each removed source, which is set when that source has ended."""
        self._slots = anyio.Semaphore(LISTED_AT_ONCE)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("already entered")
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        for attended in self._attended.values():
            self._start(attended, self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all sources concurrently."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._stack.aclose()
        self._tasks = None
        for name, attended in self._attended.items():
            attended.is_left = True
            self._registry.unregister_source(name)
        self._attended.clear()
        self._leaving = ()

    def add(self, source: Source, entry: SourceEntry) -> None:
        """Add `source`. Title and summary of `entry` take precedence over those of the source.

        The source starts after all removed sources have ended, because one of them can be an earlier form of the same
        server.

        Raises:
            InvalidTool: a source with this name already exists.
        """
        if source.name in self._attended or source.name in self._registry.state.sources:
            raise InvalidTool(f"a source named `{source.name}` already exists")
        attended = self._attended[source.name] = _Attended(source, entry, after=self._leaving)
        self._registry.register_source(entry)
        if self._tasks is not None:
            self._start(attended, self._tasks)

    def remove(self, names: Collection[str]) -> None:
        """Remove the sources with these names, and ignore unknown names.

        The sources and their tools leave the catalog immediately. The sources then stop in the background.
        """
        self._leaving = tuple(end for end in self._leaving if not end.is_set())
        for name in names:
            if (attended := self._attended.pop(name, None)) is None:
                continue
            attended.is_left = True
            if attended.scope is not None:
                attended.scope.cancel()
                self._leaving += (attended.ended,)
            self._registry.unregister_source(name)

    async def ready(self, timeout_s: float | None = None, sources: Collection[str] | None = None) -> bool:
        """Wait until every source, or each of `sources`, has listed its tools or failed.

        Returns False if `timeout_s` runs out first, or if the intake is not entered.
        """
        if self._tasks is None:
            return False
        with anyio.move_on_after(timeout_s):
            for name, attended in [*self._attended.items()]:
                if sources is None or name in sources:
                    await attended.listed.wait()
            return True
        return False

    async def rejudge(self) -> None:
        """Judge and publish the last listings again. No source is asked."""
        for attended in [*self._attended.values()]:
            if attended.listing is not None:
                await self._publish(attended, attended.listing)

    @property
    def starting(self) -> tuple[str, ...]:
        """The names of the sources that have not yet listed their tools or failed."""
        return tuple(name for name, attended in self._attended.items() if not attended.listed.is_set())

    def _start(self, attended: _Attended, tasks: TaskGroup) -> None:
        attended.scope = scope = anyio.CancelScope()
        tasks.start_soon(self._attend, attended, scope, name=f"source {attended.source.name}")

    async def _attend(self, attended: _Attended, scope: anyio.CancelScope) -> None:
        """Enter a source, publish its listing and keep it current; leave the source when cancelled.

        A failed listing is repeated with growing delays. If a later listing fails, the tools of the last one stay in
        the catalog. The next call then starts the source again, or says why it cannot.
        """
        source = attended.source
        try:
            with scope:
                for end in attended.after:
                    await end.wait()
                async with source, anyio.create_task_group() as tasks:
                    changed = _Bell()
                    tasks.start_soon(changed.follow, source)
                    await self._keep_current(attended, changed)
        except Exception as error:
            logger.exception("source %s stopped with an unexpected error", source.name)
            self._fail(attended, SourceUnavailable(f"`{source.name}` stopped unexpectedly.", diagnosis=repr(error)))
        finally:
            attended.listed.set()
            attended.ended.set()

    async def _keep_current(self, attended: _Attended, changed: _Bell) -> None:
        retry_s, pause_s = FIRST_RETRY_S, FIRST_PAUSE_S
        while True:
            listing = await self._list(attended)
            attended.listed.set()
            began = anyio.current_time()
            if isinstance(listing, Listing):
                retry_s = FIRST_RETRY_S
                with anyio.move_on_after(_good_for_s(listing)):
                    await changed.wait()
                back_to_back = anyio.current_time() - began < pause_s
                pause_s = min(2 * pause_s, LAST_PAUSE_S) if back_to_back else FIRST_PAUSE_S
                await anyio.sleep_until(began + pause_s)
            else:
                # After repeated failures, a source refuses attempts until `retry_after_s`; an earlier one is useless.
                wait_s = listing.retry_after_s if isinstance(listing, SourceUnavailable) else None
                with anyio.move_on_after(max(retry_s, wait_s or 0.0)):
                    await changed.wait()
                retry_s = min(2 * retry_s, LAST_RETRY_S)
            changed.still()

    async def _list(self, attended: _Attended) -> Listing | ToolcribError:
        """List the tools of a source and publish them. Return the listing, or the error if it failed."""
        began = time.monotonic()
        with anyio.move_on_after(TURN_S) as waiting:
            await self._slots.acquire()
        try:
            listing = await attended.source.list_tools()
        except ToolcribError as error:
            self._fail(attended, error)
            return error
        finally:
            if not waiting.cancelled_caught:
                self._slots.release()
        await self._publish(attended, listing, time.monotonic() - began)
        return listing

    async def _publish(self, attended: _Attended, listing: Listing, took_s: float | None = None) -> None:
        """Judge and publish `listing`. For a new listing, `took_s` is how many seconds it took; otherwise None."""
        entry = attended.entry
        async with attended.publishing:
            if took_s is not None:
                attended.listing = listing
            elif attended.listing is not listing:  # a later listing has arrived while this one waited for the lock
                return
            judgements: Mapping[str, Judgement] = {}
            if self._judge is not None:
                try:
                    judgements = await self._judge.judge(entry, listing.tools)
                except Exception as error:
                    logger.exception("cannot check the definitions of source %s", entry.name)
                    self._hide(attended, error)
                    return
            if attended.is_left:  # the source was removed while its listing was judged
                return
            known = self._registry.state.sources[entry.name]
            is_failed = took_s is None and known.status is SourceStatus.FAILED
            listing = _without_suspicious_words(listing, is_trusted=entry.trusted)
            published = replace(
                entry,
                status=SourceStatus.READY,
                title=entry.title or listing.title,
                summary=entry.summary or listing.summary,
                version=listing.version,
                set_aside=listing.set_aside,
                warnings=listing.warnings,
                extras=listing.extras,
                nodes=tuple(replace(node, path=(entry.name, *node.path)) for node in listing.nodes),
                judgements=judgements,
                # Keep the duration of the first listing, because a later one does not include the start.
                listed_in_s=known.listed_in_s or took_s,
            )
            if is_failed:
                published = replace(
                    published,
                    status=known.status,
                    reason=known.reason,
                    diagnosis=known.diagnosis,
                    remedy=known.remedy,
                    is_lasting=known.is_lasting,
                    needs_sign_in=known.needs_sign_in,
                )
            shown = (judgements[tool.name].shown if tool.name in judgements else tool for tool in listing.tools)
            self._registry.register_source(published, [tool for tool in shown if tool is not None])

    def _hide(self, attended: _Attended, error: Exception) -> None:
        """Hide all tools of a source, because its definitions could not be judged, and publish it as failed."""
        if attended.is_left:
            return
        known = self._registry.state.sources[attended.entry.name]
        hidden = replace(
            known,
            status=SourceStatus.FAILED,
            reason=f"The tools of `{known.name}` are hidden, because their definitions could not be checked.",
            diagnosis=repr(error),
            remedy="",
            is_lasting=True,
            needs_sign_in=False,
            judgements={},
        )
        self._registry.register_source(hidden, [])

    def _fail(self, attended: _Attended, error: ToolcribError) -> None:
        """Publish that a source failed, and why. What is known from an earlier listing stays."""
        if attended.is_left:
            return
        entry = attended.entry
        wants_sign_in = isinstance(error, SignInRequired)
        has_details = isinstance(error, SourceUnavailable)
        diagnosis, remedy = (error.diagnosis, error.remedy) if has_details else ("", "")
        known = self._registry.state.sources.get(entry.name, entry)
        if (known.status, known.reason, known.diagnosis) != (SourceStatus.FAILED, error.message, diagnosis):
            # Log a failure only once: a source is tried again and again, and usually fails with the same message.
            which = "" if f"`{entry.name}`" in error.message else f"`{entry.name}`:"
            logger.warning("%s", " ".join(filter(None, (which, error.message, diagnosis, remedy))))
        failed = replace(
            known,
            status=SourceStatus.FAILED,
            reason=error.message,
            diagnosis=diagnosis,
            remedy=remedy,
            is_lasting=not (error.retryable or wants_sign_in),
            needs_sign_in=wants_sign_in,
        )
        self._registry.register_source(failed)


def _without_suspicious_words(listing: Listing, *, is_trusted: bool) -> Listing:
    """Return `listing` without a suspicious title or summary, and with a warning for each that was removed.

    Every model reads both in the first answer. A tool's suspicious description is shown with a warning, because the
    tool may be useless without it. A source is just as useful without its title and summary.
    """
    if is_trusted:
        return listing
    for key in ("title", "summary"):
        if doubts := suspicions_in_texts({key: getattr(listing, key) or ""}):
            warning = f"its {key} is not shown: {doubts[0].why} (“{doubts[0].excerpt}”)"
            listing = replace(listing, **{key: None if key == "title" else ""}, warnings=(*listing.warnings, warning))
    return listing


def _good_for_s(listing: Listing) -> float:
    if listing.ttl_s is None:
        return DEFAULT_TTL_S
    return max(MIN_TTL_S, listing.ttl_s) if listing.ttl_s > 0 else 0.0


class _Bell:
    """A flag that is set when a source reports a change, and that stays set until `still` is called."""

    def __init__(self) -> None:
        self._rung = anyio.Event()

    async def follow(self, source: Source) -> None:
        async for _ in source.changes():
            self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()

    def still(self) -> None:
        self._rung = anyio.Event()
