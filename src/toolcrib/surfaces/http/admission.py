"""The door: which requests mean this server, and on whose behalf each of them comes in."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.surfaces.auth import Authenticator, InsufficientScope, KeysUnavailable, Unauthenticated
from toolcrib.surfaces.http.bodies import problem_response
from toolcrib.surfaces.http.challenges import Challenges
from toolcrib.surfaces.http.names import Names
from toolcrib.surfaces.http.problems import Refused

HEALTH = "/health/"

OPEN = (HEALTH, "/.well-known/")
"""What is answered before anybody has said who they are; nothing there is about tools."""


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
            return Refused(HTTPStatus.MISDIRECTED_REQUEST, "This is not the host that the request means.")
        if not self._names.admit_origin(request.headers.get("origin")):
            return Refused(HTTPStatus.FORBIDDEN, "Pages of this origin may not ask here.")
        return None


class Admission:
    """Lets requests through to `app` with their principal in `request.state.principal`."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, challenges: Challenges) -> None:
        self._app = app
        self._authenticator = authenticator
        self._challenges = challenges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _path(request := Request(scope)).startswith(OPEN):
            shown = request.headers.getlist("authorization")
            try:
                request.state.principal = await self._authenticator.principal(shown)
            except (Unauthenticated, InsufficientScope, KeysUnavailable) as refusal:
                await problem_response(self._challenges.to(refusal))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _path(request: Request) -> str:
    return request.scope["path"]  # not that of `request.url`, which the `Host` header goes into
