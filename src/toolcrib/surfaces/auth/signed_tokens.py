"""Checks for signed tokens (JWT) of an authorization server: whether a token is valid, and for which principal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jwt

from toolcrib.config.access_settings import Jwt, may_be_principal
from toolcrib.core.principal import Principal
from toolcrib.surfaces.auth.auth_refusals import InsufficientScope, Unauthenticated
from toolcrib.surfaces.auth.issuer_keys import IssuerKeys

LEEWAY_S = 30
"""How much the clocks of the issuer and this machine may differ, in seconds."""

MAX_CHARS = 16_384
"""The maximum length of a token, in characters. Most servers limit a header to less."""


class SignedTokens:
    """Checks the tokens of one issuer."""

    def __init__(self, settings: Jwt, keys: IssuerKeys | None = None) -> None:
        self._settings = settings
        self._keys = keys or IssuerKeys(settings.issuer, settings.jwks_url or None)

    async def principal(self, token: str) -> Principal:
        """Return the principal of `token`.

        Raises:
            Unauthenticated: the token is malformed, expired, not valid yet, wrongly signed, or for a different issuer
                or audience.
            InsufficientScope: the token lacks one of the scopes that every token must have.
            KeysUnavailable: the issuer's keys are unavailable, so the token cannot be checked.
        """
        claims = await self._claims(token)
        name = claims.get(self._settings.principal_claim)
        if not isinstance(name, str) or not may_be_principal(name):
            raise Unauthenticated(
                f"The claim `{self._settings.principal_claim}` of this token is not a valid principal name.", "claims"
            )
        scopes = _scopes(claims, self._settings.scope_claims)
        if not scopes.issuperset(self._settings.required_scopes):
            raise InsufficientScope(self._settings.required_scopes)
        return Principal(name, scopes)

    def expires_at(self, token: str) -> float:
        """Return when `token`, which was valid, expires, in seconds since 1970."""
        # Truncated to an integer, as the JWT library does for its own comparison.
        return int(jwt.decode(token, options={"verify_signature": False})["exp"]) + LEEWAY_S

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MAX_CHARS or token.count(".") != 2:  # not a JWT, which has three parts
            raise Unauthenticated("Invalid token.", "unknown")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError) as error:
            raise Unauthenticated("This token cannot be decoded.", "malformed") from error
        # The algorithm is checked before any key is fetched. The token may only choose among the configured algorithms.
        # These never include `none` or shared-secret algorithms: with a shared secret, an attacker could sign with the
        # public key.
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise Unauthenticated("This token uses a signature algorithm that is not accepted.", "unknown")
        key = await self._keys.key(key_id, algorithm)
        if key is None:
            raise Unauthenticated("This token is signed with a key that the issuer does not have.", "unknown")
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
            return Unauthenticated("This token has expired.", "expired")
        case jwt.ImmatureSignatureError():
            return Unauthenticated("This token is not valid yet.", "claims")
        case jwt.InvalidAudienceError():
            return Unauthenticated("This token was issued for a different audience.", "claims")
        case jwt.InvalidIssuerError():
            return Unauthenticated("This token was issued by a different issuer.", "claims")
        case jwt.MissingRequiredClaimError(claim=str() as claim):
            return Unauthenticated(f"This token has no claim `{claim}`.", "claims")
        case jwt.exceptions.InvalidSubjectError() | jwt.InvalidIssuedAtError():
            return Unauthenticated("Invalid token.", "claims")
        case _:  # mainly: not signed by the issuer
            return Unauthenticated("Invalid token.", "unknown")


def _scopes(claims: Mapping[str, object], names: tuple[str, ...]) -> frozenset[str]:
    """Read the scopes. Authorization servers send them as a string separated by spaces, or as a list."""
    found = next((claims[name] for name in names if name in claims), None)
    if isinstance(found, str):
        return frozenset(found.split())
    texts = cast("list[object]", found) if isinstance(found, list) else []
    return frozenset(text for text in texts if isinstance(text, str))
