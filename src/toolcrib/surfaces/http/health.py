"""Whether the program lives, and whether it is ready: for whatever starts and watches it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.surfaces.http.bodies import json_response
from toolcrib.surfaces.mcp_gateway.opening import Opening


def health_routes(opening: Opening) -> list[Route]:
    """`/health/live` and `/health/ready`. They name no source: nobody is asked who they are."""

    async def live(_: Request) -> Response:
        return json_response({"status": "live"})

    async def ready(_: Request) -> Response:
        if opening.is_ready:
            return json_response({"status": "ready"})
        return json_response({"status": "starting"}, status=HTTPStatus.SERVICE_UNAVAILABLE)

    return [Route("/health/live", live), Route("/health/ready", ready)]
