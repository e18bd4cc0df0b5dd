"""An MCP server as a source: connected when first needed, connected again after it died, listed whole."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types
from anyio.abc import TaskGroup
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from toolcrib.core.errors import SourceUnavailable, StaleExpansion, ToolcribError, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, ProgressListener
from toolcrib.sources.mcp.connection import WHOLE, Connection, connect
from toolcrib.sources.mcp.last_words import LastWords
from toolcrib.sources.mcp.listing import list_all
from toolcrib.sources.mcp.server import DEFAULT_PATIENCE, McpServer, Patience

logger = logging.getLogger(__name__)

MAX_GARBAGE_LINES = 3
MAX_WORDS_LINES = 4

FIRST_LISTEN_AGAIN_S = 1.0
LAST_LISTEN_AGAIN_S = 60.0
"""A stream of changes that was lost is asked for again after the first, then after twice as long, up to the last."""


_MAY_BE_TOLD = (MCPError, FileNotFoundError, httpx2.ConnectError, httpx2.HTTPStatusError)
"""What callers may read the cause of. Other errors quote what was filled into an address, a header or a path."""


def _is_answer(wire: Mapping[str, Any]) -> bool:
    content = wire.get("content", [])
    return isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[object]", content))


class _WholeResult(RootModel[dict[str, Any]]):
    """A result as the session gives it, with the fields the SDK's models would drop."""


@dataclass(slots=True, eq=False)
class _Attempt:
    """One way to the server: first the start, then the connection, then its end."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is known whether the server can be used."""
    connection: Connection | None = None
    failure: SourceUnavailable | None = None
    listing: Listing | None = None
    """What the server offered when it was connected, until somebody takes it."""
    said: LastWords = field(default_factory=LastWords)
    garbage: list[str] = field(default_factory=list[str])
    used: anyio.Event = field(default_factory=anyio.Event)
    """Set whenever a call has ended."""

    @property
    def is_over(self) -> bool:
        return self.failure is not None or (self.connection is not None and not self.connection.is_open)


