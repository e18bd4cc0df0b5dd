"""Where a command keeps what it is told, unless somebody says otherwise."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from toolcrib.config.registration_store import RegistrationStore


def default_registrations() -> Path:
    """Where registrations are kept."""
    return platformdirs.user_state_path("toolcrib") / "registrations.sqlite"


def store_of(config: Path) -> RegistrationStore:
    """What is registered beside `config`."""
    return RegistrationStore(default_registrations(), config)
