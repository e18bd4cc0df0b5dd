"""HTTP/1.1 connections with limits: on their number, and on the time that a client may take to send or to read.

uvicorn itself only limits how long a connection may be idle between two requests.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from asyncio import AbstractEventLoop, TimerHandle, Transport
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import h11
import orjson
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from toolcrib.surfaces.http.problems import MEDIA_TYPE, RefusedRequest

logger = logging.getLogger(__name__)

FILES_WANTED = 65_536
"""The soft limit of open files is raised to the hard limit, but at most to this number.

Servers inherit the limit. Some programs close every possible file descriptor when they start, one by one.
"""

MOST_CONNECTIONS = 4_096
"""The maximum number of connections. An idle connection takes about 4 KB."""

CLOSING_S = 5.0
"""How long the last bytes of a response may take to be sent when the connection is being closed, in seconds."""

LOG_AGAIN_S = 60.0
"""The shortest time between two log lines about too many connections, in seconds."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one server for its clients."""

    connections: int = MOST_CONNECTIONS
    head_s: float = 10.0
    """From the start of the connection, or the first byte of a later request, to the end of the request's head."""
    body_s: float = 60.0
    """From the end of the head to the end of the request's body."""
    unread_s: float = 60.0
    """In each such interval, a client that reads a response must read `unread_bytes`, or everything that waits."""
    unread_bytes: int = 16_384

    @property
    def requests_each(self) -> int:
        """The maximum number of concurrent requests of one principal: an eighth of the connections."""
        return max(1, self.connections // 8)

    @classmethod
    def of_this_process(cls) -> ConnectionLimits:
        """Return limits that use half of the files this process may open. The rest is for servers and stores."""
        files = _raise_file_limit()
        return cls() if files is None else cls(connections=min(MOST_CONNECTIONS, files // 2))


def _raise_file_limit() -> int | None:
    """Raise the soft limit of open files towards the hard one.

    Returns the new soft limit, or None if there is no limit.
    """
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415  Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # macOS has a lower limit that it does not report
            logger.info("could not raise the limit of open files, it stays at %d: %s", soft, error)
        else:
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


class Connections:
    """All connections of one server. uvicorn calls the object for each new connection, in place of a protocol class."""

    def __init__(self, bounds: ConnectionLimits) -> None:
        self.bounds = bounds
        self._without_request: dict[BoundedConnection, None] = {}
        """Connections that have not sent a complete head yet, oldest first."""
        self._answered: dict[BoundedConnection, None] = {}
        """Connections without a running request, the one that was answered longest ago first."""
        self._logged_at = -math.inf

    def __call__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> BoundedConnection:
        return BoundedConnection(self, config, server_state, app_state, _loop)

    def make_room(self, count: int) -> bool:
        """Make room for one more connection, in addition to the `count` open ones. False if all have a running request.

        A well-behaved client sends its request immediately. So this closes the connection that has waited longest
        without a request. If all have sent one, it closes the one that was answered longest ago, which its client can
        open again.
        """
        if count < self.bounds.connections:
            return True
        found = next(iter(self._without_request), None) or next(iter(self._answered), None)
        self._log("refused a new one" if found is None else "closed one without a running request")
        if found is None:
            return False
        self.note_busy(found)
        found.hang_up()
        return True

    def note_new(self, connection: BoundedConnection) -> None:
        """Note a connection that has sent nothing yet."""
        self._without_request[connection] = None

    def note_busy(self, connection: BoundedConnection) -> None:
        """Note that the connection has a running request or is closed."""
        self._without_request.pop(connection, None)
        self._answered.pop(connection, None)

    def note_answered(self, connection: BoundedConnection) -> None:
        """Note that the last request of the connection was answered."""
        self._answered[connection] = None

    def _log(self, what: str) -> None:
        if time.monotonic() >= self._logged_at + LOG_AGAIN_S:
            self._logged_at = time.monotonic()
            logger.warning("reached the limit of %d connections: %s", self.bounds.connections, what)


class BoundedConnection(H11Protocol):
    """One connection. It ends if its client takes too long to send a request or to read a response."""

    def __init__(
        self,
        connections: Connections,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._bounds = connections.bounds
        self._is_answered: bool | None = None
        """Whether the last request was answered. None before the first request."""
        self._awaited: tuple[str, object] | None = None
        """What the client must send before the deadline: the head or the body of one request."""
        self._deadline: TimerHandle | None = None
        self._next_look: TimerHandle | None = None
        """When the connection next checks whether the client reads."""

    def hang_up(self) -> None:
        """Close the connection now, and discard what waits to be sent."""
        self.transport.abort()

    # -- called by asyncio and uvicorn --------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        has_room = self._all.make_room(len(self.connections))
        super().connection_made(transport)
        self.flow = _Flow(transport, self.conn)
        if not has_room:
            self._refuse(_FULL)
            return
        self._all.note_new(self)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.note_busy(self)
        for timer in (self._deadline, self._next_look):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.IDLE:  # pipelined data is used up, and uvicorn awaits the next head
            self.flow.resume_reading()
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()
        self._watch_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch_reading()

    # -- sending by the client ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Note the state of the connection, and set the deadline for what the client must send."""
        if self.transport.is_closing():
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn's annotation omits None
        if cycle is not None and self._is_answered is not cycle.response_complete:
            self._is_answered = cycle.response_complete
            self._all.note_busy(self)
            if self._is_answered:
                self._all.note_answered(self)
        awaited, limit_s = self._what_is_awaited()
        if awaited != self._awaited:
            self._awaited = awaited
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self.loop.call_later(limit_s, self._end_late) if awaited is not None else None

    def _what_is_awaited(self) -> tuple[tuple[str, object] | None, float]:
        """Return what the client must send now, and its time limit. None if the client has nothing to send.

        The request is identified by its cycle; the head of a request, by the cycle of the request before it.
        """
        match self.conn.their_state:
            case h11.SEND_BODY:
                return ("body", self.cycle), self._bounds.body_s
            case h11.IDLE if self.timeout_keep_alive_task is None:  # uvicorn limits the time before the first byte
                return ("head", self.cycle), self._bounds.head_s
            case _:
                return None, 0.0

    def _end_late(self) -> None:
        """End the connection, because the deadline has passed."""
        if self.transport.is_closing() or self._awaited is None:
            return
        what, _ = self._awaited
        has_sent = what == "body" or self.conn.trailing_data[0]
        if not has_sent or (what == "body" and self.cycle.response_started):
            self.hang_up()  # there is no request to answer, or its response has begun
            return
        if what == "body":  # wake the application, which waits for the rest of the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refuse(_LATE)

    def _refuse(self, refused: RefusedRequest) -> None:
        """Send a refusal in place of the application, and close."""
        self.transport.write(_written(refused))
        self.transport.close()
        self.loop.call_later(CLOSING_S, self.transport.abort)

    # -- reading by the client ----------------------------------------------------------------------------------------

    def _watch_reading(self) -> None:
        """If data waits to be read, check later how much of it the client has read."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        left = self.transport.get_write_buffer_size()
        # During a response with little unread data, more may be written at any time, so the size says nothing.
        if left and (self.flow.write_paused or self.cycle.response_complete):
            self._next_look = self.loop.call_later(self._bounds.unread_s, self._look_at_reading, left)

    def _look_at_reading(self, left_before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left_before - left < self._bounds.unread_bytes:
            self.hang_up()
        else:
            self._watch_reading()


class _Flow(FlowControl):
    """Stops reading while a next request waits to be handled.

    uvicorn reads on whenever the application waits for a message. It would buffer all requests that a client sends
    ahead.
    """

    def __init__(self, transport: Transport, conn: h11.Connection) -> None:
        super().__init__(transport)
        self._conn = conn

    def resume_reading(self) -> None:
        if self._conn.their_state is not h11.DONE or not self._conn.trailing_data[0]:
            super().resume_reading()


def _written(refused: RefusedRequest) -> bytes:
    """Return a response as bytes, after which the connection is closed."""
    body = orjson.dumps(refused.to_wire())
    lines = [
        f"HTTP/1.1 {refused.status.value} {refused.status.phrase}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in refused.headers.items()),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


_FULL = RefusedRequest(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "The gateway has reached its limit of connections, and all of them are in use.",
    hints=["Retry in a second."],
    retryable=True,
    headers={"Retry-After": "1"},
)

_LATE = RefusedRequest(
    HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive. Nothing ran.", hints=["Send it again."]
)
