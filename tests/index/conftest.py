"""Laws are checked without a deadline: how fast a machine is today is no property of the index."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
