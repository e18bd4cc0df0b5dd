"""The door: which requests mean this server, and on whose behalf each of them comes in."""

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
from toolcrib.surfaces.http.bodies import problem_response
from toolcrib.surfaces.http.challenges import Challenges
from toolcrib.surfaces.http.names import Names
from toolcrib.surfaces.http.problems import Refused

logger = logging.getLogger(__name__)

HEALTH = "/health/"

ROOT = "/"

OPEN = (HEALTH, "/.well-known/")
"""Paths below these, and the root, are answered without a token; nothing there is about tools."""

END_S = 1.0
"""How long a client may take to take the end of an answer that was cut off, in seconds."""

LOG_AGAIN_S = 60.0
"""Refusals for one reason are logged at most this often, in seconds, however many tokens somebody tries."""

_ORDINARY: tuple[Reason, ...] = ("missing", "keys")
"""Not logged: a client has yet to learn that it takes a token; of keys, whoever fetches them warns."""


class NameCheck:
    """Lets requests through to `app` that mean this server, and come from no page that may not ask."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._refusal(Request(scope))) is not None:
            await problem_response(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> Refused | None:
        if _path(request).startswith(HEALTH):  # whatever watches over this program calls it as it likes
            return None
        if not self._names.admit_host(request.headers.get("host")):
            return Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "The gateway does not answer to the name in the `Host` header.",
                hints=[f"The owner of the gateway sets its names: {self._names.hosts_set_by}."],
            )
        if not self._names.admit_origin(request.headers.get("origin")):
            return Refused(
                HTTPStatus.FORBIDDEN,
                "Pages of this origin may not ask here.",
                hints=[f"The owner of the gateway sets {self._names.origins_set_by}."],
            )
        return None


class Admission:
    """Lets requests through to `app` with their principal in `request.state.principal`, and their stay, which goes on
    as long as they would be let in again, in `request.state.stay`."""

    def __init__(
        self,
        app: ASGIApp,
        stays: Stays,
        challenges: Challenges,
        refused: Callable[[Reason], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refused` is told of every request that is not let through; `clock` gives seconds."""
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
        """What `app` answers, as far as it comes while the stay lasts."""

        async def noting(message: Message) -> None:
            stay.has_begun = True
            stay.is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async def counting() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._stays.note_body(stay, len(message.get("body", b"")))
                if stay.refusal is not None:
                    await anyio.lowlevel.checkpoint()  # where it is left
            return message

        with stay.lasting():
            await self._app(scope, counting, noting)
        if stay.refusal is None or stay.is_answered:
            return
        if not stay.has_begun:
            await problem_response(self._challenges.to(stay.refusal))(scope, receive, send)
            return
        with anyio.move_on_after(END_S):  # it may read nothing any more
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _RefusalLog:
    """Warns of the first of many refusals that are alike, and then says from time to time how many there were."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_at = dict[Reason, float]()
        self._silent = Counter[Reason]()
        """How many were not logged since one like them was."""

    def note(self, refusal: Refusal, request: Request) -> None:
        reason = refusal.reason
        if reason in _ORDINARY:
            return
        if self._clock() - self._logged_at.get(reason, -math.inf) < LOG_AGAIN_S:
            self._silent[reason] += 1
            return
        self._logged_at[reason] = self._clock()
        more = f" ({self._silent.pop(reason):,} more like it before)" if reason in self._silent else ""
        sender = request.client.host if request.client is not None else ""
        # Behind a proxy a header says who sent it: anything can stand there.
        logger.warning("a request from %.64r was refused: %s%s", sender, refusal.message, more)


def _is_open(path: str) -> bool:
    return path == ROOT or path.startswith(OPEN)


def above_path(request: Request) -> str:
    """The path at which the application is mounted, without a slash at its end; empty at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _path(request: Request) -> str:
    """Below where the application is mounted; not that of `request.url`, which the `Host` header goes into."""
    path, above = str(request.scope["path"]), above_path(request)
    return (path.removeprefix(above) or ROOT) if f"{path}/".startswith(f"{above}/") else path
