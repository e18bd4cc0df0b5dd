"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

# How long something takes is for benchmarks/: a busy machine is no reason to fail.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
