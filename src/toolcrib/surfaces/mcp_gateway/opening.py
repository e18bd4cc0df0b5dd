"""The first seconds of a gateway, in which a question waits for the servers that it is about."""

from __future__ import annotations

import anyio

from toolcrib.core.principal import Principal
from toolcrib.crib.crib import Toolcrib

FIRST_ANSWER_WAIT_S = 10.0
"""Until when after its start the gateway lets a question wait for servers that are starting, in seconds."""

KEPT_ANSWER_WAIT_S = 1.0
"""The same where kept definitions answer already, in seconds: what is missing then is new, or does not work."""


class Opening:
    """Ends by itself; after that, whoever asks is answered without the servers that are starting."""

    def __init__(self, crib: Toolcrib) -> None:
        self._crib = crib
        self._begun = anyio.Event()
        self._began_at = 0.0
        self._awaited: frozenset[str] = frozenset()
        """Names of the sources that were starting at the beginning and have neither been listed nor failed."""
        self.asked = anyio.Event()
        """Set when somebody has asked something that takes the catalog to answer."""

    def begin(self) -> None:
        """Count from now: the crib has been entered."""
        self._began_at = anyio.current_time()
        self._awaited = frozenset(self._crib.starting)
        self._begun.set()

    @property
    def is_ready(self) -> bool:
        """Whether each source that there was at the beginning has been listed, by kept definitions too, or has failed.

        Once that is so it stays so: sources that a changed configuration brings do not count.
        """
        self._awaited &= frozenset(self._crib.starting)
        return self._begun.is_set() and not self._awaited

    async def wait(self, principal: Principal, about: str | None = None) -> None:
        """Wait for the starting sources that a question is about: all of them, or those whose names are in `about`, and
        those whose tools, prompts and resources stand under names that do not tell whose they are.

        What `principal` has for itself is begun by its first question, and is waited for as long from then on. It never
        waits for a source that is hidden from `principal`: how long an answer takes would tell that there is one.
        """
        self.asked.set()
        await self._begun.wait()
        lockers, now = self._crib.lockers, anyio.current_time()
        own = lockers.overlay(principal).sources
        began_at = dict.fromkeys(self._crib.starting, self._began_at)
        began_at |= dict.fromkeys(lockers.starting(principal), now - lockers.open_for_s(principal))
        if not began_at:
            return
        sources = {**self._crib.registry.state.sources, **own}
        plain = {name for name, entry in sources.items() if entry.plain_names}
        patience_s = KEPT_ANSWER_WAIT_S if self._crib.has_kept and about is None else FIRST_ANSWER_WAIT_S
        left_s = {
            name: began + patience_s - now
            for name, began in began_at.items()
            if began + patience_s > now
            and (about is None or name in about or name in plain)
            and self._crib.may_show(name, principal)
        }
        if left_s:
            await self._crib.ready(max(left_s.values()), left_s, principal=principal)
