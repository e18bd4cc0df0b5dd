"""The OpenAPI 3.1 document of the HTTP API, made from the schemas of the operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from toolcrib.operations.briefing import OperationTool, operation_tools
from toolcrib.operations.operation_table import OPERATION_TABLE, OPERATIONS, message_document
from toolcrib.surfaces.http.http_operations import BUNDLE
from toolcrib.surfaces.http.problems import MEDIA_TYPE, STATUSES
from toolcrib.version import VERSION

_BY_HTTP = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.MISDIRECTED_REQUEST,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Statuses that every operation may return before it runs, or because of an internal error."""

_RETRY_AFTER = {
    "Retry-After": {
        "description": "The number of seconds to wait before a retry.",
        "schema": {"type": "integer", "minimum": 0},
    }
}


def openapi(*, asks: bool, url: str, operations: Sequence[str] = OPERATIONS) -> dict[str, Any]:
    """Return the document of an API at `url` with these `operations`. `asks`: the API requires a bearer token."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolcrib",
            "version": VERSION,
            "description": "One catalog of tools: browse, search, expand, call.",
        },
        "servers": [{"url": url}],
        "paths": {
            **{f"/v1/{tool.name}": {"post": _operation(tool, asks=asks)} for tool in operation_tools(operations)},
            "/health/live": {"get": _health("Check whether the gateway is running", {})},
            "/health/ready": {
                "get": _health("Check whether the gateway is ready", {"503": "The gateway is starting."})
            },
        },
        "components": {"schemas": _components()},
    }
    if asks:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    return document


def _components() -> dict[str, Any]:
    """Return the schemas of all messages. Every request gets the additional key `bundle`."""
    messages = cast("dict[str, Any]", _moved(message_document()["$defs"]))
    for operation in OPERATIONS:
        properties = messages[OPERATION_TABLE[operation].request_name]["properties"]
        properties[BUNDLE] = {
            "type": ["string", "null"],
            "description": "The bundle that the request is limited to.",
        }
    return messages


def _moved(value: object) -> object:
    """Copy `value` with its references to `$defs` changed to `#/components/schemas`."""
    match value:
        case dict():
            return {key: _moved(each) for key, each in cast("dict[str, object]", value).items()}
        case str():
            return value.replace("#/$defs/", "#/components/schemas/") if value.startswith("#/$defs/") else value
        case list():
            return [_moved(each) for each in cast("list[object]", value)]
        case _:
            return value


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(tool: OperationTool, *, asks: bool) -> dict[str, Any]:
    statuses = {*_BY_HTTP, *STATUSES.values(), *([HTTPStatus.UNAUTHORIZED] if asks else [])}
    return {
        "operationId": tool.name,
        "summary": tool.description.partition(".")[0],
        "description": tool.description,
        "parameters": [
            {
                "name": "traceparent",
                "in": "header",
                "description": "W3C Trace Context: the trace that this request is part of.",
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {
            "required": bool(tool.input_schema.get("required")),
            "content": {"application/json": {"schema": _ref(OPERATION_TABLE[tool.name].request_name)}},
        },
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": _ref(OPERATION_TABLE[tool.name].response_name)}},
            },
            **{str(int(status)): _problem(status) for status in sorted(statuses)},
        },
    }


def _problem(status: HTTPStatus) -> dict[str, Any]:
    codes = [code for code, each in STATUSES.items() if each is status]
    problem: dict[str, Any] = {
        "description": ": ".join(filter(None, [status.phrase, ", ".join(codes)])) + ".",
        "content": {MEDIA_TYPE: {"schema": _ref("Problem")}},
    }
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        problem["headers"] = _RETRY_AFTER
    return problem


def _health(summary: str, more: Mapping[str, str]) -> dict[str, Any]:
    state: Mapping[str, Any] = {
        "application/json": {
            "schema": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
        }
    }
    told = {"200": "Yes.", **more}
    return {
        "summary": f"{summary}.",
        "security": [],
        "responses": {status: {"description": text, "content": state} for status, text in told.items()},
    }
