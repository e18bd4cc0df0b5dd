"""Chooses which tests of the surfaces are slow."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before `-m` selects tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with clients of the handshake era as slow if they also run with clients of the newer protocol.

    Each starts processes for about a second, and few mistakes concern only one era. CI runs both.
    """
    for item in items:
        if item.path.is_relative_to(HERE) and "legacy" in getattr(getattr(item, "callspec", None), "id", "").split("-"):
            item.add_marker(pytest.mark.slow)
