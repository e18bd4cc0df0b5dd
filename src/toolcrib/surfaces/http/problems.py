"""Errors as RFC 9457 problem details, and the HTTP status of each error code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from toolcrib.core.errors import ErrorCode, ToolcribError
from toolcrib.operations.next_actions import leading_within
from toolcrib.operations.operation_table import OPERATIONS

MEDIA_TYPE = "application/problem+json"

STATUSES: Mapping[ErrorCode, HTTPStatus] = {
    ErrorCode.UNKNOWN_PATH: HTTPStatus.NOT_FOUND,
    ErrorCode.NO_MATCH_IN_CATEGORY: HTTPStatus.NOT_FOUND,
    ErrorCode.TOOL_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.NOT_AUTHORIZED: HTTPStatus.FORBIDDEN,
    ErrorCode.APPROVAL_PENDING: HTTPStatus.FORBIDDEN,
    ErrorCode.NOT_EXPANDED: HTTPStatus.CONFLICT,
    ErrorCode.STALE_EXPANSION: HTTPStatus.CONFLICT,
    ErrorCode.INVALID_ARGUMENTS: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.INVALID_CURSOR: HTTPStatus.BAD_REQUEST,
    ErrorCode.RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorCode.CAPABILITY_MISSING: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.SOURCE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    # Not 401: the credentials of this request are right.
    ErrorCode.SIGN_IN_REQUIRED: HTTPStatus.FAILED_DEPENDENCY,
    ErrorCode.TOOL_FAILED: HTTPStatus.BAD_GATEWAY,
    ErrorCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.BUNDLE_INCOMPLETE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.INVALID_CONFIG: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.INVALID_TOOL: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.INVALID_PROMPT: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.PROVIDER_FAILED: HTTPStatus.BAD_GATEWAY,
    ErrorCode.BUDGET_EXCEEDED: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.INVALID_OUTPUT: HTTPStatus.BAD_GATEWAY,
}
"""The HTTP status of each error code."""


class RefusedRequest(Exception):
    """A request that HTTP refuses before an operation is performed."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        hints: Sequence[str] = (),
        retryable: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hints = tuple(hints)
        self.retryable = retryable
        self.headers = dict(headers or {})

    def to_wire(self) -> dict[str, Any]:
        """Return the problem details. `code` is the name of the status."""
        problem: dict[str, Any] = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.message,
            "code": self.status.name,
            "message": self.message,
        }
        if self.hints:
            problem["hints"] = list(self.hints)
        return {**problem, "retryable": self.retryable}


def problem_of(error: ToolcribError) -> tuple[HTTPStatus, dict[str, Any], dict[str, str]]:
    """Return the status, body and headers for `error`."""
    status = STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    wire: dict[str, Any] = leading_within(error, OPERATIONS).to_wire()["error"]
    problem = {
        "type": f"urn:toolcrib:error:{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": int(status),
        "detail": wire["message"],
        **wire,
    }
    wait_s = error.details.get("retry_after_s")
    headers = {"Retry-After": str(math.ceil(wait_s))} if isinstance(wait_s, int | float) else {}
    return status, problem, headers


INTERNAL = RefusedRequest(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. See the gateway's log.")
