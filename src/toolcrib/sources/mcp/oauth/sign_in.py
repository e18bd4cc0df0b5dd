"""Signs a person in: registers Toolcrib with the issuer, makes the link, and handles the browser's answer.

Source: MCP specification 2026-07-28, "Authorization".
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    should_use_client_metadata_url,
    validate_authorization_response_iss,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl, ValidationError

from toolcrib.core.uris import shown
from toolcrib.sources.mcp.oauth.discovery import REFRESH_SCOPE, Challenge, Discovered, discover
from toolcrib.sources.mcp.oauth.grants import Grant, GrantKey, GrantStore, RegisteredClient, scopes
from toolcrib.sources.mcp.oauth.issuer_requests import IssuerClient, IssuerFailed, reaching, refused
from toolcrib.sources.mcp.oauth.token_requests import exchange_code, revoke, secret_method
from toolcrib.sources.mcp.server_spec import HttpServer

PROBE_S = 15.0
"""How long to wait for the server's challenge, in seconds. Without one, its metadata are at well-known addresses."""

_MAX_ANSWER_CHARS = 16_384


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who signs in to which server."""

    principal: str
    name: str
    """The name of the server's source."""
    server: HttpServer

    @property
    def key(self) -> GrantKey:
        return GrantKey.of(self.principal, self.server)


@dataclass(frozen=True, slots=True)
class Finished:
    """A sign-in that succeeded."""

    principal: str
    name: str
    grant: Grant


class SignIns:
    """Begins and finishes sign-ins. Any process with the same store can finish what a different one began.

    Every surface that reaches a person uses these two methods: the command line with a redirect to this machine, and
    a gateway with a page of its own.
    """

    def __init__(self, store: GrantStore) -> None:
        self._store = store

    async def begin(self, who: Applicant, redirect: str, challenge: Challenge | None = None) -> str:
        """Return the link that the person has to open. After that, the issuer redirects to `redirect`.

        `challenge` is what the server said when it refused a request; without it, the server is asked.

        Raises:
            IssuerFailed: the server or its issuer cannot be used for a sign-in.
        """
        settings, url = who.server.oauth, who.server.url
        if challenge is None:
            challenge = await _challenge_of(who.server)
        async with reaching(url, allow_private=settings.allow_private) as http:
            discovered = await discover(http, url, challenge, settings)
            if not discovered.has_pkce:
                raise IssuerFailed(
                    f"The issuer {shown(discovered.issuer)} does not say that it supports PKCE with S256, which"
                    " protects the sign-in. Ask its operator to add `code_challenge_methods_supported`."
                )
            client = await self._client(http, who, discovered, redirect)
        stored = self._store.get(who.key)
        # Keep what was granted before, so that a step up does not lose other permissions.
        same = stored is not None and stored.grant is not None and stored.issuer == discovered.issuer
        before = stored.grant.scope if same and stored is not None and stored.grant is not None else ""
        scope = scopes(before, discovered.scope, stored.wanted if same and stored is not None else "")
        if scope and discovered.grants_refresh_scope:
            scope = scopes(scope, REFRESH_SCOPE)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        self._store.put(
            state,
            {
                "principal": who.principal,
                "name": who.name,
                "server": who.key.server,
                "url": url,
                "allow_private": settings.allow_private,
                "redirect": redirect,
                "verifier": verifier,
                "resource": discovered.resource,
                "scope": scope,
                "client": asdict(client),
                "metadata": discovered.metadata.model_dump(mode="json", exclude_none=True),
            },
        )
        query = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": redirect,
            "state": state,
            "code_challenge": _challenge(verifier),
            "code_challenge_method": "S256",
            "resource": discovered.resource,
        }
        if scope:
            query["scope"] = scope
        if REFRESH_SCOPE in scope.split():
            query["prompt"] = "consent"  # source: OpenID Connect Core 1.0, section 11
        link = httpx2.URL(str(discovered.metadata.authorization_endpoint)).copy_merge_params(query)
        if link.scheme not in {"https", "http"}:
            raise IssuerFailed(f"The issuer's page for the sign-in is not a web page: {shown(str(link))}.")
        return str(link)

    async def finish(self, answer: str, principal: str) -> Finished:
        """Take the address to which the issuer redirected the browser of `principal`, and store the grant.

        Raises:
            IssuerFailed: the answer belongs to no running sign-in of this principal, is not from its issuer, or the
                issuer refused.
        """
        query = _query_of(answer)
        state = query.get("state", "")
        begun = self._store.take(state) if state else None
        if begun is None:
            raise IssuerFailed(
                "This answer belongs to no running sign-in: it was used before, or it took longer than 10 minutes."
                " Begin again."
            )
        if begun["principal"] != principal:
            raise IssuerFailed("A different principal began this sign-in. Nothing was stored.")
        if _without_query(answer) != begun["redirect"]:
            raise IssuerFailed("The issuer redirected to a different address than it was told. Nothing was stored.")
        metadata = OAuthMetadata.model_validate(begun["metadata"])
        try:
            validate_authorization_response_iss(query.get("iss"), metadata)
        except OAuthFlowError:  # nothing else in the answer may be shown
            raise IssuerFailed(
                f"The answer does not come from the issuer {shown(str(metadata.issuer))} (`iss`). Nothing was stored."
            ) from None
        if "error" in query or "code" not in query:
            raise IssuerFailed(f"The issuer did not sign you in: {_told(query)}.")
        key = GrantKey(begun["principal"], begun["server"])
        discovered = Discovered(begun["resource"], metadata, begun["scope"])
        form = {
            "code": query["code"],
            "code_verifier": begun["verifier"],
            "redirect_uri": begun["redirect"],
        }
        async with reaching(begun["url"], allow_private=begun["allow_private"]) as http:
            try:
                client = RegisteredClient(**begun["client"])
                grant = await exchange_code(http, discovered, client, form, self._store.now)
            except IssuerFailed as failure:
                if failure.code == "invalid_client":  # the issuer forgot us, so the next sign-in registers again
                    self._store.forget_client(key, discovered.issuer)
                raise
        grant = replace(grant, allow_private=begun["allow_private"])
        self._store.save(key, begun["name"], grant)
        return Finished(begun["principal"], begun["name"], grant)

    async def end(self, key: GrantKey) -> bool:
        """Remove the grant of `key`, and revoke it at its issuer. Return whether the issuer has revoked it.

        The grant is removed even if the issuer cannot be reached.

        Raises:
            IssuerFailed: the issuer did not revoke the grant.
        """
        stored = self._store.get(key)
        self._store.forget(key)
        if stored is None or stored.grant is None:
            return False
        grant = stored.grant
        async with reaching(grant.resource, allow_private=grant.allow_private) as http:
            return await revoke(http, grant)

    async def _client(
        self, http: IssuerClient, who: Applicant, discovered: Discovered, redirect: str
    ) -> RegisteredClient:
        """Return Toolcrib as the issuer knows it, in the order of the specification: the configured client, a client ID
        metadata document, or a registration.

        Source: MCP specification 2026-07-28, "Client Registration".
        """
        settings, metadata = who.server.oauth, discovered.metadata
        if settings.client_id:
            method = secret_method(discovered) if settings.client_secret else "none"
            return RegisteredClient(settings.client_id, settings.client_secret or None, method)
        if should_use_client_metadata_url(metadata, settings.client_metadata_url or None):
            return RegisteredClient(settings.client_metadata_url)
        if metadata.registration_endpoint is None:
            raise IssuerFailed(
                f"The issuer {shown(discovered.issuer)} does not let programs register themselves. Register an"
                f" application there with the redirect URI {redirect}, and set its id as `oauth.client_id`"
                f" (and `oauth.client_secret`, if it has one) under `toolcrib.sources.{who.name}`."
            )
        known = self._store.client(who.key, discovered.issuer)
        if known is not None and known.redirect == redirect:
            return known
        client = await _registered(http, discovered, redirect)
        self._store.save_client(who.key, discovered.issuer, client)
        return client


