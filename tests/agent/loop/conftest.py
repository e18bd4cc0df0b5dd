"""What the tests of loops share."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.agent.loop.playing import Watched


@pytest.fixture
def watched() -> Generator[Watched]:
    """Gives sessions; of each, all must hold that holds of every conversation, once the test is over."""
    sessions = Watched()
    yield sessions
    sessions.check()
