"""The common parts of fake model vendors: scripts of turns, and a local server that plays one and records requests."""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.lowlevel
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

Stop = Literal["done", "calls", "length", "refused"]
"""Why a model stopped: the answer is complete, it calls tools, it ran out of tokens, or it or a filter refused."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model. `arguments` is sent unchanged, even if it is not JSON. The fakes create the ids.

    Set `offered` to False for a name that the model invents. Any other call must use a tool that the request offers.
    """

    name: str
    arguments: str = "{}"
    offered: bool = True


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens of one turn. `cached` and `cache_written` are parts of `input`; `reasoning` is a part of `output`."""

    input: int = 10
    output: int = 5
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model: `reasoning`, then `text` in the pieces in which it is streamed, then parallel `calls`.

    Without `stop`, a turn with calls stops for its calls, and any other turn is done.
    """

    text: str | tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    stop: Stop | None = None
    usage: TokenUsage = TokenUsage()
    reasoning: str | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.text if isinstance(self.text, tuple) else (self.text,)

    @property
    def stopped(self) -> Stop:
        return self.stop or ("calls" if self.calls else "done")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error response in the vendor's form, with `headers` such as `retry-after`.

    `code` is the vendor's code for the error, if the status is not specific enough.
    """

    status: int
    message: str = "Scripted failure."
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is lost after this many `events` of a streamed `turn`, or after half the bytes of any other."""

    turn: Turn
    events: int


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer, not even headers, until the client disconnects or the server closes."""


Step = Turn | Failure | Cut | Silence


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it was on the wire, with header names in lower case. `content` is the parsed `body`, or None."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    content: Any = field(repr=False)


Script = Iterable[Step] | Callable[[Recorded], Step]
"""The answers: one step after the other, or a function of the request."""


class RequestRefused(Exception):
    """The vendor would refuse this request, with this `status` and `code`."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param


class VendorServer(ABC):
    """Serves a vendor's HTTP API at a free loopback port, within `async with`, in the running asyncio event loop.

    `requests` contains all requests in order, including refused ones. A refused request uses up no step of the script.
    When no step is left, requests are refused.
    """

    def __init__(self, script: Script = ()) -> None:
        self.requests: list[Recorded] = []
        self._next_step = script if callable(script) else _in_turn(iter(script))
        self._numbers = count(1)
        self._arrival = anyio.Event()
        app = Starlette(
            routes=self.routes(), exception_handlers={RequestRefused: self._refuse, HTTPException: self._unserved}
        )
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", ws="none")
        )
        self._url = ""

    @property
    def url(self) -> str:
        """The scheme, host and port, without a trailing slash."""
        return self._url

    async def requested(self, number: int) -> None:
        """Wait until this many requests have arrived."""
        while len(self.requests) < number:
            await self._arrival.wait()

    async def __aenter__(self) -> Self:
        bound = socket.create_server(("127.0.0.1", 0))
        self._url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        # uvicorn's `serve` would take over the process's signals, and check only ten times a second whether to stop.
        await self._server.startup(sockets=[bound])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for listener in self._server.servers:
            listener.close()
        state = self._server.server_state
        with anyio.CancelScope(shield=True):
            while state.connections or state.tasks:
                for connection in list(state.connections):
                    connection.transport.abort()
                await anyio.lowlevel.checkpoint()

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes.

        Each endpoint begins with `record`. A `RequestRefused` that it raises becomes an error response.
        """

    @abstractmethod
    def error(self, refused: RequestRefused) -> bytes:
        """Return the body of an error in the vendor's form."""

    async def record(self, request: Request) -> Recorded:
        body = await request.body()
        recorded = Recorded(request.method, request.url.path, dict(request.headers), body, _json(body))
        self.requests.append(recorded)
        self._arrival.set()
        self._arrival = anyio.Event()
        return recorded

    def number(self) -> int:
        """Return the next number for an id, starting at 1. Equal runs have equal ids."""
        return next(self._numbers)

    async def play(
        self,
        recorded: Recorded,
        *,
        check: Callable[[Turn], None],
        events: Callable[[Turn], Iterable[bytes]],
        whole: Callable[[Turn], bytes],
        streamed: bool,
    ) -> Response:
        """Answer with the script's next step. A turn is sent as server-sent `events`, or in one piece as `whole`.

        `check` raises `RequestRefused` for a turn that cannot answer this request.
        """
        step = self._next_step(recorded)
        if isinstance(step, Failure):
            return self.refusal(RequestRefused(step.message, status=step.status, code=step.code), step.headers)
        if isinstance(step, Silence):
            return _Silent()
        turn = step.turn if isinstance(step, Cut) else step
        check(turn)
        if streamed:
            return _Streamed(list(events(turn)), step.events if isinstance(step, Cut) else None)
        return (_Halved if isinstance(step, Cut) else Response)(whole(turn), media_type="application/json")

    def refusal(self, refused: RequestRefused, headers: Mapping[str, str] = _NO_HEADERS) -> Response:
        return Response(
            self.error(refused), status_code=refused.status, headers=dict(headers), media_type="application/json"
        )

    async def _unserved(self, request: Request, error: Exception) -> Response:
        recorded = await self.record(request)
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self.refusal(RequestRefused(f"Invalid URL ({recorded.method} {recorded.path})", status=status))

    def _refuse(self, _: Request, refused: Exception) -> Response:
        if not isinstance(refused, RequestRefused):
            raise refused
        return self.refusal(refused)


class _Streamed(Response):
    """Server-sent events. If the application returns before the body has ended, uvicorn closes the connection."""

    def __init__(self, events: Sequence[bytes], cut_after: int | None) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._events = events
        self._cut_after = cut_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for event in self._events[: self._cut_after]:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        if self._cut_after is None:
            await send({"type": "http.response.body", "body": b""})


class _Halved(Response):
    """A response that is only half as long as its headers say."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body)[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})


class _Silent(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


def sse(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return one server-sent event, with a name if the vendor uses names."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


def _in_turn(steps: Iterator[Step]) -> Callable[[Recorded], Step]:
    def step(_: Recorded) -> Step:
        try:
            return next(steps)
        except StopIteration:
            raise RequestRefused("The script has no step for this request.", code="script_ended") from None

    return step


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
