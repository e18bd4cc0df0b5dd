"""The token that requests to one server carry: read from the store, renewed in time, replaced after a refusal."""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from shlex import quote
from typing import TypeVar

import anyio
import anyio.to_thread
import httpx2

from toolcrib.core.principal import LOCAL
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.sources.mcp.oauth.grants import LEASE_S, Grant, GrantKey, GrantStore, StoredGrant, scopes
from toolcrib.sources.mcp.refused_requests import Refusal
from toolcrib.sources.mcp.server_spec import NO_OAUTH_SETTINGS, HttpServer

logger = logging.getLogger(__name__)

AHEAD_S = 60.0
"""How long before its expiry a token is renewed, in seconds."""

JITTER_S = 20.0
"""Each process adds up to this to `AHEAD_S`, so that not all of them try at the same time."""

RENEWAL_S = 25.0
"""How long a renewal may take in all, in seconds. Less than `LEASE_S`, so that no second renewal begins meanwhile."""

RETRY_S = 10.0
"""How long to wait after a renewal that failed, in seconds."""

_STEP_S = 0.05
_SETTLED_NS = 2_000_000_000
"""A file that was written less than this ago may be written again without a new time stamp."""

_KEPT_SECRETS = 16
_WANTS_SIGN_IN = "toolcrib/wants_sign_in"

T = TypeVar("T")


