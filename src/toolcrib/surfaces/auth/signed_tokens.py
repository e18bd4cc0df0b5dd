"""Tokens that an authorization server signed (JWT): whether one is good here, and what it says of its bearer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jwt

from toolcrib.config.auth import Jwt, may_be_principal
from toolcrib.core.principal import Principal
from toolcrib.surfaces.auth.keys import IssuerKeys
from toolcrib.surfaces.auth.refusals import InsufficientScope, Unauthenticated

LEEWAY_S = 30
"""How far the clocks of the issuer and this machine may be apart, in seconds."""

MAX_CHARS = 16_384
"""Of a token: more than a header of most servers may hold."""


class SignedTokens:
    """Checks the tokens of one issuer."""

    def __init__(self, settings: Jwt, keys: IssuerKeys | None = None) -> None:
        self._settings = settings
        self._keys = keys or IssuerKeys(settings.issuer, settings.jwks_url)

    async def principal(self, token: str) -> Principal:
        """Whose `token` is.

        Raises:
            Unauthenticated: it is none, of another issuer, for others, out of date, or not signed as it should be.
            InsufficientScope: it lacks one of the scopes that every token has to have.
            KeysUnavailable: nobody can tell now.
        """
        claims = await self._claims(token)
        name = claims.get(self._settings.principal_claim)
        if not isinstance(name, str) or not may_be_principal(name):
            raise Unauthenticated(f"The token's `{self._settings.principal_claim}` names nobody.", "claims")
        scopes = _scopes(claims, self._settings.scope_claims)
        if not scopes.issuperset(self._settings.required_scopes):
            raise InsufficientScope(self._settings.required_scopes)
        return Principal(name, scopes)

    def expires_at(self, token: str) -> float:
        """When `token`, which was good, is not any more, in seconds since 1970."""
        # As it was compared by the library: an integer, whatever number it is.
        return int(jwt.decode(token, options={"verify_signature": False})["exp"]) + LEEWAY_S

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MAX_CHARS or token.count(".") != 2:
            raise Unauthenticated("The token is not known here.", "unknown")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError) as error:
            raise Unauthenticated("The token cannot be read.", "malformed") from error
        # Before any key is asked for: what the token says of itself only picks among what is configured, and `none`
        # and signatures by a shared secret, which a public key could be mistaken for, never are.
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise Unauthenticated("The token is not signed in a way that is good here.", "unknown")
        key = await self._keys.key(key_id, algorithm)
        if key is None:
            raise Unauthenticated("The token is signed with a key that its issuer does not have.", "unknown")
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise _refusal(error) from error


def _refusal(error: Exception) -> Unauthenticated:
    match error:
        case jwt.ExpiredSignatureError():
            return Unauthenticated("The token has expired.", "expired")
        case jwt.ImmatureSignatureError():
            return Unauthenticated("The token is not good yet.", "claims")
        case jwt.InvalidAudienceError():
            return Unauthenticated("The token was issued for others.", "claims")
        case jwt.InvalidIssuerError():
            return Unauthenticated("The token is of another issuer.", "claims")
        case jwt.MissingRequiredClaimError(claim=str() as claim):
            return Unauthenticated(f"The token has no `{claim}`.", "claims")
        case jwt.exceptions.InvalidSubjectError() | jwt.InvalidIssuedAtError():
            return Unauthenticated("The token is not good.", "claims")
        case _:  # not signed by the issuer, foremost
            return Unauthenticated("The token is not good.", "unknown")


def _scopes(claims: Mapping[str, object], names: tuple[str, ...]) -> frozenset[str]:
    """Authorization servers write them as a text with blanks in between, or as a list."""
    found = next((claims[name] for name in names if name in claims), None)
    if isinstance(found, str):
        return frozenset(found.split())
    texts = cast("list[object]", found) if isinstance(found, list) else []
    return frozenset(text for text in texts if isinstance(text, str))
