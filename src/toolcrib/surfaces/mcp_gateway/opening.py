"""The first seconds of a gateway, in which a question waits for the servers that it is about."""

from __future__ import annotations

import anyio

from toolcrib.crib import Toolcrib

FIRST_ANSWER_WAIT_S = 10.0
"""Until when after its start the gateway lets a question wait for servers that are starting, in seconds."""


class Opening:
    """Ends by itself; after that, whoever asks is answered without the servers that are starting."""

    def __init__(self, crib: Toolcrib) -> None:
        self._crib = crib
        self._patient_until = anyio.current_time() + FIRST_ANSWER_WAIT_S

    async def wait(self, about: str | None = None) -> None:
        """Wait for the starting sources that a question is about: all of them, or those whose names are in `about`, and
        those whose tools, prompts and resources stand under names that do not tell whose they are."""
        starting = self._crib.starting
        if starting and about is not None:
            plain = self._crib.registry.state.plain_sources
            starting = [name for name in starting if name in about or name in plain]
        if starting and (patience_s := self._patient_until - anyio.current_time()) > 0:
            await self._crib.ready(patience_s, starting)
