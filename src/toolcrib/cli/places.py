"""The default path of the registrations, and the store at that path."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from toolcrib.config.registration_store import RegistrationStore


def default_registrations() -> Path:
    """Return the default path of the registrations."""
    return platformdirs.user_state_path("toolcrib") / "registrations.sqlite"


def store_of(config: Path) -> RegistrationStore:
    """Return the store of what is registered for `config`."""
    return RegistrationStore(default_registrations(), config)
