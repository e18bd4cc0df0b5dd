"""An MCP server as a source: connected when first needed, connected again after it died, listed whole."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
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
from mcp_types import LOG_LEVEL_META_KEY
from pydantic import ValidationError

from toolcrib.core.client import NOBODY, Client
from toolcrib.core.errors import SourceUnavailable, StaleExpansion, ToolcribError, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import NO_EXTRAS, Extras, FetchMethod, Listing, ProgressListener
from toolcrib.sources.mcp.asking import Asking
from toolcrib.sources.mcp.backoff import LIVED_S
from toolcrib.sources.mcp.breaker import Breaker
from toolcrib.sources.mcp.connection import CAPABILITIES, WHOLE, Connection, connect
from toolcrib.sources.mcp.exchanges import Exchanges
from toolcrib.sources.mcp.extras import WholeResult, WireRequest, list_extras
from toolcrib.sources.mcp.last_words import LastWords
from toolcrib.sources.mcp.listing import list_all
from toolcrib.sources.mcp.logs import Verbosity, is_log_message
from toolcrib.sources.mcp.refusals import MAX_MESSAGE_BYTES, Closed, Refused
from toolcrib.sources.mcp.server import DEFAULT_PATIENCE, McpServer, Patience
from toolcrib.sources.mcp.watching import Upkeep, Watching, first

logger = logging.getLogger(__name__)

EXTRAS_WAIT_S = 2.0
"""How long the tools of a server wait for its prompts and resources, in seconds."""

MAX_GARBAGE_LINES = 3
MAX_WORDS_LINES = 4

FIRST_LISTEN_AGAIN_S = 1.0
LAST_LISTEN_AGAIN_S = 60.0
"""A stream of changes that was lost is asked for again after the first, then after twice as long, up to the last."""


_LIST_CHANGED = (
    mcp_types.ToolListChangedNotification,
    mcp_types.PromptListChangedNotification,
    mcp_types.ResourceListChangedNotification,
)

_MAY_BE_TOLD = (MCPError, FileNotFoundError, httpx2.ConnectError)
"""What callers may read the cause of. Other errors quote what was filled into an address, a header or a path."""


def _is_answer(wire: Mapping[str, Any]) -> bool:
    content = wire.get("content", [])
    return isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[object]", content))


def _unwrapped(wire: dict[str, Any]) -> dict[str, Any]:
    """An answer of the first version of the protocol, which some servers still give, as later ones have it."""
    match wire:
        case {"toolResult": {"content": list()} as result} if "content" not in wire:
            return cast("dict[str, Any]", result)
        case {"toolResult": result} if "content" not in wire:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
            return {**wire, "content": [{"type": "text", "text": text}]}
        case _:
            return wire


def _asks_for_input(wire: dict[str, Any]) -> bool:
    try:
        mcp_types.InputRequiredResult.model_validate(wire, by_name=False)
    except ValidationError:
        return False
    return True


@dataclass(slots=True, eq=False)
class _Attempt:
    """One way to the server: first the start, then the connection, then its end."""

    mark: int
    """The breaker's, from before."""
    verbosity: Verbosity
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is known whether the server can be used."""
    connection: Connection | None = None
    upkeep: Upkeep | None = None
    """Of the connection, where there is one."""
    failure: SourceUnavailable | None = None
    listing: Listing | None = None
    """What the server offered when it was connected, until somebody takes it."""
    said: LastWords = field(default_factory=LastWords)
    garbage: list[str] = field(default_factory=list[str])
    late: tuple[Extras, tuple[str, ...]] | None = None
    """Prompts and resources that came after the tools had been listed, until they are listed with them."""
    waits_for_extras: bool = False
    used: anyio.Event = field(default_factory=anyio.Event)
    """Set whenever a call has ended."""
    is_stopped: bool = False
    """Whether we ended it."""

    @property
    def is_over(self) -> bool:
        return self.failure is not None or (self.connection is not None and not self.connection.is_open)


class McpSource:
    """One server. Its connection lives in a task of its own, so that callers come and go without ending it."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        *,
        patience: Patience = DEFAULT_PATIENCE,
        stops_when_idle: bool = False,
        client: Callable[[], Client] = lambda: NOBODY,
        now: Callable[[], float] = time.monotonic,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """`client` gives whoever may be asked for something while nobody in particular calls.

        `now` is the clock, in seconds, that says when a server which failed is tried again. An answer of more than
        `max_message_bytes` (of JSON) is not read, and fails alone.
        """
        self._name = name
        self.breaker = Breaker(name, now=now)
        self._stops_when_idle = stops_when_idle
        self._client = client
        self._exchanges = Exchanges(client, patience.call_s)
        self._watching = Watching()
        self._stays_connected = False
        self._calls = 0
        """Calls that are under way."""
        self.server = server
        self._patience = patience
        self._max_message_bytes = max_message_bytes
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
            async with self.breaker.admitting():
                return await self._call(tool, arguments, context, progress)
        finally:
            self._calls -= 1
            if self._attempt is not None:
                self._attempt.used.set()

    async def _call(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext, progress: ProgressListener | None
    ) -> ToolResult:
        attempt, connection = await self._connected()
        self._check_offered(tool)
        params = {"name": tool.name, "arguments": dict(arguments)}
        refused = f"refused to run `{tool.name}`"
        wire = await self._exchange(
            attempt, connection, "tools/call", params, context, refused=refused, progress=progress
        )
        wire = _unwrapped(wire)
        if not _is_answer(wire):
            raise ToolFailed(
                f"`{self._name}` answered the call with something that is not a tool result.",
                hints=["Its `content` is not a list of objects."],
            )
        return ToolResult(wire)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self._calls += 1
        try:
            async with self.breaker.admitting():
                attempt, connection = await self._connected()
                return await self._exchange(attempt, connection, method, params, context, refused=f"refused {method}")
        finally:
            self._calls -= 1
            if self._attempt is not None:
                self._attempt.used.set()

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        self._calls += 1
        try:
            await self._watch(uri, updated)
        finally:
            self._calls -= 1
            if self._attempt is not None:
                self._attempt.used.set()

    async def _watch(self, uri: str, updated: Callable[[], None]) -> None:
        async with self.breaker.admitting():
            attempt, connection = await self._connected()
        if attempt.upkeep is None or not attempt.upkeep.is_possible:
            raise ToolFailed(f"`{self._name}` does not tell of changes of its resources.")
        mark = self.breaker.mark()
        self._watching.want(uri, updated)
        try:
            with anyio.fail_after(self._patience.call_s):
                await attempt.upkeep.taken(uri)
        except BaseException as error:
            self._watching.drop(uri, updated)
            if isinstance(error, TimeoutError):
                raise self._unavailable(attempt, f"did not answer within {self._patience.call_s:g} s") from error
            if isinstance(error, MCPError):
                refused = f"does not tell of changes of `{uri}`"
                raise self._counted(self._refused(attempt, connection, refused, error), connection, mark) from error
            raise
        if not self._stays_connected and self._tasks is not None:
            self._stays_connected = True
            self._tasks.start_soon(self._stay_connected)

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        self._watching.drop(uri, updated)
        if self._attempt is not None:
            self._attempt.used.set()

    async def _stay_connected(self) -> None:
        """While something is watched, start a server that went away again without being called."""
        while self._watching.uris:
            changed = self._watching.changed
            try:
                async with self.breaker.admitting():
                    _, connection = await self._connected()
                await first(connection.dispatcher.ended, changed)
            except SourceUnavailable as error:
                await anyio.sleep(max(FIRST_LISTEN_AGAIN_S, error.retry_after_s or 0.0))
        self._stays_connected = False

    async def _exchange(
        self,
        attempt: _Attempt,
        connection: Connection,
        method: str,
        params: Mapping[str, Any],
        context: CallContext,
        *,
        refused: str,
        progress: ProgressListener | None = None,
    ) -> dict[str, Any]:
        """One request and its whole result. Its server may ask the client of `context` for input in between.

        Not by the session's own methods: they drop fields they do not know, and raise on an answer that misses its
        output schema, which would lose it.
        """
        client = context.client or NOBODY
        meta: dict[str, Any] = {CAPABILITIES: dict(client.capabilities)}
        if client.log_level is not None and connection.is_modern:
            meta[LOG_LEVEL_META_KEY] = client.log_level
        sent: dict[str, Any] = {**params, "_meta": meta}
        if context.resumed is not None:
            sent["inputResponses"] = dict(context.resumed.responses)
            if context.resumed.state is not None:
                sent["requestState"] = context.resumed.state
        mark = self.breaker.mark()
        try:
            with anyio.fail_after(self._patience.call_s) as patience:
                await attempt.verbosity.reach(connection, client.log_level)
                with self._exchanges.sending(client, patience):
                    answer = await connection.session.send_request(
                        WireRequest(method=method, params=sent), WholeResult, progress_callback=progress
                    )
        except TimeoutError as error:
            what = f"did not answer within {self._patience.call_s:g} s"
            raise self._unavailable(attempt, what, retryable=False) from error
        except MCPError as error:
            raise self._counted(self._refused(attempt, connection, refused, error), connection, mark) from error
        self.breaker.worked()
        wire = answer.root[WHOLE]
        if wire.get("resultType") == "input_required" and not _asks_for_input(wire):
            raise ToolFailed(f"`{self._name}` asked for more input in a form that the protocol does not have.")
        return wire

    def _counted(self, failure: ToolcribError, connection: Connection, mark: int) -> ToolcribError:
        """`failure` of what was sent at `mark`, once the breaker knows what it says about the server."""
        if not isinstance(failure, SourceUnavailable):
            self.breaker.worked()  # a refusal is an answer
            return failure
        if not connection.is_open:
            return self.breaker.failed(failure, mark, died=True)
        self.breaker.pause(failure.retry_after_s)
        return failure

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | mcp_types.ErrorData:
        """What a server of the handshake era asks: if it could be for another client's call, nobody is asked."""
        client = self._exchanges.recipient(copy_context())
        if client is None:
            told = "Several clients are calling, or were just now, and it cannot be told whom this is for."
            return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=told)
        exchanges = [exchange for exchange in self._exchanges if exchange.client == client]
        for exchange in exchanges:
            exchange.pause()
        try:
            return await client.ask(method, params)
        except ToolcribError as error:
            return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=error.message)
        finally:
            for exchange in exchanges:
                exchange.go_on()

    def _on_log(self, params: Mapping[str, Any], read_in: Context | None) -> None:
        if is_log_message(params) and (client := self._exchanges.recipient(read_in)) is not None:
            client.log(params)

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            yield

    def try_again(self) -> None:
        """Forget how often the server failed and have it listed, for who changed something and wants to see."""
        if self.breaker.forget():
            self._changed.set()

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
            if attempt is not None:
                self._note_end(attempt)
            self.breaker.check(in_words=not to_list)
            attempt = self._attempt = _Attempt(self.breaker.mark(), Verbosity(self._name))
            self._tasks.start_soon(self._live, attempt, to_list, name=f"connection to {self._name}")
        await attempt.settled.wait()
        if attempt.connection is None:
            failure = attempt.failure or SourceUnavailable(f"`{self._name}` was stopped.", retryable=True)
            raise SourceUnavailable(
                failure.message,
                diagnosis=failure.diagnosis,
                retryable=failure.retryable,
                retry_after_s=self.breaker.retry_after_s,
            )
        return attempt, attempt.connection

    async def _live(self, attempt: _Attempt, to_list: bool) -> None:
        """Connect, list, and hold the connection until it ends or the source is left."""
        start_s = self._patience.start_s
        on_message = partial(self._on_message, attempt)
        asking = Asking(self._client().capabilities, self._ask)
        try:
            with anyio.move_on_after(start_s) as start:
                async with connect(
                    self.server,
                    on_message,
                    attempt.said,
                    call_timeout_s=self._patience.call_s,
                    asking=asking,
                    on_log=self._on_log,
                    max_message_bytes=self._max_message_bytes,
                ) as connection:
                    start.deadline = math.inf
                    # Before anybody calls: what came back need not be what went away.
                    attempt.listing = await self._list(attempt, connection)
                    attempt.connection = connection
                    self._exchanges.connected_anew()
                    attempt.upkeep = Upkeep(self._watching, connection, self._patience.list_s)
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
                self._note_end(attempt)
            if attempt.failure is not None:
                self.breaker.failed(attempt.failure, attempt.mark, died=False)
            attempt.settled.set()

    def _note_end(self, attempt: _Attempt) -> None:
        """Count the end of a connection as a failure of its server, unless it was ours."""
        if attempt.connection is not None and not attempt.is_stopped:
            self.breaker.failed(self._unavailable(attempt, "went away"), attempt.mark, died=True)

    async def _hold(self, attempt: _Attempt, connection: Connection) -> None:
        async with anyio.create_task_group() as tasks:
            if attempt.upkeep is not None:
                tasks.start_soon(attempt.upkeep.run)
            tasks.start_soon(self._listen_for_changes, connection)
            tasks.start_soon(self._vouch_once_it_lived)
            if self._stops_when_idle:
                tasks.start_soon(self._end_when_idle, attempt, connection)
            await connection.dispatcher.ended.wait()
            tasks.cancel_scope.cancel()

    async def _vouch_once_it_lived(self) -> None:
        await anyio.sleep(LIVED_S)
        self.breaker.worked()

    async def _end_when_idle(self, attempt: _Attempt, connection: Connection) -> None:
        while True:
            with anyio.move_on_after(self._patience.idle_s) as idle:
                await attempt.used.wait()
            attempt.used = anyio.Event()
            if idle.cancelled_caught and not self._calls and not self._watching.uris:
                logger.info("source %s: stopped after %g s without a call", self._name, self._patience.idle_s)
                attempt.is_stopped = True
                connection.give_up()
                return

    async def _listen_for_changes(self, connection: Connection) -> None:
        """Servers of the newer era tell of changes only on a stream one asked for; a lost one is asked for again."""
        session = connection.session
        offered = session.server_capabilities
        if not connection.is_modern or offered is None:
            return
        tools = offered.tools is not None and bool(offered.tools.list_changed)
        prompts = offered.prompts is not None and bool(offered.prompts.list_changed)
        resources = offered.resources is not None and bool(offered.resources.list_changed)
        if not (tools or prompts or resources):
            return
        wait_s = FIRST_LISTEN_AGAIN_S
        while True:
            try:
                async with listen(
                    session,
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                ) as events:
                    async for _ in events:
                        wait_s = FIRST_LISTEN_AGAIN_S
                        self._changed.set()
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                logger.info("source %s: its stream of changes was lost: %s", self._name, error)
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, LAST_LISTEN_AGAIN_S)
            self._changed.set()  # nobody told of what changed meanwhile

    async def _on_message(self, attempt: _Attempt, message: IncomingMessage) -> None:
        if isinstance(message, _LIST_CHANGED):
            attempt.listing = None
            self._changed.set()
        elif isinstance(message, mcp_types.ResourceUpdatedNotification):
            # In the newer era it comes on a stream as well, which tells of it.
            if attempt.connection is None or not attempt.connection.is_modern:
                self._watching.tell(str(message.params.uri))
        elif isinstance(message, Exception) and len(attempt.garbage) < MAX_GARBAGE_LINES:
            attempt.garbage.append(_garbled(message))

    async def _list(self, attempt: _Attempt, connection: Connection) -> Listing:
        listing = await list_all(connection, self._name, page_timeout_s=self._patience.list_s)
        self._offered = {tool.name: tool for tool in listing.tools}
        extras, odd = await self._list_extras(attempt, connection)
        listing = replace(listing, extras=extras, warnings=(*listing.warnings, *odd))
        if not attempt.garbage:
            return listing
        warning = f"it writes to standard output what is no protocol message, e.g. {attempt.garbage[0]!r}"
        return replace(listing, warnings=(*listing.warnings, warning))

    async def _list_extras(self, attempt: _Attempt, connection: Connection) -> tuple[Extras, tuple[str, ...]]:
        """Prompts and resources, if they come soon: tools do not wait for them. Those that come late are told of."""
        if attempt.late is not None:
            late, attempt.late = attempt.late, None
            return late
        with anyio.move_on_after(EXTRAS_WAIT_S):
            return await list_extras(connection, page_timeout_s=self._patience.list_s)
        if self._tasks is not None and not attempt.waits_for_extras:
            attempt.waits_for_extras = True
            self._tasks.start_soon(self._await_extras, attempt, connection)
        return NO_EXTRAS, ()

    async def _await_extras(self, attempt: _Attempt, connection: Connection) -> None:
        try:
            attempt.late = await list_extras(connection, page_timeout_s=self._patience.list_s)
        except MCPError as error:
            logger.info("source %s: its connection ended before it listed prompts: %s", self._name, error)
        else:
            self._changed.set()
        finally:
            attempt.waits_for_extras = False

    def _refused(self, attempt: _Attempt, connection: Connection, refused: str, error: MCPError) -> ToolcribError:
        if connection.forgotten.is_set() and not isinstance(error, Closed):
            connection.give_up()
            return self._unavailable(attempt, "was restarted and ran nothing; the next call opens a new session")
        match error:
            case Closed():
                connection.give_up()  # who asks again at once must not find a connection that has ended
                return self._unavailable(attempt, "went away before it answered", retryable=False)
            case Refused(refusal=refusal) if refusal.ran:
                return ToolFailed(f"`{self._name}` {refusal.what}.")
            case Refused(refusal=refusal):
                return self._unavailable(attempt, refusal.what, error, retryable=refusal.retryable)
            case _:
                details: dict[str, Any] = {"upstream": error.error.model_dump(mode="json", exclude_none=True)}
                return ToolFailed(f"`{self._name}` {refused}: {error.message}", details=details)

    @property
    def _slow_listing(self) -> str:
        return f"did not list its tools within {self._patience.list_s:g} s"

    def _unavailable(
        self, attempt: _Attempt, what: str, error: BaseException | None = None, *, retryable: bool = True
    ) -> SourceUnavailable:
        """`{name} {what}`, and for its owner what the server said last: most servers say there what they miss."""
        told, diagnosis, retry_after_s = f"`{self._name}` {what}", list[str](), None
        if error is not None and not isinstance(cause := _bottom(error), TimeoutError):
            if isinstance(cause, Refused):
                refusal = cause.refusal
                told += "" if what == refusal.what else f": {_told(cause)}"
                diagnosis += [refusal.diagnosis] if refusal.diagnosis else []
                retryable, retry_after_s = retryable and not refusal.lasting, refusal.retry_after_s
            elif isinstance(cause, _MAY_BE_TOLD):
                told += f": {_told(cause)}"
            else:
                diagnosis.append(f"The cause: {_told(cause).rstrip('.')}.")
        if attempt.garbage:
            diagnosis.append(f"It wrote what is no protocol message: {attempt.garbage[0]!r}.")
        if words := " / ".join(attempt.said.lines()[-MAX_WORDS_LINES:]):
            diagnosis.append(f"Its last words: {words}")
        return SourceUnavailable(
            told.rstrip(".") + ".", diagnosis=" ".join(diagnosis), retryable=retryable, retry_after_s=retry_after_s
        )


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
    if isinstance(error, Closed):
        return "it exited"
    return " ".join(str(error).split())[:300] or type(error).__name__


def _garbled(error: Exception) -> str:
    """The line that did not parse, as far as it can be told."""
    if isinstance(error, ValidationError):
        line = error.errors(include_url=False)[0].get("input")
        if isinstance(line, str):
            return line[:80]
    return " ".join(str(error).split())[:80]
