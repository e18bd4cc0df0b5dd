"""What fakes of model vendors share: scripts of turns, and a local server that plays one and records its requests."""

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
"""Why a model stopped: its answer is complete, it wants tools called, it ran out of tokens, it or a filter refused."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool the model calls. `arguments` is sent as written, also where it is no JSON; vendors' fakes make up ids.

    `offered` is false for a name that the model makes up: any other call must be of a tool that the request offers.
    """

    name: str
    arguments: str = "{}"
    offered: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn; `cached` and `cache_written` are parts of `input`, `reasoning` is a part of `output`."""

    input: int = 10
    output: int = 5
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model answers: `reasoning`, then `text` in the pieces it is streamed in, then `calls`, side by side.

    Without a `stop`, it stops for its calls where there are any, and is done where there are none.
    """

    text: str | tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    stop: Stop | None = None
    usage: Usage = Usage()
    reasoning: str | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.text if isinstance(self.text, tuple) else (self.text,)

    @property
    def stopped(self) -> Stop:
        return self.stop or ("calls" if self.calls else "done")


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer with an error's `status`, in the vendor's shape, with `headers` such as `retry-after`.

    `code` is what the vendor calls the error, where its status does not say it all.
    """

    status: int
    message: str = "Scripted failure."
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is lost after so many `events` of a streamed `turn`; of one not streamed, after half its bytes."""

    turn: Turn
    events: int


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer, not even its headers, until the client gives up or the server closes."""


Step = Turn | Failure | Cut | Silence


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it was on the wire: header names in lower case, `content` the `body` as JSON, None if it is none."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    content: Any = field(repr=False)


Script = Iterable[Step] | Callable[[Recorded], Step]
"""Each request's answer: one step after the other, or what a function says to the request."""


class Refused(Exception):
    """The vendor would not take this request; `status` and `code` as it would say them."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param


class VendorServer(ABC):
    """Serves a vendor's HTTP at a free port of the loopback, within `async with`, in the running event loop (asyncio).

    `requests` has all it was sent, in order, what it refused included. A request that the vendor would not take uses up
    no step of the script; where no step is left, requests are refused.
    """

    def __init__(self, script: Script = ()) -> None:
        self.requests: list[Recorded] = []
        self._next_step = script if callable(script) else _in_turn(iter(script))
        self._numbers = count(1)
        self._arrival = anyio.Event()
        app = Starlette(routes=self.routes(), exception_handlers={Refused: self._refuse, HTTPException: self._unserved})
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", ws="none")
        )
        self._url = ""

    @property
    def url(self) -> str:
        """Scheme, host and port, without a slash at the end."""
        return self._url

    async def requested(self, number: int) -> None:
        """Wait until so many requests have arrived."""
        while len(self.requests) < number:
            await self._arrival.wait()

    async def __aenter__(self) -> Self:
        bound = socket.create_server(("127.0.0.1", 0))
        self._url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        # Its `serve` would take the process's signals, and look only ten times a second whether to stop.
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
        """What is served. Each endpoint begins with `record`; what it raises as `Refused` is told to the client."""

    @abstractmethod
    def error(self, refused: Refused) -> bytes:
        """The body of an error, in the vendor's shape."""

    async def record(self, request: Request) -> Recorded:
        body = await request.body()
        recorded = Recorded(request.method, request.url.path, dict(request.headers), body, _json(body))
        self.requests.append(recorded)
        self._arrival.set()
        self._arrival = anyio.Event()
        return recorded

    def number(self) -> int:
        """The next number for an id, from 1 on: equal runs have equal ids."""
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
        """Answer with the script's next step: a turn as the server-sent `events` of it, or as the `whole` of it.

        `check` raises `Refused` for a turn that cannot answer this request.
        """
        step = self._next_step(recorded)
        if isinstance(step, Failure):
            return self.refusal(Refused(step.message, status=step.status, code=step.code), step.headers)
        if isinstance(step, Silence):
            return _Silent()
        turn = step.turn if isinstance(step, Cut) else step
        check(turn)
        if streamed:
            return _Streamed(list(events(turn)), step.events if isinstance(step, Cut) else None)
        return (_Halved if isinstance(step, Cut) else Response)(whole(turn), media_type="application/json")

    def refusal(self, refused: Refused, headers: Mapping[str, str] = _NO_HEADERS) -> Response:
        return Response(
            self.error(refused), status_code=refused.status, headers=dict(headers), media_type="application/json"
        )

    async def _unserved(self, request: Request, error: Exception) -> Response:
        recorded = await self.record(request)
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self.refusal(Refused(f"Invalid URL ({recorded.method} {recorded.path})", status=status))

    def _refuse(self, _: Request, refused: Exception) -> Response:
        if not isinstance(refused, Refused):
            raise refused
        return self.refusal(refused)


class _Streamed(Response):
    """Server-sent events; where the application returns with its body not ended, uvicorn closes the connection."""

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
    """Says how long it is, and then is only half as long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body)[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})


class _Silent(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


def sse(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One server-sent event, with its name where the vendor gives one."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


def _in_turn(steps: Iterator[Step]) -> Callable[[Recorded], Step]:
    def step(_: Recorded) -> Step:
        try:
            return next(steps)
        except StopIteration:
            raise Refused("The script has no step for this request.", code="script_ended") from None

    return step


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
