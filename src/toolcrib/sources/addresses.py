"""Controls which addresses an HTTP request may reach. The address that is checked is the address that is used."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

import anyio
import httpx2

if TYPE_CHECKING:
    import ssl

CONNECT_S = 10.0
"""The time to connect, in seconds, for all addresses of a name together."""

_METADATA = frozenset(map(IPv4Address, ("168.63.129.16", "192.0.0.192")))
"""Public-looking addresses where a cloud tells a machine its own secrets: Azure's and Oracle's."""

_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("3fff::/20"),
)
"""Special-purpose networks in the address registries of IANA that not every supported version of Python knows.

Source: https://www.iana.org/assignments/iana-ipv6-special-registry, and the registry for IPv4, as of 2026-11.
"""

Address = IPv4Address | IPv6Address


class NotPublic(Exception):
    """The name resolves only to addresses that are not allowed."""


class UnknownHost(Exception):
    """The name does not resolve."""


def is_public(text: str) -> bool:
    """Return whether an IP address belongs to the public internet. An address embedded in it must be public too."""
    address = ip_address(text)
    return all(_is_public(each) for each in (address, *_embedded(address)))


def _is_public(address: Address) -> bool:
    if address in _METADATA or any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    is_odd = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    if isinstance(address, IPv6Address):
        # An address that embeds another one is judged by that one, because Python counts some of these as reserved.
        return bool(_embedded(address)) or (address.is_global and not is_odd and not address.is_site_local)
    return address.is_global and not is_odd


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that packets to an IPv6 address may reach."""
    if isinstance(address, IPv4Address):
        return ()
    held = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or int(address) >> 32 == 0:  # IPv4-compatible addresses, long deprecated
        held.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(each for each in held if each is not None)


class ScreenedTransport(httpx2.AsyncBaseTransport):
    """Resolves a name itself, drops the addresses that are not allowed, and connects to one of the rest by its number.

    The name is resolved only once, so a name that resolves differently the next time has no effect. No proxy is used,
    because only the proxy would know where a request ends up.
    """

    def __init__(self, allows: Callable[[str], bool] | None) -> None:
        """`allows` decides about one IP address. None allows all of them."""
        self._allows = allows
        self._wrapped = httpx2.AsyncHTTPTransport(verify=_verification(), trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises `NotPublic` and `UnknownHost` in addition to the usual errors; then nothing was
        sent."""
        host = request.url.raw_host.decode("ascii")
        found = await resolved(host, request.url.port or (443 if request.url.scheme == "https" else 80))
        allowed = [address for address in found if self._allows is None or self._allows(address)]
        if not allowed:
            raise NotPublic(host)
        for position, address in enumerate(allowed, start=1):
            timeouts = {**request.extensions.get("timeout", {}), "connect": CONNECT_S / len(allowed)}
            extensions = {**request.extensions, "timeout": timeouts}
            if address != host:  # the certificate must belong to the name, not to the number
                extensions["sni_hostname"] = host
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._wrapped.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if position == len(allowed):
                    raise
        raise AssertionError("there was an address")  # pragma: no cover

    async def aclose(self) -> None:
        await self._wrapped.aclose()


async def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of `host`, in the order that the system prefers.

    Raises:
        UnknownHost: the name does not resolve.
    """
    try:
        with anyio.fail_after(CONNECT_S):
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHost(host) from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


@cache
def _verification() -> ssl.SSLContext:
    """Create the context once, because reading all certificates takes some time."""
    return httpx2.create_ssl_context()
