"""What a crib has of a store of registrations: as it was read last, and what of it counts."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from toolcrib.catalog.arrangement import Beside
from toolcrib.config import Config
from toolcrib.config.registration_store import Change, Registration, Registrations
from toolcrib.core.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.config.registrations import PassedOver

logger = logging.getLogger(__name__)


class Registered:
    """Where the store cannot be read, what was read before stays, and that is said once."""

    def __init__(self, store: Registrations | None) -> None:
        self._store = store
        self._reading = threading.Lock()
        self.version: str | None = None
        """Of what was read last."""
        self._rows: tuple[Registration, ...] = ()
        self._passed_over: tuple[PassedOver, ...] = ()
        self._problem: str | None = None

    @property
    def is_kept(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nothing is read any more, and what does not count and why, in sentences without a full stop."""
        return (*([self._problem] if self._problem else ()), *map(str, self._passed_over))

    def read(self) -> bool:
        """Look at the store; whether something else is registered than before. Any thread may do so.

        Raises:
            InvalidConfig: it cannot be read, and never was.
        """
        with self._reading:
            return self._store is not None and self._read(self._store)

    def _read(self, store: Registrations) -> bool:
        try:
            version = store.version()
            if version is None and self.version is not None:
                self._note("what was registered is gone, and stays in force until the next start")
                return False
            # In this order: what comes in between is read, and once more the next time.
            rows = self._rows if version == self.version else store.all()
        except InvalidConfig as error:
            if self.version is None:  # something that keeps out may stand there
                raise
            self._note(f"{error.message}; what was registered before stays in force")
            return False
        self._note(None)
        is_new, self.version, self._rows = version != self.version, version, rows
        return is_new

    def change(self, change: Change) -> None:
        """Have the store changed, all or nothing.

        Raises:
            InvalidConfig: there is no store, it cannot be written, or `change` refuses.
        """
        if self._store is None:
            raise InvalidConfig("there is no store to keep it in: `Toolcrib(registrations=...)` takes one")
        self._store.update(change)

    def joined(self, config: Config, beside: Beside) -> Config:
        """`config` with what counts of it; what does not is logged when that is new."""
        if not self._rows:
            self._passed_over = ()
            return config
        from toolcrib.config.registrations import joined  # noqa: PLC0415  mostly nothing is registered

        found = joined(config, self._rows, beside)
        for each in found.passed_over:
            if each not in self._passed_over:
                logger.warning("registered, and passed over: %s", each)
        self._passed_over = found.passed_over
        return found.config

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            logger.warning("%s", problem)
        self._problem = problem
