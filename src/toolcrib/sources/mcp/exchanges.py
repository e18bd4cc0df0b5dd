"""Tracks the running requests at one server, the client that each message is for, and the level of the server's log."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, ErrorData
from pydantic import ValidationError

from toolcrib.core.client import LOG_LEVELS, NO_CLIENT, Client, is_as_severe
from toolcrib.core.errors import ToolcribError
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.listing import WholeResult, WireRequest

logger = logging.getLogger(__name__)

SET_LEVEL_S = 2.0
"""How long a server may take to change its level, in seconds. After that the call is sent anyway."""


def is_log_message(params: Mapping[str, Any]) -> bool:
    """Return whether a client can read the message. Source: MCP, `LoggingMessageNotificationParams`."""
    return params.get("level") in LOG_LEVELS and "data" in params


class Verbosity:
    """The level from which the server of one connection logs.

    A server of the newer era gets the level with every request. A server of the handshake era has one level for
    everything. Toolcrib sets it when a client that asked for log messages makes a call, and only ever lowers it. If it
    followed each caller, clients would lose each other's messages, and every call would need an additional request.
    Each client gets only the messages at its own level. Until a client asks for messages, the server uses its own
    default.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lowest: str | None = None

    async def reach(self, connection: Connection, level: str) -> None:
        """Make a server of the handshake era log from `level` on. If the server refuses, the call still goes on."""
        session = connection.session
        capabilities = session.server_capabilities
        if self._lowest is not None and is_as_severe(level, self._lowest):
            return
        if connection.is_modern or capabilities is None or capabilities.logging is None:
            return
        self._lowest = level
        try:
            with anyio.fail_after(SET_LEVEL_S):
                await session.send_request(WireRequest(method="logging/setLevel", params={"level": level}), WholeResult)
        except (MCPError, TimeoutError, ValidationError) as error:
            logger.info("source %s: its log level was not set: %s", self._name, error)


@dataclass(slots=True, eq=False)
class _Exchange:
    """A running request: the client that its server may ask for input, and how long we wait for the answer."""

    client: Client
    patience: anyio.CancelScope
    questions: int = 0
    """How many questions wait for the client's answer."""
    left_s: float = 0.0
    """The remaining time while the timer is paused. A server is not late because a person thinks."""

    def pause(self) -> None:
        if not self.questions:
            self.left_s, self.patience.deadline = self.patience.deadline - anyio.current_time(), math.inf
        self.questions += 1

    def go_on(self) -> None:
        self.questions -= 1
        if not self.questions:
            self.patience.deadline = anyio.current_time() + self.left_s


_sent_for: ContextVar[_Exchange] = ContextVar("_sent_for")
"""Set while a request is sent. Over streamable HTTP the SDK reads the answer's stream in the same context, which
identifies the request. Over a pipe nothing identifies it."""


class Exchanges:
    """The running requests at one server."""

    def __init__(self, standing: Callable[[], Client], lingering_s: float) -> None:
        """`standing` returns the client that the server's messages are for while no call is running.

        A request that was given up may continue at its server for `lingering_s`, in seconds.
        """
        self._standing = standing
        self._lingering_s = lingering_s
        self._under_way: list[_Exchange] = []
        self._given_up: list[tuple[float, Client]] = []
        """Until when each abandoned request may continue, and its client."""

    @contextmanager
    def sending(self, client: Client | None, patience: anyio.CancelScope) -> Generator[None]:
        """Track the request for the block, in which it is sent and answered."""
        exchange = _Exchange(client or NO_CLIENT, patience)
        self._under_way.append(exchange)
        token = _sent_for.set(exchange)
        try:
            yield
        except MCPError:
            raise
        except BaseException:  # cancelled or timed out: the server may not know yet
            self._give_up(exchange.client)
            raise
        finally:
            _sent_for.reset(token)
            self._under_way.remove(exchange)

    def connected_anew(self) -> None:
        """Note a new connection. The abandoned requests ended with the previous one."""
        self._given_up.clear()

    @property
    def callers(self) -> list[Client]:
        """The clients with running requests; the standing client if no request runs."""
        return [exchange.client for exchange in self._under_way] or [self._standing()]

    def recipient(self, read_in: Context | None) -> Client | None:
        """Return the client that an unsolicited message is for; the message was read in the context `read_in`.

        Returns None if it could be for several clients, because a message for one must not reach a different one. A
        request that was given up counts, because its server may still send messages about it.
        """
        exchange = read_in.get(_sent_for) if read_in is not None else None
        if exchange is not None and exchange in self._under_way:
            return exchange.client
        callers = self.callers
        self._forget_what_is_over()
        if any(client != callers[0] for client in (*callers, *(client for _, client in self._given_up))):
            return None
        # All belong to one client. The last one that wants messages is the least likely to be waiting for this one.
        return next((client for client in reversed(callers) if client.log_level is not None), callers[-1])

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | ErrorData:
        """Answer a request from a server of the handshake era. If it could belong to several clients, no client is
        asked."""
        client = self.recipient(copy_context())
        if client is None:
            told = "Several clients have running calls, or had until just now. Toolcrib cannot tell which one to ask."
            return ErrorData(code=INVALID_REQUEST, message=told)
        exchanges = [exchange for exchange in self._under_way if exchange.client == client]
        for exchange in exchanges:
            exchange.pause()
        try:
            return await client.ask(method, params)
        except ToolcribError as error:
            return ErrorData(code=INVALID_REQUEST, message=error.message)
        finally:
            for exchange in exchanges:
                exchange.go_on()

    def log(self, params: Mapping[str, Any], read_in: Context | None) -> None:
        """Pass a log message to the client that it is for."""
        if is_log_message(params) and (client := self.recipient(read_in)) is not None:
            client.log(params)

    def _give_up(self, client: Client) -> None:
        self._forget_what_is_over()
        self._given_up.append((anyio.current_time() + self._lingering_s, client))

    def _forget_what_is_over(self) -> None:
        now = anyio.current_time()
        self._given_up = [(until, client) for until, client in self._given_up if until > now]
