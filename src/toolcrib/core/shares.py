"""A bounded table that principals share. When it is full, principals that use more than their share lose entries."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def _one(_: object) -> int:
    return 1


class Shares(Generic[_K, _V]):
    """A mapping in which each value belongs to one principal.

    While there is room, one principal can use all of it, up to the limit per principal. When there is no room, the
    principal that uses most loses its oldest values. A share is the room divided by the number of principals. A
    principal that uses no more than its share loses nothing.
    """

    def __init__(self, room: int, size: Callable[[_V], int] = _one, *, each: int | None = None) -> None:
        """Make an empty table.

        `room` limits the total size of all values. `each` limits the total size per principal; the default is `room`.
        `size` returns the size of one value; the default is 1 for every value.
        """
        self._room = room
        self._each = room if each is None else each
        self._size = size
        self._values: dict[_K, tuple[str, _V, int]] = {}
        """Each value with its principal and size."""
        self._keys: dict[str, dict[_K, None]] = {}
        """The keys of each principal, oldest first."""
        self._taken: dict[str, int] = {}
        """The total size of each principal's values."""
        self._whole = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: _K) -> _V | None:
        """Return the value of `key`, or None."""
        found = self._values.get(key)
        return None if found is None else found[1]

    def items(self) -> list[tuple[_K, _V]]:
        """Return a copy of all keys and values."""
        return [(key, value) for key, (_, value, _) in self._values.items()]

    def can_take(self, principal: str, size: int = 1) -> bool:
        """Return whether `principal` can add a value of `size`: there is room, or its total stays within its share."""
        taken = self._taken.get(principal, 0) + size
        if taken > self._each:
            return False
        principals = len(self._taken) + (principal not in self._taken)
        return self._whole + size <= self._room or taken <= self._room / principals

    def put(self, principal: str, key: _K, value: _V) -> list[_V]:
        """Add `value` under a new key, and return the values that were removed to make room.

        `value` itself is removed last: only if it alone exceeds its principal's share and no other principal exceeds
        its own.
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
        """Replace the value of `key`, if there is one, by `value`, which must not be larger.

        Raises:
            ValueError: `value` is larger than the value it replaces.
        """
        if (found := self._values.get(key)) is None:
            return
        principal, _, before = found
        size = self._size(value)
        if size > before:
            raise ValueError(f"cannot replace a value of size {before} by a value of size {size}")
        self._values[key] = principal, value, size
        self._taken[principal] -= before - size
        self._whole -= before - size

    def pop(self, key: _K) -> _V | None:
        """Remove and return the value of `key`; return None if there is no such key."""
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
        """Return the key to remove next: the oldest key of the principal that uses most, if it exceeds its share.

        The key `new` is the last choice.
        """
        share = self._room / len(self._taken)
        too_much = [
            principal
            for principal, taken in self._taken.items()
            if taken > share and not (len(self._keys[principal]) == 1 and new in self._keys[principal])
        ]
        if not too_much:
            return new
        return next(iter(self._keys[max(too_much, key=self._taken.__getitem__)]))
