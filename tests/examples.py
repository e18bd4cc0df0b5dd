"""The number of examples for a property, in proportion to the Hypothesis profile; see `tests/conftest.py`."""

from __future__ import annotations

from hypothesis import settings

CI_EXAMPLES = 100
"""The number of examples of a test without its own number under the profile `ci`."""


def examples(many: int) -> int:
    """Return `many` under the profile `ci`, and proportionally more or fewer under a different profile."""
    return max(1, many * settings().max_examples // CI_EXAMPLES)
