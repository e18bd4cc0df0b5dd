"""Requests to token endpoints: how a client authenticates there, and the grants that it exchanges for tokens."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from toolcrib.core.uris import shown
from toolcrib.sources.mcp.oauth.discovery import Discovered, issuer_metadata
from toolcrib.sources.mcp.oauth.grants import Grant, RegisteredClient, scopes
from toolcrib.sources.mcp.oauth.issuer_requests import IssuerClient, IssuerFailed, refused
from toolcrib.sources.mcp.server_spec import OAuthSettings

ASSERTION_S = 120
"""How long a signed assertion is valid, in seconds."""

_LONGEST_EXPIRY_S = 10 * 366 * 86_400.0

Clock = Callable[[], float]
"""A clock in seconds since 1970."""


async def exchange_code(
    http: IssuerClient, discovered: Discovered, client: RegisteredClient, form: Mapping[str, str], now: Clock
) -> Grant:
    """Exchange the authorization code in `form` for tokens. `form` also has the verifier and the redirect URI.

    Raises:
        IssuerFailed: the issuer refuses, or cannot be reached.
    """
    token_endpoint = str(discovered.metadata.token_endpoint)
    revocation = discovered.metadata.revocation_endpoint
    empty = Grant(
        issuer=discovered.issuer,
        token_endpoint=token_endpoint,
        revocation_endpoint=None if revocation is None else str(revocation),
        resource=discovered.resource,
        client=client,
        scope=discovered.scope,
        access_token="",
    )
    form = {"grant_type": "authorization_code", "resource": discovered.resource, **form}
    return _granted(await _tokens(http, token_endpoint, client, form, "the authorization code"), empty, now)


async def refresh(http: IssuerClient, grant: Grant, settings: OAuthSettings, server_url: str, now: Clock) -> Grant:
    """Exchange the refresh token of `grant` for new tokens.

    The endpoint comes from the issuer's current metadata, so an issuer may move it.

    Raises:
        IssuerFailed: the issuer refuses, or cannot be reached. With the code `invalid_grant`, only a new sign-in helps.
    """
    metadata = await issuer_metadata(http, grant.issuer, server_url)
    endpoint = str(metadata.token_endpoint)
    form = {
        "grant_type": "refresh_token",
        "refresh_token": grant.refresh_token or "",
        "resource": grant.resource,
    }
    client = replace(grant.client, secret=settings.client_secret) if _is_configured(grant, settings) else grant.client
    answer = await _tokens(http, endpoint, client, form, "to renew the sign-in")
    # An issuer that does not rotate refresh tokens sends none.
    kept = replace(grant, token_endpoint=endpoint)
    return replace(_granted(answer, kept, now), refresh_token=answer.refresh_token or grant.refresh_token)


def _is_configured(grant: Grant, settings: OAuthSettings) -> bool:
    """Return whether the client is the configured one, whose secret the owner may have changed since the sign-in."""
    return bool(settings.client_secret) and grant.client.id == settings.client_id


async def client_credentials(http: IssuerClient, discovered: Discovered, settings: OAuthSettings, now: Clock) -> Grant:
    """Return tokens for the configured client itself, without a person.

    Source: RFC 6749, section 4.4; MCP extension "OAuth client credentials".

    Raises:
        IssuerFailed: the issuer refuses, or cannot be reached.
    """
    method = "private_key_jwt" if settings.private_key else secret_method(discovered)
    client = RegisteredClient(settings.client_id, settings.client_secret or None, method)
    endpoint = str(discovered.metadata.token_endpoint)
    form = {"grant_type": "client_credentials", "resource": discovered.resource}
    if discovered.scope:
        form["scope"] = discovered.scope
    if settings.private_key:
        form["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        form["client_assertion"] = _assertion(settings, discovered.issuer, now)
    answer = await _tokens(http, endpoint, client, form, "the client's own credentials")
    empty = Grant(
        issuer=discovered.issuer,
        token_endpoint=endpoint,
        resource=discovered.resource,
        client=RegisteredClient(settings.client_id, None, method),
        scope=discovered.scope,
        access_token="",
    )
    # The client can always ask again, so a refresh token would only be one more secret.
    return replace(_granted(answer, empty, now), refresh_token=None)


async def revoke(http: IssuerClient, grant: Grant) -> bool:
    """Revoke the tokens of `grant` at its issuer. Return False if the issuer has no way to do that.

    Raises:
        IssuerFailed: the issuer refuses, or cannot be reached.
    """
    if grant.revocation_endpoint is None:
        return False
    for token, kind in ((grant.refresh_token, "refresh_token"), (grant.access_token, "access_token")):
        if token:
            form, headers = _authenticated(grant.client, {"token": token, "token_type_hint": kind})
            response = await http.post(grant.revocation_endpoint, form, headers)
            if response.status_code != 200:
                raise refused(response, "to revoke the sign-in", grant.secrets)
    return True


def secret_method(discovered: Discovered) -> Literal["client_secret_basic", "client_secret_post"]:
    """Return how a client with a secret authenticates at the token endpoint.

    Source: RFC 8414, section 2: `client_secret_basic` is the default of `token_endpoint_auth_methods_supported`.
    """
    supported = discovered.metadata.token_endpoint_auth_methods_supported
    if supported is not None and "client_secret_basic" not in supported and "client_secret_post" in supported:
        return "client_secret_post"
    return "client_secret_basic"


async def _tokens(
    http: IssuerClient, endpoint: str, client: RegisteredClient, form: Mapping[str, str], what: str
) -> OAuthToken:
    """Send `form` to a token endpoint, and return its tokens. `what` says what is sent, for errors."""
    hides = (*form.values(), client.secret or "")
    form, headers = _authenticated(client, form)
    response = await http.post(endpoint, form, headers)
    if response.status_code != 200:
        raise refused(response, what, hides)
    try:
        return OAuthToken.model_validate_json(response.content)
    except ValidationError:  # its text quotes the answer
        raise IssuerFailed(f"{shown(endpoint)} did not answer with tokens that Toolcrib can use.") from None


def _authenticated(client: RegisteredClient, form: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers of a request by `client`.

    Source: RFC 6749, section 2.3.1.
    """
    if client.secret and client.method == "client_secret_basic":
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        return dict(form), {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    named = {**form, "client_id": client.id}
    return ({**named, "client_secret": client.secret} if client.secret else named), {}


def _granted(answer: OAuthToken, empty: Grant, now: Clock) -> Grant:
    """Return `empty` with the tokens of `answer`."""
    expires_in = answer.expires_in
    return replace(
        empty,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token,
        scope=empty.scope if answer.scope is None else scopes(answer.scope),
        expires_at=None if expires_in is None else now() + min(max(0.0, float(expires_in)), _LONGEST_EXPIRY_S),
    )


def _assertion(settings: OAuthSettings, issuer: str, now: Clock) -> str:
    """Return a signed statement that we are the configured client. It is valid only at `issuer`, and for two minutes.

    Source: RFC 7523, section 3, with the issuer as audience as draft-ietf-oauth-rfc7523bis demands.

    Raises:
        IssuerFailed: the private key cannot be used.
    """
    import jwt  # noqa: PLC0415  only machines with a key of their own need it
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    issued = int(now())
    claims = {
        "iss": settings.client_id,
        "sub": settings.client_id,
        "aud": issuer,
        "iat": issued,
        "exp": issued + ASSERTION_S,
        "jti": secrets.token_urlsafe(16),
    }
    try:
        key = load_pem_private_key(settings.private_key.encode(), None)
        curves = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
        if isinstance(key, rsa.RSAPrivateKey):
            algorithm = "RS256"
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            algorithm = curves[key.curve.name]
        else:
            algorithm = "EdDSA"
        return jwt.encode(claims, settings.private_key, algorithm=algorithm)
    except (ValueError, TypeError, KeyError, jwt.PyJWTError) as error:
        # The text of the error may quote the key.
        raise IssuerFailed(
            f"`oauth.private_key` is not an unencrypted private key in PEM for RSA, EC or Ed25519"
            f" ({type(error).__name__})."
        ) from None
