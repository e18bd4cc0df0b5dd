"""Connections over HTTP/1.1 that are bounded: how many there are, and how long a client may take to send or to read.

uvicorn bounds how long a connection may be idle between two requests, and nothing else.
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

from toolcrib.surfaces.http.problems import MEDIA_TYPE, Refused

logger = logging.getLogger(__name__)

FILES_WANTED = 65_536
"""The soft limit of open files is raised to the hard one, but no further than this.

Servers inherit it, and some programs close every file that they could have, one by one, when they start.
"""

MOST_CONNECTIONS = 4_096
"""An idle connection takes about 4 KB."""

CLOSING_S = 5.0
"""How long the end of an answer may take to leave once the connection is being closed, in seconds."""

LOG_AGAIN_S = 60.0
"""The log says at most this often that there are too many connections, in seconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one server grants to its clients."""

    connections: int = MOST_CONNECTIONS
    head_s: float = 10.0
    """From the opened connection, or the first byte of a later request, to the end of the request's head."""
    body_s: float = 60.0
    """From there to the end of its body."""
    unread_s: float = 60.0
    """A client that reads an answer has to take `unread_bytes` of what waits for it, or all, in each such time."""
    unread_bytes: int = 16_384

    @property
    def requests_each(self) -> int:
        """How many requests one principal may have under way: a part of the connections, which others need too."""
        return max(1, self.connections // 8)

    @classmethod
    def of_this_process(cls) -> Bounds:
        """With half of the files that this process may open, so that servers and stores always have some."""
        files = _raise_file_limit()
        return cls() if files is None else cls(connections=min(MOST_CONNECTIONS, files // 2))


def _raise_file_limit() -> int | None:
    """Raise the soft limit of open files towards the hard one. Returns what it is then; None where there is none."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415  Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # macOS has a lower limit that it does not tell
            logger.info("the limit of open files stays at %d: %s", soft, error)
        else:
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


class Connections:
    """All connections of one server. uvicorn calls it for each new one, as it would call a class of protocols."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._without_request: dict[BoundedConnection, None] = {}
        """Those that have sent no whole head so far, the oldest first."""
        self._answered: dict[BoundedConnection, None] = {}
        """Those that have no request under way any more, the one that was answered longest ago first."""
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
        """Make room for one more next to the `count` there are. False if there is none: each has a request under way.

        A client that means well sends its request at once. So the connections that are closed are those that have sent
        none for longest, and then those that were answered longest ago, which clients open again.
        """
        if count < self.bounds.connections:
            return True
        found = next(iter(self._without_request), None) or next(iter(self._answered), None)
        self._log("refused one" if found is None else "closed one that had no request under way")
        if found is None:
            return False
        self.note_busy(found)
        found.hang_up()
        return True

    def note_new(self, connection: BoundedConnection) -> None:
        """It has sent nothing yet."""
        self._without_request[connection] = None

    def note_busy(self, connection: BoundedConnection) -> None:
        """It has a request under way, or is closed."""
        self._without_request.pop(connection, None)
        self._answered.pop(connection, None)

    def note_answered(self, connection: BoundedConnection) -> None:
        """Its last request was answered."""
        self._answered[connection] = None

    def _log(self, what: str) -> None:
        if time.monotonic() >= self._logged_at + LOG_AGAIN_S:
            self._logged_at = time.monotonic()
            logger.warning("%d connections are open, the most that may be: %s", self.bounds.connections, what)


class BoundedConnection(H11Protocol):
    """One connection. It ends if its client takes too long to send a request, or to read an answer."""

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
        """Whether its last request is; None before the first."""
        self._awaited: tuple[str, object] | None = None
        """What the client has to send by the deadline: the head or the body of one request."""
        self._deadline: TimerHandle | None = None
        self._next_look: TimerHandle | None = None
        """When it is looked at whether the client reads."""

    def hang_up(self) -> None:
        """Close it now, whatever waits to be sent."""
        self.transport.abort()

    # -- what asyncio and uvicorn call --------------------------------------------------------------------------------

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
        if self.conn.their_state is h11.IDLE:  # all that came early is used, and uvicorn awaits the next head
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

    # -- what the client sends ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Note what the connection does now, and set the deadline of what the client has to send."""
        if self.transport.is_closing():
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn does not say that there may be none
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
        """The head or the body of a request, and how long it may take; None when it is not the client's turn.

        Which request it is tells its cycle; for a head, that of the request before.
        """
        match self.conn.their_state:
            case h11.SEND_BODY:
                return ("body", self.cycle), self._bounds.body_s
            case h11.IDLE if self.timeout_keep_alive_task is None:  # uvicorn bounds the time without any byte
                return ("head", self.cycle), self._bounds.head_s
            case _:
                return None, 0.0

    def _end_late(self) -> None:
        """End the connection: the deadline is over."""
        if self.transport.is_closing() or self._awaited is None:
            return
        what, _ = self._awaited
        has_sent = what == "body" or self.conn.trailing_data[0]
        if not has_sent or (what == "body" and self.cycle.response_started):
            self.hang_up()
            return
        if what == "body":
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refuse(_LATE)

    def _refuse(self, refused: Refused) -> None:
        """Answer instead of the application, and close."""
        self.transport.write(_written(refused))
        self.transport.close()
        self.loop.call_later(CLOSING_S, self.transport.abort)

    # -- what the client reads ----------------------------------------------------------------------------------------

    def _watch_reading(self) -> None:
        """Look later at how much the client has read, if something waits for it."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        left = self.transport.get_write_buffer_size()
        # While an answer goes on and little waits, more may be written at any time, and size says nothing.
        if left and (self.flow.write_paused or self.cycle.response_complete):
            self._next_look = self.loop.call_later(self._bounds.unread_s, self._look_at_reading, left)

    def _look_at_reading(self, left_before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left_before - left < self._bounds.unread_bytes:
            self.hang_up()
        else:
            self._watch_reading()


class _Flow(FlowControl):
    """Reads no further while a next request waits to be handled.

    uvicorn reads on whenever the application waits for a message, and so keeps all requests that a client sends ahead.
    """

    def __init__(self, transport: Transport, conn: h11.Connection) -> None:
        super().__init__(transport)
        self._conn = conn

    def resume_reading(self) -> None:
        if self._conn.their_state is not h11.DONE or not self._conn.trailing_data[0]:
            super().resume_reading()


def _written(refused: Refused) -> bytes:
    """An answer as it goes over the wire, after which the connection is closed."""
    body = orjson.dumps(refused.to_wire())
    lines = [
        f"HTTP/1.1 {refused.status.value} {refused.status.phrase}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in refused.headers.items()),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


_FULL = Refused(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "The gateway has as many connections as it may have, and all of them are in use.",
    hints=["Try again soon."],
    retryable=True,
    headers={"Retry-After": "1"},
)

_LATE = Refused(
    HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive. Nothing was run.", hints=["Send it again."]
)
