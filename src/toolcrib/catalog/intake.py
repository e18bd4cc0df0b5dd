"""How tools come in: each source is listed in the background, and again whenever it says that its list has changed."""

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

from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolcribError
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift import Judgement, suspicions_in_texts
from toolcrib.sources.base import Listing, Source

logger = logging.getLogger(__name__)

LISTED_AT_ONCE = 8
"""Sources that are started and listed side by side; more at once only make each of them later."""

TURN_S = 5.0
"""How long a source waits for such a place at most: slow ones must not keep out the others."""

FIRST_RETRY_S = 5.0
LAST_RETRY_S = 300.0
"""A source that could not be listed is tried again after the first, then after twice as long, up to the last."""

DEFAULT_TTL_S = 86_400.0
"""A source that does not say for how long its listing is good is listed again after this, in seconds."""

MIN_TTL_S = 60.0
"""No source is listed more often than this because of what it says, in seconds."""

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 30.0
"""A source that tells of a change as soon as it was listed is listed after the first, then after twice as long."""


class Judge(Protocol):
    """Who says which tools of a source may be shown, and as what."""

    async def judge(self, entry: SourceEntry, tools: Iterable[Tool]) -> Mapping[str, Judgement]:
        """By name; of a tool that is not in it nothing is said, and it is shown as it is."""
        ...


