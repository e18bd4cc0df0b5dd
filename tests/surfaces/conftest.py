"""What the tests of surfaces share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
