"""The HTTP transport to a server. A failure of one request refuses that request only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, cast

import anyio
import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    RequestId,
)
from pydantic_core import from_json

from toolcrib.core.uris import shown
from toolcrib.sources.mcp.event_stream import Events
from toolcrib.sources.mcp.oauth.credentials import Credentials, NoCredentials, is_challenge, wants_sign_in
from toolcrib.sources.mcp.refused_requests import NO_MESSAGE, OTHER_ID, Outcomes, Refusal, too_long
from toolcrib.sources.mcp.server_output import LastWords
from toolcrib.sources.mcp.server_spec import HttpServer
from toolcrib.sources.mcp.wire_messages import Garbled, received

TIMEOUT_S = 30.0
"""Seconds to wait for a connection, and for the server to accept what is sent."""

END_OF_SESSION_S = 2.0
"""Seconds to wait for a server to end our session. If it does not answer, it expires the session by itself."""

MAX_TOLD = 500
"""How many characters of an address that a server wrote are shown to its owner."""

MAX_REDIRECTS = 5

LONGEST_RETRY_S = 86_400.0
"""The maximum for a `Retry-After`, in seconds. A longer time is shortened to this."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
"""Standard phrases. The server's own phrase is not used, because a model would read it as ours."""

_LASTING = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 421, 426, 431, 451, 501, 505})
"""Statuses that the next request will get as well, unless the owner changes an address or a key."""

_PLAIN = frozenset({401, 403, 407, 429})
"""Statuses that say more than the error in their body, because servers put any code there."""

_BROKE_OFF = "closed the connection before it answered"

_REFUSAL = "toolcrib/refusal"
"""The extension of a response that we made because the request could not be sent."""


@dataclass(slots=True)
class Health:
    """What an HTTP transport has found out about its server."""

    forgotten: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server does not know our session any more, for example after a restart."""
    lost: bool = False
    """Whether the server was away or closed a connection. After that it may offer something different."""
    on_lost: Callable[[], None] | None = None
    """Called whenever that is found out."""

    def lose(self) -> None:
        self.lost = True
        if self.on_lost is not None:
            self.on_lost()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The protocol request that a POST carries."""

    id: RequestId
    method: str

    @classmethod
    async def by(cls, request: httpx2.Request) -> _Asked | None:
        """Read the request; None if the POST carries something else."""
        message = cast("Mapping[str, Any]", from_json(await request.aread()))
        return cls(message["id"], message["method"]) if "method" in message and "id" in message else None


_Came = dict[str, Any] | ErrorData | Refusal
"""A result, an error from the server itself, or the reason why there is neither."""


