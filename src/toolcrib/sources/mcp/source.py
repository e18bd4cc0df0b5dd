"""An MCP server as a source: connected when first needed, connected again after it died, listed whole."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, cast

import anyio
import mcp_types
from anyio.abc import TaskGroup, TaskStatus
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from toolcrib.core.errors import SourceUnavailable, StaleExpansion, ToolcribError, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, ProgressListener, headline
from toolcrib.sources.definitions import read_definitions
from toolcrib.sources.mcp.connection import WHOLE, Connection, connect
from toolcrib.sources.mcp.last_words import LastWords
from toolcrib.sources.mcp.server import DEFAULT_PATIENCE, McpServer, Patience

logger = logging.getLogger(__name__)

MAX_PAGES = 1_000
"""Pages read of one listing; a server that goes on beyond is not followed for ever."""

MAX_GARBAGE_LINES = 3
MAX_HINT_LINES = 4


def _is_answer(wire: Mapping[str, Any]) -> bool:
    content = wire.get("content", [])
    return isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[object]", content))


class _WholeResult(RootModel[dict[str, Any]]):
    """A result as the session gives it, with the fields the SDK's models would drop."""


class McpSource:
    """One server. Its connection lives in a task of its own, so that callers come and go without ending it."""

    def __init__(self, name: str, server: McpServer, *, patience: Patience = DEFAULT_PATIENCE) -> None:
        self._name = name
        self.server = server
        self._patience = patience
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._connecting = anyio.Lock()
        self._listing = anyio.Lock()
        """One listing at a time: pages of two would mix."""
        self._connection: Connection | None = None
        self._changed = anyio.Event()
        self._words = LastWords()
        self._garbage: list[str] = []
        self._known: dict[str, Tool] = {}

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
        await self._stack.aclose()

    async def list_tools(self) -> Listing:
        async with self._listing:
            connection = await self._connected()
            try:
                return await self._list(connection)
            except TimeoutError as error:
                raise self._unavailable(f"did not list its tools within {self._patience.list_s:g} s") from error
            except (MCPError, ValidationError) as error:
                raise self._unavailable("did not list its tools", error) from error

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        known = self._known.get(name)
        connection = await self._connected()
        if known is not None and (now := self._known.get(name)) != known:
            raise StaleExpansion(
                f"The definition of `{self._name}.{name}` changed while its server was away."
                if now is not None
                else f"`{self._name}.{name}` is gone since its server came back."
            )
        remaining_s = context.remaining_s()
        timeout_s = self._patience.call_s if remaining_s is None else min(remaining_s, self._patience.call_s)
        request = mcp_types.CallToolRequest(
            params=mcp_types.CallToolRequestParams(name=name, arguments=dict(arguments))
        )
        try:
            # Not `session.call_tool`: it drops fields it does not know, and raises on an answer that misses its
            # output schema, which would lose it.
            answer = await connection.session.send_request(
                request, _WholeResult, request_read_timeout_seconds=timeout_s, progress_callback=progress
            )
        except MCPError as error:
            if connection.forgotten.is_set() and error.code != mcp_types.CONNECTION_CLOSED:
                raise self._unavailable("was restarted and ran nothing; the next call opens a new session") from error
            raise self._refused(name, error, timeout_s) from error
        wire = answer.root[WHOLE]
        if not _is_answer(wire):
            raise ToolFailed(
                f"`{self._name}` answered the call with something that is not a tool result.",
                hints=["Its `content` is not a list of objects."],
            )
        if wire.get("resultType") == "input_required":
            raise ToolFailed(
                f"`{self._name}.{name}` asks for more input in the middle of a call; that is not passed on."
            )
        return ToolResult(wire)

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            yield

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            if self._tasks is None:
                raise SourceUnavailable(f"`{self._name}` was not entered.")
            if self._connection is not None:
                self._connection.give_up()
            self._words, self._garbage = LastWords(), []
            try:
                with anyio.fail_after(self._patience.start_s):
                    connection = await self._tasks.start(self._stay_connected)
                if self._connection is not None:
                    # What came back need not be what went away: list it before anybody calls it.
                    await self._list(connection)
                    self._changed.set()
            except TimeoutError as error:
                raise self._unavailable(f"did not answer within {self._patience.start_s:g} s of its start") from error
            except Exception as error:
                raise self._unavailable("could not be started or reached", error) from error
            self._connection = connection
            return connection

    async def _stay_connected(self, *, task_status: TaskStatus[Connection]) -> None:
        """Connect, then hold the connection until it ends or the source is left. A failure to connect is `start`'s."""
        started = False
        try:
            async with connect(self.server, self._on_message, self._words) as connection:
                started = True
                task_status.started(connection)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen_for_changes, connection)
                    await connection.dispatcher.ended.wait()
                    tasks.cancel_scope.cancel()
        except Exception as error:
            if not started:
                raise
            logger.info("source %s: its connection broke: %s", self._name, _cause(error))

    async def _listen_for_changes(self, connection: Connection) -> None:
        """Servers of the newer era tell of changes only on a stream that was asked for."""
        session = connection.session
        tools = session.server_capabilities.tools if session.server_capabilities is not None else None
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        try:
            async with listen(session, tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.info("source %s: not told of changes any more: %s", self._name, error)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._changed.set()
        elif isinstance(message, Exception) and len(self._garbage) < MAX_GARBAGE_LINES:
            self._garbage.append(_garbled(message))

    async def _list(self, connection: Connection) -> Listing:
        session, listed = connection.session, connection.dispatcher.listed
        listed.clear()
        kept: set[str] = set()
        cursors: set[str] = set()
        warnings: list[str] = []
        ttl_ms: int | None = None
        cursor: str | None = None
        while True:
            with anyio.fail_after(self._patience.list_s):
                page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
            kept.update(tool.name for tool in page.tools)
            if "ttl_ms" in page.model_fields_set:
                ttl_ms = page.ttl_ms if ttl_ms is None else min(ttl_ms, page.ttl_ms)
            cursor = page.next_cursor
            if not cursor:
                break
            if cursor in cursors or len(cursors) >= MAX_PAGES:
                warnings.append(f"its list of tools does not end; {len(listed)} definitions were read")
                break
            cursors.add(cursor)
        tools, set_aside = read_definitions(self._name, listed)
        if self._garbage:
            warnings.append(f"it writes to standard output what is no protocol message, e.g. {self._garbage[0]!r}")
        self._known = {tool.name: tool for tool in tools}
        info = session.server_info
        return Listing(
            tools=tools,
            title=(info.title or info.name) if info is not None else None,
            summary=headline(session.instructions) or headline(info.description if info is not None else None),
            set_aside=set_aside,
            warnings=tuple(warnings),
            ttl_s=None if ttl_ms is None else ttl_ms / 1000,
        )

    def _refused(self, name: str, error: MCPError, timeout_s: float) -> ToolcribError:
        match error.code:
            case mcp_types.CONNECTION_CLOSED:
                return self._unavailable("went away before it answered", retryable=False)
            case mcp_types.REQUEST_TIMEOUT:
                return self._unavailable(f"did not answer within {timeout_s:g} s", retryable=False)
            case _:
                details: dict[str, Any] = {"upstream": error.error.model_dump(mode="json", exclude_none=True)}
                return ToolFailed(f"`{self._name}` refused to run `{name}`: {error.message}", details=details)

    def _unavailable(
        self, what: str, error: BaseException | None = None, *, retryable: bool = True
    ) -> SourceUnavailable:
        """`{name} {what}`, with the cause and the server's last words: most servers say there what they miss."""
        cause = f": {_cause(error)}" if error is not None else ""
        words = self._words.lines()[-MAX_HINT_LINES:]
        return SourceUnavailable(
            f"`{self._name}` {what}{cause}.".replace("..", "."),
            hints=[f"Its last words: {' / '.join(words)}"] if words else [],
            retryable=retryable,
        )


def _cause(error: BaseException) -> str:
    """What went wrong at the bottom of an exception group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program `{error.filename}`"
    if isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED:
        return "it exited"
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__


def _garbled(error: Exception) -> str:
    """The line that did not parse, as far as it can be told."""
    if isinstance(error, ValidationError):
        line = error.errors(include_url=False)[0].get("input")
        if isinstance(line, str):
            return line[:80]
    return " ".join(str(error).split())[:80]
