"""HTTP authentication: turns the headers of a request into a principal, or into the reason for a refusal."""

from toolcrib.surfaces.auth.admitted_requests import Stay, Stays
from toolcrib.surfaces.auth.auth_refusals import (
    Busy,
    Ending,
    InsufficientScope,
    KeysUnavailable,
    Reason,
    Refusal,
    Stopping,
    Unauthenticated,
)
from toolcrib.surfaces.auth.authenticator import Authenticator

__all__ = [
    "Authenticator",
    "Busy",
    "Ending",
    "InsufficientScope",
    "KeysUnavailable",
    "Reason",
    "Refusal",
    "Stay",
    "Stays",
    "Stopping",
    "Unauthenticated",
]
