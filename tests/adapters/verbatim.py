"""A server that answers every request with the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.testing.vendors.server import RequestRefused, VendorServer


class VerbatimServer(VendorServer):
    def __init__(self, body: bytes, media_type: str) -> None:
        super().__init__()
        self._body = body
        self._media_type = media_type

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def routes(self) -> Sequence[Route]:
        return [Route("/{path:path}", self._answer, methods=["POST"])]

    def error(self, refused: RequestRefused) -> bytes:
        return orjson.dumps({"error": {"message": refused.message}})

    async def _answer(self, request: Request) -> Response:
        await self.record(request)
        return Response(self._body, media_type=self._media_type)
