"""The ASGI application of the HTTP surface, with all its routes, health checks among them."""

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

from toolcrib.config.access_settings import Auth
from toolcrib.core.errors import ToolcribError
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.operation_table import OPERATIONS
from toolcrib.surfaces.auth import Authenticator, InsufficientScope, Stays
from toolcrib.surfaces.http.accepted_hosts import Names
from toolcrib.surfaces.http.admission import ROOT, Admission, NameCheck, above_path
from toolcrib.surfaces.http.bodies import json_response, problem_response
from toolcrib.surfaces.http.challenges import Challenges
from toolcrib.surfaces.http.http_operations import PREFIX, OperationsApi
from toolcrib.surfaces.http.metrics import Metrics
from toolcrib.surfaces.http.openapi import openapi
from toolcrib.surfaces.http.problems import INTERNAL, RefusedRequest
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait
from toolcrib.surfaces.mcp_gateway.streamable_http import BUNDLE_PATH, PATH, BundleEndpoints, Endpoint

logger = logging.getLogger(__name__)

METRICS_SCOPE = "metrics"
"""The scope that a token needs to read the metrics, because the metrics cover all principals."""

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
    """Build the application over `crib`, `gateway` and `bundles`, which must be entered while it serves.

    `exposed` lists the operations of the HTTP API. `base` is the URL under which clients reach the application, without
    a trailing slash. The authenticator of `stays` may switch to other credentials later. All other settings of `auth`
    are fixed.
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
            *OperationsApi(crib, gateway.startup, exposed).routes(),
            *health_routes(gateway.startup),
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
        exception_handlers=dict.fromkeys(
            (RefusedRequest, ToolcribError, HTTPException, Exception), partial(_tell, exposed)
        ),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


def _for_pages(origins: tuple[str, ...]) -> list[Middleware]:
    """Return the CORS middleware for these origins. Local pages that are not listed cannot read responses."""
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
    """Return the URL of the metadata of `resource`: the well-known path goes between the host and the path."""
    url = urlsplit(resource)
    return f"{url.scheme}://{url.netloc}{WELL_KNOWN}{url.path}"


def _metadata_routes(authenticator: Authenticator, base: str) -> list[Route]:
    """Return the routes that name the token issuer, one for the MCP endpoint and one for the whole gateway."""

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
            response.headers["Access-Control-Allow-Origin"] = "*"  # public data, which clients in browsers need
            return response

        return Route(urlsplit(_metadata_url(resource)).path, tell)

    return [told(base), told(f"{base}{PATH}")]


def _offered(exposed: Sequence[str], request: Request) -> str:
    """List the endpoints, with their paths as the client of `request` sees them."""
    above = above_path(request)
    operations = ", ".join(f"POST {above}{PREFIX}{name}" for name in exposed)
    return f"MCP is at {above}{PATH}. Operations: {operations}."


async def _say_what_this_is(exposed: Sequence[str], request: Request) -> Response:
    """Answer a person who opens the address in a browser."""
    message = "This is a Toolcrib gateway. It serves tools to programs and has no web pages."
    return problem_response(
        RefusedRequest(
            HTTPStatus.NOT_FOUND,
            message,
            hints=[_offered(exposed, request), f"GET {above_path(request)}/openapi.json describes the API."],
        )
    )


async def _tell(exposed: Sequence[str], request: Request, error: Exception) -> Response:
    """Answer a failed request. Internal errors go only to the log, because their text may contain anything."""
    match error:
        case RefusedRequest() | ToolcribError():
            return problem_response(error)
        case HTTPException():  # unknown path or method
            status = HTTPStatus(error.status_code)
            message = f"{request.method} {request.scope['path']}: {status.phrase}."
            return problem_response(
                RefusedRequest(status, message, hints=[_offered(exposed, request)], headers=error.headers)
            )
        case _:
            # uvicorn also logs it, but to its own logger, which is shown only with `-v`.
            logger.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
            return problem_response(INTERNAL)


def health_routes(startup: StartupWait) -> list[Route]:
    """Return the routes `/health/live` and `/health/ready`. They need no token, so their responses name no source."""

    async def live(_: Request) -> Response:
        return json_response({"status": "live"})

    async def ready(_: Request) -> Response:
        if startup.is_ready:
            return json_response({"status": "ready"})
        return json_response({"status": "starting"}, status=HTTPStatus.SERVICE_UNAVAILABLE)

    return [Route("/health/live", live), Route("/health/ready", ready)]
