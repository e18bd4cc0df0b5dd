"""The one place where the `Authorization` header of a request becomes a principal."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
from collections.abc import Sequence

from toolcrib.config.auth import NO_AUTH, Auth, BearerToken
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.surfaces.auth.refusals import Unauthenticated
from toolcrib.surfaces.auth.signed_tokens import SignedTokens

logger = logging.getLogger(__name__)


class Authenticator:
    """Tells who sends a request, by what the configuration says at that moment."""

    def __init__(self, auth: Auth) -> None:
        self._auth = NO_AUTH
        self._signed: SignedTokens | None = None
        self.asks = False
        """Whether anybody is asked for credentials."""
        self.version = 0
        """Another one after each change of what it goes by."""
        self.take(auth)

    def take(self, auth: Auth) -> None:
        """Go by `auth` from now on. Once credentials are asked for they are to the end, even if nobody has any left: a
        change of a file must not open what was closed."""
        self.asks = self.asks or auth.is_required
        if auth.jwt != self._auth.jwt:
            self._signed = SignedTokens(auth.jwt) if auth.jwt is not None else None
        self._auth = auth
        self.version += 1

    @property
    def issuer(self) -> str | None:
        """Who issues tokens, so that a client can get one by itself; None where nobody does."""
        return self._auth.jwt.issuer if self._auth.jwt is not None else None

    @property
    def required_scopes(self) -> tuple[str, ...]:
        """What whoever gets a token should ask for."""
        return self._auth.jwt.required_scopes if self._auth.jwt is not None else ()

    async def principal(self, headers: Sequence[str]) -> Principal:
        """Who sends a request with these `Authorization` headers; the person at this machine where nobody is asked.

        Raises:
            Unauthenticated: none, several, or one that is not good.
            InsufficientScope: a good one that may not even come in.
            KeysUnavailable: nobody can tell now.
        """
        if not self.asks:
            return LOCAL
        token = _bearer(headers)
        if (principal := known(token, self._auth.tokens)) is not None:
            return principal
        if self._signed is None:
            raise Unauthenticated("The token is not known here.", "unknown")
        principal = await self._signed.principal(token)
        self._refuse_namesake(principal)
        return principal

    def expires_at(self, headers: Sequence[str]) -> float:
        """From when on whoever is let in with these headers is not any more, in seconds since 1970; infinite where only
        a change of the configuration can do that."""
        if not self.asks or self._signed is None or known(token := _bearer(headers), self._auth.tokens) is not None:
            return math.inf
        return self._signed.expires_at(token)

    def _refuse_namesake(self, principal: Principal) -> None:
        """Who chooses their name at the issuer must not become whoever the configuration calls so."""
        shared = self._auth.jwt is not None and self._auth.jwt.shares_principals
        if shared or all(token.principal.id != principal.id for token in self._auth.tokens):
            return
        logger.warning(
            "a signed token of `%s` was refused: one of `toolcrib.auth.tokens` has that principal; if the two are one, "
            "set `toolcrib.auth.jwt.shares_principals`",
            principal.id,
        )
        raise Unauthenticated("The token is of a principal who asks with a token of the configuration here.", "claims")


def _bearer(headers: Sequence[str]) -> str:
    """The one token that is shown.

    Raises:
        Unauthenticated: there is none, or not just one.
    """
    if not headers:
        raise Unauthenticated("This takes a token: send `Authorization: Bearer TOKEN`.", "missing")
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not (token := token.strip()):
        raise Unauthenticated("This takes one header `Authorization: Bearer TOKEN` and no other.", "malformed")
    return token


def known(token: str, tokens: Sequence[BearerToken]) -> Principal | None:
    """Whose `token` is. How long that takes does not depend on which of them it is like."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    found: Principal | None = None
    for each in tokens:
        if hmac.compare_digest(each.digest, digest):
            found = each.principal
    return found
