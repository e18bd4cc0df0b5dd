"""Reads `toolcrib.auth`: which clients can use the HTTP gateway, and under which host names it is reached."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolcrib.config.settings import Settings
from toolcrib.core.principal import LOCAL, Principal

AUTH_SETTINGS: Mapping[str, str] = {
    "tokens": "Access tokens by their hash. Create one with `toolcrib token NAME`.",
    "jwt": "The issuer whose signed tokens (JWT) are accepted as well.",
    "public_url": "The URL at which clients reach the gateway, without `/mcp`, such as `https://tools.example.com`.",
    "allowed_hosts": 'More host names that clients may use in the `Host` header; `["*"]` for any.',
    "allowed_origins": 'Web origins that may send requests, such as `https://app.example.com`; `["*"]` for any.',
}
"""Every key below `toolcrib.auth`, with what it does."""

TOKEN_SETTINGS: Mapping[str, str] = {
    "sha256": "The SHA-256 hash of the token, 64 hex digits.",
    "principal": "The principal that requests with this token act for.",
    "scopes": "The scopes of this token, for use in policy rules ([]).",
}
"""Every key of an entry of `toolcrib.auth.tokens`."""

JWT_SETTINGS: Mapping[str, str] = {
    "issuer": "The issuer of the tokens, exactly as in their `iss` claim.",
    "audience": "The audience: a string, or a list of strings. The `aud` claim must contain one of them.",
    "jwks_url": "The URL of the issuer's keys. Default: the one in the issuer's metadata.",
    "algorithms": "The accepted signature algorithms. All of them use public keys (RS256, ES256, EdDSA).",
    "principal_claim": "The claim with the principal (`sub`).",
    "scope_claim": "The claim with the scopes (`scope`, else `scp`).",
    "required_scopes": "The scopes that every token must have ([]).",
    "shares_principals": "Whether equal names in `tokens` and from the issuer mean the same principal (false).",
}
"""Every key below `toolcrib.auth.jwt`."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms with public keys only: nothing that a gateway knows is enough to sign a token."""

_DEFAULT_ALGORITHMS = ("RS256", "ES256", "EdDSA")

MAX_PRINCIPAL_CHARS = 255

ANY = "*"


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token, known only by its hash."""

    digest: bytes
    """The SHA-256 hash of the token's UTF-8 bytes, 32 bytes."""
    principal: Principal


@dataclass(frozen=True, slots=True)
class Jwt:
    """The issuer whose signed tokens are accepted, and the claims that are read. See `JWT_SETTINGS`."""

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = _DEFAULT_ALGORITHMS
    principal_claim: str = "sub"
    scope_claims: tuple[str, ...] = ("scope", "scp")
    """The claims that can hold the scopes. The first one that a token has is used."""
    required_scopes: tuple[str, ...] = ()
    shares_principals: bool = False


@dataclass(frozen=True, slots=True)
class Auth:
    """Who can use the gateway over HTTP."""

    is_required: bool = False
    """Whether requests need credentials."""
    tokens: tuple[BearerToken, ...] = ()
    jwt: Jwt | None = None
    public_url: str | None = None
    """Scheme, host, port and the path of a proxy if there is one, without a trailing slash."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names in lower case."""
    allowed_origins: tuple[str, ...] = ()
    """Web origins in lower case."""


NO_AUTH = Auth()


def read_auth(settings: Settings) -> Auth:
    """Read `settings`, the object under `toolcrib.auth`.

    If `tokens` or `jwt` is present, credentials are required, even with an empty list: removing the last token must not
    open the gateway to everyone.

    Raises:
        InvalidConfig: a key is unknown, or a value is invalid. The message names its place.
    """
    settings.only(AUTH_SETTINGS)
    is_required = "tokens" in settings or "jwt" in settings
    tokens = tuple(_token(entry) for entry in settings.each("tokens"))
    digests = [token.digest for token in tokens]
    if len(set(digests)) != len(digests):
        raise settings.wrong("tokens", "two tokens have the same hash")
    hosts = tuple(host.lower() for host in settings.texts("allowed_hosts"))
    origins = tuple(origin.lower() for origin in settings.texts("allowed_origins"))
    for key, values in (("allowed_hosts", hosts), ("allowed_origins", origins)):
        if ANY in values and not is_required:
            raise settings.wrong(key, "`*` is only allowed if `tokens` or `jwt` is configured")
    for origin in origins:
        if origin != ANY and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin):
            raise settings.wrong("allowed_origins", f"`{origin}` is not an origin, for example https://app.example.com")
    return Auth(
        is_required=is_required,
        tokens=tokens,
        jwt=_jwt(settings.settings("jwt")) if "jwt" in settings else None,
        public_url=_public_url(settings),
        allowed_hosts=hosts,
        allowed_origins=origins,
    )


def _token(entry: Settings) -> BearerToken:
    entry.only(TOKEN_SETTINGS)
    digest = entry.text("sha256")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise entry.wrong("sha256", "must be a SHA-256 hash of 64 hex digits, as printed by `toolcrib token`")
    principal = entry.text("principal")
    if not may_be_principal(principal):
        raise entry.wrong(
            "principal", f"must be a name of 1 to {MAX_PRINCIPAL_CHARS} printable characters other than `{LOCAL.id}`"
        )
    return BearerToken(bytes.fromhex(digest), Principal(principal, frozenset(entry.texts("scopes"))))


def may_be_principal(name: str) -> bool:
    """Return whether a credential can have this principal. `local` is reserved for the person at this machine."""
    return 0 < len(name) <= MAX_PRINCIPAL_CHARS and name.isprintable() and name != LOCAL.id


def _jwt(settings: Settings) -> Jwt:
    settings.only(JWT_SETTINGS)
    for key in ("issuer", "audience"):
        if not settings.texts(key) or "" in settings.texts(key):
            raise settings.wrong(key, "is required, because otherwise tokens for other services would be accepted")
    issuer, jwks_url = settings.text("issuer"), settings.text("jwks_url") or None
    for key, url in (("jwks_url", jwks_url), ("issuer", issuer if jwks_url is None else None)):
        if url is not None and not is_safe(url):
            raise settings.wrong(key, "must be an https URL (http is allowed only for this machine)")
    algorithms = settings.texts("algorithms") or _DEFAULT_ALGORITHMS
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            raise settings.wrong("algorithms", f"`{algorithm}` is not supported. Use one of: {', '.join(ALGORITHMS)}")
    claim = settings.text("scope_claim")
    return Jwt(
        issuer=issuer,
        audience=settings.texts("audience"),
        jwks_url=jwks_url,
        algorithms=algorithms,
        principal_claim=settings.text("principal_claim") or "sub",
        scope_claims=(claim,) if claim else ("scope", "scp"),
        required_scopes=settings.texts("required_scopes"),
        shares_principals=settings.flag("shares_principals"),
    )


def is_safe(url: str) -> bool:
    """Return whether keys can be fetched from `url` safely, so that no one on the network can replace them."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return host is not None and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_loopback(host: str) -> bool:
    """Return whether `host` is a name or address of this machine that is not reachable from other machines."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _public_url(settings: Settings) -> str | None:
    url = settings.text("public_url").rstrip("/")
    if url and not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", url):
        raise settings.wrong("public_url", "must be an http or https URL without a query")
    return url or None
