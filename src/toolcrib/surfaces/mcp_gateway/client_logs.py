"""Log messages of sources, which are sent to the client whose request caused them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import anyio
import mcp_types
from anyio.abc import TaskGroup
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server

from toolcrib.core.client import is_as_severe
from toolcrib.surfaces.mcp_gateway.request_context import LOG_LEVEL, Ctx, connection_of

logger = logging.getLogger(__name__)

MAX_WAITING_CHARS = 1_000_000
"""How many characters may wait for a slow client, for each of its requests. Further messages are dropped."""

SendLog = Callable[[Mapping[str, Any]], Awaitable[None]]


class LogMessages:
    """Takes log messages and sends them in order. The task that sends them runs only while messages wait."""

    def __init__(self, tasks: TaskGroup | None, lowest: Callable[[], str | None], send: SendLog | None = None) -> None:
        """`lowest` returns the lowest level that the client wants, or None if it wants no messages."""
        self._tasks = tasks
        self._lowest = lowest
        self._send = send
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._chars = 0
        self._dropped = 0
        self._taken = 0
        self._gone = 0
        """How many messages were taken so far, and how many of those were sent."""
        self._moved = anyio.Event()
        self._sending: anyio.CancelScope | None = None

    def put(self, params: Mapping[str, Any]) -> None:
        """Take one message, if the client wants its level and there is room."""
        if self._tasks is None or not self._wants(params["level"]):
            return
        chars = len(str(params))
        if self._waiting and self._chars + chars > MAX_WAITING_CHARS:
            self._dropped += 1
            return
        self._take(params, chars)
        self._go_on()

    def send_with(self, send: SendLog) -> None:
        """Send messages with `send` from now on."""
        self._send = send
        self._go_on()

    async def sent(self) -> None:
        """Wait until all messages taken so far were sent."""
        self._report_dropped()
        taken = self._taken
        while self._sending is not None and self._gone < taken:
            await self._moved.wait()

    async def finish(self) -> None:
        """Send the remaining messages before the answer, and take no more. A client that has left receives none."""
        try:
            if self._taken or self._dropped:
                await self.sent()
        finally:
            self.end()

    def hold(self) -> None:
        """Stop sending. Later messages wait while there is room."""
        self._send = None

    def end(self) -> None:
        """Discard the messages that were not sent, and take no more."""
        self._tasks = None
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _report_dropped(self) -> None:
        if self._dropped and self._wants("warning"):
            report, self._dropped = _dropped_report(self._dropped), 0
            self._take(report, len(str(report)))

    def _take(self, params: Mapping[str, Any], chars: int) -> None:
        self._waiting.append(params)
        self._chars += chars
        self._taken += 1

    def _wants(self, level: str) -> bool:
        lowest = self._lowest()
        return lowest is not None and is_as_severe(level, lowest)

    def _go_on(self) -> None:
        if self._waiting and self._send is not None and self._sending is None and self._tasks is not None:
            self._sending = anyio.CancelScope()
            self._tasks.start_soon(self._empty, self._sending)

    async def _empty(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                while self._waiting and (send := self._send) is not None:
                    params = self._waiting.popleft()
                    self._chars -= len(str(params))
                    await send(params)
                    if not self._waiting:
                        self._report_dropped()
                    self._move(1)
        except Exception as error:  # noqa: BLE001  a failed log message must not prevent the answer
            logger.info("could not send a server's log message to a client: %s", error)
            self._tasks = None
        finally:
            self._sending = None
            self._move(0)

    def _move(self, count: int) -> None:
        self._gone += count
        self._moved.set()
        self._moved = anyio.Event()


def _dropped_report(count: int) -> Mapping[str, Any]:
    words = "1 log message was" if count == 1 else f"{count} log messages were"
    return {
        "level": "warning",
        "logger": "toolcrib",
        "data": f"{words} dropped here, because this client read too slowly.",
    }


class _LogNotification(mcp_types.Notification[dict[str, Any], str]):
    """A log message with unchanged parameters. The SDK's own model loses `data` that is null."""


async def send_log(ctx: Ctx, params: Mapping[str, Any]) -> None:
    """Send a log message as part of the response to `ctx`."""
    message = _LogNotification(method="notifications/message", params=dict(params))
    await ctx.session.send_notification(cast("mcp_types.ServerNotification", message), ctx.request_id)


def answer_set_level(server: Server[dict[str, Any]]) -> None:
    """Answer `logging/setLevel`, which only the handshake era has. The handler declares `logging` for both eras."""
    server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, _set_level)


async def _set_level(ctx: Ctx, params: mcp_types.SetLevelRequestParams) -> HandlerResult:
    connection_of(ctx).state[LOG_LEVEL] = params.level
    return mcp_types.EmptyResult()
