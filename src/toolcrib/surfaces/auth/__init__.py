"""Who asks over HTTP: from the header of a request to a principal, or to the reason why it is nobody's."""

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
