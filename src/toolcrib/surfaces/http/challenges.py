"""HTTP responses for refused requests, with challenges that tell a client how to get valid credentials."""

from __future__ import annotations

import math
from http import HTTPStatus

from toolcrib.surfaces.auth import (
    Authenticator,
    Busy,
    Ending,
    InsufficientScope,
    KeysUnavailable,
    Stopping,
    Unauthenticated,
)
from toolcrib.surfaces.http.problems import RefusedRequest


class Challenges:
    """Builds refusals with a `WWW-Authenticate` header.

    Source: RFC 6750, section 3; RFC 9728, section 5.1; MCP 2026-07-28, "Authorization", on `scope`.
    """

    def __init__(self, authenticator: Authenticator, metadata_url: str) -> None:
        """`metadata_url` is the address of the metadata that names the token issuer."""
        self._authenticator = authenticator
        self._metadata_url = metadata_url

    def to(self, refusal: Ending) -> RefusedRequest:
        """Return the response for this refusal."""
        match refusal:
            case Unauthenticated():
                # Source: RFC 6750, section 3.1: a client without credentials receives no error code.
                shown = refusal.reason != "missing"
                error = {"error": "invalid_token", "error_description": refusal.message} if shown else {}
                status, headers = HTTPStatus.UNAUTHORIZED, self._challenge(self._authenticator.required_scopes, **error)
            case InsufficientScope():
                error = {"error": "insufficient_scope", "error_description": refusal.message}
                status, headers = HTTPStatus.FORBIDDEN, self._challenge(refusal.needed, **error)
            case KeysUnavailable():
                status, headers = (
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    {"Retry-After": str(math.ceil(refusal.retry_after_s))},
                )
            case Busy():
                status = HTTPStatus.TOO_MANY_REQUESTS
                headers = {"Retry-After": str(math.ceil(refusal.retry_after_s))}
            case Stopping():
                status, headers = HTTPStatus.SERVICE_UNAVAILABLE, {}
        can_pass = isinstance(refusal, KeysUnavailable | Busy | Stopping)
        return RefusedRequest(status, refusal.message, retryable=can_pass, headers=headers)

    def _challenge(self, scopes: tuple[str, ...], **error: str) -> dict[str, str]:
        said = {"realm": "toolcrib", **error}
        if scopes:
            said["scope"] = " ".join(scopes)
        if self._authenticator.issuer is not None:
            said["resource_metadata"] = self._metadata_url
        return {"WWW-Authenticate": "Bearer " + ", ".join(f'{name}="{_quoted(value)}"' for name, value in said.items())}


def _quoted(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace("\\", "\\\\").replace('"', '\\"')
