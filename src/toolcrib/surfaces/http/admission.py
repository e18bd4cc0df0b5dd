"""Admission of HTTP requests: checks of the host, the origin and the credentials."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.surfaces.auth import (
    Busy,
    InsufficientScope,
    KeysUnavailable,
    Reason,
    Refusal,
    Stay,
    Stays,
    Unauthenticated,
)
from toolcrib.surfaces.http.accepted_hosts import Names
from toolcrib.surfaces.http.bodies import problem_response
from toolcrib.surfaces.http.challenges import Challenges
from toolcrib.surfaces.http.problems import RefusedRequest

logger = logging.getLogger(__name__)

HEALTH = "/health/"

ROOT = "/"

OPEN = (HEALTH, "/.well-known/")
"""Paths that need no token, in addition to the root. They reveal nothing about tools."""

END_S = 1.0
"""How long a client may take to read the end of a response that was cut off, in seconds."""

LOG_AGAIN_S = 60.0
"""The shortest time between two log lines about refusals for the same reason, in seconds."""

_ORDINARY: tuple[Reason, ...] = ("missing", "keys")
"""Reasons that are not logged: clients often send a first request without a token, and `keys` logs its own warnings."""


class NameCheck:
    """Passes requests to `app` if their `Host` header names this server and their origin is allowed."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._refusal(Request(scope))) is not None:
            await problem_response(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> RefusedRequest | None:
        if _path(request).startswith(HEALTH):  # health checks often use an address as the host name
            return None
        if not self._names.admit_host(request.headers.get("host")):
            return RefusedRequest(
                HTTPStatus.MISDIRECTED_REQUEST,
                "Unknown host name in the `Host` header.",
                hints=[f"The gateway's owner can add it with {self._names.hosts_set_by}."],
            )
        if not self._names.admit_origin(request.headers.get("origin")):
            return RefusedRequest(
                HTTPStatus.FORBIDDEN,
                "Requests from this web origin are not allowed.",
                hints=[f"The gateway's owner can add it to {self._names.origins_set_by}."],
            )
        return None


class Admission:
    """Passes admitted requests to `app`.

    Their principal is in `request.state.principal`, and their stay in `request.state.stay`. The stay ends when the
    credentials of the request are no longer accepted.
    """

    def __init__(
        self,
        app: ASGIApp,
        stays: Stays,
        challenges: Challenges,
        refused: Callable[[Reason], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refused` is called with the reason of every refusal. `clock` returns seconds."""
        self._app = app
        self._stays = stays
        self._challenges = challenges
        self._refused = refused
        self._log = _RefusalLog(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_open(_path(request := Request(scope))):
            shown = tuple(request.headers.getlist("authorization"))
            with ExitStack() as stack:
                try:
                    principal = request.state.principal = await self._stays.admit(shown)
                    stay = request.state.stay = stack.enter_context(self._stays.begin(request.method, shown, principal))
                except (Unauthenticated, InsufficientScope, KeysUnavailable, Busy) as refusal:
                    self._refused(refusal.reason)
                    self._log.note(refusal, request)
                    await problem_response(self._challenges.to(refusal))(scope, receive, send)
                    return
                await self._answer(stay, scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _answer(self, stay: Stay, scope: Scope, receive: Receive, send: Send) -> None:
        """Run `app` until it is done or the stay ends."""

        async def noting(message: Message) -> None:
            stay.has_begun = True
            stay.is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async def counting() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._stays.note_body(stay, len(message.get("body", b"")))
                if stay.refusal is not None:
                    await anyio.lowlevel.checkpoint()  # the stay was cancelled: leave here
            return message

        with stay.lasting():
            await self._app(scope, counting, noting)
        if stay.refusal is None or stay.is_answered:
            return
        if not stay.has_begun:
            await problem_response(self._challenges.to(stay.refusal))(scope, receive, send)
            return
        with anyio.move_on_after(END_S):  # the client may have stopped reading
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _RefusalLog:
    """Logs the first refusal for a reason, and later how many similar ones followed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_at = dict[Reason, float]()
        self._silent = Counter[Reason]()
        """The number of refusals since the last log line, by reason."""

    def note(self, refusal: Refusal, request: Request) -> None:
        reason = refusal.reason
        if reason in _ORDINARY:
            return
        if self._clock() - self._logged_at.get(reason, -math.inf) < LOG_AGAIN_S:
            self._silent[reason] += 1
            return
        self._logged_at[reason] = self._clock()
        more = f" ({self._silent.pop(reason):,} similar ones before)" if reason in self._silent else ""
        sender = request.client.host if request.client is not None else ""
        # Behind a proxy the address comes from a header, so it can contain anything.
        logger.warning("Refused a request from %.64r: %s%s", sender, refusal.message, more)


def _is_open(path: str) -> bool:
    return path == ROOT or path.startswith(OPEN)


def above_path(request: Request) -> str:
    """Return the path at which the application is mounted, without a trailing slash. Empty at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _path(request: Request) -> str:
    """Return the path below the mount. `request.url` is not used, because the `Host` header can change it."""
    path, above = str(request.scope["path"]), above_path(request)
    return (path.removeprefix(above) or ROOT) if f"{path}/".startswith(f"{above}/") else path
