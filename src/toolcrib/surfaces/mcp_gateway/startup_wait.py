"""The first seconds of a gateway, in which requests wait for the servers that they need."""

from __future__ import annotations

import anyio

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.core.principal import Principal
from toolcrib.crib.crib import Toolcrib

FIRST_ANSWER_WAIT_S = 10.0
"""For how long after its start the gateway lets requests wait for servers that are starting, in seconds."""

KEPT_ANSWER_WAIT_S = 1.0
"""The wait if the catalog already has cached definitions, in seconds.

Servers that are still missing are new or fail.
"""


class StartupWait:
    """The phase after the start of a gateway.

    When it is over, requests no longer wait for servers that are starting.
    """

    def __init__(self, crib: Toolcrib) -> None:
        self._crib = crib
        self._begun = anyio.Event()
        self._began_at = 0.0
        self._awaited: frozenset[str] = frozenset()
        """Names of the sources that were starting at the beginning and have neither been listed nor failed."""
        self.asked = anyio.Event()
        """Set when the first request arrives that needs the catalog."""

    def begin(self) -> None:
        """Start the clock. Call this when the crib has been entered."""
        self._began_at = anyio.current_time()
        self._awaited = frozenset(self._crib.starting)
        self._begun.set()

    @property
    def is_ready(self) -> bool:
        """Whether every source of the beginning has been listed, possibly from the cache, or has failed.

        Once true, it stays true: sources that a configuration change adds do not count.
        """
        self._awaited &= frozenset(self._crib.starting)
        return self._begun.is_set() and not self._awaited

    async def wait(self, principal: Principal, about: str | None = None) -> None:
        """Wait for the starting sources that a request is about.

        Without `about`, these are all sources. Otherwise they are the sources whose names are in `about`, and those
        with plain names, which do not show their source. A principal's isolated sources start with its first request,
        and get the same time from then on. A source that is hidden from `principal` is never waited for, because the
        delay would reveal it.
        """
        self.asked.set()
        await self._begun.wait()
        isolated = self._crib.isolated_sources
        shared = self._crib.registry.state.sources.values()
        if not isolated.are_configured and all(entry.status is not SourceStatus.STARTING for entry in shared):
            return
        isolated_sources, now = self._crib.isolated_sources, anyio.current_time()
        own = isolated_sources.overlay(principal).sources
        began_at = dict.fromkeys(self._crib.starting, self._began_at)
        began_at |= dict.fromkeys(isolated_sources.starting(principal), now - isolated_sources.open_for_s(principal))
        if not began_at:
            return
        sources = {**self._crib.registry.state.sources, **own}
        plain = {name for name, entry in sources.items() if entry.plain_names}
        patience_s = KEPT_ANSWER_WAIT_S if self._crib.uses_cached_definitions and about is None else FIRST_ANSWER_WAIT_S
        left_s = {
            name: began + patience_s - now
            for name, began in began_at.items()
            if began + patience_s > now
            and (about is None or name in about or name in plain)
            and self._crib.may_show(name, principal)
        }
        if left_s:
            await self._crib.ready(max(left_s.values()), left_s, principal=principal)
