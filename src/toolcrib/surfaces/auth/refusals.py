"""Why a request is nobody's, in words that may be told to whoever sent it."""

from __future__ import annotations


class Unauthenticated(Exception):
    """It shows no credentials, or none that are good."""

    def __init__(self, message: str, *, shown: bool = True) -> None:
        """`shown`: there were some. Source: RFC 6750, section 3.1, which tells a client nothing else without any."""
        super().__init__(message)
        self.message = message
        self.shown = shown


class InsufficientScope(Exception):
    """It is known whose it is, and that is not enough."""

    def __init__(self, needed: tuple[str, ...]) -> None:
        """`needed` is all of what it takes, not only what is missing."""
        super().__init__(f"This takes the scope {' '.join(needed)}.")
        self.message = str(self)
        self.needed = needed


class KeysUnavailable(Exception):
    """It cannot be told now: there are no keys to check it with."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("The keys of the tokens' issuer cannot be had for now.")
        self.message = str(self)
        self.retry_after_s = retry_after_s
