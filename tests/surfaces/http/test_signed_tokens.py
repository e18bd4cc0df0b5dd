"""Tests for signed tokens: validation, key rotation, and an unavailable authorization server."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from tests.servers.launching import faulty_entry
from tests.surfaces.http.asking import ALICE, TOKENS, Api, problem, served
from tests.surfaces.http.issuer import (
    AUDIENCE,
    Issuer,
    Json,
    Key,
    ec_key,
    ed_key,
    issuing,
    rsa_key,
    segment,
    unsigned_token,
)
from tests.surfaces.serving import run_tool, text_of
from tests.until import until

from toolcrib.config import parse_config
from toolcrib.config.access_settings import Auth, BearerToken, Jwt
from toolcrib.core.principal import Principal
from toolcrib.surfaces.auth import Authenticator, InsufficientScope, KeysUnavailable, Unauthenticated, issuer_keys
from toolcrib.surfaces.auth.issuer_keys import FRESH_S, KEPT_S, MAX_BYTES, RETRY_S, IssuerKeys
from toolcrib.surfaces.auth.signed_tokens import LEEWAY_S, SignedTokens

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as issuer:
        yield issuer


class Clock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def settings_of(issuer: Issuer, **more: Any) -> Jwt:
    return replace(Jwt(issuer.url, (AUDIENCE,), issuer.jwks_url), **more)


def tokens_of(issuer: Issuer, clock: Clock, **more: Any) -> SignedTokens:
    settings = settings_of(issuer, **more)
    return SignedTokens(settings, IssuerKeys(settings.issuer, settings.jwks_url, clock))


async def authenticated(issuer: Issuer, token: str, **more: Any) -> Principal:
    return await Authenticator(Auth(is_required=True, jwt=settings_of(issuer, **more))).principal([f"Bearer {token}"])


@pytest.mark.parametrize("key", [rsa_key("1"), ec_key("1"), ed_key("1")], ids=lambda key: key.algorithm)
async def test_a_signed_token_authenticates_its_subject(key: Key, issuer: Issuer) -> None:
    assert await authenticated(issuer, issuer.token(key)) == Principal("dana")


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "read write"}, {"read", "write"}),
        ({"scp": ["read", "write", 3]}, {"read", "write"}),
        ({"scp": "read"}, {"read"}),
        ({"scope": "read", "scp": ["all"]}, {"read"}),
        ({"scope": {"read": True}}, set[str]()),
        ({}, set[str]()),
    ],
)
async def test_scopes_are_read_from_the_common_claim_formats(claims: Json, scopes: set[str], issuer: Issuer) -> None:
    assert (await authenticated(issuer, issuer.token(**claims))).scopes == scopes


async def test_the_claims_for_principal_and_scopes_are_configurable(issuer: Issuer) -> None:
    token = issuer.token(email="dana@example.com", roles=["admin"], scope="read")
    found = await authenticated(issuer, token, principal_claim="email", scope_claim="roles")
    assert found == Principal("dana@example.com", frozenset({"admin"}))


def bad_claims() -> Json:
    now = int(time.time())
    return {
        "expired": {"exp": now - LEEWAY_S - 5},
        "never expires": {"exp": None},
        "expires at no time": {"exp": "soon"},
        "expires at infinity": {"exp": 1e999},
        "not yet valid": {"nbf": now + LEEWAY_S + 60},
        "for a different audience": {"aud": "https://other.example.com"},
        "for a longer audience": {"aud": f"{AUDIENCE}/more"},
        "without an audience": {"aud": None},
        "with a numeric audience": {"aud": 7},
        "of a different issuer": {"iss": "https://other.example.com"},
        "without an issuer": {"iss": None},
        "without a subject": {"sub": None},
        "with an empty subject": {"sub": ""},
        "with a numeric subject": {"sub": 7},
        "with the reserved subject local": {"sub": "local"},
        "with a line break in the subject": {"sub": "dana\r\nX: y"},
        "with a long subject": {"sub": "d" * 300},
    }


@pytest.mark.parametrize("fault", bad_claims())
async def test_a_token_with_invalid_claims_is_refused(fault: str, issuer: Issuer) -> None:
    assert await authenticated(issuer, issuer.token())
    with pytest.raises(Unauthenticated) as refused:
        await authenticated(issuer, issuer.token(**bad_claims()[fault]))
    if "expire" not in fault:
        assert refused.value.reason == "claims"
    elif fault == "expired":
        assert refused.value.reason == "expired"


async def test_a_signed_token_for_a_configured_principal_is_refused_and_logged(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    mine = BearerToken(hashlib.sha256(ALICE.encode()).digest(), Principal("dana"))
    authenticator = Authenticator(Auth(is_required=True, tokens=(mine,), jwt=settings_of(issuer)))
    assert await authenticator.principal([f"Bearer {ALICE}"]) == Principal("dana")
    assert await authenticator.principal([f"Bearer {issuer.token(sub='erin')}"]) == Principal("erin")
    with pytest.raises(Unauthenticated):
        await authenticator.principal([f"Bearer {issuer.token(sub='dana')}"])
    assert "refused a signed token of `dana`" in caplog.text
    assert "toolcrib.auth.jwt.shares_principals" in caplog.text


async def test_shared_principals_can_be_allowed_in_the_configuration(issuer: Issuer) -> None:
    mine = BearerToken(hashlib.sha256(ALICE.encode()).digest(), Principal("dana"))
    settings = jwt_settings(issuer, shares_principals=True)
    written = {"toolcrib": {"auth": {"jwt": settings}}}
    jwt = parse_config(json.dumps(written), Path("mcp.json")).auth.jwt
    authenticator = Authenticator(Auth(is_required=True, tokens=(mine,), jwt=jwt))
    assert await authenticator.principal([f"Bearer {issuer.token(sub='dana')}"]) == Principal("dana")


async def test_a_small_clock_difference_is_accepted(issuer: Issuer) -> None:
    now = int(time.time())
    assert await authenticated(issuer, issuer.token(exp=now - LEEWAY_S + 20, nbf=now + LEEWAY_S - 20))


async def test_one_matching_audience_is_sufficient(issuer: Issuer) -> None:
    assert await authenticated(issuer, issuer.token(aud=["https://other.example.com", AUDIENCE]))


def valid_claims(issuer: Issuer) -> Json:
    return {"iss": issuer.url, "aud": AUDIENCE, "sub": "dana", "exp": int(time.time()) + 300}


def with_shared_secret(issuer: Issuer, secret: bytes) -> str:
    start = unsigned_token({"alg": "HS256", "kid": "1"}, valid_claims(issuer)).rpartition(".")[0]
    return f"{start}.{segment(hmac.new(secret, start.encode(), hashlib.sha256).digest())}"


def with_parts(token: str, header: Json | None = None, claims: Json | None = None, signature: str | None = None) -> str:
    """Returns `token` with some of its parts replaced."""
    parts = token.split(".")
    for place, part in enumerate((header, claims)):
        if part is not None:
            parts[place] = segment(json.dumps(part).encode())
    return ".".join([*parts[:2], parts[2] if signature is None else signature])


def public_pem() -> bytes:
    return rsa_key("1").private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


STRANGER = "stranger"

FORGED: dict[str, Callable[[Issuer], str]] = {
    "unsigned": lambda issuer: unsigned_token({"alg": "none", "kid": "1"}, valid_claims(issuer)),
    "unsigned, in capitals": lambda issuer: unsigned_token({"alg": "NONE", "kid": "1"}, valid_claims(issuer)),
    "without an algorithm": lambda issuer: unsigned_token({"kid": "1"}, valid_claims(issuer)),
    "signed with the public key as a secret": lambda issuer: with_shared_secret(issuer, public_pem()),
    "signed with the public numbers as a secret": lambda issuer: with_shared_secret(
        issuer, json.dumps(rsa_key("1").jwk).encode()
    ),
    "signed with an unknown key": lambda issuer: issuer.token(rsa_key(STRANGER), headers={"kid": "1"}),
    "signed with its own embedded key": lambda issuer: issuer.token(
        rsa_key(STRANGER), headers={"kid": "1", "jwk": rsa_key(STRANGER).jwk}
    ),
    "signed with a different algorithm": lambda issuer: with_parts(
        issuer.token(ec_key("1")), header={"alg": "RS256", "kid": "1"}
    ),
    "with changed claims": lambda issuer: with_parts(issuer.token(), claims={**valid_claims(issuer), "sub": "root"}),
    "without a signature": lambda issuer: with_parts(issuer.token(), signature=""),
    "with an extra part": lambda issuer: f"{issuer.token()}.more",
    "with an unknown critical header": lambda issuer: issuer.token(headers={"crit": ["magic"], "magic": 1}),
    "with a list as key id": lambda issuer: with_parts(issuer.token(), header={"alg": "RS256", "kid": ["1"]}),
    "with a list as algorithm": lambda issuer: with_parts(issuer.token(), header={"alg": ["RS256"]}),
    "with a list as header": lambda issuer: f"{segment(b'[]')}.{segment(b'{}')}.{segment(b'x')}",
    "with a deeply nested header": lambda issuer: f"{segment(b'[' * 5_000)}.{segment(b'{}')}.x",
    "malformed": lambda issuer: "a.b.c",
    "too long": lambda issuer: with_parts(issuer.token(), claims={"sub": "a" * 20_000}),
}


@pytest.mark.parametrize("fault", FORGED)
async def test_a_forged_token_is_refused(fault: str, issuer: Issuer) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await authenticated(issuer, FORGED[fault](issuer))
    assert refused.value.reason in {"unknown", "malformed"}


async def test_a_signature_by_a_short_key_is_refused(issuer: Issuer) -> None:
    private = rsa.generate_private_key(65537, 1024)
    small = Key(private, "RS256", {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "small"})
    issuer.keys = [small.jwk]
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.token(small)
    with pytest.raises(Unauthenticated):
        await authenticated(issuer, token)


async def test_a_key_is_used_only_for_its_declared_purpose_and_algorithm(issuer: Issuer) -> None:
    issuer.keys = [{**rsa_key("1").jwk, "use": "enc"}]
    with pytest.raises(Unauthenticated):
        await authenticated(issuer, issuer.token())
    issuer.keys = [{**rsa_key("1").jwk, "alg": "RS512"}]
    with pytest.raises(Unauthenticated):
        await authenticated(issuer, issuer.token())
    issuer.keys = [{"kty": "oct", "k": "c2VjcmV0", "kid": "1"}, {"kty": "?"}, {"kid": "1"}, rsa_key("1").jwk]
    assert await authenticated(issuer, issuer.token())


async def test_a_token_without_a_key_id_uses_the_only_key(issuer: Issuer) -> None:
    with pytest.raises(Unauthenticated):
        await authenticated(issuer, issuer.token(headers={"kid": None}))
    issuer.keys = [rsa_key("1").jwk]
    assert await authenticated(issuer, issuer.token(headers={"kid": None}))


async def test_a_token_without_the_required_scopes_is_refused(issuer: Issuer) -> None:
    with pytest.raises(InsufficientScope) as refused:
        await authenticated(issuer, issuer.token(scope="read"), required_scopes=("read", "tools"))
    assert refused.value.needed == ("read", "tools")
    assert await authenticated(issuer, issuer.token(scope="tools read"), required_scopes=("read", "tools"))


async def test_keys_are_discovered_only_from_metadata_that_matches_the_issuer(issuer: Issuer) -> None:
    assert await authenticated(issuer, issuer.token(), jwks_url=None)
    impostor = f"{issuer.url}/"
    with pytest.raises(KeysUnavailable):
        await SignedTokens(Jwt(impostor, (AUDIENCE,))).principal(issuer.token(iss=impostor))


# -- key rotation -----------------------------------------------------------------------------------------------------


async def test_an_unknown_key_id_refreshes_the_keys_with_a_rate_limit(issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(issuer, clock)
    assert await tokens.principal(issuer.token())
    issuer.keys.append(rsa_key("2").jwk)
    with pytest.raises(Unauthenticated):
        await tokens.principal(issuer.token(rsa_key("2")))
    assert issuer.asked == 1, "it was asked just now"
    clock.now += RETRY_S
    assert await tokens.principal(issuer.token(rsa_key("2")))
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await tokens.principal(issuer.token(rsa_key("2"), headers={"kid": f"made up {number}"}))
    assert issuer.asked == 2


async def test_a_revoked_key_is_refused_after_the_keys_are_refreshed(issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(issuer, clock)
    assert await tokens.principal(issuer.token())
    issuer.keys = [rsa_key("2").jwk]
    assert await tokens.principal(issuer.token())
    clock.now += FRESH_S
    with pytest.raises(Unauthenticated):
        await tokens.principal(issuer.token())


BAD_ANSWERS: dict[str, tuple[int, bytes]] = {
    "fails": (500, b"no"),
    "is missing": (404, b'{"keys": []}'),
    "redirects": (302, b""),
    "is not JSON": (200, b"<html>"),
    "is not an object": (200, b"[]"),
    "has no keys": (200, b"{}"),
    "has invalid keys": (200, b'{"keys": {"1": 2}}'),
    "has an empty list of keys": (200, b'{"keys": []}'),
    "is deeply nested": (200, b"[" * 200_000),
    "is huge": (200, b'{"keys": [' + b" " * MAX_BYTES + b"]}"),
    "is not UTF-8": (200, b'{"keys": ["\xff"]}'),
}


@pytest.mark.parametrize("fault", BAD_ANSWERS)
async def test_without_keys_tokens_are_refused_with_a_retry_time(fault: str, issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(issuer, clock)
    issuer.answer = BAD_ANSWERS[fault]
    for _ in range(5):
        with pytest.raises(KeysUnavailable) as refused:
            await tokens.principal(issuer.token())
        assert 0 < refused.value.retry_after_s <= RETRY_S
    assert issuer.asked == 1
    issuer.answer = None
    clock.now += RETRY_S
    assert await tokens.principal(issuer.token())


async def test_cached_keys_expire_when_they_cannot_be_refreshed(issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(issuer, clock)
    assert await tokens.principal(issuer.token())
    issuer.answer = (500, b"")
    clock.now += FRESH_S
    assert await tokens.principal(issuer.token())
    clock.now += KEPT_S - FRESH_S - 1
    assert await tokens.principal(issuer.token())
    clock.now += 1
    with pytest.raises(KeysUnavailable):
        await tokens.principal(issuer.token())


async def test_a_request_for_keys_times_out(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "TIMEOUT_S", 0.05)
    issuer.holds.clear()
    with pytest.raises(KeysUnavailable):
        await tokens_of(issuer, Clock()).principal(issuer.token())


async def test_concurrent_requests_share_one_request_for_keys(issuer: Issuer) -> None:
    tokens, found = tokens_of(issuer, Clock()), list[Principal]()
    issuer.holds.clear()

    async def ask() -> None:
        found.append(await tokens.principal(issuer.token()))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)
        await until(lambda: issuer.asked, "the issuer is asked while the event loop continues")
        assert found == []
        issuer.holds.set()
    assert len(found) == 50
    assert issuer.asked == 1


async def test_a_cancelled_request_for_keys_does_not_affect_later_requests(issuer: Issuer) -> None:
    tokens = tokens_of(issuer, Clock())
    issuer.holds.clear()
    with anyio.move_on_after(0.05):
        await tokens.principal(issuer.token())
    issuer.holds.set()
    assert await tokens.principal(issuer.token())


# -- over HTTP --------------------------------------------------------------------------------------------------------


def jwt_settings(issuer: Issuer, **more: Any) -> Json:
    return {"issuer": issuer.url, "audience": AUDIENCE, "jwks_url": issuer.jwks_url, **more}


@pytest.fixture(scope="module")
def shared_issuer() -> Generator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, shared_issuer: Issuer) -> Generator[Api]:
    """A gateway that accepts configured tokens, and signed tokens with the scope `tools`."""
    auth = {"tokens": TOKENS, "jwt": jwt_settings(shared_issuer, required_scopes=["tools"])}
    with served(tmp_path_factory.mktemp("signed"), auth=auth, bench=faulty_entry()) as api:
        yield api


async def test_a_refused_token_gets_a_reason_and_a_metadata_url(api: Api, shared_issuer: Issuer) -> None:
    assert (await api.ask("list", shared_issuer.token(scope="tools"))).status_code == 200
    assert (await api.ask("list", ALICE)).status_code == 200
    metadata_url = f'resource_metadata="{api.base}/.well-known/oauth-protected-resource/mcp"'
    for token, error in (
        (None, None),
        (shared_issuer.token(scope="tools", exp=1), 'error_description="This token has expired."'),
        (
            shared_issuer.token(scope="tools", aud="x"),
            'error_description="This token was issued for a different audience."',
        ),
    ):
        answer = await api.ask("list", token)
        assert answer.status_code == 401
        challenge = answer.headers["www-authenticate"]
        assert metadata_url in challenge
        assert 'scope="tools"' in challenge
        assert error is None or error in challenge
    lacking = await api.ask("list", shared_issuer.token())
    assert (lacking.status_code, problem(lacking)["code"]) == (403, "FORBIDDEN")
    challenge = lacking.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="tools"' in challenge
    assert metadata_url in challenge


async def test_the_protected_resource_metadata_follows_rfc_9728(api: Api, shared_issuer: Issuer) -> None:
    async with api.client() as client:
        for path, resource in (("", api.base), ("/mcp", f"{api.base}/mcp")):
            answer = await client.get(f"/.well-known/oauth-protected-resource{path}")
            assert answer.headers["access-control-allow-origin"] == "*"
            assert answer.json() == {
                "resource": resource,
                "authorization_servers": [shared_issuer.url],
                "bearer_methods_supported": ["header"],
                "resource_name": "Toolcrib",
                "scopes_supported": ["tools"],
            }


class Memory:
    """The token store of the SDK client."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Does nothing, because the client is already registered."""


