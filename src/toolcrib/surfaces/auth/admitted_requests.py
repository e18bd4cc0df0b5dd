"""Stays: admitted requests that are still running. A stay ends when its credentials are no longer accepted."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from toolcrib.core.principal import Principal
from toolcrib.surfaces.auth.auth_refusals import (
    Busy,
    Ending,
    InsufficientScope,
    KeysUnavailable,
    Refusal,
    Stopping,
    Unauthenticated,
)
from toolcrib.surfaces.auth.authenticator import Authenticator

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the tokens of stays are checked, in seconds."""

KEYS_S = 60.0
"""How often a signed token is checked again, in seconds. The issuer may revoke its key before the token expires."""


MAX_BODY_BYTES_EACH = 32 * 1024 * 1024
"""How many bytes one principal may have sent in the bodies of all its concurrent requests."""


class Stay:
    """One admitted request, and what can end it early."""

    __slots__ = ("_blocks", "body_bytes", "has_begun", "is_answered", "method", "principal", "refusal", "shown")

    def __init__(self, method: str, shown: tuple[str, ...], principal: Principal) -> None:
        """`method` is the HTTP method. `shown` are the `Authorization` headers of the request."""
        self.method = method
        self.shown = shown
        self.principal = principal
        self.body_bytes = 0
        """The number of bytes of the body that have arrived."""
        self.has_begun = False
        """Whether the response has started, so that its status can no longer change."""
        self.is_answered = False
        """Whether the response was sent completely."""
        self.refusal: Ending | None = None
        """Why the request would be refused now, or None if it is still accepted."""
        self._blocks: list[anyio.CancelScope] = []
        """The scopes of `lasting`, outermost first."""

    @contextmanager
    def lasting(self) -> Generator[None]:
        """Cancel the block when the stay ends. Blocks of the same stay can be nested."""
        with anyio.CancelScope() as block:
            self._blocks.append(block)
            try:
                yield
            finally:
                self._blocks.remove(block)

    def end(self, refusal: Ending) -> None:
        """End the stay, and cancel its innermost block if the response has started.

        The protocol can then report the reason. If the response has not started, cancel the outermost block: HTTP then
        refuses the request. A second call also cancels the outermost block, which cuts off what has not ended.
        """
        is_for_the_protocol = self.has_begun and self.refusal is None
        self.refusal = refusal
        if self._blocks:
            self._blocks[-1 if is_for_the_protocol else 0].cancel()


class Stays:
    """All stays of one authenticator."""

    def __init__(
        self, authenticator: Authenticator, clock: Callable[[], float] = time.time, *, most_each: float = math.inf
    ) -> None:
        """`clock` returns seconds since 1970, the unit in which tokens expire.

        `most_each` is the maximum number of concurrent requests per principal. It applies only if requests need
        credentials.
        """
        self.authenticator = authenticator
        self._clock = clock
        self._most_each = most_each
        self._stays: dict[Stay, None] = {}
        self._counts = Counter[str]()
        self._body_bytes = Counter[str]()
        """The numbers of requests and of body bytes, both by principal id."""
        self._due: dict[tuple[str, ...], float] = {}
        """When each set of headers is checked again. Headers without an entry are checked at once."""

    async def admit(self, shown: tuple[str, ...]) -> Principal:
        """Return the principal of a request with these headers. Raises the errors of `Authenticator.principal`."""
        return await self.authenticator.principal(shown)

    @contextmanager
    def begin(self, method: str, shown: tuple[str, ...], principal: Principal) -> Generator[Stay]:
        """Create a stay for the block. The request has these headers and was admitted as `principal`.

        Raises:
            Busy: the principal has too many concurrent requests.
        """
        if self.authenticator.asks and self._counts[principal.id] >= self._most_each:
            raise Busy(
                f"`{principal.id}` has reached the limit of {self._most_each:,} concurrent requests. Retry later."
            )
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
        """Count `count` more bytes of the body. Ends the stay if its principal has sent too many bytes."""
        whose = stay.principal.id
        stay.body_bytes += count
        self._body_bytes[whose] += count
        if self._body_bytes[whose] > MAX_BODY_BYTES_EACH:
            stay.end(Busy(f"`{whose}` exceeded the limit of {MAX_BODY_BYTES_EACH:,} bytes in concurrent requests."))

    @staticmethod
    def _take_back(counter: Counter[str], principal: Principal, count: int) -> None:
        counter[principal.id] -= count
        if not counter[principal.id]:
            del counter[principal.id]

    def hang_up(self) -> None:
        """End the open `GET` streams on which clients wait for changes, because the gateway stops."""
        for stay in self._stays:
            if stay.method == "GET":
                stay.end(Stopping())

    def end_all(self) -> None:
        """End every stay, because the gateway stops and the grace period is over."""
        for stay in self._stays:
            stay.end(Stopping())

    async def follow(self) -> None:
        """End the stays whose credentials are no longer accepted. Runs until it is cancelled."""
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
        # No new due time is set, so the next round tries again if a stay could not be ended.
        if others := [stay for stay in stays if stay.principal != principal]:
            _end(
                others,
                Unauthenticated("The principal or the scopes of this token changed during the request.", "claims"),
            )
            return
        self._due[shown] = min(self._clock() + KEYS_S, self.authenticator.expires_at(shown))


def _end(stays: list[Stay], refusal: Refusal) -> None:
    counts = Counter(stay.principal.id for stay in stays if stay.refusal is None)
    for stay in stays:
        stay.end(refusal)
    for principal, count in counts.items():
        many = "one request" if count == 1 else f"{count:,} requests"
        logger.warning("ended %s of `%s` before the response was complete: %s", many, principal, refusal.message)
