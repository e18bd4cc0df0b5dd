"""Helpers of both tables of faults: a crib with a faulty and a good server, and checks of errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import psutil
import pytest
from tests.servers.launching import faulty_server
from tests.until import DEADLINE_S

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.errors import ErrorCode, SourceUnavailable, ToolcribError
from toolcrib.core.results import ToolResult
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.mcp import McpServer, Patience
from toolcrib.sources.mcp.mcp_source import McpSource

PATIENT = Patience(start_s=30, list_s=30, call_s=30)
HASTY = Patience(start_s=30, list_s=30, call_s=0.5)
"""Timeouts for answers that never arrive."""


def as_params(rows: Iterable[tuple[str, ...]]) -> list[Any]:
    """Turns the rows of a table into parameters. Rows of the older version are marked as slow."""
    return [pytest.param(*row, marks=[pytest.mark.slow] if "legacy" in row else []) for row in rows]


@dataclass(frozen=True)
class ExpectedError:
    """The expected error of a fault."""

    code: ErrorCode
    message: str
    """A part of the message."""
    retryable: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def check(self, error: ToolcribError) -> None:
        """Check that `error` matches."""
        told = error.to_wire()["error"]
        assert (told["code"], told["retryable"]) == (self.code.value, self.retryable), error
        assert self.message in told["message"], error
        assert "\n" not in told["message"], error
        assert len(told["message"]) < 300, error
        assert {key: told.get("details", {}).get(key) for key in self.details} == self.details, told


def unavailable(message: str, *, retryable: bool = False, **details: Any) -> ExpectedError:
    return ExpectedError(ErrorCode.SOURCE_UNAVAILABLE, message, retryable, details)


def failed(message: str) -> ExpectedError:
    return ExpectedError(ErrorCode.TOOL_FAILED, message)


@asynccontextmanager
async def bench(
    server: McpServer, patience: Patience = PATIENT, *, good: McpServer | None = None, ready: bool = True
) -> AsyncGenerator[Toolcrib]:
    """Yields a crib with `server` as `bench` and a working server as `good`, which must stay unaffected.

    No process may be left afterwards. With `ready`, both servers have listed their tools before the block.
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
    """Expand a tool and call it."""
    return await crib.call_tool(crib.expand_tool(tool_id).handle, arguments)


async def refused(crib: Toolcrib, tool_id: str, /, **arguments: Any) -> ToolcribError:
    """Makes a call that fails and returns its error."""
    with pytest.raises(ToolcribError) as caught:
        await call(crib, tool_id, **arguments)
    return caught.value


@asynccontextmanager
async def concurrent_call(
    crib: Toolcrib, release: Callable[[], Awaitable[object]], *, ends: bool = False
) -> AsyncGenerator[list[str]]:
    """Runs a second call of the same server during the block, and yields the list that receives its answer.

    `release` ends that call.
    With `ends`, the server exits and the call fails.
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


def listing_error(crib: Toolcrib) -> SourceUnavailable:
    """Returns the error for a tool of a server that could not be listed."""
    with pytest.raises(SourceUnavailable) as caught:
        crib.expand_tool("bench.echo")
    return caught.value


async def until_it_works(crib: Toolcrib) -> None:
    """Call the server until it answers, because no event says that it is available again."""
    with anyio.fail_after(DEADLINE_S):
        while True:
            try:
                assert (await call(crib, "bench.echo", text="next")).text == "next"
            except SourceUnavailable:
                await anyio.sleep(0.01)
            else:
                return
