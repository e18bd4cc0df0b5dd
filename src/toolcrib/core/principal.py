"""On whose behalf an operation runs, in which trace, until when."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Self

from toolcrib.core.client import Client, Resumption


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Two principals with equal ids are the same one."""

    id: str
    scopes: frozenset[str] = frozenset()


LOCAL = Principal("local")
"""The person at this machine: the caller over stdio, on the command line and in a library call that names nobody."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What travels with one operation from its surface to the source."""

    principal: Principal = LOCAL
    trace_id: str | None = None
    """32 hex digits; None where nobody has said yet what the operation belongs to."""
    deadline: float | None = None
    """When to give up, on the clock of `time.monotonic`, in seconds."""
    client: Client | None = None
    """Who may be asked for input while the operation runs; None where nobody can be."""
    resumed: Resumption | None = None
    """The answers to what the same operation asked for before."""

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
