"""What sources were asked and have not answered, each until the caller's deadline, and all of it until the end."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import CallContext

NOT_KNOWN = "Whether it has run is not known."


class UnderWay:
    """Of one crib."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._is_given_up = False

    @contextmanager
    def asking(self, what: str, context: CallContext, *, hints: Sequence[str] = ()) -> Generator[None]:
        """The block in which a source is asked for `what`.

        Raises:
            SourceUnavailable: the caller's time was over before the block was, or all was given up; with `hints`.
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
            why = "Toolcrib is stopping" if self._is_given_up else "the caller's time is over"
            raise SourceUnavailable(f"{what} was given up: {why}.", hints=hints)

    def give_up(self) -> None:
        """End what is under way, and whatever begins from now on: the program stops."""
        self._is_given_up = True
        for scope in self._scopes:
            scope.cancel()
