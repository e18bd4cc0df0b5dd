"""The principal of an operation, and the context that travels with the operation: trace, deadline, bundle, client."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self, cast

from toolcrib.core.client import Client, Resumption
from toolcrib.core.events import Consent
from toolcrib.core.values import read_strings

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


def new_trace_id() -> str:
    """Return a new trace id of 32 hex digits. Source: W3C Trace Context, `trace-id`.

    The first 16 digits are zeros, as the recommendation says for systems with shorter ids. A handle contains only the
    rest, which a model has to copy. The rest has the same length in every id.
    """
    # A trace id grants no access, so it need not be unpredictable. The system's randomness takes longer than a search.
    return f"{1 << 62 | random.getrandbits(62):032x}"


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace id of a `traceparent` header (32 hex digits), or None if it has no valid trace id.

    Source: W3C Trace Context, section 3.2.
    """
    found = _TRACEPARENT.fullmatch((traceparent or "").strip())
    if found is None or (found[0].startswith("00-") and len(found[0]) != 55):
        return None
    return found["trace_id"]


@dataclass(frozen=True, slots=True)
class Principal:
    """The person or program that sends a request, with the scopes of its current credentials.

    Principals with equal ids are the same principal, and everything that is stored per principal is stored by id.
    What a principal can see and do also depends on its scopes, and a renewed token can have different scopes. A lone
    string counts as one scope.

    Raises:
        InvalidConfig: the scopes are not strings.
    """

    id: str
    scopes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        scopes = cast("object", self.scopes)
        if not isinstance(scopes, frozenset):
            given = [*cast("set[object]", scopes)] if isinstance(scopes, set) else scopes
            object.__setattr__(self, "scopes", frozenset(read_strings(given, "scopes")))


LOCAL = Principal("local")
"""The person at this machine: the caller over stdio, on the command line, and in a library call without a principal."""


def _unnoted(_: Consent) -> None:
    """Discard the consent, for an operation that is not recorded."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """The values that travel with one operation from its surface to the source."""

    principal: Principal = LOCAL
    trace_id: str | None = None
    """The trace of the operation: 32 hex digits, or None while it is not decided yet."""
    deadline: float | None = None
    """When to give up: a time in seconds on the clock of `time.monotonic`."""
    bundle: str | None = None
    """The name of the bundle that limits the operation; None for everything that the principal can see."""
    own: object | None = None
    """The session's own tools, in addition to those of its principal. The catalog reads them as `SessionTools`."""
    client: Client | None = None
    """The client that can be asked for input while the operation runs; None if no client can be asked."""
    resumed: Resumption | None = None
    """The answers to the questions that the same operation asked before."""
    note_approval: Callable[[Consent], None] = field(default=_unnoted, compare=False)
    """Receives how the approval of the operation was settled, if a person must approve it. The last call counts."""

    returned_as: Callable[[], Principal] | None = field(default=None, compare=False)
    """Returns the client's current principal. It is set if the client can disconnect while the operation runs and come
    back with different scopes; otherwise None."""

    @property
    def principal_now(self) -> Principal:
        """The principal as it is now; its scopes can differ from those of `principal`."""
        return self.principal if self.returned_as is None else self.returned_as()

    def within(self, timeout_s: float) -> Self:
        """Return this context with a deadline at most `timeout_s` seconds from now. An earlier deadline stays."""
        deadline = time.monotonic() + timeout_s
        if self.deadline is not None and self.deadline <= deadline:
            return self
        return replace(self, deadline=deadline)

    def remaining_s(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


LOCAL_CONTEXT = CallContext()
"""The default context: the principal is `LOCAL`, and nothing else is set."""
