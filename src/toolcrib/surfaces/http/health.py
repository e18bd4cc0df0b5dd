"""Health checks, for the programs that start and monitor the gateway."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.surfaces.http.bodies import json_response
from toolcrib.surfaces.mcp_gateway.opening import Opening


def health_routes(opening: Opening) -> list[Route]:
    """Return the routes `/health/live` and `/health/ready`. They need no token, so their responses name no source."""

    async def live(_: Request) -> Response:
        return json_response({"status": "live"})

    async def ready(_: Request) -> Response:
        if opening.is_ready:
            return json_response({"status": "ready"})
        return json_response({"status": "starting"}, status=HTTPStatus.SERVICE_UNAVAILABLE)

    return [Route("/health/live", live), Route("/health/ready", ready)]
