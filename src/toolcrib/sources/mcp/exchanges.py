"""Requests that are under way at one server, and to which of them belongs what the server sends in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, ErrorData

from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.errors import ToolcribError
from toolcrib.sources.mcp.logs import is_log_message


@dataclass(slots=True, eq=False)
class Exchange:
    """A request that is under way: whom its server may ask for input meanwhile, and how long we wait for it."""

    client: Client
    patience: anyio.CancelScope
    questions: int = 0
    """Questions that wait for the client's answer."""
    left_s: float = 0.0
    """What is left of the patience while they do: a server does not answer late because a person thinks."""

    def pause(self) -> None:
        if not self.questions:
            self.left_s, self.patience.deadline = self.patience.deadline - anyio.current_time(), math.inf
        self.questions += 1

    def go_on(self) -> None:
        self.questions -= 1
        if not self.questions:
            self.patience.deadline = anyio.current_time() + self.left_s


_sent_for: ContextVar[Exchange] = ContextVar("_sent_for")
"""Set where a request is sent. Over streamable HTTP the SDK reads what comes on the stream of its answer in the same
context, which tells for which request it is; behind a pipe nothing does."""


class Exchanges:
    """The requests at one server."""

    def __init__(self, standing: Callable[[], Client], lingering_s: float) -> None:
        """`standing` is whom the server means while nobody in particular calls.

        A request that was given up may go on at its server for `lingering_s`, in seconds.
        """
        self._standing = standing
        self._lingering_s = lingering_s
        self._under_way: list[Exchange] = []
        self._given_up: list[tuple[float, Client]] = []
        """Until when, and whose."""

    @contextmanager
    def sending(self, client: Client | None, patience: anyio.CancelScope) -> Generator[None]:
        """Take part for the block, in which one request is sent and answered."""
        exchange = Exchange(client or NO_CLIENT, patience)
        self._under_way.append(exchange)
        token = _sent_for.set(exchange)
        try:
            yield
        except MCPError:
            raise
        except BaseException:  # cancelled, or out of time: its server may not know yet
            self._give_up(exchange.client)
            raise
        finally:
            _sent_for.reset(token)
            self._under_way.remove(exchange)

    def connected_anew(self) -> None:
        """What was given up ended with the connection before."""
        self._given_up.clear()

    @property
    def callers(self) -> list[Client]:
        """Whoever calls now; the standing client where nobody does."""
        return [exchange.client for exchange in self._under_way] or [self._standing()]

    def recipient(self, read_in: Context | None) -> Client | None:
        """Whose a message is that nobody asked for, and that was read in the context `read_in`.

        None where it could be several clients': what is one's must not reach another. A request that was given up
        counts, since its server may still speak of it.
        """
        exchange = read_in.get(_sent_for) if read_in is not None else None
        if exchange is not None and exchange in self._under_way:
            return exchange.client
        callers = self.callers
        self._forget_what_is_over()
        if any(client != callers[0] for client in (*callers, *(client for _, client in self._given_up))):
            return None
        # All are one client's: the last of those that are to bring messages is the least likely to be waiting for it.
        return next((client for client in reversed(callers) if client.log_level is not None), callers[-1])

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | ErrorData:
        """What a server of the handshake era asks: if it could be for another client's call, nobody is asked."""
        client = self.recipient(copy_context())
        if client is None:
            told = "Several clients are calling, or were just now, and it cannot be told whom this is for."
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
        """What a server logs, for whoever it is about."""
        if is_log_message(params) and (client := self.recipient(read_in)) is not None:
            client.log(params)

    def _give_up(self, client: Client) -> None:
        self._forget_what_is_over()
        self._given_up.append((anyio.current_time() + self._lingering_s, client))

    def _forget_what_is_over(self) -> None:
        now = anyio.current_time()
        self._given_up = [(until, client) for until, client in self._given_up if until > now]