async def test_the_sdk_client_discovers_the_issuer_and_obtains_a_token(tmp_path: Path, issuer: Issuer) -> None:
    # The audience contains the port, so a first gateway finds a free one.
    with served(tmp_path, auth={"tokens": []}, bench=faulty_entry()) as first:
        where = first.base.removeprefix("http://")
    settings = {**jwt_settings(issuer, required_scopes=["tools"]), "audience": f"http://{where}/mcp"}
    with served(tmp_path, auth={"jwt": settings}, where=where, bench=faulty_entry()) as api:
        memory = Memory()
        provider = ClientCredentialsOAuthProvider(
            server_url=api.gateway.url, storage=memory, client_id="c", client_secret="s", issuer=issuer.url
        )
        async with httpx2.AsyncClient(auth=provider, timeout=30) as http:
            async with Client(streamable_http_client(api.gateway.url, http_client=http)) as client:
                assert text_of(await run_tool(client, "bench.echo", text="let in")) == "let in"
        assert memory.tokens is not None
        assert memory.tokens.scope == "tools"


async def test_while_the_issuer_is_down_signed_tokens_get_503(tmp_path: Path) -> None:
    with issuing() as gone:
        token = gone.token()
    with served(tmp_path, auth={"tokens": TOKENS, "jwt": jwt_settings(gone)}, bench=faulty_entry()) as api:
        for path in ("/v1/list", "/mcp"):
            async with api.client(token) as client:
                answer = await client.post(path, json={})
            assert answer.status_code == 503
            assert problem(answer)["retryable"] is True
            assert 0 < int(answer.headers["retry-after"]) <= RETRY_S
        assert (await api.ask("list", ALICE)).status_code == 200
        assert (await api.ask("list", "not.a.jwt")).status_code == 401
