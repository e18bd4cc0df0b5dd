"""What both tables of faults share: a crib with a faulty server beside a good one, and what must hold of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import psutil
import pytest
from tests.servers.launching import faulty_server
from tests.waiting import DEADLINE_S

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.errors import ErrorCode, SourceUnavailable, ToolcribError
from toolcrib.core.results import ToolResult
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.mcp import McpServer, Patience
from toolcrib.sources.mcp.mcp_source import McpSource

PATIENT = Patience(start_s=30, list_s=30, call_s=30)
HASTY = Patience(start_s=30, list_s=30, call_s=0.5)
"""For answers that never come."""


def in_lanes(rows: Iterable[tuple[str, ...]]) -> list[Any]:
    """The rows of a table as parameters; those of the older era are in the slow lane."""
    return [pytest.param(*row, marks=[pytest.mark.slow] if "legacy" in row else []) for row in rows]


@dataclass(frozen=True)
class Told:
    """What a caller reads of a fault."""

    code: ErrorCode
    message: str
    """A part of it."""
    retryable: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def of(self, error: ToolcribError) -> None:
        """Check that `error` says just that, whoever reads it."""
        told = error.to_wire()["error"]
        assert (told["code"], told["retryable"]) == (self.code.value, self.retryable), error
        assert self.message in told["message"], error
        assert "\n" not in told["message"], error
        assert len(told["message"]) < 300, error
        assert {key: told.get("details", {}).get(key) for key in self.details} == self.details, told


def unavailable(message: str, *, retryable: bool = False, **details: Any) -> Told:
    return Told(ErrorCode.SOURCE_UNAVAILABLE, message, retryable, details)


def failed(message: str) -> Told:
    return Told(ErrorCode.TOOL_FAILED, message)


@asynccontextmanager
async def bench(
    server: McpServer, patience: Patience = PATIENT, *, good: McpServer | None = None, ready: bool = True
) -> AsyncGenerator[Toolcrib]:
    """A crib with `server` as `bench` and a good one as `good`, which must be untouched in the end.

    Afterwards no process is left that it started; with `ready`, it begins once both have listed their tools.
    """
    before = set(psutil.Process().children(recursive=True))
    crib = Toolcrib()
    crib.add_source(McpSource("bench", server, patience=patience))
    crib.add_source(McpSource("good", good or faulty_server(), patience=PATIENT))
    async with crib:
        assert await crib.ready(30), crib.view().sources
        assert not ready or entry_of(crib).status is SourceStatus.READY, entry_of(crib)
        pid = (await call(crib, "good.pid")).structured_content
        yield crib
        assert (await call(crib, "good.pid")).structured_content == pid, "the good server was not left in peace"
    left = set(psutil.Process().children(recursive=True)) - before
    assert not left, left


async def call(crib: Toolcrib, tool_id: str, /, **arguments: Any) -> ToolResult:
    """Expand and call, as whoever uses a crib does."""
    return await crib.call_tool(crib.expand_tool(tool_id).handle, arguments)


async def refused(crib: Toolcrib, tool_id: str, /, **arguments: Any) -> ToolcribError:
    """The error that a call ends with."""
    with pytest.raises(ToolcribError) as caught:
        await call(crib, tool_id, **arguments)
    return caught.value


@asynccontextmanager
async def another_call(
    crib: Toolcrib, release: Callable[[], Awaitable[object]], *, ends: bool = False
) -> AsyncGenerator[list[str]]:
    """Has another call of the same server under way for the block; yields where its answer is put after it.

    `release` lets it end.
    With `ends` the server does, and takes the call along.
    """
    handle, answers = crib.expand_tool("bench.slow").handle, list[str]()
    under_way = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        under_way.set()

    async def hold_on() -> None:
        try:
            answers.append((await crib.call_tool(handle, {"steps": 1, "hold": True}, progress=hear)).text)
        except SourceUnavailable:
            assert ends

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold_on)
        with anyio.fail_after(DEADLINE_S):
            await under_way.wait()
        yield answers
        if not ends:
            await release()


def entry_of(crib: Toolcrib) -> SourceEntry:
    return crib.view().sources["bench"]


def why_not(crib: Toolcrib) -> SourceUnavailable:
    """The error for a tool of the server that could not be listed."""
    with pytest.raises(SourceUnavailable) as caught:
        crib.expand_tool("bench.echo")
    return caught.value


async def works_again(crib: Toolcrib) -> None:
    """That a server has ended, has time again or may be asked again nobody tells; so it is asked until it answers."""
    with anyio.fail_after(DEADLINE_S):
        while True:
            try:
                assert (await call(crib, "bench.echo", text="next")).text == "next"
            except SourceUnavailable:
                await anyio.sleep(0.01)
            else:
                return
