"""On whose behalf an operation runs, in which trace, until when."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self, cast

from toolcrib.core.client import Client, Resumption
from toolcrib.core.events import Consent
from toolcrib.core.values import read_strings


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, with what its credentials say this time.

    Two with equal ids are the same one: whatever is somebody's is its by the id alone. What may be seen and done
    depends on the scopes as well, and a token that was renewed may bring others. A lone string counts as one scope.

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
"""The person at this machine: the caller over stdio, on the command line and in a library call that names nobody."""


def _unnoted(_: Consent) -> None:
    """Of an operation that nobody records."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What travels with one operation from its surface to the source."""

    principal: Principal = LOCAL
    trace_id: str | None = None
    """32 hex digits; None where nobody has said yet what the operation belongs to."""
    deadline: float | None = None
    """When to give up, on the clock of `time.monotonic`, in seconds."""
    bundle: str | None = None
    """The name of the bundle that the operation is kept within; None for all that the principal has."""
    own: object | None = None
    """What belongs to the session that asks, beside what its principal has; the catalog knows it as `OwnTools`."""
    client: Client | None = None
    """Who may be asked for input while the operation runs; None where nobody can be."""
    resumed: Resumption | None = None
    """The answers to what the same operation asked for before."""
    note_approval: Callable[[Consent], None] = field(default=_unnoted, compare=False)
    """Told how it was settled whether the operation may run, where a person has to approve; the last word counts."""

    returned_as: Callable[[], Principal] | None = field(default=None, compare=False)
    """As whom the client is here by now, where it may leave while the operation runs and come back with other scopes.
    None where it stays."""

    @property
    def principal_now(self) -> Principal:
        """The one that asks as of now."""
        return self.principal if self.returned_as is None else self.returned_as()

    def within(self, timeout_s: float) -> Self:
        """The same context with a deadline at most `timeout_s` from now; an earlier one stays."""
        deadline = time.monotonic() + timeout_s
        if self.deadline is not None and self.deadline <= deadline:
            return self
        return replace(self, deadline=deadline)

    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


LOCAL_CONTEXT = CallContext()
"""That of an operation of which nothing is said."""
