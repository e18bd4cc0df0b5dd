"""Tests for the setting `toolcrib.auth`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import parse_config
from toolcrib.config.access_settings import NO_AUTH, Auth
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import Principal

HASH = "0f" * 32
JWT = {"issuer": "https://id.example.com", "audience": "https://tools.example.com/mcp"}


def read(auth: Any) -> Auth:
    return parse_config(json.dumps({"mcpServers": {}, "toolcrib": {"auth": auth}}), Path("mcp.json")).auth


def test_authentication_is_off_by_default() -> None:
    assert parse_config("{}", Path("mcp.json")).auth == NO_AUTH
    assert not NO_AUTH.is_required


def test_a_token_is_read_with_its_principal_and_scopes() -> None:
    (token,) = read({"tokens": [{"sha256": HASH.upper(), "principal": "ci", "scopes": ["a", "b"]}]}).tokens
    assert token.digest == bytes.fromhex(HASH)
    assert token.principal == Principal("ci", frozenset({"a", "b"}))


def test_an_empty_token_list_still_requires_authentication() -> None:
    assert read({"tokens": []}).is_required
    assert read({"jwt": JWT}).is_required
    assert not read({"allowed_origins": ["https://app.example.com"]}).is_required


def test_jwt_settings_have_defaults() -> None:
    jwt = read({"jwt": JWT}).jwt
    assert jwt is not None
    assert jwt.audience == ("https://tools.example.com/mcp",)
    assert jwt.algorithms == ("RS256", "ES256", "EdDSA")
    assert (jwt.principal_claim, jwt.scope_claims, jwt.required_scopes) == ("sub", ("scope", "scp"), ())
    assert not jwt.shares_principals
    other = read({"jwt": {**JWT, "issuer": "us", "jwks_url": "http://localhost:1/keys", "scope_claim": "roles"}}).jwt
    assert other is not None
    assert other.scope_claims == ("roles",)


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ({"token": []}, "did you mean `tokens`"),
        ({"tokens": {}}, "toolcrib.auth.tokens"),
        ({"tokens": ["text"]}, "toolcrib.auth.tokens.0"),
        ({"tokens": [{"principal": "ci"}]}, "toolcrib.auth.tokens.0.sha256"),
        ({"tokens": [{"sha256": "token", "principal": "ci"}]}, "toolcrib.auth.tokens.0.sha256"),
        ({"tokens": [{"sha256": HASH}]}, "toolcrib.auth.tokens.0.principal"),
        ({"tokens": [{"sha256": HASH, "principal": "local"}]}, "toolcrib.auth.tokens.0.principal"),
        ({"tokens": [{"sha256": HASH, "principal": "a\nb"}]}, "toolcrib.auth.tokens.0.principal"),
        ({"tokens": [{"sha256": HASH, "principal": "ci", "scope": "a"}]}, "did you mean `scopes`"),
        ({"tokens": [{"sha256": HASH, "principal": name} for name in "ab"]}, "two tokens"),
        ({"jwt": {}}, "toolcrib.auth.jwt.issuer"),
        ({"jwt": {"issuer": JWT["issuer"]}}, "toolcrib.auth.jwt.audience"),
        ({"jwt": {**JWT, "audience": []}}, "toolcrib.auth.jwt.audience"),
        ({"jwt": {**JWT, "audience": ["a", ""]}}, "toolcrib.auth.jwt.audience"),
        ({"jwt": {**JWT, "issuer": "http://id.example.com"}}, "toolcrib.auth.jwt.issuer"),
        ({"jwt": {**JWT, "jwks_url": "http://id.example.com/keys"}}, "toolcrib.auth.jwt.jwks_url"),
        ({"jwt": {**JWT, "jwks_url": "file:///etc/keys"}}, "toolcrib.auth.jwt.jwks_url"),
        ({"jwt": {**JWT, "algorithms": ["HS256"]}}, "toolcrib.auth.jwt.algorithms"),
        ({"jwt": {**JWT, "algorithms": ["none"]}}, "toolcrib.auth.jwt.algorithms"),
        ({"jwt": {**JWT, "principal_claim": False}}, "toolcrib.auth.jwt.principal_claim"),
        ({"jwt": {**JWT, "secret": "x"}}, "unknown key `secret`"),
        ({"jwt": {**JWT, "shares_principals": "no"}}, "toolcrib.auth.jwt.shares_principals"),
        ({"public_url": "tools.example.com"}, "toolcrib.auth.public_url"),
        ({"public_url": "https://tools.example.com/?a=b"}, "toolcrib.auth.public_url"),
        ({"allowed_origins": ["app.example.com"]}, "toolcrib.auth.allowed_origins"),
        ({"allowed_origins": ["https://app.example.com/"]}, "toolcrib.auth.allowed_origins"),
        ({"allowed_origins": ["*"]}, "toolcrib.auth.allowed_origins"),
        ({"allowed_hosts": ["*"]}, "toolcrib.auth.allowed_hosts"),
    ],
)
def test_an_invalid_auth_setting_is_reported_with_its_path(auth: Any, expected: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        read(auth)
    assert expected in error.value.message
