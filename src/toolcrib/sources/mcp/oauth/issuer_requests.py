"""Sends requests to issuers, with limits on their addresses, their time and the size of their answers."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from pydantic_core import from_json

from toolcrib.core.uris import shown
from toolcrib.sources.addresses import CONNECT_S, NotPublic, ScreenedTransport, UnknownHost, is_public, resolved
from toolcrib.version import VERSION

TIMEOUT_S = 15.0
"""How long one request to an issuer may take in all, in seconds."""

MAX_ANSWER_BYTES = 512 * 1024
"""The longest answer of an issuer that is read, in bytes."""

_CODE = re.compile(r"[\w.-]{1,60}")
"""The error codes of OAuth that are shown."""

_MAX_TOLD = 300


class IssuerFailed(Exception):
    """An issuer, or what a server says about its issuer, cannot be used. The message is a sentence for the owner.

    The message quotes addresses without their queries, and never a token, a code or a secret.
    """

    def __init__(self, message: str, *, code: str = "", retryable: bool = False) -> None:
        """`code` is the error code of OAuth, if the issuer answered with one. `retryable`: the same request may succeed
        later."""
        super().__init__(message)
        self.message = message
        self.code = code
        self.retryable = retryable


class IssuerClient:
    """Sends requests on behalf of one server. It does not follow redirects, and it uses no proxy.

    An address of a private network is reached only if the server itself is in one: a server on the internet must not
    make Toolcrib send requests into the network of its owner. Plain http has the same condition.
    """

    def __init__(self, client: httpx2.AsyncClient, *, allows_plain: bool) -> None:
        self._client = client
        self._allows_plain = allows_plain

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request`, and return the answer with its body.

        Raises:
            IssuerFailed: the address is not allowed, or there is no answer.
        """
        where = shown(str(request.url))
        if request.url.scheme != "https" and not self._allows_plain:
            raise IssuerFailed(f"{where} is not an https URL.")
        if request.url.userinfo:
            raise IssuerFailed(f"{where} contains a user name.")
        try:
            with anyio.fail_after(TIMEOUT_S):
                return await self._read(request, where)
        except TimeoutError:
            raise IssuerFailed(f"{where} did not answer within {TIMEOUT_S:g} s.", retryable=True) from None
        except NotPublic:
            raise IssuerFailed(
                f"{where} is in a private network, but the server is not. If that is right, set `allow_private` in"
                " the server's `oauth` settings."
            ) from None
        except UnknownHost:
            raise IssuerFailed(f"The host name of {where} does not resolve.", retryable=True) from None
        except httpx2.HTTPError as error:
            # The text of the error may quote the request.
            raise IssuerFailed(f"{where} cannot be reached ({type(error).__name__}).", retryable=True) from None

    async def get(self, url: str) -> httpx2.Response:
        """Raises `IssuerFailed` as `send` does."""
        return await self.send(self._request("GET", url, headers={"Accept": "application/json"}))

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> httpx2.Response:
        """Raises `IssuerFailed` as `send` does."""
        return await self.send(
            self._request("POST", url, data=dict(form), headers={"Accept": "application/json", **headers})
        )

    def _request(self, method: str, url: str, **given: Any) -> httpx2.Request:
        try:
            return self._client.build_request(method, url, **given)
        except (httpx2.InvalidURL, ValueError):
            raise IssuerFailed(f"{shown(url)[:_MAX_TOLD]} is not a valid URL.") from None

    async def _read(self, request: httpx2.Request, where: str) -> httpx2.Response:
        response = await self._client.send(request, stream=True, follow_redirects=False)
        try:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_ANSWER_BYTES:
                    raise IssuerFailed(f"{where} answered with more than {MAX_ANSWER_BYTES // 1024} KiB.")
        finally:
            await response.aclose()
        kept = {name: value for name, value in response.headers.items() if name in {"content-type", "location"}}
        return httpx2.Response(response.status_code, headers=kept, content=bytes(body), request=request)


@asynccontextmanager
async def reaching(server_url: str, *, allow_private: bool) -> AsyncGenerator[IssuerClient]:
    """Yield a client for the issuers of the server at `server_url`. With `allow_private`, it reaches every address."""
    near = 3 if allow_private else await _nearness_of(server_url)

    def allows(address: str) -> bool:
        return _nearness(address) <= near

    async with httpx2.AsyncClient(
        transport=ScreenedTransport(None if allow_private else allows),
        timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S),
        headers={"User-Agent": f"toolcrib/{VERSION}"},
        trust_env=False,
    ) as client:
        yield IssuerClient(client, allows_plain=near > 0)


async def _nearness_of(server_url: str) -> int:
    """Return how near the server is: 0 on the internet, 1 in a private network, 2 on this machine."""
    host = urlsplit(server_url).hostname or ""
    try:
        return min(_nearness(host), 2)
    except ValueError:  # a name
        pass
    if host == "localhost" or host.endswith(".localhost"):
        return 2
    try:
        found = await resolved(host, 443)
    except UnknownHost:
        return 0
    # The owner of a name decides what it resolves to. So a name on the internet must not open the way to this machine.
    return min(min((_nearness(address) for address in found), default=0), 1)


def _nearness(address: str) -> int:
    """Return 0 for a public address, 1 for one of a private network, 2 for this machine, and 3 for all others.

    The others are link-local and reserved. Clouds tell machines their secrets at some of them.

    Raises:
        ValueError: `address` is not an IP address.
    """
    read = ip_address(address)
    if is_public(address):
        return 0
    if read.is_loopback:
        return 2
    is_odd = read.is_link_local or read.is_multicast or read.is_reserved or read.is_unspecified
    return 1 if read.is_private and not is_odd else 3


def refused(response: httpx2.Response, what: str, hides: Collection[str] = ()) -> IssuerFailed:
    """Return the error for an answer that refuses a request. `what` says what was refused, in words.

    The text of the answer is the issuer's. `hides` are secrets that it must not bring into the message.
    """
    try:
        body: object = from_json(response.content)
    except ValueError:
        body = None
    members = cast("dict[str, object]", body) if isinstance(body, dict) else dict[str, object]()
    code, told = members.get("error"), members.get("error_description")
    code = code if isinstance(code, str) and _CODE.fullmatch(code) else ""
    words = " ".join(told.split())[:_MAX_TOLD] if isinstance(told, str) and told.isprintable() else ""
    for secret in hides:
        words = words.replace(secret, "[secret]") if secret else words
    status = response.status_code
    which = f"`{code}`" if code else f"HTTP {status}"
    message = f"{shown(str(response.request.url))} refused {what}: {which}{f' ({shown(words)})' if words else ''}."
    return IssuerFailed(message, code=code, retryable=status >= 500 or status == 429)