@dataclass(slots=True)
class _Attended:
    """A source that is taken in, and how its task is doing."""

    source: Source
    entry: SourceEntry
    listed: anyio.Event = field(default_factory=anyio.Event)
    """Set once it has listed its tools for the first time, or failed to."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    after: tuple[anyio.Event, ...] = ()
    """The ends of others that it waits for before it starts."""
    scope: anyio.CancelScope | None = None
    """None until its task is started: outside of an event loop there can be none."""
    listing: Listing | None = None
    """The last one."""
    publishing: anyio.Lock = field(default_factory=anyio.Lock)
    """Held from judging a listing to publishing it: of two, the later one has to count."""
    is_left: bool = False
    """Whether it has nothing more to say, even if it comes with a listing."""


class Intake:
    """Keeps the registry in step with its sources, each in a task of its own: one that fails takes nothing with it.

    Sources can be added at any time; they are started from when the intake is entered.
    """

    def __init__(self, registry: ToolRegistry, judge: Judge | None = None) -> None:
        """Without a `judge`, every tool is shown as its source offers it."""
        self._registry = registry
        self._judge = judge
        self._attended: dict[str, _Attended] = {}
        self._leaving: tuple[anyio.Event, ...] = ()
        """Set as those that were removed have ended."""
        self._places = anyio.Semaphore(LISTED_AT_ONCE)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("it was entered already")
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        for attended in self._attended.values():
            self._start(attended, self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave every source, side by side."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._stack.aclose()
        self._tasks = None
        for name, attended in self._attended.items():
            attended.is_left = True
            self._registry.drop_source(name)
        self._attended.clear()
        self._leaving = ()

    def add(self, source: Source, entry: SourceEntry) -> None:
        """Take in `source`. `entry` holds what is known of it; a title and summary there stand before its own.

        It is started once all that were removed have ended: one of them may be the same server in its earlier form.

        Raises:
            InvalidTool: a source of this name is there already.
        """
        if source.name in self._attended or source.name in self._registry.state.sources:
            raise InvalidTool(f"a source named `{source.name}` is there already")
        attended = self._attended[source.name] = _Attended(source, entry, after=self._leaving)
        self._registry.put_source(entry)
        if self._tasks is not None:
            self._start(attended, self._tasks)

    def remove(self, names: Collection[str]) -> None:
        """Leave the sources of these names, side by side; unknown names are passed over.

        They and their tools are out of the catalog at once, and end in the background.
        """
        self._leaving = tuple(end for end in self._leaving if not end.is_set())
        for name in names:
            if (attended := self._attended.pop(name, None)) is None:
                continue
            attended.is_left = True
            if attended.scope is not None:
                attended.scope.cancel()
                self._leaving += (attended.ended,)
            self._registry.drop_source(name)

    async def ready(self, timeout_s: float | None = None, sources: Collection[str] | None = None) -> bool:
        """Wait until every source, or each of `sources`, has listed its tools or failed to.

        False when `timeout_s` ran out first, or nothing is running.
        """
        if self._tasks is None:
            return False
        with anyio.move_on_after(timeout_s):
            for name, attended in [*self._attended.items()]:
                if sources is None or name in sources:
                    await attended.listed.wait()
            return True
        return False

    async def judge_again(self) -> None:
        """Publish what there is anew, as it is judged by now; no source is asked."""
        for attended in [*self._attended.values()]:
            if attended.listing is not None:
                await self._publish(attended, attended.listing)

    @property
    def starting(self) -> tuple[str, ...]:
        """Names of the sources that have neither listed their tools nor failed to."""
        return tuple(name for name, attended in self._attended.items() if not attended.listed.is_set())

    def _start(self, attended: _Attended, tasks: TaskGroup) -> None:
        attended.scope = scope = anyio.CancelScope()
        tasks.start_soon(self._attend, attended, scope, name=f"source {attended.source.name}")

    async def _attend(self, attended: _Attended, scope: anyio.CancelScope) -> None:
        """Enter a source, publish its listing and keep it current; once cancelled, leave it.

        A listing that fails is tried again, less and less often; one that fails later leaves the tools as last seen,
        for the next call to start the source anew or to say why it cannot.
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
            logger.exception("source %s broke off", source.name)
            self._fail(attended, SourceUnavailable(f"`{source.name}` broke off.", diagnosis=repr(error)))
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
                # A source that is left alone for its failures says for how long; before that, asking it is in vain.
                told_s = listing.retry_after_s if isinstance(listing, SourceUnavailable) else None
                with anyio.move_on_after(max(retry_s, told_s or 0.0)):
                    await changed.wait()
                retry_s = min(2 * retry_s, LAST_RETRY_S)
            changed.still()

    async def _list(self, attended: _Attended) -> Listing | ToolcribError:
        """List and publish; the error where that failed."""
        began = time.monotonic()
        with anyio.move_on_after(TURN_S) as waiting:
            await self._places.acquire()
        try:
            listing = await attended.source.list_tools()
        except ToolcribError as error:
            self._fail(attended, error)
            return error
        finally:
            if not waiting.cancelled_caught:
                self._places.release()
        await self._publish(attended, listing, time.monotonic() - began)
        return listing

    async def _publish(self, attended: _Attended, listing: Listing, took_s: float | None = None) -> None:
        """`took_s`: seconds from the attempt to the listing, where it is new."""
        entry = attended.entry
        async with attended.publishing:
            if took_s is not None:
                attended.listing = listing
            elif attended.listing is not listing:  # by now there is a later one
                return
            judgements: Mapping[str, Judgement] = {}
            if self._judge is not None:
                try:
                    judgements = await self._judge.judge(entry, listing.tools)
                except Exception as error:
                    logger.exception("source %s cannot be judged", entry.name)
                    self._hide(attended, error)
                    return
            if attended.is_left:  # the listing was there when it was cancelled
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
                # What a later listing takes says nothing of how long a start takes.
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
                )
            shown = (judgements[tool.name].shown if tool.name in judgements else tool for tool in listing.tools)
            self._registry.put_source(published, [tool for tool in shown if tool is not None])

    def _hide(self, attended: _Attended, error: Exception) -> None:
        """Publish that nobody can say what of it may be shown, and none of its tools."""
        if attended.is_left:
            return
        known = self._registry.state.sources[attended.entry.name]
        hidden = replace(
            known,
            status=SourceStatus.FAILED,
            reason=f"Nobody can say what of `{known.name}` may be shown.",
            diagnosis=repr(error),
            remedy="",
            is_lasting=True,
            judgements={},
        )
        self._registry.put_source(hidden, [])

    def _fail(self, attended: _Attended, error: ToolcribError) -> None:
        """Publish why; what is known from an earlier listing stays."""
        if attended.is_left:
            return
        entry = attended.entry
        is_told = isinstance(error, SourceUnavailable)
        diagnosis, remedy = (error.diagnosis, error.remedy) if is_told else ("", "")
        known = self._registry.state.sources.get(entry.name, entry)
        if (known.status, known.reason, known.diagnosis) != (SourceStatus.FAILED, error.message, diagnosis):
            # It is tried again and again, and mostly fails in the same words.
            which = "" if f"`{entry.name}`" in error.message else f"`{entry.name}`:"
            logger.warning("%s", " ".join(filter(None, (which, error.message, diagnosis, remedy))))
        failed = replace(
            known,
            status=SourceStatus.FAILED,
            reason=error.message,
            diagnosis=diagnosis,
            remedy=remedy,
            is_lasting=not error.retryable,
        )
        self._registry.put_source(failed)


def _without_suspicious_words(listing: Listing, *, is_trusted: bool) -> Listing:
    """`listing` without a title or summary that looks like an attempt on the model, and with a warning that says so.

    The first answer that every model reads shows both. A tool's description is shown and flagged, since the tool may be
    of no use without it; a source is just as useful under its name.
    """
    if is_trusted:
        return listing
    for key in ("title", "summary"):
        if doubts := suspicions_in_texts({key: getattr(listing, key) or ""}):
            told = f"its {key} is not shown: {doubts[0].why} (“{doubts[0].excerpt}”)"
            listing = replace(listing, **{key: None if key == "title" else ""}, warnings=(*listing.warnings, told))
    return listing


def _good_for_s(listing: Listing) -> float:
    if listing.ttl_s is None:
        return DEFAULT_TTL_S
    return max(MIN_TTL_S, listing.ttl_s) if listing.ttl_s > 0 else 0.0


class _Bell:
    """Rings when a source tells of a change, and rings on until it is stilled; waiting for it can be given up."""

    def __init__(self) -> None:
        self._rung = anyio.Event()

    async def follow(self, source: Source) -> None:
        async for _ in source.changes():
            self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()

    def still(self) -> None:
        self._rung = anyio.Event()