class McpSource:
    """One server. Its connection lives in a task of its own, so that callers come and go without ending it."""

    def __init__(
        self, name: str, server: McpServer, *, patience: Patience = DEFAULT_PATIENCE, stops_when_idle: bool = False
    ) -> None:
        self._name = name
        self._stops_when_idle = stops_when_idle
        self._calls = 0
        """Calls that are under way."""
        self.server = server
        self._patience = patience
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._attempt: _Attempt | None = None
        self._listing = anyio.Lock()
        """One listing at a time: pages of two would mix."""
        self._offered: dict[str, Tool] = {}
        """What the server offers, by name, as it said last."""
        self._changed = anyio.Event()

    @property
    def name(self) -> str:
        return self._name

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        self._tasks = None
        await self._stack.aclose()

    async def list_tools(self) -> Listing:
        attempt, connection = await self._connected(to_list=True)
        async with self._listing:
            if attempt.listing is not None:  # connecting lists; once is enough
                listing, attempt.listing = attempt.listing, None
                return listing
            try:
                return await self._list(attempt, connection)
            except TimeoutError as error:
                raise self._unavailable(attempt, self._slow_listing) from error
            except (MCPError, ValidationError) as error:
                raise self._unavailable(attempt, "did not list its tools", error) from error

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        self._calls += 1
        try:
            return await self._call(tool, arguments, progress)
        finally:
            self._calls -= 1
            if self._attempt is not None:
                self._attempt.used.set()

    async def _call(self, tool: Tool, arguments: Mapping[str, Any], progress: ProgressListener | None) -> ToolResult:
        attempt, connection = await self._connected()
        self._check_offered(tool)
        parameters = mcp_types.CallToolRequestParams(name=tool.name, arguments=dict(arguments))
        try:
            # Not `session.call_tool`: it drops fields it does not know, and raises on an answer that misses its
            # output schema, which would lose it.
            answer = await connection.session.send_request(
                mcp_types.CallToolRequest(params=parameters),
                _WholeResult,
                request_read_timeout_seconds=self._patience.call_s,
                progress_callback=progress,
            )
        except MCPError as error:
            raise self._refused(attempt, connection, tool, error) from error
        wire = answer.root[WHOLE]
        if not _is_answer(wire):
            raise ToolFailed(
                f"`{self._name}` answered the call with something that is not a tool result.",
                hints=["Its `content` is not a list of objects."],
            )
        if wire.get("resultType") == "input_required":
            raise ToolFailed(f"`{tool.id}` asks for more input in the middle of a call; that is not passed on.")
        return ToolResult(wire)

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            yield

    def _check_offered(self, tool: Tool) -> None:
        """Whoever calls was shown a definition; what is run must be what the server says it is now.

        Raises:
            StaleExpansion: it is not.
        """
        offered = self._offered.get(tool.name)
        if offered is None:
            raise StaleExpansion(f"`{tool.id}` is gone from its server.")
        if offered is not tool and offered.handle != tool.handle:
            raise StaleExpansion(f"The definition of `{tool.id}` has changed at its server.")

    async def _connected(self, *, to_list: bool = False) -> tuple[_Attempt, Connection]:
        """The connection there is, or a new one; many may wait for it, and none of them ends it by going away.

        What a connection made for a call finds on offer is told of as a change: whoever lists knows only what was.
        """
        attempt = self._attempt
        if attempt is None or attempt.is_over:
            if self._tasks is None:
                raise SourceUnavailable(f"`{self._name}` is not running.")
            attempt = self._attempt = _Attempt()
            self._tasks.start_soon(self._live, attempt, to_list, name=f"connection to {self._name}")
        await attempt.settled.wait()
        if attempt.connection is None:
            failure = attempt.failure or SourceUnavailable(f"`{self._name}` was stopped.", retryable=True)
            raise SourceUnavailable(failure.message, diagnosis=failure.diagnosis, retryable=failure.retryable)
        return attempt, attempt.connection

    async def _live(self, attempt: _Attempt, to_list: bool) -> None:
        """Connect, list, and hold the connection until it ends or the source is left."""
        start_s = self._patience.start_s
        on_message = partial(self._on_message, attempt)
        try:
            with anyio.move_on_after(start_s) as start:
                async with connect(
                    self.server, on_message, attempt.said, call_timeout_s=self._patience.call_s
                ) as connection:
                    start.deadline = math.inf
                    # Before anybody calls: what came back need not be what went away.
                    attempt.listing = await self._list(attempt, connection)
                    attempt.connection = connection
                    attempt.settled.set()
                    if not to_list:
                        self._changed.set()
                    await self._hold(attempt, connection)
            if start.cancelled_caught and attempt.connection is None:
                what = f"did not answer within {start_s:g} s of its start"
                attempt.failure = self._unavailable(attempt, what)
        except Exception as error:  # noqa: BLE001  whatever keeps one server from working stays with it
            cause = _bottom(error)
            if attempt.connection is not None:
                logger.info("source %s: its connection broke: %s", self._name, _told(cause))
            elif isinstance(cause, TimeoutError):
                attempt.failure = self._unavailable(attempt, self._slow_listing, error)
            else:
                attempt.failure = self._unavailable(attempt, "could not be started or reached", cause)
        finally:
            if attempt.connection is not None:
                attempt.connection.give_up()
            attempt.settled.set()

    async def _hold(self, attempt: _Attempt, connection: Connection) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen_for_changes, connection)
            if self._stops_when_idle:
                tasks.start_soon(self._end_when_idle, attempt, connection)
            await connection.dispatcher.ended.wait()
            tasks.cancel_scope.cancel()

    async def _end_when_idle(self, attempt: _Attempt, connection: Connection) -> None:
        while True:
            with anyio.move_on_after(self._patience.idle_s) as idle:
                await attempt.used.wait()
            attempt.used = anyio.Event()
            if idle.cancelled_caught and not self._calls:
                logger.info("source %s: stopped after %g s without a call", self._name, self._patience.idle_s)
                connection.give_up()
                return

    async def _listen_for_changes(self, connection: Connection) -> None:
        """Servers of the newer era tell of changes only on a stream one asked for; a lost one is asked for again."""
        session = connection.session
        tools = session.server_capabilities.tools if session.server_capabilities is not None else None
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        wait_s = FIRST_LISTEN_AGAIN_S
        while True:
            try:
                async with listen(session, tools_list_changed=True) as events:
                    async for _ in events:
                        wait_s = FIRST_LISTEN_AGAIN_S
                        self._changed.set()
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                logger.info("source %s: its stream of changes was lost: %s", self._name, error)
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, LAST_LISTEN_AGAIN_S)
            self._changed.set()  # nobody told of what changed meanwhile

    async def _on_message(self, attempt: _Attempt, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            attempt.listing = None
            self._changed.set()
        elif isinstance(message, Exception) and len(attempt.garbage) < MAX_GARBAGE_LINES:
            attempt.garbage.append(_garbled(message))

    async def _list(self, attempt: _Attempt, connection: Connection) -> Listing:
        listing = await list_all(connection, self._name, page_timeout_s=self._patience.list_s)
        self._offered = {tool.name: tool for tool in listing.tools}
        if not attempt.garbage:
            return listing
        warning = f"it writes to standard output what is no protocol message, e.g. {attempt.garbage[0]!r}"
        return replace(listing, warnings=(*listing.warnings, warning))

    def _refused(self, attempt: _Attempt, connection: Connection, tool: Tool, error: MCPError) -> ToolcribError:
        if connection.forgotten.is_set() and error.code != mcp_types.CONNECTION_CLOSED:
            connection.give_up()
            return self._unavailable(attempt, "was restarted and ran nothing; the next call opens a new session")
        match error.code:
            case mcp_types.CONNECTION_CLOSED:
                if not connection.over_http:
                    connection.give_up()  # who asks again at once must not find a connection that has ended
                return self._unavailable(attempt, "went away before it answered", retryable=False)
            case mcp_types.REQUEST_TIMEOUT:
                what = f"did not answer within {self._patience.call_s:g} s"
                return self._unavailable(attempt, what, retryable=False)
            case _:
                details: dict[str, Any] = {"upstream": error.error.model_dump(mode="json", exclude_none=True)}
                return ToolFailed(f"`{self._name}` refused to run `{tool.name}`: {error.message}", details=details)

    @property
    def _slow_listing(self) -> str:
        return f"did not list its tools within {self._patience.list_s:g} s"

    def _unavailable(
        self, attempt: _Attempt, what: str, error: BaseException | None = None, *, retryable: bool = True
    ) -> SourceUnavailable:
        """`{name} {what}`, and for its owner what the server said last: most servers say there what they miss."""
        told, diagnosis = f"`{self._name}` {what}", list[str]()
        if error is not None and not isinstance(cause := _bottom(error), TimeoutError):
            if isinstance(cause, _MAY_BE_TOLD):
                told += f": {_told(cause)}"
            else:
                diagnosis.append(f"The cause: {_told(cause).rstrip('.')}.")
        if attempt.garbage:
            diagnosis.append(f"It wrote what is no protocol message: {attempt.garbage[0]!r}.")
        if words := " / ".join(attempt.said.lines()[-MAX_WORDS_LINES:]):
            diagnosis.append(f"Its last words: {words}")
        return SourceUnavailable(told.rstrip(".") + ".", diagnosis=" ".join(diagnosis), retryable=retryable)


def _bottom(error: BaseException) -> BaseException:
    """What an exception group is about."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _told(error: BaseException) -> str:
    """What went wrong, in one line."""
    error = _bottom(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no program `{error.filename}`"
    if isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED:
        return "it exited"
    if isinstance(error, httpx2.HTTPStatusError):  # its own words repeat the whole address
        return f"HTTP {error.response.status_code} {error.response.reason_phrase}"
    return " ".join(str(error).split())[:300] or type(error).__name__


def _garbled(error: Exception) -> str:
    """The line that did not parse, as far as it can be told."""
    if isinstance(error, ValidationError):
        line = error.errors(include_url=False)[0].get("input")
        if isinstance(line, str):
            return line[:80]
    return " ".join(str(error).split())[:80]
