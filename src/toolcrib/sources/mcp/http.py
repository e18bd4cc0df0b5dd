"""A server's address as a transport: what keeps one request from its answer refuses that request, and no other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
from toolcrib.sources.mcp.events import Events
from toolcrib.sources.mcp.last_words import LastWords
from toolcrib.sources.mcp.messages import Garbled, received
from toolcrib.sources.mcp.refusals import NO_MESSAGE, OTHER_ID, Outcomes, Refusal, too_long
from toolcrib.sources.mcp.server import HttpServer

TIMEOUT_S = 30.0
"""For a connection, and for what is sent to be taken."""

END_OF_SESSION_S = 2.0
"""For a server to hear that we need its session no more; one that does not answer is left to forget it by itself."""

MAX_TOLD = 500
"""How many characters its owner is told of an address that a server wrote."""

MAX_REDIRECTS = 5

LONGEST_RETRY_S = 86_400.0
"""Whoever is told to come back later than this is told to come back then."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
"""Not the server's own, which a model would read as ours."""

_LASTING = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 421, 426, 431, 451, 501, 505})
"""Statuses that the next request gets as well, unless its owner changes an address or a key."""

_PLAIN = frozenset({401, 403, 407, 429})
"""Statuses that say more than an error in their body, for which servers take any code."""

_BROKE_OFF = "broke off before it had answered"


@dataclass(slots=True)
class Health:
    """What a transport over HTTP has found out of its server."""

    forgotten: anyio.Event = field(default_factory=anyio.Event)
    """Set when it has said that it does not know our session, as after a restart."""
    lost: bool = False
    """Whether it was away or broke off: who is there next need not offer what it offered."""
    on_lost: Callable[[], None] | None = None
    """Called whenever that is found out."""

    def lose(self) -> None:
        self.lost = True
        if self.on_lost is not None:
            self.on_lost()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request of the protocol that a POST carries."""

    id: RequestId
    method: str

    @classmethod
    async def by(cls, request: httpx2.Request) -> _Asked | None:
        """None where it carries something else."""
        message = cast("Mapping[str, Any]", from_json(await request.aread()))
        return cls(message["id"], message["method"]) if "method" in message and "id" in message else None


_Came = dict[str, Any] | ErrorData | Refusal
"""A result, an error of the server's own, or why there is neither."""


