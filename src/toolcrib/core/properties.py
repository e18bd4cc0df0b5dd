"""Properties that are computed once for each object, by whichever thread comes first."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801  it stands for the one of the standard library
        """Computed without a lock; of two threads that compute it at once, both get what the first one made.

        Python 3.11 holds one lock for all objects of a class: a thread that computes something large for one of them
        would keep the event loop from computing something small for any other. Python 3.12 has no lock, but there each
        thread keeps what it made itself.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


__all__ = ["cached_property"]
