"""Finds the issuer of a server's tokens, and what it can do.

Source: MCP specification 2026-07-28, "Authorization Server Discovery"; RFC 9728; RFC 8414.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    issuers_match,
    validate_metadata_issuer,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from toolcrib.core.uris import shown
from toolcrib.sources.mcp.oauth.grants import scopes
from toolcrib.sources.mcp.oauth.issuer_requests import IssuerClient, IssuerFailed
from toolcrib.sources.mcp.server_spec import OAuthSettings

REFRESH_SCOPE = "offline_access"
"""The scope by which some issuers grant a refresh token."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server said when it refused a request without a token, or with a token that lacks a scope."""

    resource_metadata: str | None = None
    scope: str | None = None

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge:
        return cls(extract_resource_metadata_from_www_auth(response), extract_scope_from_www_auth(response))


@dataclass(frozen=True, slots=True)
class Discovered:
    """A server as a protected resource, and its issuer."""

    resource: str
    """The URI for which tokens are requested."""
    metadata: OAuthMetadata
    """The validated metadata of the issuer."""
    scope: str
    """The scopes to ask for. Empty: leave it to the issuer."""

    @property
    def issuer(self) -> str:
        return str(self.metadata.issuer)

    @property
    def has_pkce(self) -> bool:
        """Whether the issuer says that it supports PKCE with S256.

        Source: MCP specification 2026-07-28, "Authorization Code Protection": without it, clients must refuse.
        """
        return "S256" in (self.metadata.code_challenge_methods_supported or ())

    @property
    def grants_refresh_scope(self) -> bool:
        return REFRESH_SCOPE in (self.metadata.scopes_supported or ())


async def discover(http: IssuerClient, server_url: str, challenge: Challenge, settings: OAuthSettings) -> Discovered:
    """Return the issuer of the server at `server_url`, which answered with `challenge`.

    Raises:
        IssuerFailed: there is no issuer, it is not the configured one, or the metadata contradict themselves.
    """
    resource = resource_url_from_server_url(server_url)
    prm = await _resource_metadata(http, server_url, challenge)
    if prm is None:
        metadata = await issuer_metadata(http, None, server_url)
    else:
        named = str(prm.resource)
        if not check_resource_allowed(requested_resource=resource, configured_resource=named):
            raise IssuerFailed(f"The server's metadata are for a different server: {shown(named)}.")
        resource = named
        metadata = await issuer_metadata(http, _chosen([*map(str, prm.authorization_servers)], settings), server_url)
    if settings.issuer and not issuers_match(str(metadata.issuer), settings.issuer):
        raise _other_issuer(settings, [str(metadata.issuer)])
    if not settings.issuer and (settings.client_secret or settings.private_key):
        # Otherwise the server would decide who receives the owner's credentials.
        raise IssuerFailed(
            f"The server names the issuer {shown(str(metadata.issuer))}. If `oauth.client_id` comes from it, set"
            f" `oauth.issuer` to `{shown(str(metadata.issuer))}`, so that the secret is only ever sent there."
        )
    supported = None if prm is None else prm.scopes_supported
    # Least privilege: the owner's choice, then what the server asks for, then the minimum that it documents.
    wanted = scopes(*settings.scopes) or scopes(challenge.scope) or scopes(*(supported or ()))
    return Discovered(resource, metadata, wanted)


async def _resource_metadata(
    http: IssuerClient, server_url: str, challenge: Challenge
) -> ProtectedResourceMetadata | None:
    """Return the server's own metadata, or None if it has none."""
    failed: httpx2.Response | None = None
    for url in build_protected_resource_metadata_discovery_urls(challenge.resource_metadata, server_url):
        response = await http.get(url)
        if (prm := await handle_protected_resource_response(response)) is not None:
            return prm
        if response.status_code >= 500 or response.status_code == 429:
            failed = response
    if failed is not None:  # this says nothing about whether there are metadata
        raise IssuerFailed(f"{shown(str(failed.url))} answered HTTP {failed.status_code}.", retryable=True)
    return None


def _chosen(advertised: list[str], settings: OAuthSettings) -> str:
    """Return the issuer to use: the configured one, otherwise the first."""
    if not settings.issuer:
        return advertised[0]
    for issuer in advertised:
        if issuers_match(issuer, settings.issuer):
            return issuer
    raise _other_issuer(settings, advertised)


def _other_issuer(settings: OAuthSettings, advertised: list[str]) -> IssuerFailed:
    return IssuerFailed(
        f"The server names a different issuer ({shown(', '.join(advertised))}) than `oauth.issuer`, which is"
        f" {settings.issuer}. Credentials of one issuer must not be sent to a different one."
    )


async def issuer_metadata(http: IssuerClient, issuer: str | None, server_url: str) -> OAuthMetadata:
    """Return the validated metadata of `issuer`.

    None means that the server names no issuer. Then the server's own origin is the issuer.
    Source: MCP specification 2025-03-26, "Server Metadata Discovery".

    Raises:
        IssuerFailed: there are no metadata, or they are those of a different issuer.
    """
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, server_url):
        response = await http.get(url)
        goes_on, metadata = await handle_auth_metadata_response(response)
        if metadata is not None:
            _check_issuer(metadata, issuer, server_url)
            return metadata
        if not goes_on:
            raise IssuerFailed(f"{shown(url)} answered HTTP {response.status_code}.", retryable=True)
    if issuer is None:
        raise IssuerFailed("The server does not say where to sign in: it has no metadata for OAuth.")
    raise IssuerFailed(f"The issuer {shown(issuer)} has no metadata.")


def _check_issuer(metadata: OAuthMetadata, issuer: str | None, server_url: str) -> None:
    if issuer is None:
        parts = urlsplit(server_url)
        if issuers_match(str(metadata.issuer), f"{parts.scheme}://{parts.netloc}"):
            return
        raise IssuerFailed(f"The server's metadata are those of a different issuer: {shown(str(metadata.issuer))}.")
    try:
        validate_metadata_issuer(metadata, issuer)
    except OAuthFlowError:
        raise IssuerFailed(
            f"The metadata of the issuer {shown(issuer)} are those of a different issuer:"
            f" {shown(str(metadata.issuer))}."
        ) from None
