"""Requests that were let in and are not over: each lasts only as long as whoever sent it would be let in again."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from toolcrib.core.principal import Principal
from toolcrib.surfaces.auth.authenticator import Authenticator
from toolcrib.surfaces.auth.refusals import (
    Busy,
    Ending,
    InsufficientScope,
    KeysUnavailable,
    Refusal,
    Stopping,
    Unauthenticated,
)

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often tokens are looked for that may have become bad, in seconds."""

KEYS_S = 60.0
"""How often a signed token that has not expired is checked again, in seconds: its issuer may take back the key."""


MAX_BODY_BYTES_EACH = 32 * 1024 * 1024
"""What one principal may have sent in the bodies of all its requests that are under way, in bytes."""


class Stay:
    """One request that was let in, with what ends it before its time."""

    __slots__ = ("_blocks", "body_bytes", "has_begun", "is_answered", "method", "principal", "refusal", "shown")

    def __init__(self, method: str, shown: tuple[str, ...], principal: Principal) -> None:
        """`method` is that of HTTP, `shown` its `Authorization` headers."""
        self.method = method
        self.shown = shown
        self.principal = principal
        self.body_bytes = 0
        """How much of its body has come."""
        self.has_begun = False
        """Whether some of the answer is on its way, so that its status can be no other any more."""
        self.is_answered = False
        """Whether all of it is."""
        self.refusal: Ending | None = None
        """Why it would not be let in any more; None as long as it would."""
        self._blocks: list[anyio.CancelScope] = []
        """Outermost first."""

    @contextmanager
    def lasting(self) -> Generator[None]:
        """A block that is left early where the stay ends; it may stand within another one of the same stay."""
        with anyio.CancelScope() as block:
            self._blocks.append(block)
            try:
                yield
            finally:
                self._blocks.remove(block)

    def end(self, refusal: Ending) -> None:
        """Leave the innermost block, where the protocol can say why in an answer that has begun; an answer that has not
        is HTTP's to refuse. What has not ended by then is cut off by doing this again."""
        is_for_the_protocol = self.has_begun and self.refusal is None
        self.refusal = refusal
        if self._blocks:
            self._blocks[-1 if is_for_the_protocol else 0].cancel()


class Stays:
    """All of them, of one authenticator."""

    def __init__(
        self, authenticator: Authenticator, clock: Callable[[], float] = time.time, *, most_each: float = math.inf
    ) -> None:
        """`clock` gives seconds since 1970, as tokens say when they expire.

        `most_each`: how many requests one principal may have under way, where principals are told apart.
        """
        self.authenticator = authenticator
        self._clock = clock
        self._most_each = most_each
        self._stays: dict[Stay, None] = {}
        self._counts = Counter[str]()
        self._body_bytes = Counter[str]()
        """Both by the id of the principal."""
        self._due: dict[tuple[str, ...], float] = {}
        """When what was shown is to be checked again; at once where it does not stand here."""

    async def admit(self, shown: tuple[str, ...]) -> Principal:
        """Whose a request is that shows these headers; raises as `Authenticator.principal` does."""
        return await self.authenticator.principal(shown)

    @contextmanager
    def begin(self, method: str, shown: tuple[str, ...], principal: Principal) -> Generator[Stay]:
        """A stay for the block: that of a request which shows these headers, and was let in as `principal`.

        Raises:
            Busy: the principal has as many under way as it may have.
        """
        if self.authenticator.asks and self._counts[principal.id] >= self._most_each:
            raise Busy(f"`{principal.id}` has {self._most_each:,} requests under way, the most that it may have.")
        stay = Stay(method, shown, principal)
        self._stays[stay] = None
        self._counts[principal.id] += 1
        try:
            yield stay
        finally:
            del self._stays[stay]
            self._take_back(self._counts, principal, 1)
            self._take_back(self._body_bytes, principal, stay.body_bytes)

    def note_body(self, stay: Stay, count: int) -> None:
        """So many bytes more of its body have come. A stay ends where its principal has sent too many."""
        whose = stay.principal.id
        stay.body_bytes += count
        self._body_bytes[whose] += count
        if self._body_bytes[whose] > MAX_BODY_BYTES_EACH:
            stay.end(Busy(f"`{whose}` has sent more than {MAX_BODY_BYTES_EACH:,} bytes in requests under way."))

    @staticmethod
    def _take_back(counter: Counter[str], principal: Principal, count: int) -> None:
        counter[principal.id] -= count
        if not counter[principal.id]:
            del counter[principal.id]

    def hang_up(self) -> None:
        """End the streams that a `GET` opened, on which clients wait for changes: the gateway stops."""
        for stay in self._stays:
            if stay.method == "GET":
                stay.end(Stopping())

    def end_all(self) -> None:
        """End every stay: the gateway stops, and has waited for them."""
        for stay in self._stays:
            stay.end(Stopping())

    async def follow(self) -> None:
        """End the stays whose tokens are good no longer, until cancelled."""
        version = self.authenticator.version
        while True:
            await anyio.sleep(LOOK_S)
            if version != self.authenticator.version:
                version = self.authenticator.version
                self._due.clear()
            await self._look()

    async def _look(self) -> None:
        stays = defaultdict[tuple[str, ...], list[Stay]](list)
        for stay in self._stays:
            stays[stay.shown].append(stay)
        now = self._clock()
        self._due = {shown: due for shown, due in self._due.items() if shown in stays}
        async with anyio.create_task_group() as checks:
            for shown, those in stays.items():
                if self._due.get(shown, 0.0) <= now:
                    checks.start_soon(self._check, shown, those)

    async def _check(self, shown: tuple[str, ...], stays: list[Stay]) -> None:
        try:
            principal = await self.admit(shown)
        except (Unauthenticated, InsufficientScope, KeysUnavailable) as refusal:
            _end(stays, refusal)
            return
        # Looked at again next time as well, in case one of them does not let itself be ended.
        if others := [stay for stay in stays if stay.principal != principal]:
            _end(others, Unauthenticated("The token stands for somebody or something else by now.", "claims"))
            return
        self._due[shown] = min(self._clock() + KEYS_S, self.authenticator.expires_at(shown))


def _end(stays: list[Stay], refusal: Refusal) -> None:
    counts = Counter(stay.principal.id for stay in stays if stay.refusal is None)
    for stay in stays:
        stay.end(refusal)
    for principal, count in counts.items():
        many = "a request" if count == 1 else f"{count:,} requests"
        logger.warning("%s of `%s` ended before the answer did: %s", many, principal, refusal.message)
