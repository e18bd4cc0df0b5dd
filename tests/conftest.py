"""Fixtures and settings of all tests."""

import gc
import os
from collections.abc import Generator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests import zygote
from tests.examples import CI_EXAMPLES

# Collecting the tests creates about a million objects that all stay alive. Searching them for garbage took a third of
# the time.
gc.disable()

# Times are measured in benchmarks/: a test must not fail because the machine is busy.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", UNTIMED, max_examples=CI_EXAMPLES, print_blob=True)
# A third of the examples, and the same examples in each run. CI finds new ones.
settings.register_profile("dev", UNTIMED, max_examples=CI_EXAMPLES // 3, derandomize=True)
# For a run over night, or after a change to a property.
settings.register_profile("thorough", UNTIMED, max_examples=CI_EXAMPLES * 10, print_blob=True)
# For `make mutants`, in which thousands of tests fail: the first failing example is enough.
settings.register_profile("mutants", settings.get_profile("dev"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

ZYGOTES = pytest.StashKey[zygote.Zygotes]()


def pytest_configure(config: pytest.Config) -> None:
    stack = ExitStack()
    config.stash[ZYGOTES] = stack.enter_context(zygote.installed())
    config.add_cleanup(stack.close)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[ZYGOTES].enabled = item.get_closest_marker("true_start") is None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _state_in_a_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Store state in a temporary folder, also for processes that a test starts, and never in the user's folder.

    Keys are not stored in the user's keyring either.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        yield
