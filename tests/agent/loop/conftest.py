"""Fixtures for the tests of loops."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.agent.loop.playing import Watched


@pytest.fixture
def watched() -> Generator[Watched]:
    """Provide sessions, and check after the test that each follows the rules for all conversations."""
    sessions = Watched()
    yield sessions
    sessions.check()
