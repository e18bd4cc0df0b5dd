"""Signing in: discovery, registration, PKCE, and every answer that must be refused."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from tests.servers.issuer import MORE, SCOPE, browser, issuing
from tests.sources.mcp.oauth.signing_in import REDIRECT, Client

from toolcrib.sources import addresses
from toolcrib.sources.mcp.oauth import issuer_requests
from toolcrib.sources.mcp.oauth.issuer_requests import IssuerFailed
from toolcrib.sources.mcp.oauth.sign_in import SignIns

pytestmark = pytest.mark.anyio


def queried(link: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}


async def test_a_person_signs_in(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        link = await SignIns(client.store).begin(client.who, REDIRECT)
        asked = queried(link)
        assert link.startswith(f"{issuer.url}/authorize?")
        assert asked["code_challenge_method"] == "S256"
        assert (asked["resource"], asked["redirect_uri"], asked["scope"]) == (issuer.server, REDIRECT, SCOPE)
        done = await SignIns(client.store).finish(browser(link), "local")
        assert client.grant == done.grant
        assert done.grant.access_token in issuer.tokens
        (registered,) = issuer.clients.values()
        assert (registered["application_type"], registered["redirect_uris"]) == ("native", [REDIRECT])
        form = issuer.sent[-1]
        assert (form["resource"], form["redirect_uri"]) == (issuer.server, REDIRECT)
        async with client.source() as source:
            assert {tool.name for tool in (await source.list_tools()).tools} == {"add", "write", "shout"}


async def test_a_registration_is_used_again_for_the_same_redirect(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        await client.sign_in()
        assert issuer.requests["register"] == 1
        await SignIns(client.store).begin(client.who, "https://gateway.example/oauth/callback")
        assert issuer.requests["register"] == 2
        *_, last = issuer.clients.values()
        assert last["application_type"] == "web"


async def test_an_issuer_that_forgot_us_is_registered_with_again(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        issuer.clients.clear()
        with pytest.raises(IssuerFailed, match="invalid_client"):
            await client.sign_in()
        await client.sign_in()
        assert issuer.requests["register"] == 2


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_the_issuer_decides_how_a_client_authenticates(tmp_path: Path, method: str) -> None:
    with issuing(metadata={"token_endpoint_auth_methods_supported": [method]}) as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        assert ("client_secret" in issuer.sent[-1]) == (method == "client_secret_post")


async def test_a_configured_client_is_used_and_nothing_is_registered(tmp_path: Path) -> None:
    with issuing(has_registration=False) as issuer:
        issuer.clients["mine"] = {"client_secret": "canary: &/"}
        client = Client.of(tmp_path, issuer, client_id="mine", client_secret="canary: &/", issuer=issuer.url)
        grant = await client.sign_in()
        assert grant.client.id == "mine"
        assert issuer.requests["register"] == 0


async def test_a_client_id_metadata_document_is_preferred_to_a_registration(tmp_path: Path) -> None:
    document = "https://tools.example/oauth/client.json"
    with issuing(takes_metadata_documents=True) as issuer:
        client = Client.of(tmp_path, issuer, client_metadata_url=document)
        assert (await client.sign_in()).client.id == document
        assert issuer.requests["register"] == 0
        issuer.takes_metadata_documents = False
        await client.sign_in()
        assert issuer.requests["register"] == 1


async def test_without_a_way_to_register_the_owner_is_asked_for_a_client_id(tmp_path: Path) -> None:
    with issuing(has_registration=False) as issuer:
        with pytest.raises(IssuerFailed, match=r"`oauth\.client_id`.*`toolcrib\.sources\.far`") as raised:
            await Client.of(tmp_path, issuer).sign_in()
        assert REDIRECT in raised.value.message


async def test_an_issuer_without_pkce_is_refused(tmp_path: Path) -> None:
    with issuing(has_pkce=False) as issuer:
        with pytest.raises(IssuerFailed, match="PKCE"):
            await Client.of(tmp_path, issuer).sign_in()
        assert (issuer.requests["register"], issuer.requests["authorize"]) == (0, 0)
        issuer.metadata = {"code_challenge_methods_supported": ["plain"]}
        with pytest.raises(IssuerFailed, match="PKCE"):
            await Client.of(tmp_path, issuer).sign_in()


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ({"iss": "https://other.example"}, "iss"),
        ({"named_issuer": "https://other.example"}, "different issuer"),
        ({"prm": {"resource": "https://other.example/mcp"}}, "different server"),
        ({"sends_iss": False, "metadata": {"authorization_response_iss_parameter_supported": True}}, "iss"),
        ({"metadata": {"authorization_response_iss_parameter_supported": None}, "iss": "https://evil.example"}, "iss"),
        ({"metadata": {"token_endpoint": "http://u:p@127.0.0.1/token"}}, "user name"),
        ({"token_fails_with": (400, {"error": "invalid_grant", "error_description": "too late"})}, "too late"),
        ({"token_fails_with": (200, {"access_token": "x", "token_type": "DPoP"})}, "did not answer with tokens"),
        ({"token_redirects_to": "http://127.0.0.1:1/"}, "HTTP 307"),
        ({"metadata": {"authorization_endpoint": "javascript:alert(1)"}}, "no metadata"),
    ],
)
async def test_an_issuer_with_a_fault_is_refused(tmp_path: Path, faults: dict[str, Any], told: str) -> None:
    with issuing(**faults) as issuer:
        client = Client.of(tmp_path, issuer)
        with pytest.raises(IssuerFailed, match=told):
            await client.sign_in()
        assert client.grant is None


async def test_an_answer_with_a_wrong_issuer_shows_nothing_else_of_it(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        state = queried(await SignIns(client.store).begin(client.who, REDIRECT))["state"]
        with pytest.raises(IssuerFailed) as raised:
            await SignIns(client.store).finish(f"{REDIRECT}?state={state}&iss=https://e.vil&error=canary", "local")
        assert "canary" not in raised.value.message
        assert issuer.requests["authorization_code"] == 0


async def test_an_answer_is_used_only_once(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        sign_ins = SignIns(client.store)
        answer = browser(await sign_ins.begin(client.who, REDIRECT))
        await sign_ins.finish(answer, "local")
        with pytest.raises(IssuerFailed, match="no running sign-in"):
            await sign_ins.finish(answer, "local")
        assert issuer.requests["authorization_code"] == 1


async def test_answers_that_do_not_belong_to_the_sign_in_are_refused(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        sign_ins = SignIns(client.store)
        wrongs: list[tuple[Callable[[str], str], str, str]] = [
            (str, "eve", "different principal"),
            (lambda answer: answer.replace("/callback", "/other"), "local", "different address"),
            (lambda answer: answer.replace("127.0.0.1:9/", "127.0.0.1:10/"), "local", "different address"),
            (lambda answer: f"{answer}&code=again", "local", "twice"),
            (lambda answer: answer.partition("&state")[0], "local", "no running sign-in"),
            (lambda answer: answer.replace("code=", "other="), "local", "not sign you in"),
        ]
        for wrong, principal, told in wrongs:
            answer = browser(await sign_ins.begin(client.who, REDIRECT))
            with pytest.raises(IssuerFailed, match=told):
                await sign_ins.finish(wrong(answer), principal)
        assert issuer.requests["authorization_code"] == 0
        assert client.grant is None


async def test_a_refusal_of_the_person_is_told(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        state = queried(await SignIns(client.store).begin(client.who, REDIRECT))["state"]
        answer = f"{REDIRECT}?state={state}&iss={issuer.url}&error=access_denied&error_description=I+said+no"
        with pytest.raises(IssuerFailed, match=r"access_denied \(I said no\)"):
            await SignIns(client.store).finish(answer, "local")


async def test_a_sign_in_begun_by_one_process_is_finished_by_a_different_one(tmp_path: Path) -> None:
    with issuing() as issuer:
        link = await SignIns(Client.of(tmp_path, issuer).store).begin(Client.of(tmp_path, issuer).who, REDIRECT)
        other = Client.of(tmp_path, issuer)
        await SignIns(other.store).finish(browser(link), "local")
        assert other.grant is not None


async def test_an_issuer_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_requests, "TIMEOUT_S", 0.3)
    with issuing(token_hangs=True) as issuer:
        with pytest.raises(IssuerFailed, match="did not answer within") as raised:
            await Client.of(tmp_path, issuer).sign_in()
        assert raised.value.retryable


async def test_an_endless_answer_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_requests, "MAX_ANSWER_BYTES", 100)
    with issuing() as issuer, pytest.raises(IssuerFailed, match="answered with more than"):
        await Client.of(tmp_path, issuer).sign_in()


async def test_a_server_that_changes_its_issuer_gets_no_credentials_of_the_earlier_one(tmp_path: Path) -> None:
    with issuing() as issuer, issuing() as other:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        issuer.prm = {"authorization_servers": [other.url]}
        new = await client.sign_in()
        assert (new.issuer, other.requests["register"]) == (other.url, 1)
        assert first.client.id not in {form.get("client_id") for form in other.sent}


async def test_a_configured_secret_is_sent_only_to_its_issuer(tmp_path: Path) -> None:
    with issuing() as issuer, issuing() as thief:
        issuer.prm = {"authorization_servers": [thief.url]}
        mine = {"client_id": "mine", "client_secret": "canary"}
        with pytest.raises(IssuerFailed, match="different issuer"):
            await Client.of(tmp_path, issuer, **mine, issuer=issuer.url).sign_in()
        with pytest.raises(IssuerFailed, match=f"set `oauth.issuer` to `{thief.url}`"):
            await Client.of(tmp_path, issuer, **mine).sign_in()
        assert thief.sent == []


async def test_scopes_come_from_the_owner_else_the_challenge_else_the_metadata(tmp_path: Path) -> None:
    with issuing(prm={"scopes_supported": ["b", "c"]}, challenge_scope=SCOPE) as issuer:
        client = Client.of(tmp_path, issuer)
        assert queried(await SignIns(client.store).begin(client.who, REDIRECT))["scope"] == SCOPE
        owner = Client.of(tmp_path, issuer, scopes=("x", "y"))
        assert queried(await SignIns(owner.store).begin(owner.who, REDIRECT))["scope"] == "x y"
        issuer.challenges = False
        assert queried(await SignIns(client.store).begin(client.who, REDIRECT))["scope"] == "b c"
        issuer.prm = {"scopes_supported": None}
        assert "scope" not in queried(await SignIns(client.store).begin(client.who, REDIRECT))
        issuer.prm, issuer.metadata = {}, {"scopes_supported": [SCOPE, "offline_access"]}
        asked = queried(await SignIns(client.store).begin(client.who, REDIRECT))
        assert (asked["scope"], asked["prompt"]) == (f"{SCOPE} offline_access", "consent")


async def test_a_step_up_asks_for_more_and_keeps_what_was_granted(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        client.store.want(client.who.key, MORE)
        assert (await client.sign_in()).scope == f"{SCOPE} {MORE}"


async def test_a_server_of_an_earlier_protocol_is_its_own_issuer(tmp_path: Path) -> None:
    with issuing(challenges=False, prm={"authorization_servers": []}) as issuer:  # not valid, so there is none
        client = Client.of(tmp_path, issuer)
        assert (await client.sign_in()).issuer == issuer.url


# -- which addresses are reached ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "address", "is_reached"),
    [
        ("https://far.example", "93.184.216.34", True),
        ("https://far.example", "10.0.0.1", False),
        ("https://far.example", "127.0.0.1", False),
        ("https://far.example", "169.254.169.254", False),
        ("https://10.0.0.7", "10.0.0.1", True),
        ("https://10.0.0.7", "127.0.0.1", False),
        ("https://10.0.0.7", "169.254.169.254", False),
        ("http://127.0.0.1:1", "127.0.0.1", True),
        ("http://localhost:1", "10.0.0.1", True),
        ("http://localhost:1", "169.254.169.254", False),
        ("https://near.example", "10.0.0.1", True),
        ("https://near.example", "127.0.0.1", False),
        ("https://trick.example", "127.0.0.1", False),
    ],
)
async def test_an_issuer_is_never_nearer_than_its_server(
    monkeypatch: pytest.MonkeyPatch, server: str, address: str, is_reached: bool
) -> None:
    """`near` resolves to a private network, and `trick` to this machine."""
    known = {"far.example": "93.184.216.34", "near.example": "10.0.0.9", "trick.example": "127.0.0.1"}

    async def resolved(host: str, port: int) -> list[str]:
        return [known.get(host, address)]

    for module in (issuer_requests, addresses):
        monkeypatch.setattr(module, "resolved", resolved)
    reached: list[str] = []

    async def connect(*_: Any, **__: Any) -> Any:
        reached.append(address)
        raise httpx2.ConnectError("nobody listens")

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connect)
    async with issuer_requests.reaching(server, allow_private=False) as http:
        with pytest.raises(IssuerFailed) as raised:
            await http.get("https://issuer.example/x")
    assert bool(reached) == is_reached
    assert ("private network" in raised.value.message) == (not is_reached)
    async with issuer_requests.reaching(server, allow_private=True) as http:
        with pytest.raises(IssuerFailed, match="cannot be reached"):
            await http.get("http://issuer.example/x")


async def test_plain_http_is_only_for_servers_in_a_private_network() -> None:
    async with issuer_requests.reaching("https://93.184.216.34/mcp", allow_private=False) as http:
        with pytest.raises(IssuerFailed, match="not an https URL"):
            await http.get("http://93.184.216.35/token")


async def test_a_redirect_of_the_token_endpoint_is_not_followed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(0.1)
        with issuing(token_redirects_to=f"http://127.0.0.1:{inner.getsockname()[1]}/") as issuer:
            with pytest.raises(IssuerFailed, match="HTTP 307"):
                await Client.of(tmp_path, issuer).sign_in()
            with pytest.raises(TimeoutError):
                inner.accept()
