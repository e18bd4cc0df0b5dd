"""JSON bodies of HTTP requests and responses, with size limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from toolcrib.core.errors import ToolcribError
from toolcrib.core.threads import KeyedLocks
from toolcrib.sources.aside import aside
from toolcrib.sources.mcp.pieces import read_pieces
from toolcrib.surfaces.http.problems import MEDIA_TYPE, RefusedRequest, problem_of

MAX_BYTES = 4 * 1024 * 1024
"""The maximum length of a request body, in bytes. The MCP endpoint has the same limit."""

SHORT_BYTES = 131_072
"""Longer bodies are parsed in a thread, so that they do not block other requests."""


async def read_object(request: Request) -> Mapping[str, Any]:
    """Read the JSON object in the body of `request`. An empty body counts as an empty object.

    Raises:
        Refused: the body is not a JSON object, is too large, or has a different content type.
        ClientDisconnect: the client disconnected before the body was complete.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BYTES:
        raise _too_large()
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise _too_large()
    if not body:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedRequest(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "The request body must be JSON without a content encoding.",
            hints=["Send `Content-Type: application/json`."],
            headers={"Accept-Post": "application/json"},
        )
    try:
        value = await _read(bytes(body), request.state.principal.id)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, f"The body is not JSON: {error.msg} at {where}.") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, NaN, a huge number, or nested too deeply
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, "The body is not valid JSON.") from error
    if not isinstance(value, dict):
        raise RefusedRequest(
            HTTPStatus.BAD_REQUEST, "The body must be a JSON object with the arguments of the operation."
        )
    return cast("Mapping[str, Any]", value)


async def _read(body: bytes, principal: str) -> Any:
    if len(body) <= SHORT_BYTES:
        return _DECODER.decode(body.decode())
    async with _parsing.of(principal):
        return await aside(partial(_read_long, body))


_parsing = KeyedLocks()
"""The lock that lets a principal parse one long body at a time, so that others get a thread."""


def _read_long(body: bytes) -> Any:
    body.decode()  # raises if it is not UTF-8; takes a few milliseconds
    return read_pieces(body, _DECODER)


def json_response(value: object, *, status: int = HTTPStatus.OK, media_type: str = "application/json") -> Response:
    """Return `value` as a JSON response that must not be cached."""
    return Response(_written(value), status, {"Cache-Control": "no-store"}, media_type)


def problem_response(error: RefusedRequest | ToolcribError) -> Response:
    """Return `error` as problem details."""
    if isinstance(error, RefusedRequest):
        status, problem, headers = error.status, error.to_wire(), error.headers
    else:
        status, problem, headers = problem_of(error)
    response = json_response(problem, status=status, media_type=MEDIA_TYPE)
    response.headers.update(headers)
    return response


def _written(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a source may send integers beyond 64 bits or lone surrogates
        return json.dumps(value, separators=(",", ":"), default=str).encode()


def _too_large() -> RefusedRequest:
    return RefusedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is longer than {MAX_BYTES} bytes.")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
