"""Who may ask over HTTP, and under which names: what stands under `toolcrib.auth`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolcrib.config.settings import Settings
from toolcrib.core.principal import LOCAL, Principal

AUTH_SETTINGS: Mapping[str, str] = {
    "tokens": "Bearer tokens by their hash; `toolcrib token NAME` makes one.",
    "jwt": "Whose signed tokens (JWT) are good here as well.",
    "public_url": "Where clients reach the gateway, without `/mcp`, such as `https://tools.example.com`.",
    "allowed_hosts": 'More names by which it is reached, as in a `Host` header; `["*"]` for any.',
    "allowed_origins": 'Web pages that may ask, such as `https://app.example.com`; `["*"]` for any.',
}
"""Every key below `toolcrib.auth`, with what it does."""

TOKEN_SETTINGS: Mapping[str, str] = {
    "sha256": "The SHA-256 of the token, 64 hex digits.",
    "principal": "On whose behalf whoever sends it asks.",
    "scopes": "What policies may ask of it ([]).",
}
"""Every key of an entry of `toolcrib.auth.tokens`."""

JWT_SETTINGS: Mapping[str, str] = {
    "issuer": "Who issues the tokens, exactly as their `iss` says.",
    "audience": "For whom: one of these stands in their `aud`; a text or a list.",
    "jwks_url": "Where the issuer's keys are; found in the issuer's metadata if not said.",
    "algorithms": "How they may be signed, of those with public keys (RS256, ES256, EdDSA).",
    "principal_claim": "Which claim is the principal (`sub`).",
    "scope_claim": "Which claim holds the scopes (`scope`, else `scp`).",
    "required_scopes": "What every token has to have ([]).",
    "shares_principals": "Whether a principal of `tokens` and whoever the issuer calls the same are one (false).",
}
"""Every key below `toolcrib.auth.jwt`."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those with public keys: nothing that a gateway knows suffices to sign with them."""

_DEFAULT_ALGORITHMS = ("RS256", "ES256", "EdDSA")

MAX_PRINCIPAL_CHARS = 255

ANY = "*"


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token that is known by its hash alone."""

    digest: bytes
    """SHA-256 of its UTF-8 form, 32 bytes."""
    principal: Principal


@dataclass(frozen=True, slots=True)
class Jwt:
    """Whose signed tokens are good, and what is read from them. See `JWT_SETTINGS`."""

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = _DEFAULT_ALGORITHMS
    principal_claim: str = "sub"
    scope_claims: tuple[str, ...] = ("scope", "scp")
    """The first that a token has holds its scopes."""
    required_scopes: tuple[str, ...] = ()
    shares_principals: bool = False


@dataclass(frozen=True, slots=True)
class Auth:
    """Who may ask over HTTP."""

    is_required: bool = False
    """Whether anybody is asked for credentials at all."""
    tokens: tuple[BearerToken, ...] = ()
    jwt: Jwt | None = None
    public_url: str | None = None
    """Scheme, host and port, and the path of a proxy if there is one; no slash at its end."""
    allowed_hosts: tuple[str, ...] = ()
    """In lower case."""
    allowed_origins: tuple[str, ...] = ()
    """Likewise."""


NO_AUTH = Auth()


def read_auth(settings: Settings) -> Auth:
    """What `settings`, those under `toolcrib.auth`, say.

    A `tokens` or `jwt` that stands there asks for credentials, even an empty list: whoever took the last token away did
    not mean to let everybody in.

    Raises:
        InvalidConfig: an unknown key or a value that cannot be, with its place.
    """
    settings.only(AUTH_SETTINGS)
    is_required = "tokens" in settings or "jwt" in settings
    tokens = tuple(_token(entry) for entry in settings.each("tokens"))
    digests = [token.digest for token in tokens]
    if len(set(digests)) != len(digests):
        raise settings.wrong("tokens", "two of them have the same hash")
    hosts = tuple(host.lower() for host in settings.texts("allowed_hosts"))
    origins = tuple(origin.lower() for origin in settings.texts("allowed_origins"))
    for key, values in (("allowed_hosts", hosts), ("allowed_origins", origins)):
        if ANY in values and not is_required:
            raise settings.wrong(key, "`*` is only for gateways that ask for credentials")
    for origin in origins:
        if origin != ANY and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin):
            raise settings.wrong("allowed_origins", f"`{origin}` is no origin, such as https://app.example.com")
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
        raise entry.wrong("sha256", "64 hex digits are expected here, as `toolcrib token` prints them")
    principal = entry.text("principal")
    if not may_be_principal(principal):
        raise entry.wrong(
            "principal", f"a name is expected here, of up to {MAX_PRINCIPAL_CHARS} characters, and not `{LOCAL.id}`"
        )
    return BearerToken(bytes.fromhex(digest), Principal(principal, frozenset(entry.texts("scopes"))))


def may_be_principal(name: str) -> bool:
    """Whether a credential may stand for a principal of this name: not for the person at this machine."""
    return 0 < len(name) <= MAX_PRINCIPAL_CHARS and name.isprintable() and name != LOCAL.id


def _jwt(settings: Settings) -> Jwt:
    settings.only(JWT_SETTINGS)
    for key in ("issuer", "audience"):
        if not settings.texts(key) or "" in settings.texts(key):
            raise settings.wrong(key, "it is needed, or tokens that were made for others would be good here")
    issuer, jwks_url = settings.text("issuer"), settings.text("jwks_url") or None
    for key, url in (("jwks_url", jwks_url), ("issuer", issuer if jwks_url is None else None)):
        if url is not None and not is_safe(url):
            raise settings.wrong(key, "an https address is expected here (http only for this machine)")
    algorithms = settings.texts("algorithms") or _DEFAULT_ALGORITHMS
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            raise settings.wrong("algorithms", f"`{algorithm}` is not one of {', '.join(ALGORITHMS)}")
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
    """Whether keys may be fetched from `url`: nobody on the way can put in their own."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return host is not None and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_loopback(host: str) -> bool:
    """Whether only this machine itself is reached by the name or address `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _public_url(settings: Settings) -> str | None:
    url = settings.text("public_url").rstrip("/")
    if url and not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", url):
        raise settings.wrong("public_url", "an http or https address without a query is expected here")
    return url or None
