"""A source that is asked only so much at once: some more calls wait in line, and beyond those they are refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import FetchMethod, ProgressListener, Source
from toolcrib.sources.wrapper import WrapperSource


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many calls a source takes. The defaults keep a flood from it, and nobody's ordinary work.

    A coding agent runs about ten calls at once (Claude Code: at most 10 by default), and a gateway serves a few of
    those. A source can do little with more: a server over stdio often does one thing at a time, the Python SDK runs
    functions in 40 threads, and an HTTP client has 100 connections. A call that waits here has not begun: it uses up
    none of the server's time to answer, can be cancelled as if it had never been made, and is not lost when its server
    dies. A program that sends a few hundred calls at once gets all its answers; what comes on top is a loop that nobody
    meant, and it is told at once.
    """

    concurrent_calls: int = 32
    """At once, at least 1."""
    queued_calls: int = 256
    """More, in line, first come first served; may be 0."""


DEFAULT_CAPACITY = Capacity()


class LimitedSource(WrapperSource):
    """Calls, and what is fetched of prompts and resources, take their turn."""

    def __init__(self, wrapped: Source, capacity: Capacity = DEFAULT_CAPACITY) -> None:
        super().__init__(wrapped)
        self._capacity = capacity
        self._places = anyio.Semaphore(capacity.concurrent_calls)

    @property
    def running(self) -> int:
        """Calls that were passed on and have not ended."""
        return self._capacity.concurrent_calls - self._places.value

    @property
    def waiting(self) -> int:
        """Calls in line."""
        return self._places.statistics().tasks_waiting

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        async with self._turn(context):
            return await super().call_tool(tool, arguments, context, progress=progress)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        async with self._turn(context):
            return await super().fetch(method, params, context)

    @asynccontextmanager
    async def _turn(self, context: CallContext) -> AsyncGenerator[None]:
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait(context)
        try:
            yield
        finally:
            self._places.release()

    async def _wait(self, context: CallContext) -> None:
        if self.waiting >= self._capacity.queued_calls:
            raise SourceUnavailable(
                f"`{self.name}` is busy: {self.running} calls are running and {self.waiting} more wait. "
                "This one was not taken; try again when some have ended.",
                retryable=True,
            )
        try:
            with anyio.fail_after(context.remaining_s()):
                await self._places.acquire()
        except (TimeoutError, anyio.get_cancelled_exc_class()):
            # Whoever set the deadline may cancel us in the same moment; only here it is known that nothing was sent.
            if context.remaining_s() != 0:
                raise
            raise SourceUnavailable(
                f"`{self.name}` was busy until the caller's time was over; nothing was sent.", retryable=True
            ) from None