class NoCredentials(Exception):
    """A request cannot be sent, because its token cannot be read or renewed now."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.what)
        self.refusal = refusal


class Credentials:
    """Attaches, renews and steps up the tokens of one principal for one server. It never delays other requests.

    What a person granted is read from the store again whenever the file changes. So a running program notices a
    sign-in or a sign-out that happened in a different process.
    """

    def __init__(
        self,
        store: GrantStore,
        name: str,
        principal: str,
        server: HttpServer,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`name` is the name of the server's source. `draw` returns a random number from 0 to 1."""
        self._store = store
        self._name = name
        self._principal = principal
        self._server = server
        self._key = GrantKey.of(principal, server)
        self._ahead_s = AHEAD_S + JITTER_S * draw()
        self._threads = anyio.CapacityLimiter(4)
        """A separate limiter, so that a slow disk or a locked keyring does not block other work in threads."""
        self._stamp: object = None
        self._stored: StoredGrant | None = None
        self._is_settled = False
        self._secrets: deque[str] = deque(maxlen=_KEPT_SECRETS)
        self._untested: str | None = None
        """A token from a renewal that the server has not accepted yet."""
        self._failure: NoCredentials | None = None
        self._retry_at = 0.0
        self._obtaining = anyio.Lock()

    @property
    def login(self) -> str:
        """The command by which a person signs in."""
        return login_command(self._name, self._principal)

    @property
    def _wants_person(self) -> bool:
        """Whether a person has to sign in, and not this program itself."""
        return self._server.oauth.grant == "authorization_code"

    @property
    def _is_expected(self) -> bool:
        """Whether the server is known to ask for a sign-in: someone signed in to it, or it has settings for that."""
        return self._stored is not None or self._server.oauth != NO_OAUTH_SETTINGS

    @property
    def secrets(self) -> tuple[str, ...]:
        """The last tokens that were used. No message may contain them, even if a server sends them back."""
        return tuple(self._secrets)

    def stamp(self) -> object:
        """Return a value that changes with every sign-in and sign-out."""
        return self._store.stamp()

    async def token(self) -> str | None:
        """Return the token for the next request, or None if there was no sign-in.

        A token that is about to expire is renewed first, by one process. The others use it until then.

        Raises:
            NoCredentials: the grant cannot be read, or the token has expired and cannot be renewed now.
        """
        stored = await self._current()
        if stored is None or stored.grant is None:
            return None
        grant, now = stored.grant, self._store.now()
        if grant.expires_at is None or grant.refresh_token is None or now < grant.expires_at - self._ahead_s:
            return grant.access_token
        return await self._renewed(stored, grant, is_expired=now >= grant.expires_at)

    async def instead(self, used: str | None, response: httpx2.Response) -> str | None:
        """Return a token with which to repeat a request that was refused with `response`, or None.

        `used` is the token that the request had. If only a sign-in can help, `wants_sign_in(response)` is true
        afterwards.

        Raises:
            NoCredentials: as in `token`.
        """
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            token = await self._after_refusal(used, response)
            if token is None:
                self.judge(used, response)
            return token
        self.judge(used, response)
        if used is not None and _is_step_up(response):
            return await self._after_step_up(response)
        return None

    def judge(self, used: str | None, response: httpx2.Response) -> None:
        """Make `wants_sign_in(response)` true if the last answer to a request means that a person has to sign in.

        `used` is the token that the request had.
        """
        is_refused = response.status_code == HTTPStatus.UNAUTHORIZED
        if not is_refused and used == self._untested:
            self._untested = None
        if is_refused and self._wants_person and (self._is_expected or is_challenge(response)):
            response.extensions[_WANTS_SIGN_IN] = True

    async def _after_refusal(self, used: str | None, response: httpx2.Response) -> str | None:
        stored = await self._current()
        grant = None if stored is None else stored.grant
        if grant is not None and grant.access_token != used:  # renewed, or signed in, by a different request or process
            return grant.access_token
        if used is not None and used == self._untested:  # so a new one would be refused, too
            return None
        if not self._wants_person:
            return await self._obtained(used, response, "")
        if stored is None or grant is None or grant.refresh_token is None:
            return None
        token = await self._renewed(stored, grant, is_expired=True)
        return token if token != used else None

    async def _after_step_up(self, response: httpx2.Response) -> str | None:
        from toolcrib.sources.mcp.oauth.discovery import Challenge  # noqa: PLC0415  the SDK is slow to import

        stored = await self._current()
        if stored is None or stored.grant is None:
            return None
        has, wanted = stored.grant.scope, scopes(stored.wanted, Challenge.of(response).scope)
        if not set(wanted.split()) - set(has.split()):
            return None  # we have what it asks for, so a new token would be refused too
        if self._wants_person:
            await self._do(lambda: self._store.want(self._key, wanted))
            response.extensions[_WANTS_SIGN_IN] = True
            return None
        return await self._obtained(stored.grant.access_token, response, scopes(has, wanted))

    async def _renewed(self, stored: StoredGrant, grant: Grant, *, is_expired: bool) -> str:
        """Return a token from the refresh token, which this process or a different one exchanges.

        A refresh token may be valid only once. So only the process that holds the lease sends it.
        """
        if self._failure is not None and time.monotonic() < self._retry_at:
            if is_expired:
                raise self._failure
            return grant.access_token
        until = anyio.current_time() + LEASE_S + RENEWAL_S
        while True:
            # The issuer may have spent the refresh token once the request is sent. So a caller that leaves must not
            # stop the answer from being stored.
            with anyio.CancelScope(shield=True):
                if (mark := await self._do(lambda: self._store.lease(stored))) is not None:
                    return await self._exchange(grant, mark, is_expired=is_expired)
            if not is_expired:
                return grant.access_token
            now = await self._current()
            if now is None or now.grant is None:
                return grant.access_token  # signed out, so the server refuses it
            if now.version != stored.version:
                return now.grant.access_token
            if anyio.current_time() > until:
                raise _cannot_renew("a different process of Toolcrib did not finish it")
            await anyio.sleep(_STEP_S)

    async def _exchange(self, grant: Grant, mark: str, *, is_expired: bool) -> str:
        from toolcrib.sources.mcp.oauth.issuer_requests import IssuerFailed, reaching  # noqa: PLC0415  see above
        from toolcrib.sources.mcp.oauth.token_requests import refresh  # noqa: PLC0415

        store, key, settings, url = self._store, self._key, self._server.oauth, self._server.url
        try:
            with anyio.fail_after(RENEWAL_S):
                async with reaching(url, allow_private=settings.allow_private) as http:
                    new = await refresh(http, grant, settings, url, store.now)
        except (IssuerFailed, TimeoutError) as error:
            if isinstance(error, IssuerFailed) and error.code == "invalid_grant":
                logger.warning("source %s: the sign-in has ended: %s", self._name, error.message)
                await self._do(lambda: store.renew(key, mark, replace(grant, refresh_token=None)))
                return grant.access_token
            await self._do(lambda: store.give_back(key, mark))
            why = error.message if isinstance(error, IssuerFailed) else f"it took longer than {RENEWAL_S:g} s"
            logger.warning("source %s: the sign-in could not be renewed: %s", self._name, why)
            self._failure, self._retry_at = _cannot_renew(why), time.monotonic() + RETRY_S
            if is_expired:
                raise self._failure from None
            return grant.access_token
        self._failure = None
        self._note(new)
        self._untested = new.access_token
        if not await self._do(lambda: store.renew(key, mark, new)):
            logger.info("source %s: the grant was changed while it was renewed", self._name)
        logger.info("source %s: the sign-in was renewed", self._name)
        return new.access_token

    async def _obtained(self, used: str | None, response: httpx2.Response, scope: str) -> str | None:
        """Return a token for the configured client itself. `scope` replaces the scopes that the server names."""
        from toolcrib.sources.mcp.oauth.discovery import Challenge, discover  # noqa: PLC0415  see above
        from toolcrib.sources.mcp.oauth.issuer_requests import IssuerFailed, reaching  # noqa: PLC0415
        from toolcrib.sources.mcp.oauth.token_requests import client_credentials  # noqa: PLC0415

        settings, url, store = self._server.oauth, self._server.url, self._store
        async with self._obtaining:
            stored = await self._current()
            if stored is not None and stored.grant is not None and stored.grant.access_token != used:
                return stored.grant.access_token
            try:
                with anyio.fail_after(RENEWAL_S):
                    async with reaching(url, allow_private=settings.allow_private) as http:
                        found = await discover(http, url, Challenge.of(response), settings)
                        found = replace(found, scope=scope or found.scope)
                        grant = await client_credentials(http, found, settings, store.now)
            except (IssuerFailed, TimeoutError) as error:
                why = error.message if isinstance(error, IssuerFailed) else f"it took longer than {RENEWAL_S:g} s"
                raise NoCredentials(
                    Refusal("needs a sign-in, which failed", why, retryable=getattr(error, "retryable", True))
                ) from None
            self._note(grant)
            self._untested = grant.access_token
            await self._do(lambda: store.save(self._key, self._name, grant))
            return grant.access_token

    async def _current(self) -> StoredGrant | None:
        """Return what is stored now. The file is read only if it may have changed."""
        stamp = self._store.stamp()
        if stamp is None:
            self._stamp = self._stored = None
            return None
        if stamp != self._stamp or not self._is_settled:
            self._stored = await self._do(lambda: self._store.get(self._key))
            self._stamp, self._is_settled = stamp, abs(time.time_ns() - stamp[0]) > _SETTLED_NS
            if self._stored is not None and self._stored.grant is not None:
                self._note(self._stored.grant)
        return self._stored

    def _note(self, grant: Grant) -> None:
        for secret in grant.secrets:
            if secret not in self._secrets:
                self._secrets.append(secret)

    async def _do(self, action: Callable[[], T]) -> T:
        """Run `action` on the store in a thread.

        Raises:
            NoCredentials: the store cannot be used.
        """
        try:
            return await anyio.to_thread.run_sync(action, limiter=self._threads)
        except (OSError, sqlite3.Error, KeyUnavailable) as error:
            why = str(error) if isinstance(error, KeyUnavailable) else f"{self._store.path}: {error}"
            raise NoCredentials(
                Refusal("needs a sign-in, and the stored one cannot be read now", why, retryable=True)
            ) from error


def wants_sign_in(response: httpx2.Response) -> bool:
    """Return whether `Credentials.instead` found that only a sign-in helps after `response`."""
    return _WANTS_SIGN_IN in response.extensions


def is_challenge(response: httpx2.Response) -> bool:
    """Return whether a server refused a request because it wants a token of OAuth.

    Source: RFC 9728, section 5.1.
    """
    challenge = response.headers.get("www-authenticate", "").lower()
    return response.status_code == HTTPStatus.UNAUTHORIZED and "resource_metadata" in challenge


def _is_step_up(response: httpx2.Response) -> bool:
    """Return whether a server refused a request because its token lacks a scope.

    Source: RFC 6750, section 3.1.
    """
    challenge = response.headers.get("www-authenticate", "").lower()
    return response.status_code == HTTPStatus.FORBIDDEN and "insufficient_scope" in challenge


def login_command(name: str, principal: str) -> str:
    """Return the command by which `principal` signs in to the server `name`."""
    return f"toolcrib login {quote(name)}" + ("" if principal == LOCAL.id else f" --for {quote(principal)}")


def _cannot_renew(why: str) -> NoCredentials:
    return NoCredentials(Refusal("has a sign-in that cannot be renewed now", why, retryable=True))
