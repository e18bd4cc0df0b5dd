"""HTTP authentication: turns the headers of a request into a principal, or into the reason for a refusal."""

from toolcrib.surfaces.auth.authenticator import Authenticator
from toolcrib.surfaces.auth.refusals import (
    Busy,
    Ending,
    InsufficientScope,
    KeysUnavailable,
    Reason,
    Refusal,
    Stopping,
    Unauthenticated,
)
from toolcrib.surfaces.auth.stays import Stay, Stays

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
