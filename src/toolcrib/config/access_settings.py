"""The settings under `toolcrib.policy` and `toolcrib.auth`: who can use the gateway, and what each can see and call."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

from toolcrib.catalog.access import EFFECTS, Access, Rule, Rules
from toolcrib.catalog.categories import Categories
from toolcrib.config.server_entries import under_source_names
from toolcrib.core.json_settings import (
    NULL_IS_EMPTY,
    Before,
    Flag,
    Paths,
    Reader,
    Section,
    Settings,
    Strings,
    Text,
    choice,
    errors_at,
    words,
)
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Path
from toolcrib.core.values import read_string

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms with public keys only: nothing that a gateway knows is enough to sign a token."""

_DEFAULT_ALGORITHMS = ("RS256", "ES256", "EdDSA")

MAX_PRINCIPAL_CHARS = 255

ANY = "*"

Effect = Annotated[Access, choice(EFFECTS)]


def _refuse_empty(value: object, _: str) -> object:
    if value in (None, [], {}):
        raise ValueError("must not be empty; leave the key out to match everything")
    return value


FILLED = Before(_refuse_empty)
"""For a condition: an empty one could be meant to match nothing, or everything."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RuleSettings(Settings):
    """One rule of `toolcrib.policy.rules`. None means that the rule does not have the condition."""

    then: Effect = field(metadata={"why": f": use one of {', '.join(EFFECTS)}"})
    """`allow`; `ask` a person first; `refuse` calls but show the tool; or `hide` it."""
    principals: Annotated[Strings | None, FILLED] = None
    """Patterns of principal ids."""
    scopes: Annotated[Strings | None, FILLED] = None
    """Scopes. The principal must have all of them."""
    paths: Annotated[Paths | None, FILLED] = None
    """Paths of categories. The tool must be in one of these categories, or in one below them."""
    tags: Annotated[Strings | None, FILLED] = None
    """Tags. The tool must have one of them."""
    sources: Annotated[Strings | None, FILLED] = None
    """Patterns of source names."""
    tools: Annotated[Strings | None, FILLED] = None
    """Patterns of tool ids, of `SOURCE.NAME` for prompts, and of `SOURCE.URI` for resources."""
    annotations: Annotated[dict[str, Any] | None, FILLED] = None
    """Annotations with true or false: {HINTS}. The tool must have all of them. Annotations of a source that is not
    `trusted` can only make the decision stricter."""

    def rule(self, categories: Categories, names: Mapping[str, str]) -> Rule:
        """Return the rule. `categories` and `names` are as for `PolicySettings.policy`.

        Raises:
            InvalidConfig: a condition is invalid. The message begins with its key.
        """
        labels = self.sources or ()
        sources = (*labels, *(names[label] for label in labels if label in names))
        return Rule(
            self.then,
            self.principals,
            self.scopes,
            self.paths and tuple(_node(path, categories, names) for path in self.paths),
            self.tags,
            self.sources and tuple(dict.fromkeys(sources)),
            self.tools and under_source_names(self.tools, names),
            self.annotations,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PolicySettings(Settings):
    """The settings under `toolcrib.policy`."""

    rules: Annotated[tuple[RuleSettings, ...], NULL_IS_EMPTY] = ()
    """A list of rules. The first rule that matches decides."""
    otherwise: Effect = field(
        metadata={"why": f": it decides what happens when no rule matches. Use one of {', '.join(EFFECTS)}"}
    )
    """What happens if no rule matches: `allow`, `ask`, `refuse` or `hide`."""

    def policy(self, place: str, categories: Categories, names: Mapping[str, str]) -> Rules:
        """Return the policy. Errors name its place as `place`.

        Its paths may use the links of `categories`. `names` maps the labels of servers to the names of their sources: a
        rule may use either.

        Raises:
            InvalidConfig: a rule is invalid.
        """
        rules: list[Rule] = []
        for position, rule in enumerate(self.rules):
            with errors_at(f"{place}.rules.{position}."):
                rules.append(rule.rule(categories, names))
        return Rules(tuple(rules), self.otherwise)


def _node(path: Path, categories: Categories, names: Mapping[str, str]) -> Path:
    """Return the primary path of a category. Upper and lower case may differ, as in `list`."""
    primary = categories.primary(path)
    if primary in categories:
        return primary
    folded = [known for known in categories.nodes if _fold(known) == _fold(path)]
    if len(folded) == 1:
        return folded[0]
    first = next(
        (name for label, name in names.items() if path[0].casefold() in {label.casefold(), name.casefold()}), ""
    )
    return (first, *primary[1:]) if first and primary[:1] == path[:1] else primary


def _fold(path: Path) -> Path:
    return tuple(name.casefold() for name in path)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token, known only by its hash."""

    digest: bytes
    """The SHA-256 hash of the token's UTF-8 bytes, 32 bytes."""
    principal: Principal


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenSettings(Settings):
    """One entry of `toolcrib.auth.tokens`."""

    sha256: Text = ""
    """The SHA-256 hash of the token, 64 hex digits."""
    principal: Text = ""
    """The principal that requests with this token act for."""
    scopes: Strings = ()
    """The scopes of this token, for use in policy rules."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise ValueError(".sha256: must be a SHA-256 hash of 64 hex digits, as printed by `toolcrib token`")
        if not may_be_principal(self.principal):
            most = MAX_PRINCIPAL_CHARS
            raise ValueError(f".principal: must be a name of 1 to {most} printable characters other than `{LOCAL.id}`")

    def token(self) -> BearerToken:
        """Return the token with its principal."""
        return BearerToken(bytes.fromhex(self.sha256), Principal(self.principal, frozenset(self.scopes)))


def may_be_principal(name: str) -> bool:
    """Return whether a credential can have this principal. `local` is reserved for the person at this machine."""
    return 0 < len(name) <= MAX_PRINCIPAL_CHARS and name.isprintable() and name != LOCAL.id


def _read_claim(value: object, place: str) -> str:
    return "sub" if value is None else read_string(value, place) or "sub"


@dataclass(frozen=True)
class Jwt(Settings):
    """The settings under `toolcrib.auth.jwt`: the issuer whose signed tokens are accepted, and the claims to read."""

    issuer: Text = ""
    """The issuer of the tokens, exactly as in their `iss` claim."""
    audience: Strings = ()
    """The audience: a string, or a list of strings. The `aud` claim must contain one of them."""
    jwks_url: Text | None = None
    """The URL of the issuer's keys. Default: the one in the issuer's metadata."""
    algorithms: Annotated[tuple[str, ...], words(ALGORITHMS, "supported", empty=_DEFAULT_ALGORITHMS)] = (
        _DEFAULT_ALGORITHMS
    )
    """The accepted signature algorithms. All of them use public keys."""
    principal_claim: Annotated[str, Reader(_read_claim)] = "sub"
    """The claim with the principal."""
    scope_claim: Text = ""
    """The claim with the scopes (`scope`, else `scp`)."""
    required_scopes: Strings = ()
    """The scopes that every token must have."""
    shares_principals: Flag = False
    """Whether equal names in `tokens` and from the issuer mean the same principal."""

    def __post_init__(self) -> None:
        for key, value in (("issuer", (self.issuer,)), ("audience", self.audience)):
            if not value or "" in value:
                raise ValueError(f".{key}: is required, because otherwise tokens for other services would be accepted")
        key = "jwks_url" if self.jwks_url else "issuer"
        if not is_safe(getattr(self, key)):
            raise ValueError(f".{key}: must be an https URL (http is allowed only for this machine)")

    @property
    def scope_claims(self) -> tuple[str, ...]:
        """The claims that can hold the scopes. The first one that a token has is used."""
        return (self.scope_claim,) if self.scope_claim else ("scope", "scp")


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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AuthSettings(Settings):
    """The settings under `toolcrib.auth`."""

    tokens: Annotated[tuple[TokenSettings, ...] | None, NULL_IS_EMPTY] = None
    """Access tokens by their hash. Create one with `toolcrib token NAME`."""
    jwt: Section[Jwt | None] = None
    """The issuer whose signed tokens (JWT) are accepted as well."""
    public_url: Text = ""
    """The URL at which clients reach the gateway, without `/mcp`, such as `https://tools.example.com`."""
    allowed_hosts: Strings = ()
    """More host names that clients may use in the `Host` header; `["*"]` for any."""
    allowed_origins: Strings = ()
    """Web origins that may send requests, such as `https://app.example.com`; `["*"]` for any."""

    def __post_init__(self) -> None:
        tokens = self.tokens or ()
        if len({token.sha256.lower() for token in tokens}) != len(tokens):
            raise ValueError(".tokens: two tokens have the same hash")
        for key in ("allowed_hosts", "allowed_origins"):
            if ANY in getattr(self, key) and not self._is_required:
                raise ValueError(f".{key}: `*` is only allowed if `tokens` or `jwt` is configured")
        for origin in self.allowed_origins:
            if origin != ANY and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin.lower()):
                raise ValueError(f".allowed_origins: `{origin}` is not an origin, for example https://app.example.com")
        if self.public_url and not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", self.public_url.rstrip("/")):
            raise ValueError(".public_url: must be an http or https URL without a query")

    @property
    def _is_required(self) -> bool:
        """Whether requests need credentials. An empty list of tokens counts, too: removing the last token must not open
        the gateway to everyone."""
        return self.tokens is not None or self.jwt is not None

    def auth(self) -> Auth:
        """Return who can use the gateway."""
        return Auth(
            is_required=self._is_required,
            tokens=tuple(token.token() for token in self.tokens or ()),
            jwt=self.jwt,
            public_url=self.public_url.rstrip("/") or None,
            allowed_hosts=tuple(host.lower() for host in self.allowed_hosts),
            allowed_origins=tuple(origin.lower() for origin in self.allowed_origins),
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
