"""The gateway over streamable HTTP: stateless for clients of the newer era, with sessions for older ones."""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from toolcrib.config import Config
from toolcrib.core.client import SilentClient
from toolcrib.core.errors import InvalidConfig
from toolcrib.crib import Toolcrib
from toolcrib.sources.mcp.connection import stop_servers_quickly
from toolcrib.surfaces.mcp_gateway.server import Gateway

PATH = "/mcp"

GRACE_S = 10
"""How long calls in flight may go on after the gateway was told to stop, in seconds."""

BACKLOG = 2048

ANY_CLIENT = SilentClient({"elicitation": {"form": {}}, "roots": {}})
"""What servers are told of clients that come and go; which of them calls, and what it can, shows in each call."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Only loopback: anybody who reaches the gateway may call every tool behind it."""

    host: str
    port: int
    """0 takes a free one."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT`, `[IPV6]:PORT`, `:PORT` or `PORT`.

        Raises:
            InvalidConfig: no such form, or not an address of this machine alone.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        if not port.isdecimal() or int(port) > 65_535:
            raise InvalidConfig(f"`{text}` is no HOST:PORT")
        if host != "localhost" and not _is_loopback(host):
            raise InvalidConfig(
                f"`{host}` can be reached from other machines, and nobody is asked who they are; listen on 127.0.0.1",
                hints=["A reverse proxy that asks can stand in front."],
            )
        return cls(host, int(port))

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def url(self, port: int) -> str:
        """The endpoint's address, with the port that was taken."""
        return f"http://{self._bracketed}:{port}{PATH}"


async def serve_http(
    crib: Toolcrib, config: Config, address: Address, listening: Callable[[str], None], *, direct: bool = False
) -> None:
    """Serve until SIGINT or SIGTERM arrives; calls in flight may end, then every server that was started is stopped.

    `listening` is told the endpoint's address once it takes requests. `direct`: see `Gateway`.

    Raises:
        InvalidConfig: the address is taken.
    """
    stop_servers_quickly()
    crib.client = ANY_CLIENT
    gateway = Gateway(crib, config, direct=direct)
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        bound = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        # asyncio does it for sockets that were named TCP, which this one was not. Without it the second part of an
        # answer, its body, waits until the client has acknowledged the first: 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise InvalidConfig(f"{address.host}:{address.port}: {error.strerror}") from error
    app = gateway.server.streamable_http_app(streamable_http_path=PATH, transport_security=_security(address))
    server = _Uvicorn(
        uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE_S), gateway
    )
    with bound, anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with crib, gateway, anyio.create_task_group() as tasks:
            tasks.start_soon(crib.follow, config, gateway.reload)
            tasks.start_soon(server.stop_on, signals)
            listening(address.url(bound.getsockname()[1]))
            await server.serve(sockets=[bound])
            tasks.cancel_scope.cancel()


class _Uvicorn(uvicorn.Server):
    """uvicorn, which on its way out ends the streams that clients would otherwise keep open as long as they like."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.hang_up()
        await super().shutdown(sockets)


def _security(address: Address) -> TransportSecuritySettings:
    """Only requests that mean this machine, from pages of this machine: a page elsewhere must not reach the tools.

    Source: MCP 2026-07-28, "Transports", security warning on DNS rebinding.
    """
    hosts = ["127.0.0.1", "localhost", "[::1]", address.host]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{host}:*" for host in hosts] + hosts,
        allowed_origins=[f"{scheme}://{host}:*" for scheme in ("http", "https") for host in hosts],
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
