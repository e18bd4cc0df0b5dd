"""A source with a limit on concurrent calls: further calls wait in a queue, and beyond its length they are refused."""

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
    """How many calls a source takes. The defaults stop a flood and do not affect ordinary work.

    A coding agent runs about ten calls at once (Claude Code: at most 10 by default), and a gateway serves a few agents.
    A source can rarely do more at once: a server over stdio often does one thing at a time, the Python SDK runs
    functions in 40 threads, and an HTTP client has 100 connections.

    A call that waits here has not begun. It uses none of the server's time to answer, it can be cancelled without
    effects, and it is not lost when its server dies. A program that sends a few hundred calls at once gets all its
    answers. More calls than that come from a loop by mistake, and are refused immediately.
    """

    concurrent_calls: int = 32
    """How many calls run at once, at least 1."""
    queued_calls: int = 256
    """How many more calls may wait, first come first served. May be 0."""


DEFAULT_CAPACITY = Capacity()


class LimitedSource(WrapperSource):
    """Queues calls, and requests about prompts and resources."""

    def __init__(self, wrapped: Source, capacity: Capacity = DEFAULT_CAPACITY) -> None:
        super().__init__(wrapped)
        self._capacity = capacity
        self._places = anyio.Semaphore(capacity.concurrent_calls)

    @property
    def running(self) -> int:
        """The number of calls that were passed on and have not ended."""
        return self._capacity.concurrent_calls - self._places.value

    @property
    def waiting(self) -> int:
        """The number of calls in the queue."""
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
            return await self._wrapped.call_tool(tool, arguments, context, progress=progress)

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
                "This call was not accepted and nothing was sent. Retry when some calls have ended.",
                retryable=True,
            )
        try:
            with anyio.fail_after(context.remaining_s()):
                await self._places.acquire()
        except (TimeoutError, anyio.get_cancelled_exc_class()):
            # The deadline's owner may cancel us in the same moment. Only this code knows that nothing was sent.
            if context.remaining_s() != 0:
                raise
            raise SourceUnavailable(
                f"`{self.name}` was busy until the time limit of your request; nothing was sent.", retryable=True
            ) from None