async def _registered(http: IssuerClient, discovered: Discovered, redirect: str) -> RegisteredClient:
    """Register Toolcrib at the issuer.

    Source: RFC 7591.
    """
    supported = discovered.metadata.token_endpoint_auth_methods_supported
    method = "none" if supported is None or "none" in supported else secret_method(discovered)
    host = urlsplit(redirect).hostname or ""
    wanted = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect)],
        client_name="Toolcrib",
        token_endpoint_auth_method=method,
        application_type="native" if host in {"127.0.0.1", "::1", "localhost"} else "web",
        scope=discovered.scope or None,
    )
    request = create_client_registration_request(discovered.metadata, wanted, discovered.issuer)
    response = await http.send(request)
    try:
        if response.status_code not in {200, 201}:
            raise refused(response, f"to register Toolcrib with the redirect URI {redirect}")
        client = await handle_registration_response(response)
        client = _completed(client, discovered)
        check_registration_usable(client)
    except (OAuthRegistrationError, ValidationError):
        raise IssuerFailed(
            f"{shown(str(request.url))} answered the registration with something that Toolcrib cannot use."
        ) from None
    expires = client.client_secret_expires_at or None  # source: RFC 7591, section 3.2.1: 0 means never
    return RegisteredClient(
        client.client_id, client.client_secret, client.token_endpoint_auth_method or "none", redirect, expires
    )


def _completed(client: OAuthClientInformationFull, discovered: Discovered) -> OAuthClientInformationFull:
    """Return `client` with the method of authentication that an issuer left out."""
    if client.token_endpoint_auth_method is None:
        client.token_endpoint_auth_method = secret_method(discovered) if client.client_secret else "none"
    return client


async def _challenge_of(server: HttpServer) -> Challenge:
    """Send the server a request without a token, and return what it says about that.

    A server that cannot be reached has no challenge. Its metadata are asked for next, and say what is wrong.
    """
    headers = {**server.headers, "Accept": "application/json, text/event-stream"}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    try:
        async with httpx2.AsyncClient(timeout=PROBE_S) as client:
            asked = client.build_request("POST", server.url, headers=headers, json=body)
            response = await client.send(asked, stream=True)
            await response.aclose()
    except httpx2.HTTPError:
        return Challenge()
    return Challenge.of(response) if response.status_code in {401, 403} else Challenge()


def _challenge(verifier: str) -> str:
    """Return the code challenge for a verifier.

    Source: RFC 7636, section 4.2.
    """
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _query_of(answer: str) -> dict[str, str]:
    """Return the parameters of a redirect.

    Raises:
        IssuerFailed: it is not one, or a parameter occurs twice.
    """
    try:
        query = parse_qs(urlsplit(answer[:_MAX_ANSWER_CHARS]).query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        query = {}
    if any(len(values) > 1 for values in query.values()):  # source: RFC 6749, section 3.1
        raise IssuerFailed("The answer has a parameter twice. Nothing was stored.")
    return {name: values[0] for name, values in query.items()}


def _without_query(answer: str) -> str:
    parts = urlsplit(answer)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _told(query: dict[str, Any]) -> str:
    """Return what an issuer says about a refusal. The text is the issuer's."""
    code, words = str(query.get("error", "no code")), str(query.get("error_description", ""))
    clean = " ".join(words.split())[:300]
    return f"{code[:60]}{f' ({clean})' if clean.isprintable() and clean else ''}"
