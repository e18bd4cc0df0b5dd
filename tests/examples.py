"""How many examples a law is tried on, as a share of what the Hypothesis profile says; see `tests/conftest.py`."""

from __future__ import annotations

from hypothesis import settings

CI_EXAMPLES = 100
"""What a test runs that asks for no number of its own, where the profile is `ci`."""


def examples(many: int) -> int:
    """`many` under the profile `ci`, and fewer by the same factor as everywhere under another."""
    return max(1, many * settings().max_examples // CI_EXAMPLES)