class HttpClient(httpx2.AsyncClient):
    """Talks to one server. A POST never raises: what goes wrong with it is told to whoever waits for its answer.

    The SDK's transports end the whole connection with the first request that fails, tell every status from 400 on in
    the same words, and read bodies of any length. They follow redirects only where we let them: to the same origin,
    with the same method.
    """

    def __init__(
        self,
        server: HttpServer,
        said: LastWords,
        outcomes: Outcomes,
        health: Health,
        *,
        answer_timeout_s: float,
        max_message_bytes: int,
    ) -> None:
        """`answer_timeout_s` is how long an answer may take, in seconds, or a stream be silent."""
        super().__init__(
            headers=dict(server.headers),
            timeout=httpx2.Timeout(TIMEOUT_S, read=answer_timeout_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),  # calls are bounded elsewhere
            max_redirects=MAX_REDIRECTS,
        )
        self._has_token = any(name.lower() == "authorization" for name in server.headers)
        self._said = said
        self._outcomes = outcomes
        self._health = health
        self._answer_timeout_s = answer_timeout_s
        self._max_message_bytes = max_message_bytes
        self._answers_follow = server.transport != "sse"
        """Whether the answer to a POST comes as its response; over SSE it comes on the stream that was opened first."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        if request.method == "POST":
            return await self._post(request, **options)
        if request.method == "DELETE":
            with anyio.move_on_after(END_OF_SESSION_S):
                await (await super().send(request, stream=True, **options)).aclose()
            return httpx2.Response(204, request=request)
        response = await super().send(request, stream=stream, **options)
        if not _stays_within_origin(response):
            response.next_request = None
        if self._answers_follow and stream and _kind(response) == "text/event-stream":
            return self._sorted(response, None, math.inf)
        return response

    async def stream_refusal(self, response: httpx2.Response) -> Refusal | None:
        """Why `response` to a GET is no stream of events; None if it is one."""
        if response.has_redirect_location:
            return _redirected(response)
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
        if isinstance(came, httpx2.Response):
            return came
        if asked is not None:
            self._outcomes.put(asked.id, came)
        return httpx2.Response(202, request=request)  # for the SDK there is nothing more to come

    async def _taken(self, request: httpx2.Request, asked: _Asked | None, **options: Any) -> httpx2.Response | _Came:
        response = await super().send(request, stream=True, **options)
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
        """The response, where it is the SDK that reads it; else the answer in it, or why there is none."""
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
                # The answer to the handshake comes with headers that the SDK needs.
                return (
                    _with(response, content=body) if asked.method == "initialize" and isinstance(came, dict) else came
                )
            case _:
                return _other_kind(response)

    def _sorted(self, response: httpx2.Response, answers: RequestId | None, until: float) -> httpx2.Response:
        """The stream of events of `response`, as the SDK is to read it."""
        limit_bytes = self._max_message_bytes
        events = Events(response, self._outcomes, answers=answers, until=until, max_message_bytes=limit_bytes)
        return _with(response, stream=events)

    async def _came(self, body: bytes, asked: _Asked) -> _Came:
        """What `body` says to what was asked."""
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
        """What a status from 400 on means; where that leaves it open, an error of the protocol in its body does not."""
        status = response.status_code
        phrase = _PHRASES.get(status, "")
        self._said.append(f"HTTP {status} {phrase}\n".encode())
        # Source: MCP specification 2025-11-25, "Session Management": 404 to a session's id means that it is over.
        if status == HTTPStatus.NOT_FOUND and MCP_SESSION_ID in response.request.headers:
            self._health.forgotten.set()
        elif status >= 502:
            self._health.lose()
        retry_after_s = _retry_after_s(response.headers)
        if asked is not None and _kind(response) == "application/json" and status not in _PLAIN and not retry_after_s:
            body = await self._body(response)
            came = NO_MESSAGE if body is None else await self._came(body, asked)
            if isinstance(came, ErrorData) and not isinstance(came.data, Refusal):
                return came
        again = "" if retry_after_s is None else f"; it may be asked again in {retry_after_s:g} s"
        # Source: RFC 9728, section 5.1. With credentials of its own, they are what is wrong.
        challenge = response.headers.get("www-authenticate", "").lower()
        wants_sign_in = status == HTTPStatus.UNAUTHORIZED and "resource_metadata" in challenge and not self._has_token
        what = f"refused with HTTP {status} {phrase}".rstrip() + again
        return Refusal(
            "needs a sign-in (OAuth), which Toolcrib cannot do yet (HTTP 401)" if wants_sign_in else what,
            # A 503 of a proxy may be the end of a request that went through; one that names a time is the server's own.
            retryable=status == HTTPStatus.TOO_MANY_REQUESTS
            or (status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_s is not None),
            retry_after_s=retry_after_s,
            lasting=status in _LASTING,
            status=status,
            wants_sign_in=wants_sign_in,
        )

    async def _body(self, response: httpx2.Response) -> bytes | None:
        """The body, unpacked; None where it is longer than a message may be."""
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > self._max_message_bytes:
                return None
        return bytes(body)

    def _failed(self, error: httpx2.RequestError) -> Refusal:
        """Why there is no response, or only half of one. Callers read none of the texts of `error`."""
        diagnosis = f"{type(error).__name__}: {error}"
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
                self._health.lose()
                within = "" if isinstance(error, httpx2.ConnectError) else f" within {TIMEOUT_S:g} s"
                return Refusal(f"gave no connection{within}", diagnosis, retryable=True, unreached=True)
            case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol() | httpx2.ProxyError():
                what = "cannot be asked: its address, its headers or a proxy does not allow it"
                return Refusal(what, diagnosis, lasting=True, unreached=True)
            case httpx2.TimeoutException():
                return Refusal(f"did not answer within {self._answer_timeout_s:g} s", diagnosis)
            case httpx2.DecodingError():
                return Refusal("answered with a body that cannot be unpacked", diagnosis, ran=True)
            case _:
                self._health.lose()
                return Refusal(_BROKE_OFF, diagnosis)


def refusal_by_sdk(error: MCPError, max_message_bytes: int) -> Refusal | None:
    """The refusal that the SDK's transport put into its own words, where it read a stream; None where it did not.

    Its words are of mcp 2.3.
    """
    match error.code:
        case code if code == CONNECTION_CLOSED and error.message.startswith("SSE stream failed: "):
            return too_long(max_message_bytes)
        case code if code == CONNECTION_CLOSED and error.message.startswith("SSE stream ended"):
            return Refusal(_BROKE_OFF)
        case code if code == PARSE_ERROR and error.message.startswith("Failed to parse "):
            return NO_MESSAGE
        case code if code == INVALID_REQUEST and error.message.startswith("Redirect to "):
            return Refusal("redirects over and over")
        case _:
            return None


def _other_kind(response: httpx2.Response) -> Refusal:
    named = f"`{_kind(response)[:80]}`" if _kind(response) else "nothing"
    return Refusal(f"answered with {named} instead of a message of the protocol (HTTP {response.status_code})")


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _with(
    response: httpx2.Response, *, content: bytes | None = None, stream: httpx2.AsyncByteStream | None = None
) -> httpx2.Response:
    """`response` with a body that is unpacked."""
    gone = {"content-encoding", "content-length", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in gone]
    unpacked = httpx2.Response(
        response.status_code, headers=headers, content=content, stream=stream, request=response.request
    )
    unpacked.next_request = response.next_request
    return unpacked


def _stays_within_origin(response: httpx2.Response) -> bool:
    """Whether a redirect leads to the same origin, keeps the method, and brings no name of its own into the address."""
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
    what = f"redirects to another place (HTTP {response.status_code}), where nothing is sent"
    whole = "" if to is None else f"It redirects to {shown(str(to))[:MAX_TOLD]}; configure that address if it is right."
    return Refusal(what, whole, lasting=True, unreached=True)


def _retry_after_s(headers: httpx2.Headers) -> float | None:
    """What `Retry-After` says, as seconds from now: it may be a number of them, or a date.

    Source: RFC 9110, section 10.2.3.
    """
    told = headers.get("retry-after", "").strip()
    if told.isascii() and told.isdecimal():
        return min(float(told), LONGEST_RETRY_S)
    at, now = _date(told), _date(headers.get("date", "")) or datetime.now(UTC)  # by its own clock, where it shows it
    return None if at is None else min(max(0.0, (at - now).total_seconds()), LONGEST_RETRY_S)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
