"""Serves the crib of a program: over pipes, at an address, or as an ASGI application to mount."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from toolcrib.config import Config
from toolcrib.config.config_file import auth_of
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.operation_table import ALL, chosen
from toolcrib.surfaces.http import http_serving
from toolcrib.surfaces.http.accepted_hosts import Address, Names
from toolcrib.surfaces.mcp_gateway import stdio

_THIS_MACHINE = Address("127.0.0.1", 0)

_NOT_ENTERED = (
    "the lifespan of this application was not entered. An application that mounts it does not enter it; "
    "pass it on, as in Starlette(routes=[Mount('/tools', app)], lifespan=app.lifespan)"
)


async def serve_stdio(crib: Toolcrib, config: Config, operations: str | Sequence[str]) -> None:
    """Serve over standard input and output. See `Toolcrib.serve_stdio`."""
    _check(operations)
    await stdio.serve_stdio(crib, config, exposed=operations, follows=False, to_stderr=True)


async def serve_http(
    crib: Toolcrib,
    config: Config,
    address: str,
    operations: str | Sequence[str],
    *,
    auth: Mapping[str, Any] | None,
    listening: Callable[[str], None] | None,
) -> None:
    """Serve over HTTP. See `Toolcrib.serve_http`."""
    _check(operations)
    config = config if auth is None else replace(config, auth=auth_of(auth))
    told = listening or _say_nothing
    await http_serving.serve_http(crib, config, Address.parse(address), told, exposed=operations, follows=False)


class CribApp:
    """An ASGI application over a crib; see `Toolcrib.app`.

    It can be mounted, or served directly, for example by uvicorn.
    """

    def __init__(
        self,
        crib: Toolcrib,
        config: Config,
        operations: str | Sequence[str],
        *,
        auth: Mapping[str, Any] | None,
        url: str | None,
    ) -> None:
        _check(operations)
        asked = config.auth if auth is None else auth_of(auth)
        if url is not None:
            asked = replace(asked, public_url=auth_of({"public_url": url}).public_url)
        self._crib = crib
        self._config = replace(config, auth=asked)
        self._operations = operations
        self._alone = Starlette(lifespan=self.lifespan)
        self._app: Starlette | None = None
        """Set while the lifespan lasts."""

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncGenerator[None]:
        """Run the crib, and answer requests. The argument, the application with this lifespan, is ignored."""
        auth = self._config.auth
        service = http_serving.Service(
            self._crib,
            self._config,
            Names(_THIS_MACHINE, auth, in_app=True),
            auth.public_url or "http://localhost",
            exposed=self._operations,
            follows=False,
        )
        async with service, service.app.router.lifespan_context(service.app):
            self._app = service.app
            try:
                yield
            finally:
                self._app = None
                service.hang_up()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._alone(scope, receive, send)
        elif self._app is None:
            raise RuntimeError(_NOT_ENTERED)
        else:
            await self._app(scope, receive, send)


def _check(operations: str | Sequence[str]) -> None:
    if operations != ALL:
        chosen(operations)


def _say_nothing(url: str) -> None:
    """Ignore the address, for callers that already know it."""
