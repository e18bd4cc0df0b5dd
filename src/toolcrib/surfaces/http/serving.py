"""One process that serves all of it at one address, until a signal arrives."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Self, cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from toolcrib.config import Config
from toolcrib.core.client import SilentClient
from toolcrib.core.errors import InvalidConfig
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.tools import ALL, DEFAULT_SET, OPERATIONS, SETS, chosen
from toolcrib.sources.mcp.connection import stop_servers_quickly
from toolcrib.surfaces.auth import Authenticator, Stays
from toolcrib.surfaces.http.app import application
from toolcrib.surfaces.http.connections import Bounds, Connections
from toolcrib.surfaces.http.metrics import Metrics
from toolcrib.surfaces.http.names import Address, Names
from toolcrib.surfaces.mcp_gateway.http import PATH, BundleEndpoints
from toolcrib.surfaces.mcp_gateway.server import Gateway
from toolcrib.surfaces.mcp_gateway.stdio import signals_to_stop

GRACE_S = 10
"""How long calls in flight may go on after the gateway was told to stop, in seconds."""

LAST_WORDS_S = 1
"""How long the answers to what was cut off then may take to leave, in seconds."""

BACKLOG = 2048
"""Connections that may wait to be accepted."""

ACCEPTED_AT_ONCE = 64
"""So many of them are accepted before others have their turn."""

ANY_CLIENT = SilentClient({"elicitation": {"form": {}}, "roots": {}})
"""What servers are told of clients that come and go; which of them calls, and what it can, shows in each call."""


class Service:
    """A crib as an ASGI application, with all that stands behind it; entered once, for as long as it serves.

    The crib is entered with it, unless it is running already.
    """

    def __init__(
        self,
        crib: Toolcrib,
        config: Config,
        names: Names,
        base: str,
        *,
        exposed: str | Sequence[str] = DEFAULT_SET,
        audit_events_lost: Callable[[], int] = lambda: 0,
        requests_each: int | None = None,
        follows: bool = True,
    ) -> None:
        """`base` is where clients reach it. `requests_each`: how many one principal may have under way.

        `follows`: changes of the file of `config` are taken over; what is registered is in any case.
        """
        stop_servers_quickly()
        crib.client = ANY_CLIENT
        self._crib = crib
        self._config = config
        self._follows = follows
        self._stack = AsyncExitStack()
        self._gateway = Gateway(crib, config, exposed=exposed)
        self._bundles = BundleEndpoints(
            crib,
            lambda bundle: Gateway(crib, self._config, exposed=exposed, bundle=bundle, opening=self._gateway.opening),
        )
        self._authenticator = Authenticator(config.auth)
        self._metrics = Metrics(audit_events_lost)
        most = Bounds.of_this_process().requests_each if requests_each is None else requests_each
        self._stays = Stays(self._authenticator, most_each=most)
        self.app = application(
            crib,
            self._gateway,
            self._bundles,
            auth=config.auth,
            names=names,
            base=base,
            stays=self._stays,
            metrics=self._metrics,
            # A set is what a model is given; whoever names operations one by one wants no others to be there.
            exposed=OPERATIONS if exposed in (*SETS, ALL) else chosen(exposed),
        )

    @property
    def cut_off(self) -> Sequence[Callable[[], None]]:
        """What ends all that is under way, in this order."""
        return [self._crib.desk.runner.under_way.give_up, self._stays.end_all]

    def hang_up(self) -> None:
        """End the streams that clients would keep open."""
        self._gateway.hang_up()
        self._bundles.hang_up()
        self._stays.hang_up()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            recorders = self._crib.desk.recorders
            recorders.append(self._metrics.record)
            stack.callback(recorders.remove, self._metrics.record)
            if not self._crib.is_running:
                await stack.enter_async_context(self._crib)
            await stack.enter_async_context(self._gateway)
            await stack.enter_async_context(self._bundles)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            followed = self._config if self._follows else None
            tasks.start_soon(self._crib.follow, followed, self._reload, self._admit_by)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    def _admit_by(self, changed: Config) -> None:
        if self._follows:
            self._authenticator.take(changed.auth)

    def _reload(self, changed: Config) -> None:
        self._config = changed
        self._gateway.reload(changed)
        self._bundles.reload(changed)


async def serve_http(
    crib: Toolcrib,
    config: Config,
    address: Address,
    listening: Callable[[str], None],
    *,
    exposed: str | Sequence[str] = DEFAULT_SET,
    audit_events_lost: Callable[[], int] = lambda: 0,
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    bounds: Bounds | None = None,
    follows: bool = True,
) -> None:
    """Serve until SIGINT or SIGTERM arrives; calls in flight may end, then every server that was started is stopped.

    Cancelled, it stops without waiting for calls in flight. In a thread that is not the main one no signal arrives.

    `listening` is told the MCP endpoint's address once it takes requests. `exposed`: see `Gateway`.
    `audit_events_lost`: how many so far, for the metrics. `beside` is run once the sources are being started. `bounds`
    are those of connections; without them, what this process can have. `follows`: see `Service`.

    Raises:
        InvalidConfig: the address is taken, or others reach it and nobody is asked who they are.
    """
    address.check(config.auth)
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        bound = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        # asyncio does it for sockets that were named TCP, which this one was not. Without it the second part of an
        # answer, its body, waits until the client has acknowledged the first: 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise InvalidConfig(f"{address.host}:{address.port}: {error.strerror}") from error
    here = f"http://{address.written}:{bound.getsockname()[1]}"
    bounds = bounds or Bounds.of_this_process()
    service = Service(
        crib,
        config,
        Names(address, config.auth),
        config.auth.public_url or here,
        exposed=exposed,
        audit_events_lost=audit_events_lost,
        requests_each=bounds.requests_each,
        follows=follows,
    )
    server = HttpServer(service.app, Connections(bounds), service.hang_up, service.cut_off)
    with bound, signals_to_stop() as signals:
        async with service, anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop_on, signals)
            listening(f"{here}{PATH}")
            if beside is not None:
                tasks.start_soon(beside)
            await server.serve_to_the_end(bound)
            tasks.cancel_scope.cancel()


class HttpServer(uvicorn.Server):
    """uvicorn with bounded connections. When it stops, it first ends the streams that clients would keep open."""

    def __init__(
        self,
        app: ASGIApp,
        connections: Connections,
        hang_up: Callable[[], None],
        cut_off: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`hang_up` ends the streams. `cut_off` end what is under way when it has had its time; they are called one
        after the other, so that each finds only what the one before has not ended."""
        config = uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", connections),
            ws="none",  # nothing here speaks it, and such a connection would not be bounded
            backlog=ACCEPTED_AT_ONCE,
            log_config=None,
            access_log=False,
            server_header=False,
            # What is still there then is answered by uvicorn, in no form of ours.
            timeout_graceful_shutdown=GRACE_S + LAST_WORDS_S * (1 + len(cut_off)),
        )
        super().__init__(config)
        self._hang_up = hang_up
        self._cut_off = cut_off

    async def serve_to_the_end(self, bound: socket.socket) -> None:
        """`serve`, which is told to stop where its caller is cancelled.

        Cut off in the middle it would leave its streams and its lifespan open.
        """
        serving = asyncio.create_task(self.serve(sockets=[bound]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.should_exit = self.force_exit = True
            with anyio.CancelScope(shield=True):
                await serving
            raise

    async def stop_on(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Stop at the first signal; at the second, without waiting for calls in flight."""
        await anext(signals)
        self.should_exit = True
        await anext(signals)
        self.force_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Not here: uvicorn raises what it caught again, which would end the program before its servers are stopped."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(BACKLOG)  # asyncio takes one number for this and for how many it accepts in a row

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hang_up()
        cutting_off = asyncio.create_task(self._cut_off_late())
        await super().shutdown(sockets)
        cutting_off.cancel()
        if self.force_exit:  # uvicorn leaves the lifespan open then, and its end would be a traceback
            await self.lifespan.shutdown()

    async def _cut_off_late(self) -> None:
        await asyncio.sleep(GRACE_S)
        for cut_off in self._cut_off:
            cut_off()
            await asyncio.sleep(LAST_WORDS_S)
