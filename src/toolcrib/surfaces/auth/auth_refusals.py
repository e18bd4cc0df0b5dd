"""The reasons for refusing a request, with messages that may be sent to the client."""

from __future__ import annotations

from typing import Literal, TypeAlias

Reason: TypeAlias = Literal["missing", "malformed", "unknown", "expired", "claims", "scope", "keys", "busy"]
"""The category of a refusal, for metrics.

`missing`: the request has no credentials. `malformed`: the request does not have exactly one readable bearer token.
`unknown`: the token is not configured, and the issuer did not sign it. `expired`: the token expired. `claims`: the
token is signed, but it is for a different audience, not valid yet, without a principal, or for a principal that has a
configured token. `scope`: the token lacks a required scope. `keys`: the issuer's keys are unavailable. `busy`: the
principal has too many concurrent requests.
"""


class Unauthenticated(Exception):
    """The request has no credentials or invalid ones."""

    def __init__(self, message: str, reason: Reason) -> None:
        """`message` must not contain any part of the credentials."""
        super().__init__(message)
        self.message = message
        self.reason: Reason = reason


class InsufficientScope(Exception):
    """The credentials are valid, but they lack a required scope."""

    reason: Reason = "scope"

    def __init__(self, needed: tuple[str, ...]) -> None:
        """`needed` lists all required scopes, not only the missing ones."""
        super().__init__(f"This request requires the scope {' '.join(needed)}.")
        self.message = str(self)
        self.needed = needed


class KeysUnavailable(Exception):
    """The token cannot be checked, because the issuer's keys are unavailable."""

    reason: Reason = "keys"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("The token cannot be checked now, because the issuer's keys are unavailable. Retry later.")
        self.message = str(self)
        self.retry_after_s = retry_after_s


class Busy(Exception):
    """The principal has too many concurrent requests, or has sent too many bytes in them."""

    reason: Reason = "busy"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = 1.0


class Stopping(Exception):
    """The gateway stops before it answers the request."""

    def __init__(self) -> None:
        super().__init__("The gateway is stopping. Nothing ran.")
        self.message = str(self)


Refusal: TypeAlias = Unauthenticated | InsufficientScope | KeysUnavailable | Busy

Ending: TypeAlias = Refusal | Stopping
"""Why an admitted request ends before its answer is complete."""
