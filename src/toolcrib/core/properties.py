"""A `cached_property` that computes without a lock on every supported Python, and names that a method had earlier."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from warnings import warn

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801  it replaces the one of the standard library
        """A property that is computed once per object, without a lock.

        If two threads compute it at the same time, both get the value that was stored first. In Python 3.11, the
        standard property holds one lock for all objects of a class, so a thread that computes a large value for one
        object would block the event loop on every other object. Python 3.12 has no lock, but there each of the two
        threads returns the value that it computed itself.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


_P = ParamSpec("_P")
_T = TypeVar("_T")


def renamed(earlier: str, method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return `method` for its earlier name. Each call warns that the name has changed."""

    @functools.wraps(method)
    def deprecated(*given: _P.args, **named: _P.kwargs) -> _T:
        warn(f"`{earlier}` is now `{method.__name__}`", DeprecationWarning, stacklevel=2)
        return method(*given, **named)

    return deprecated


__all__ = ["cached_property", "renamed"]
