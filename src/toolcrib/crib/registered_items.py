"""The registrations that a crib has read from its store, and which of them are in use."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from toolcrib.catalog.catalog_settings import Reserved
from toolcrib.config import Config
from toolcrib.config.registration_store import Change, Registration, Registrations
from toolcrib.core.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.config.registrations import PassedOver

logger = logging.getLogger(__name__)


class RegisteredItems:
    """Reads a store of registrations. If the store cannot be read, the last contents stay, and the log says so once."""

    def __init__(self, store: Registrations | None) -> None:
        self._store = store
        self._reading = threading.Lock()
        self.version: str | None = None
        """The version of the contents that were read last."""
        self._rows: tuple[Registration, ...] = ()
        self._passed_over: tuple[PassedOver, ...] = ()
        self._problem: str | None = None

    @property
    def has_store(self) -> bool:
        """Whether a store is configured."""
        return self._store is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the store cannot be read, and which registrations are not used and why. Each is a sentence without a full
        stop.
        """
        return (*([self._problem] if self._problem else ()), *map(str, self._passed_over))

    def read(self) -> bool:
        """Read the store. Returns whether the registrations changed. May be called from any thread.

        Raises:
            InvalidConfig: the store cannot be read, and was never read before.
        """
        with self._reading:
            return self._store is not None and self._read(self._store)

    def _read(self, store: Registrations) -> bool:
        try:
            version = store.version()
            if version is None and self.version is not None:
                self._note("the registration store is gone; its last contents stay in force until the next start")
                return False
            # Read the version first: a change between the two reads is then read again next time, and not missed.
            rows = self._rows if version == self.version else store.all()
        except InvalidConfig as error:
            if self.version is None:  # the unread rows may include a rule that denies access
                raise
            self._note(f"{error.message}; the previous registrations stay in force")
            return False
        self._note(None)
        is_new, self.version, self._rows = version != self.version, version, rows
        return is_new

    def change(self, change: Change) -> None:
        """Apply `change` to the store, completely or not at all.

        Raises:
            InvalidConfig: no store is configured, it cannot be written, or `change` raises it.
        """
        if self._store is None:
            raise InvalidConfig("no registration store is configured: pass one as `Toolcrib(registrations=...)`")
        self._store.update(change)

    def joined(self, config: Config, reserved: Reserved) -> Config:
        """Return `config` together with the registrations that are used. New unused registrations are logged."""
        if not self._rows:
            self._passed_over = ()
            return config
        from toolcrib.config.registrations import joined  # noqa: PLC0415  most programs register nothing

        found = joined(config, self._rows, reserved)
        for each in found.passed_over:
            if each not in self._passed_over:
                logger.warning("registered but not used: %s", each)
        self._passed_over = found.passed_over
        return found.config

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            logger.warning("%s", problem)
        self._problem = problem
