"""A bounded table that principals share: when it is full, those that take more than their share make room."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def _one(_: object) -> int:
    return 1


class Shares(Generic[_K, _V]):
    """Values by key, each of one principal.

    While there is room, a principal may take all of it, or as much as one may take. When there is none, the principal
    that takes most loses its oldest values. One that takes no more than its share, the room divided by the number of
    principals, loses nothing.
    """

    def __init__(self, room: int, size: Callable[[_V], int] = _one, *, each: int | None = None) -> None:
        """`room` is how much all values may take together, `each` how much those of one principal: all by default.

        `size` says what one value takes: 1 by default.
        """
        self._room = room
        self._each = room if each is None else each
        self._size = size
        self._values: dict[_K, tuple[str, _V, int]] = {}
        """Each with its principal and size."""
        self._keys: dict[str, dict[_K, None]] = {}
        """By principal, the oldest first."""
        self._taken: dict[str, int] = {}
        """By principal."""
        self._whole = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: _K) -> _V | None:
        """The value of `key`, if it is there."""
        found = self._values.get(key)
        return None if found is None else found[1]

    def items(self) -> list[tuple[_K, _V]]:
        """All of them, as they are now."""
        return [(key, value) for key, (_, value, _) in self._values.items()]

    def can_take(self, principal: str, size: int = 1) -> bool:
        """Whether there is room, or `principal` would take no more than its share."""
        taken = self._taken.get(principal, 0) + size
        if taken > self._each:
            return False
        principals = len(self._taken) + (principal not in self._taken)
        return self._whole + size <= self._room or taken <= self._room / principals

    def put(self, principal: str, key: _K, value: _V) -> list[_V]:
        """Put in `value` under a key that is not there yet. Returns the values that had to go.

        `value` itself goes last: only where it alone is more than its principal's share, and no other principal takes
        more than that.
        """
        size = self._size(value)
        self._values[key] = principal, value, size
        self._keys.setdefault(principal, {})[key] = None
        self._taken[principal] = self._taken.get(principal, 0) + size
        self._whole += size
        gone = list[_V]()
        while self._taken.get(principal, 0) > self._each:
            gone.append(self._drop(next(iter(self._keys[principal]))))
        while self._whole > self._room:
            gone.append(self._drop(self._next_to_go(key)))
        return gone

    def _drop(self, key: _K) -> _V:
        value = self._values[key][1]
        self.pop(key)
        return value

    def replace(self, key: _K, value: _V) -> None:
        """Put `value`, which takes no more, in the place of that of `key`, if that is there."""
        if (found := self._values.get(key)) is None:
            return
        principal, _, before = found
        size = self._size(value)
        if size > before:
            raise ValueError(f"a value of {before} was to make room for one of {size}")
        self._values[key] = principal, value, size
        self._taken[principal] -= before - size
        self._whole -= before - size

    def pop(self, key: _K) -> _V | None:
        """Take out the value of `key`, if it is there."""
        if (found := self._values.pop(key, None)) is None:
            return None
        principal, value, size = found
        self._whole -= size
        self._taken[principal] -= size
        del self._keys[principal][key]
        if not self._keys[principal]:
            del self._keys[principal], self._taken[principal]
        return value

    def _next_to_go(self, new: _K) -> _K:
        """The oldest key of the principal that takes most, of those that take more than their share; `new` at last."""
        share = self._room / len(self._taken)
        too_much = [
            principal
            for principal, taken in self._taken.items()
            if taken > share and not (len(self._keys[principal]) == 1 and new in self._keys[principal])
        ]
        if not too_much:
            return new
        return next(iter(self._keys[max(too_much, key=self._taken.__getitem__)]))
