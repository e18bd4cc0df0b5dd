"""All that is served over HTTP, as one application: which path leads where."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.config.auth import Auth
from toolcrib.core.errors import ToolcribError
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.tools import OPERATIONS
from toolcrib.surfaces.auth import Authenticator, InsufficientScope, Stays
from toolcrib.surfaces.http.admission import ROOT, Admission, NameCheck, above_path
from toolcrib.surfaces.http.bodies import json_response, problem_response
from toolcrib.surfaces.http.challenges import Challenges
from toolcrib.surfaces.http.health import health_routes
from toolcrib.surfaces.http.metrics import Metrics
from toolcrib.surfaces.http.names import Names
from toolcrib.surfaces.http.openapi import openapi
from toolcrib.surfaces.http.operations import PREFIX, OperationsApi
from toolcrib.surfaces.http.problems import INTERNAL, Refused
from toolcrib.surfaces.mcp_gateway.http import BUNDLE_PATH, PATH, BundleEndpoints, Endpoint
from toolcrib.surfaces.mcp_gateway.server import Gateway

logger = logging.getLogger(__name__)

METRICS_SCOPE = "metrics"
"""What it takes to read the metrics, where anybody is asked: they are about everybody."""

WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""Source: RFC 9728, section 3."""


def application(
    crib: Toolcrib,
    gateway: Gateway,
    bundles: BundleEndpoints,
    *,
    auth: Auth,
    names: Names,
    base: str,
    stays: Stays,
    metrics: Metrics,
    exposed: Sequence[str] = OPERATIONS,
) -> Starlette:
    """One application over `crib`, `gateway` and `bundles`, which are all entered for as long as it serves.

    `exposed` are the operations that the API has.

    `base` is where clients reach it, without a slash at its end. The authenticator of `stays` may go by other
    credentials later on; what else `auth` says is taken as it is now.
    """
    authenticator = stays.authenticator
    endpoint = Endpoint(gateway)
    challenges = Challenges(authenticator, _metadata_url(f"{base}{PATH}"))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with endpoint.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(stays.follow)
            yield
            tasks.cancel_scope.cancel()

    async def describe(_: Request) -> Response:
        return json_response(openapi(asks=authenticator.asks, url=base, operations=exposed))

    async def count(request: Request) -> Response:
        if authenticator.asks and METRICS_SCOPE not in request.state.principal.scopes:
            raise challenges.to(InsufficientScope((METRICS_SCOPE,)))
        body, media_type = metrics.page(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": media_type, "Cache-Control": "no-store"})

    app = Starlette(
        routes=[
            Route(PATH, endpoint),
            Route(BUNDLE_PATH, bundles),
            *OperationsApi(crib, gateway.opening, exposed).routes(),
            *health_routes(gateway.opening),
            *_metadata_routes(authenticator, base),
            Route(ROOT, partial(_say_what_this_is, exposed)),
            Route("/openapi.json", describe),
            Route("/metrics", count),
        ],
        middleware=[
            Middleware(NameCheck, names=names),
            *_for_pages(auth.allowed_origins),
            Middleware(Admission, stays=stays, challenges=challenges, refused=metrics.count_refused),
        ],
        exception_handlers=dict.fromkeys((Refused, ToolcribError, HTTPException, Exception), partial(_tell, exposed)),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


def _for_pages(origins: tuple[str, ...]) -> list[Middleware]:
    """What makes browsers let these pages read answers. Pages of this machine that nobody named may not."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "Retry-After"],
        )
    ]


def _metadata_url(resource: str) -> str:
    """Where the metadata of `resource` stands: the well-known path goes between its host and its path."""
    url = urlsplit(resource)
    return f"{url.scheme}://{url.netloc}{WELL_KNOWN}{url.path}"


def _metadata_routes(authenticator: Authenticator, base: str) -> list[Route]:
    """Who issues tokens for the MCP endpoint, and for the whole, below any path that a proxy puts before them."""

    def told(resource: str) -> Route:
        async def tell(_: Request) -> Response:
            if (issuer := authenticator.issuer) is None:
                raise HTTPException(HTTPStatus.NOT_FOUND)
            metadata: dict[str, object] = {
                "resource": resource,
                "authorization_servers": [issuer],
                "bearer_methods_supported": ["header"],
                "resource_name": "Toolcrib",
            }
            if authenticator.required_scopes:
                metadata["scopes_supported"] = authenticator.required_scopes
            response = json_response(metadata)
            response.headers["Access-Control-Allow-Origin"] = "*"  # it is public, and clients in browsers need it
            return response

        return Route(urlsplit(_metadata_url(resource)).path, tell)

    return [told(base), told(f"{base}{PATH}")]


def _offered(exposed: Sequence[str], request: Request) -> str:
    """Where what is, by the paths that the client of `request` uses: below where the application is mounted."""
    above = above_path(request)
    operations = ", ".join(f"POST {above}{PREFIX}{name}" for name in exposed)
    return f"MCP is at {above}{PATH}. Operations: {operations}."


async def _say_what_this_is(exposed: Sequence[str], request: Request) -> Response:
    """For somebody who opens the address in a browser."""
    message = "This is a Toolcrib gateway. It serves tools to programs, and has no page to look at."
    return problem_response(
        Refused(
            HTTPStatus.NOT_FOUND,
            message,
            hints=[_offered(exposed, request), f"GET {above_path(request)}/openapi.json describes the API."],
        )
    )


async def _tell(exposed: Sequence[str], request: Request, error: Exception) -> Response:
    """The answer to a request that failed. A fault of ours is for the log alone: its words may quote anything."""
    match error:
        case Refused() | ToolcribError():
            return problem_response(error)
        case HTTPException():  # no such path, or no such method there
            status = HTTPStatus(error.status_code)
            message = f"{request.method} {request.scope['path']}: {status.phrase}."
            return problem_response(Refused(status, message, hints=[_offered(exposed, request)], headers=error.headers))
        case _:
            # uvicorn logs it as well, but under a name of its own, which is shown only with `-v`.
            logger.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
            return problem_response(INTERNAL)
