"""The authenticator, which turns the `Authorization` header of a request into a principal."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
from collections.abc import Sequence

from toolcrib.config.access_settings import NO_AUTH, Auth, BearerToken
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.surfaces.auth.auth_refusals import Unauthenticated
from toolcrib.surfaces.auth.signed_tokens import SignedTokens

logger = logging.getLogger(__name__)


class Authenticator:
    """Determines who sends a request, by the current configuration."""

    def __init__(self, auth: Auth) -> None:
        self._auth: Auth = NO_AUTH
        self._signed: SignedTokens | None = None
        self.asks = False
        """Whether requests need credentials."""
        self.version = 0
        """Increases with each change of the configuration."""
        self.take(auth)

    def take(self, auth: Auth) -> None:
        """Use `auth` from now on.

        Once credentials are required, they stay required, even if the new configuration has none. A change of a file
        must not open a gateway that was protected.
        """
        self.asks = self.asks or auth.is_required
        if auth.jwt != self._auth.jwt:
            self._signed = SignedTokens(auth.jwt) if auth.jwt is not None else None
        self._auth = auth
        self.version += 1

    @property
    def issuer(self) -> str | None:
        """The token issuer from which a client can get a token, or None if no issuer is configured."""
        return self._auth.jwt.issuer if self._auth.jwt is not None else None

    @property
    def required_scopes(self) -> tuple[str, ...]:
        """The scopes that a client should request with a token."""
        return self._auth.jwt.required_scopes if self._auth.jwt is not None else ()

    async def principal(self, headers: Sequence[str]) -> Principal:
        """Return who sends a request with these `Authorization` headers. Without authentication, this is `LOCAL`.

        Raises:
            Unauthenticated: there is no token, more than one, or an invalid one.
            InsufficientScope: the token is valid, but it lacks a required scope.
            KeysUnavailable: the issuer's keys are unavailable, so the token cannot be checked.
        """
        if not self.asks:
            return LOCAL
        token = _bearer(headers)
        if (principal := known(token, self._auth.tokens)) is not None:
            return principal
        if self._signed is None:
            raise Unauthenticated("Invalid token.", "unknown")
        principal = await self._signed.principal(token)
        self._refuse_namesake(principal)
        return principal

    def expires_at(self, headers: Sequence[str]) -> float:
        """Return when the credentials in these headers expire, in seconds since 1970.

        Returns infinity for credentials that only a change of the configuration can end.
        """
        if not self.asks or self._signed is None or known(token := _bearer(headers), self._auth.tokens) is not None:
            return math.inf
        return self._signed.expires_at(token)

    def _refuse_namesake(self, principal: Principal) -> None:
        """Refuse a signed token that uses the principal of a configured token.

        Otherwise a person who can choose their name at the issuer could act as a principal of the configuration.
        """
        shared = self._auth.jwt is not None and self._auth.jwt.shares_principals
        if shared or all(token.principal.id != principal.id for token in self._auth.tokens):
            return
        logger.warning(
            "refused a signed token of `%s`: this principal also has an entry in `toolcrib.auth.tokens`; if both are "
            "the same principal, set `toolcrib.auth.jwt.shares_principals`",
            principal.id,
        )
        raise Unauthenticated(
            "This token names a principal that must use a token from the gateway's configuration.", "claims"
        )


def _bearer(headers: Sequence[str]) -> str:
    """Return the token of the only `Authorization` header.

    Raises:
        Unauthenticated: there is no header, more than one, or one that is not a bearer token.
    """
    if not headers:
        raise Unauthenticated("Authentication required. Send the header `Authorization: Bearer TOKEN`.", "missing")
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not (token := token.strip()):
        raise Unauthenticated(
            "Invalid credentials. Send exactly one `Authorization` header, in the form `Bearer TOKEN`.", "malformed"
        )
    return token


def known(token: str, tokens: Sequence[BearerToken]) -> Principal | None:
    """Return the principal of `token`, or None.

    All entries are compared, so the time does not reveal which one matches.
    """
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    found: Principal | None = None
    for each in tokens:
        if hmac.compare_digest(each.digest, digest):
            found = each.principal
    return found