class HttpClient(httpx2.AsyncClient):
    """Talks to one server. A POST never raises: its failure goes to the task that waits for the answer.

    The SDK's transports end the whole connection with the first failed request, describe every status from 400 on in
    the same words, and read bodies of any length. They follow a redirect only where this class allows it: to the same
    origin, with the same method.
    """

    def __init__(
        self,
        server: HttpServer,
        said: LastWords,
        outcomes: Outcomes,
        health: Health,
        *,
        credentials: Credentials | None = None,
        answer_timeout_s: float,
        max_message_bytes: int,
    ) -> None:
        """`answer_timeout_s` is how long an answer may take, or a stream may be silent, in seconds.

        `credentials` are used unless `server` has a token of its own.
        """
        super().__init__(
            headers=dict(server.headers),
            timeout=httpx2.Timeout(TIMEOUT_S, read=answer_timeout_s),
            # `LimitedSource` limits the calls.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            max_redirects=MAX_REDIRECTS,
        )
        self._has_own_token = server.has_own_token
        self._credentials = None if server.has_own_token else credentials
        self._said = said
        self._outcomes = outcomes
        self._health = health
        self._answer_timeout_s = answer_timeout_s
        self._max_message_bytes = max_message_bytes
        self._answers_follow = server.transport != "sse"
        """Whether the answer to a POST comes in its response. Over SSE it comes on the stream that was opened first."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        if request.method == "POST":
            return await self._post(request, **options)
        if request.method == "DELETE":
            with anyio.move_on_after(END_OF_SESSION_S), suppress(NoCredentials):
                await (await self._authorized(request, **options)).aclose()
            return httpx2.Response(204, request=request)
        try:
            response = await self._authorized(request, **options)
        except NoCredentials as error:
            response = httpx2.Response(HTTPStatus.UNAUTHORIZED, extensions={_REFUSAL: error.refusal}, request=request)
        if not stream:
            await response.aread()
        if not _stays_within_origin(response):
            response.next_request = None
        if self._answers_follow and stream and _kind(response) == "text/event-stream":
            return self._sorted(response, None, math.inf)
        return response

    async def stream_refusal(self, response: httpx2.Response) -> Refusal | None:
        """Return why `response` to a GET is not a stream of events; None if it is one."""
        if response.has_redirect_location:
            return _redirected(response)
        if (refusal := response.extensions.get(_REFUSAL)) is not None:
            return cast("Refusal", refusal)
        if response.status_code >= 400:
            came = await self._refused(response, None)
            return came if isinstance(came, Refusal) else None
        return None if _kind(response) == "text/event-stream" else _other_kind(response)

    async def _post(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        asked = await _Asked.by(request)
        deadline = anyio.current_time() + self._answer_timeout_s
        came: httpx2.Response | _Came = Refusal(f"did not answer within {self._answer_timeout_s:g} s")
        with anyio.CancelScope(deadline=deadline):
            try:
                came = await self._taken(request, asked, **options)
            except httpx2.RequestError as error:
                came = self._failed(error)
            except NoCredentials as error:
                came = error.refusal
        if isinstance(came, httpx2.Response):
            return came
        if asked is not None:
            self._outcomes.put(asked.id, came)
        return httpx2.Response(202, request=request)  # the SDK need not read anything more

    async def _authorized(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request with the token of the sign-in, if there is one. Repeat it once if the server wants a new one.

        Raises:
            NoCredentials: the token cannot be read or renewed now. Nothing was sent.
        """
        if self._credentials is None:
            return await super().send(request, stream=True, **options)
        token = await self._credentials.token()
        response = await super().send(_with_token(request, token), stream=True, **options)
        try:
            other = await self._credentials.instead(token, response)
        except BaseException:
            await response.aclose()
            raise
        if other is None:
            return response
        await response.aclose()
        response = await super().send(_with_token(request, other), stream=True, **options)
        self._credentials.judge(other, response)
        return response

    async def _taken(self, request: httpx2.Request, asked: _Asked | None, **options: Any) -> httpx2.Response | _Came:
        response = await self._authorized(request, **options)
        try:
            came = await self._judged(response, asked)
        except BaseException:
            await response.aclose()
            raise
        goes_on = isinstance(came, httpx2.Response) and isinstance(came.stream, Events)
        if not goes_on:
            await response.aclose()
        return came

    async def _judged(self, response: httpx2.Response, asked: _Asked | None) -> httpx2.Response | _Came:
        """Return the response if the SDK is to read it; otherwise the answer in it, or why it has no answer."""
        if response.has_redirect_location:
            if not _stays_within_origin(response) or await self._body(response) is None:
                return _redirected(response)
            return _with(response, content=b"")
        if response.status_code >= 400:
            return await self._refused(response, asked)
        if asked is None or not self._answers_follow:
            return httpx2.Response(202, request=response.request)
        match _kind(response):
            case "text/event-stream":
                is_open = asked.method == "subscriptions/listen"
                until = math.inf if is_open else anyio.current_time() + self._answer_timeout_s
                return self._sorted(response, asked.id, until)
            case "application/json":
                body = await self._body(response)
                if body is None:
                    return too_long(self._max_message_bytes)
                came = await self._came(body, asked)
                # The SDK needs the headers of the answer to the handshake.
                return (
                    _with(response, content=body) if asked.method == "initialize" and isinstance(came, dict) else came
                )
            case _:
                return _other_kind(response)

    def _sorted(self, response: httpx2.Response, answers: RequestId | None, until: float) -> httpx2.Response:
        """Return `response` with its event stream in the form that the SDK is to read."""
        limit_bytes = self._max_message_bytes
        events = Events(response, self._outcomes, answers=answers, until=until, max_message_bytes=limit_bytes)
        return _with(response, stream=events)

    async def _came(self, body: bytes, asked: _Asked) -> _Came:
        """Return what `body` answers to the request."""
        for read in await received(body, self._max_message_bytes):
            if isinstance(read, Garbled):
                continue
            message = read.message
            if not isinstance(message, JSONRPCResponse | JSONRPCError):
                continue
            if message.id is not None and str(message.id) != str(asked.id):
                return OTHER_ID
            return message.result if isinstance(message, JSONRPCResponse) else message.error
        return NO_MESSAGE

    async def _refused(self, response: httpx2.Response, asked: _Asked | None) -> _Came:
        """Return what a status from 400 on means. An error of the protocol in the body is preferred if the status is
        vague."""
        status = response.status_code
        phrase = _PHRASES.get(status, "")
        self._said.append(f"HTTP {status} {phrase}\n".encode())
        # Source: MCP specification 2025-11-25, "Session Management": 404 to a session's id means that it is over.
        if status == HTTPStatus.NOT_FOUND and MCP_SESSION_ID in response.request.headers:
            self._health.forgotten.set()
        elif status >= 502:  # usually from a proxy that cannot reach the server
            self._health.lose()
        retry_after_s = _retry_after_s(response.headers)
        if asked is not None and _kind(response) == "application/json" and status not in _PLAIN and not retry_after_s:
            body = await self._body(response)
            came = NO_MESSAGE if body is None else await self._came(body, asked)
            if isinstance(came, ErrorData) and not isinstance(came.data, Refusal):
                return came
        again = "" if retry_after_s is None else f"; retry in {retry_after_s:g} s"
        what = f"answered HTTP {status} {phrase}".rstrip() + again
        # If the configuration has a token, that one is the problem, and not a missing sign-in.
        cannot_sign_in = self._credentials is None and not self._has_own_token
        is_wanted = wants_sign_in(response) or (cannot_sign_in and is_challenge(response))
        if is_wanted:
            what = "needs a sign-in" if status == HTTPStatus.UNAUTHORIZED else "needs a sign-in with more permissions"
        return Refusal(
            what,
            # A proxy may send 503 for a request that went through. A 503 with a time comes from the server itself.
            retryable=status == HTTPStatus.TOO_MANY_REQUESTS
            or (status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_s is not None),
            retry_after_s=retry_after_s,
            lasting=status in _LASTING,
            status=status,
            wants_sign_in=is_wanted,
            login=self._credentials.login if is_wanted and self._credentials is not None else "",
        )

    async def _body(self, response: httpx2.Response) -> bytes | None:
        """Return the decompressed body; None if it is longer than a message may be."""
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > self._max_message_bytes:
                return None
        return bytes(body)

    def _failed(self, error: httpx2.RequestError) -> Refusal:
        """Return why there is no response, or only a part of one. Callers do not read the texts of `error`."""
        diagnosis = f"{type(error).__name__}: {error}"
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
                self._health.lose()
                within = "" if isinstance(error, httpx2.ConnectError) else f" within {TIMEOUT_S:g} s"
                return Refusal(f"did not accept a connection{within}", diagnosis, retryable=True, unreached=True)
            case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol() | httpx2.ProxyError():
                what = "cannot be reached because of its address, its headers or a proxy"
                return Refusal(what, diagnosis, lasting=True, unreached=True)
            case httpx2.TimeoutException():
                return Refusal(f"did not answer within {self._answer_timeout_s:g} s", diagnosis)
            case httpx2.DecodingError():
                return Refusal("answered with a body that cannot be decompressed", diagnosis, ran=True)
            case _:
                self._health.lose()
                return Refusal(_BROKE_OFF, diagnosis)


