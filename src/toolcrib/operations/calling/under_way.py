"""Tracks the running requests to sources, and ends them at the caller's deadline or when the program stops."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import CallContext

NOT_KNOWN = "The tool may or may not have run."


class UnderWay:
    """The running requests of one crib."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._is_given_up = False

    @contextmanager
    def asking(self, what: str, context: CallContext, *, hints: Sequence[str] = ()) -> Generator[None]:
        """Limit a block, in which a source is asked for `what`, to the caller's deadline.

        Raises:
            SourceUnavailable: the deadline passed during the block, or `give_up` was called; it has `hints`.
        """
        left_s = context.remaining_s()
        deadline = math.inf if left_s is None else anyio.current_time() + left_s
        with anyio.CancelScope(deadline=deadline) as scope:
            self._scopes.add(scope)
            if self._is_given_up:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            why = (
                "was cancelled, because Toolcrib is stopping"
                if self._is_given_up
                else "did not answer within the time limit of your request"
            )
            raise SourceUnavailable(f"{what} {why}.", hints=hints)

    def give_up(self) -> None:
        """Cancel all running requests and all later ones, because the program stops."""
        self._is_given_up = True
        for scope in self._scopes:
            scope.cancel()
