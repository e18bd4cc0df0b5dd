"""Serves a crib over HTTP at one address, until a signal arrives."""

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
from toolcrib.operations.operation_table import ALL, DEFAULT_SET, OPERATIONS, SETS, chosen
from toolcrib.sources.mcp.connection import stop_servers_quickly
from toolcrib.surfaces.auth import Authenticator, Stays
from toolcrib.surfaces.http.accepted_hosts import Address, Names
from toolcrib.surfaces.http.http_app import application
from toolcrib.surfaces.http.http_connections import ConnectionLimits, Connections
from toolcrib.surfaces.http.metrics import Metrics
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.surfaces.mcp_gateway.stdio import signals_to_stop
from toolcrib.surfaces.mcp_gateway.streamable_http import PATH, BundleEndpoints

GRACE_S = 10
"""How long running calls may continue after the gateway was told to stop, in seconds."""

LAST_WORDS_S = 1
"""How long the responses of cut-off requests may then take to be sent, in seconds."""

BACKLOG = 2048
"""The maximum number of connections that wait to be accepted."""

ACCEPTED_AT_ONCE = 64
"""The number of connections that are accepted in a row before other tasks run."""

ANY_CLIENT = SilentClient({"elicitation": {"form": {}}, "roots": {}})
"""The capabilities that sources see at the handshake. Each call then carries the capabilities of its actual client."""


class Service:
    """A crib as an ASGI application. Enter it once, for as long as it serves.

    Entering it also enters the crib, unless the crib is running already.
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
        """`base` is the URL for clients. `requests_each` is the maximum number of concurrent requests per principal.

        `follows`: the gateway applies changes of the file of `config`. It always applies changes of registered items.
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
            lambda bundle: Gateway(crib, self._config, exposed=exposed, bundle=bundle, startup=self._gateway.startup),
        )
        self._authenticator = Authenticator(config.auth)
        self._metrics = Metrics(audit_events_lost)
        most = ConnectionLimits.of_this_process().requests_each if requests_each is None else requests_each
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
            # An operation set only concerns MCP clients. A caller who names single operations wants only those in the
            # API too.
            exposed=OPERATIONS if exposed in (*SETS, ALL) else chosen(exposed),
        )

    @property
    def cut_off(self) -> Sequence[Callable[[], None]]:
        """The functions that end all running requests, in the order in which to call them."""
        return [self._crib.dispatcher.runner.running.give_up, self._stays.end_all]

    def hang_up(self) -> None:
        """End the streams that clients would keep open."""
        self._gateway.hang_up()
        self._bundles.hang_up()
        self._stays.hang_up()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            recorders = self._crib.dispatcher.recorders
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
    alongside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    bounds: ConnectionLimits | None = None,
    follows: bool = True,
) -> None:
    """Serve until SIGINT or SIGTERM arrives. Then running calls get time to end, and all started servers are stopped.

    If the task is cancelled, it stops without waiting for running calls. Signals only arrive in the main thread.

    `listening` is called with the address of the MCP endpoint when the server accepts requests. `exposed`: see
    `Gateway`. `audit_events_lost` returns the number of lost audit events, for the metrics. `alongside` runs as a task
    next to the server. `bounds` limits connections; the default depends on what this process may open. `follows`: see
    `Service`.

    Raises:
        InvalidConfig: the address is in use, or other machines can reach it and there is no authentication.
    """
    address.check(config.auth)
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        bound = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        # asyncio sets this only for sockets that were created with the protocol number of TCP, unlike this one. Without
        # it, the body of a response waits until the client has acknowledged the head: 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise InvalidConfig(f"{address.host}:{address.port}: {error.strerror}") from error
    here = f"http://{address.written}:{bound.getsockname()[1]}"
    bounds = bounds or ConnectionLimits.of_this_process()
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
    server = BoundedServer(service.app, Connections(bounds), service.hang_up, service.cut_off)
    with bound, signals_to_stop() as signals:
        async with service, anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop_on, signals)
            listening(f"{here}{PATH}")
            if alongside is not None:
                tasks.start_soon(alongside)
            await server.serve_to_the_end(bound)
            tasks.cancel_scope.cancel()


class BoundedServer(uvicorn.Server):
    """uvicorn with bounded connections. When it stops, it first ends the streams that clients would keep open."""

    def __init__(
        self,
        app: ASGIApp,
        connections: Connections,
        hang_up: Callable[[], None],
        cut_off: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`hang_up` ends the streams that clients keep open.

        The functions in `cut_off` end running requests after the grace period. They are called one after the other, so
        each only meets the requests that the one before did not end.
        """
        config = uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", connections),
            ws="none",  # not used, and such connections would have no limits
            backlog=ACCEPTED_AT_ONCE,
            log_config=None,
            access_log=False,
            server_header=False,
            # Requests that still run after this time are answered by uvicorn, without problem details.
            timeout_graceful_shutdown=GRACE_S + LAST_WORDS_S * (1 + len(cut_off)),
        )
        super().__init__(config)
        self._hang_up = hang_up
        self._cut_off = cut_off

    async def serve_to_the_end(self, bound: socket.socket) -> None:
        """Run `serve`. If the caller is cancelled, tell the server to stop, and wait for it.

        Cancelling `serve` itself would leave its streams and its lifespan open.
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
        """Stop at the first signal. At the second signal, stop without waiting for running calls."""
        await anext(signals)
        self.should_exit = True
        await anext(signals)
        self.force_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone. uvicorn would raise them again, and the program would end before its servers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(BACKLOG)  # asyncio uses `backlog` also as the number to accept in a row

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hang_up()
        cutting_off = asyncio.create_task(self._cut_off_late())
        await super().shutdown(sockets)
        cutting_off.cancel()
        if self.force_exit:  # uvicorn then skips this, and the open lifespan would end in a traceback
            await self.lifespan.shutdown()

    async def _cut_off_late(self) -> None:
        await asyncio.sleep(GRACE_S)
        for cut_off in self._cut_off:
            cut_off()
            await asyncio.sleep(LAST_WORDS_S)