def refusal_by_sdk(error: MCPError, max_message_bytes: int) -> Refusal | None:
    """Return the refusal that the SDK's transport reported in its own words after reading a stream, or None.

    The matched words are those of mcp 2.3.
    """
    match error.code:
        case code if code == CONNECTION_CLOSED and error.message.startswith("SSE stream failed: "):
            return too_long(max_message_bytes)
        case code if code == CONNECTION_CLOSED and error.message.startswith("SSE stream ended"):
            return Refusal(_BROKE_OFF)
        case code if code == PARSE_ERROR and error.message.startswith("Failed to parse "):
            return NO_MESSAGE
        case code if code == INVALID_REQUEST and error.message.startswith("Redirect to "):
            return Refusal("redirects too many times")
        case _:
            return None


def _other_kind(response: httpx2.Response) -> Refusal:
    named = f"`{_kind(response)[:80]}`" if _kind(response) else "nothing"
    return Refusal(f"answered with {named} instead of an MCP message (HTTP {response.status_code})")


def _with_token(request: httpx2.Request, token: str | None) -> httpx2.Request:
    """Return `request` with this token, and without any that it had before."""
    request.headers.pop("authorization", None)
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _with(
    response: httpx2.Response, *, content: bytes | None = None, stream: httpx2.AsyncByteStream | None = None
) -> httpx2.Response:
    """Return `response` with a decompressed body."""
    gone = {"content-encoding", "content-length", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in gone]
    unpacked = httpx2.Response(
        response.status_code, headers=headers, content=content, stream=stream, request=response.request
    )
    unpacked.next_request = response.next_request
    return unpacked


def _stays_within_origin(response: httpx2.Response) -> bool:
    """Return whether a redirect leads to the same origin, keeps the method, and adds no user name to the address."""
    to, sent = response.next_request, response.request
    return (
        to is not None
        and to.method == sent.method
        and (to.url.scheme, to.url.host, to.url.port) == (sent.url.scheme, sent.url.host, sent.url.port)
        and to.url.userinfo in (b"", sent.url.userinfo)
    )


def _redirected(response: httpx2.Response) -> Refusal:
    try:
        to = response.request.url.join(response.headers["location"])
    except httpx2.InvalidURL:
        to = None
    what = f"redirects to a different address (HTTP {response.status_code}), which Toolcrib does not follow"
    whole = (
        "" if to is None else f"It redirects to {shown(str(to))[:MAX_TOLD]}. If that is right, configure it as `url`."
    )
    return Refusal(what, whole, lasting=True, unreached=True)


def _retry_after_s(headers: httpx2.Headers) -> float | None:
    """Return `Retry-After` as seconds from now. The header holds a number of seconds or a date.

    Source: RFC 9110, section 10.2.3.
    """
    told = headers.get("retry-after", "").strip()
    if told.isascii() and told.isdecimal():
        return min(float(told), LONGEST_RETRY_S)
    # By the server's own clock, if it sends its date.
    at, now = _date(told), _date(headers.get("date", "")) or datetime.now(UTC)
    return None if at is None else min(max(0.0, (at - now).total_seconds()), LONGEST_RETRY_S)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
