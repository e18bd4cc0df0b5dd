"""The first seconds of a gateway, in which a question waits for the servers that it is about."""

from __future__ import annotations

import anyio

from toolcrib.crib import Toolcrib

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
        self.asked = anyio.Event()
        """Set when somebody has asked something that takes the catalog to answer."""

    def begin(self) -> None:
        """Count from now: the crib has been entered."""
        self._began_at = anyio.current_time()
        self._begun.set()

    async def wait(self, about: str | None = None) -> None:
        """Wait for the starting sources that a question is about: all of them, or those whose names are in `about`, and
        those whose tools, prompts and resources stand under names that do not tell whose they are."""
        self.asked.set()
        await self._begun.wait()
        starting = self._crib.starting
        if starting and about is not None:
            plain = self._crib.registry.state.plain_sources
            starting = [name for name in starting if name in about or name in plain]
        if not starting:
            return
        patience_s = KEPT_ANSWER_WAIT_S if self._crib.has_kept and about is None else FIRST_ANSWER_WAIT_S
        if (left_s := self._began_at + patience_s - anyio.current_time()) > 0:
            await self._crib.ready(left_s, starting)
