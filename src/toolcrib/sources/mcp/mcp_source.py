"""An MCP server as a source. It connects on first use, and reconnects after the server died."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import LOG_LEVEL_META_KEY, ResourceUpdatedNotification
from pydantic import ValidationError

from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.errors import SignInRequired, SourceUnavailable, StaleExpansion, ToolcribError, ToolFailed
from toolcrib.core.placeholders import Problem
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.threads import apart
from toolcrib.core.tools import Tool
from toolcrib.sources.base import FetchMethod, Listing, ProgressListener
from toolcrib.sources.mcp.asking import RequestHandlers
from toolcrib.sources.mcp.attempt import Attempt
from toolcrib.sources.mcp.breaker import LIVED_S, Breaker
from toolcrib.sources.mcp.connection import CAPABILITIES, WHOLE, Connection, connect
from toolcrib.sources.mcp.exchanges import Exchanges, Verbosity
from toolcrib.sources.mcp.filled_servers import Fill
from toolcrib.sources.mcp.listing import LateExtras, WholeResult, WireRequest, list_all
from toolcrib.sources.mcp.oauth.credentials import Credentials
from toolcrib.sources.mcp.refused_requests import MAX_MESSAGE_BYTES
from toolcrib.sources.mcp.server_failures import bottom, in_one_line
from toolcrib.sources.mcp.server_output import Secrets
from toolcrib.sources.mcp.server_spec import DEFAULT_PATIENCE, AnyServer, Patience
from toolcrib.sources.mcp.shapes import asks_oddly, is_result, unwrapped
from toolcrib.sources.mcp.watching import LIST_CHANGED, Upkeep, Watching, follow_changes

logger = logging.getLogger(__name__)

SIGN_IN_CHECK_S = 1.0
"""How often a server that waits for a sign-in looks whether there was one, in seconds."""


class McpSource:
    """One MCP server. Its connection lives in a task of its own, so that callers cannot end it."""

    def __init__(
        self,
        name: str,
        server: AnyServer,
        *,
        fill: Fill | None = None,
        patience: Patience = DEFAULT_PATIENCE,
        stops_when_idle: bool = False,
        client: Callable[[], Client] = lambda: NO_CLIENT,
        credentials: Credentials | None = None,
        now: Callable[[], float] = time.monotonic,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """`fill` returns `server` with its stored values. It is called in a thread before each start.

        `client` returns the client that the server may ask while no call is running. `credentials` are the tokens from
        signing in to a server over HTTP.

        `now` is the clock, in seconds, that decides when a failed server is retried. An answer of more than
        `max_message_bytes` (of JSON) is not read, and only that request fails.
        """
        self._name = name
        self.breaker = Breaker(name, now=now)
        self._stops_when_idle = stops_when_idle
        self._client = client
        self._exchanges = Exchanges(client, patience.call_s)
        self._watching = Watching()
        self._calls = 0
        """The number of running calls."""
        self.server = server
        self._fill = fill
        self._credentials = credentials
        self._awaits_sign_in = False
        self._patience = patience
        self._max_message_bytes = max_message_bytes
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._attempt: Attempt | None = None
        self._listing = anyio.Lock()
        """Allows one listing at a time, because the pages of two would mix."""
        self._offered: dict[str, Tool] = {}
        """The tools of the last listing, by name."""
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
            if attempt.listing is not None:  # connecting has just listed the tools
                listing, attempt.listing = attempt.listing, None
                return listing
            try:
                return await self._list(attempt, connection)
            except TimeoutError as error:
                raise attempt.unavailable(self._slow_listing) from error
            except (MCPError, ValidationError) as error:
                raise attempt.unavailable("did not list its tools", error) from error

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        with self._in_use():
            async with self.breaker.admitting():
                attempt, connection = await self._connected()
                self._check_offered(tool)
                params = {"name": tool.name, "arguments": dict(arguments)}
                what = f"refused to run `{tool.name}`"
                wire = await self._exchange(
                    attempt, connection, "tools/call", params, context, refused=what, progress=progress
                )
        wire = unwrapped(wire)
        if not is_result(wire):
            raise ToolFailed(
                f"`{self._name}` answered the call with something that is not a tool result.",
                hints=["Its `content` must be a list of objects."],
            )
        return ToolResult(wire)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        with self._in_use():
            async with self.breaker.admitting():
                attempt, connection = await self._connected()
                return await self._exchange(attempt, connection, method, params, context, refused=f"refused {method}")

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        with self._in_use():
            async with self.breaker.admitting():
                attempt, connection = await self._connected()
            if attempt.upkeep is None or not attempt.upkeep.is_possible:
                raise ToolFailed(f"`{self._name}` does not report changes of its resources.")
            mark = self.breaker.mark
            self._watching.want(uri, updated)
            try:
                with anyio.fail_after(self._patience.call_s):
                    await attempt.upkeep.taken(uri)
            except BaseException as error:
                self._watching.drop(uri, updated)
                if isinstance(error, TimeoutError):
                    raise attempt.unavailable(self._slow_answer) from error
                if isinstance(error, MCPError):
                    what = f"does not report changes of `{uri}`"
                    raise self._failure(attempt, connection, mark, what, error) from error
                raise
            self._in_background(partial(self._watching.stay_connected, self._reconnected))

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        self._watching.drop(uri, updated)
        self._note_use()

    @contextmanager
    def _in_use(self) -> Generator[None]:
        """Mark the server as in use for the block. The idle time begins when the block ends."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._note_use()

    def _note_use(self) -> None:
        if self._attempt is not None:
            self._attempt.used.set()

    def _in_background(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `run` in the background until it ends or the source is left. Nothing starts after that."""
        if self._tasks is not None:
            self._tasks.start_soon(run)

    async def _exchange(
        self,
        attempt: Attempt,
        connection: Connection,
        method: str,
        params: Mapping[str, Any],
        context: CallContext,
        *,
        refused: str,
        progress: ProgressListener | None = None,
    ) -> dict[str, Any]:
        """Send one request and return its whole result. The server may ask the client of `context` for input in
        between.

        The session's own methods are not used, because they drop unknown fields. They also raise on an answer that does
        not match its output schema, which would lose the answer.
        """
        client = context.client or NO_CLIENT
        request = WireRequest(method=method, params=_as_sent(params, context, is_modern=connection.is_modern))
        mark = self.breaker.mark
        try:
            with anyio.fail_after(self._patience.call_s) as patience:
                if (level := client.log_level) is not None:
                    await attempt.verbosity.reach(connection, level)
                with self._exchanges.sending(client, patience):
                    answer = await connection.session.send_request(request, WholeResult, progress_callback=progress)
        except TimeoutError as error:
            raise attempt.unavailable(self._slow_answer, retryable=False) from error
        except MCPError as error:
            raise self._failure(attempt, connection, mark, refused, error) from error
        self.breaker.worked()
        wire = answer.root[WHOLE]
        if asks_oddly(wire):
            raise ToolFailed(f"`{self._name}` asked for more input in a form that the protocol does not allow.")
        return wire

    def _failure(
        self, attempt: Attempt, connection: Connection, mark: int, what: str, error: MCPError
    ) -> ToolcribError:
        """Return what `error` means for a request sent at `mark`, and tell the breaker about it.

        `what` is as in `Attempt.refused`.
        """
        failure = attempt.refused(connection, what, error)
        if not isinstance(failure, SourceUnavailable):
            self.breaker.worked()  # a refusal shows that the server works
            return failure
        if not connection.is_open:
            return self.breaker.failed(failure, mark, died=True)
        self.breaker.pause(failure.retry_after_s)
        return failure

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            yield

    def _note_change(self) -> None:
        self._changed.set()

    def try_again(self) -> None:
        """Reset the count of failures and list the server again, for an owner who fixed something."""
        if self.breaker.forget():
            self._note_change()

    def _check_offered(self, tool: Tool) -> None:
        """Check that the server still offers the definition that the caller was shown.

        Raises:
            StaleExpansion: it does not.
        """
        offered = self._offered.get(tool.name)
        if offered is None:
            raise StaleExpansion(f"`{tool.id}` no longer exists on its server.")
        if offered is not tool and offered.offer != tool.offer:
            raise StaleExpansion(f"The definition of `{tool.id}` changed on its server.")

    async def _connected(self, *, to_list: bool = False) -> tuple[Attempt, Connection]:
        """Return the current connection or a new one. Many callers may wait for it, and none of them ends it by
        leaving.

        The listing of a connection that was made for a call is reported as a change, because it may differ from the
        last one.
        """
        attempt = self._attempt
        connection = attempt.connection if attempt is not None else None
        if attempt is None or attempt.failure is not None or (connection is not None and not connection.is_open):
            if self._tasks is None:
                raise SourceUnavailable(f"`{self._name}` is not running.")
            if attempt is not None:
                self._note_end(attempt)
            self.breaker.check(in_words=not to_list)
            attempt = self._attempt = self._new_attempt()
            self._tasks.start_soon(self._live, attempt, to_list, name=f"connection to {self._name}")
        await attempt.settled.wait()
        if attempt.connection is None:
            failure = attempt.failure or SourceUnavailable(f"`{self._name}` was stopped.", retryable=True)
            raise failure.at(self.breaker.retry_after_s)
        return attempt, attempt.connection

    def _new_attempt(self) -> Attempt:
        extras = LateExtras(
            self._name,
            page_timeout_s=self._patience.list_s,
            in_background=self._in_background,
            came=self._note_change,
        )
        secrets = Secrets(self.server, tokens=self._tokens)
        return Attempt(self._name, self.breaker.mark, Verbosity(self._name), extras, self.server, secrets)

    def _tokens(self) -> Sequence[str]:
        return () if self._credentials is None else self._credentials.secrets

    async def _reconnected(self) -> Connection:
        async with self.breaker.admitting():
            _, connection = await self._connected()
        return connection

    async def _live(self, attempt: Attempt, to_list: bool) -> None:
        """Connect, list, and hold the connection until it ends or the source is left."""
        start_s = self._patience.start_s
        signed_in_at = None if self._credentials is None else self._credentials.stamp()
        on_message = partial(self._on_message, attempt)
        asking = RequestHandlers(self._client().capabilities, self._exchanges.ask)
        try:
            with anyio.move_on_after(start_s) as start:
                server = await self._filled(attempt)
                async with connect(
                    server,
                    on_message,
                    attempt.said,
                    call_timeout_s=self._patience.call_s,
                    asking=asking,
                    on_log=self._exchanges.log,
                    max_message_bytes=self._max_message_bytes,
                    secrets=attempt.secrets,
                    credentials=self._credentials,
                ) as connection:
                    start.deadline = math.inf
                    # Before any call, because a server that came back may offer something different.
                    attempt.listing = await self._list(attempt, connection)
                    attempt.connection = connection
                    self._exchanges.connected_anew()
                    attempt.upkeep = Upkeep(self._watching, connection, self._patience.list_s)
                    attempt.settled.set()
                    if not to_list:
                        self._note_change()
                    await self._hold(attempt, connection)
            if start.cancelled_caught and attempt.connection is None:
                attempt.failure = attempt.unavailable(f"did not complete the MCP handshake within {start_s:g} s")
        except Exception as error:  # noqa: BLE001  a failing server must not affect anything else
            cause = bottom(error)
            if attempt.connection is not None:
                broke = attempt.secrets.hidden(in_one_line(cause))
                logger.info("source %s: the connection failed: %s", self._name, broke)
            elif isinstance(cause, TimeoutError):
                attempt.failure = attempt.unavailable(self._slow_listing, error)
            elif isinstance(cause, Problem):  # only the owner can fix it
                attempt.failure = attempt.unavailable("could not start or connect", cause, retryable=False)
            else:
                attempt.failure = attempt.unavailable("could not start or connect", cause)
        finally:
            if attempt.connection is not None:
                attempt.connection.give_up()
                self._note_end(attempt)
            if attempt.failure is not None:
                self.breaker.failed(attempt.failure, attempt.mark, died=False)
            attempt.settled.set()
            is_awaited = self._awaits_sign_in or not isinstance(attempt.failure, SignInRequired)
            if self._credentials is not None and not is_awaited:
                self._awaits_sign_in = True
                self._in_background(partial(self._retry_after_sign_in, self._credentials, signed_in_at))

    async def _retry_after_sign_in(self, credentials: Credentials, stamp: object) -> None:
        """Wait until the stored sign-ins differ from those at `stamp`, then use the server again. It is not asked
        before that."""
        while self.breaker.waits_for_sign_in and credentials.stamp() == stamp:  # noqa: ASYNC110  a different process
            await anyio.sleep(SIGN_IN_CHECK_S)
        self._awaits_sign_in = False
        if self.breaker.waits_for_sign_in:
            self.try_again()

    async def _filled(self, attempt: Attempt) -> AnyServer:
        """Return the server with its stored values, and hide these values in everything that the attempt tells.

        Raises:
            Problem: a value is missing.
        """
        if self._fill is None:
            return self.server
        filled = await apart(self._fill)  # the system's keyring may wait for a person
        attempt.server, attempt.secrets = filled.server, Secrets(filled.server, filled.values, self._tokens)
        return filled.server

    def _note_end(self, attempt: Attempt) -> None:
        """Count the end of a connection as a failure of its server, unless we ended it."""
        if attempt.connection is not None and not attempt.is_stopped:
            self.breaker.failed(attempt.unavailable("stopped"), attempt.mark, died=True)

    async def _hold(self, attempt: Attempt, connection: Connection) -> None:
        async with anyio.create_task_group() as tasks:
            if attempt.upkeep is not None:
                tasks.start_soon(attempt.upkeep.run)
            tasks.start_soon(follow_changes, connection, self._name, self._note_change)
            tasks.start_soon(self._vouch_once_it_lived)
            if self._stops_when_idle:
                tasks.start_soon(self._end_when_idle, attempt, connection)
            await connection.dispatcher.ended.wait()
            tasks.cancel_scope.cancel()

    async def _vouch_once_it_lived(self) -> None:
        await anyio.sleep(LIVED_S)
        self.breaker.worked()

    async def _end_when_idle(self, attempt: Attempt, connection: Connection) -> None:
        while True:
            with anyio.move_on_after(self._patience.idle_s) as idle:
                await attempt.used.wait()
            attempt.used = anyio.Event()
            if idle.cancelled_caught and not self._calls and not self._watching.uris:
                logger.info("source %s: stopped after %g s without a call", self._name, self._patience.idle_s)
                attempt.is_stopped = True
                connection.give_up()
                return

    async def _on_message(self, attempt: Attempt, message: IncomingMessage) -> None:
        if isinstance(message, LIST_CHANGED):
            attempt.listing = None
            self._note_change()
        elif isinstance(message, ResourceUpdatedNotification):
            # In the newer era it also comes on a stream, which reports it.
            if attempt.connection is None or not attempt.connection.is_modern:
                self._watching.tell(str(message.params.uri))
        elif isinstance(message, Exception):
            attempt.note_garbage(message)

    async def _list(self, attempt: Attempt, connection: Connection) -> Listing:
        listing = await list_all(connection, self._name, page_timeout_s=self._patience.list_s)
        self._offered = {tool.name: tool for tool in listing.tools}
        extras, odd = await attempt.extras.list(connection)
        listing = replace(listing, extras=extras, warnings=(*listing.warnings, *odd))
        if not attempt.garbage:
            return listing
        warning = f"it writes lines to standard output that are not MCP messages, for example {attempt.garbage[0]!r}"
        return replace(listing, warnings=(*listing.warnings, warning))

    @property
    def _slow_answer(self) -> str:
        return f"did not answer within {self._patience.call_s:g} s"

    @property
    def _slow_listing(self) -> str:
        return f"did not list its tools within {self._patience.list_s:g} s"


def _as_sent(params: Mapping[str, Any], context: CallContext, *, is_modern: bool) -> dict[str, Any]:
    """Return `params` with everything else that a request in `context` sends."""
    client = context.client or NO_CLIENT
    meta: dict[str, Any] = {CAPABILITIES: dict(client.capabilities)}
    if client.log_level is not None and is_modern:
        meta[LOG_LEVEL_META_KEY] = client.log_level
    sent: dict[str, Any] = {**params, "_meta": meta}
    if context.resumed is not None:
        sent["inputResponses"] = dict(context.resumed.responses)
        if context.resumed.state is not None:
            sent["requestState"] = context.resumed.state
    return sent
