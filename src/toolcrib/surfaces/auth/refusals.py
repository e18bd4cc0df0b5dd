"""Why a request is nobody's, in words that may be told to whoever sent it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Reason: TypeAlias = Literal["missing", "malformed", "unknown", "expired", "claims", "scope", "keys", "busy"]
"""Why, coarsely, to be counted by.

`missing`: there are no credentials; `malformed`: there is not just one bearer token that can be read; `unknown`: it is
none of those that are configured, nor signed by the issuer; `expired`; `claims`: it is signed, and for others, not good
yet, of nobody, or of a principal who has one that is configured; `scope`: it lacks one; `keys`: there are none to check
it with; `busy`: its principal has as many requests under way as it may have.
"""


class Unauthenticated(Exception):
    """It shows no credentials, or none that are good."""

    def __init__(self, message: str, reason: Reason) -> None:
        """`message` holds nothing of the credentials."""
        super().__init__(message)
        self.message = message
        self.reason: Reason = reason


class InsufficientScope(Exception):
    """It is known whose it is, and that is not enough."""

    reason: Reason = "scope"

    def __init__(self, needed: tuple[str, ...]) -> None:
        """`needed` is all of what it takes, not only what is missing."""
        super().__init__(f"This takes the scope {' '.join(needed)}.")
        self.message = str(self)
        self.needed = needed


class KeysUnavailable(Exception):
    """It cannot be told now: there are no keys to check it with."""

    reason: Reason = "keys"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("The keys of the tokens' issuer cannot be had for now.")
        self.message = str(self)
        self.retry_after_s = retry_after_s


class Busy(Exception):
    """Its principal has as many requests under way, or has sent as much in them, as it may."""

    reason: Reason = "busy"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = 1.0


class Stopping(Exception):
    """The gateway stops before the request is answered."""

    def __init__(self) -> None:
        super().__init__("The gateway is stopping. Nothing was run.")
        self.message = str(self)


Refusal: TypeAlias = Unauthenticated | InsufficientScope | KeysUnavailable | Busy

Ending: TypeAlias = Refusal | Stopping
"""Why a request that was let in is not answered to its end."""
