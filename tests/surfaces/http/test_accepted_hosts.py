"""Tests for listen addresses and for the accepted `Host` and `Origin` headers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolcrib.config.access_settings import NO_AUTH, Auth, Jwt
from toolcrib.core.errors import InvalidConfig
from toolcrib.surfaces.http.accepted_hosts import Address, Names

ASKS = Auth(is_required=True)
ISSUED = replace(ASKS, jwt=Jwt("https://id.example.com", ("tools",)))
URL = "https://tools.example.com"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8808", Address("127.0.0.1", 8808)),
        (":8808", Address("127.0.0.1", 8808)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
    ],
)
def test_a_listen_address_is_parsed(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:70000", "host:-1", "host:٣"])
def test_an_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        Address.parse(text)


@pytest.mark.parametrize(
    ("host", "auth", "is_good"),
    [
        ("127.0.0.1", NO_AUTH, True),
        ("127.8.8.8", NO_AUTH, True),
        ("::1", NO_AUTH, True),
        ("localhost", NO_AUTH, True),
        ("0.0.0.0", NO_AUTH, False),
        ("192.0.2.1", NO_AUTH, False),
        ("tools.example.com", replace(NO_AUTH, public_url=URL, allowed_hosts=("tools.example.com",)), False),
        ("192.0.2.1", ASKS, True),
        ("0.0.0.0", ASKS, False),
        ("::", ASKS, False),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("*",)), True),
        ("0.0.0.0", replace(ASKS, public_url=URL), True),
        ("192.0.2.1", ISSUED, False),
        ("192.0.2.1", replace(ISSUED, allowed_hosts=("*",)), False),
        ("0.0.0.0", replace(ISSUED, public_url=URL), True),
        ("127.0.0.1", ISSUED, True),
    ],
)
def test_a_public_address_requires_authentication_and_a_host_name(host: str, auth: Auth, is_good: bool) -> None:
    address = Address(host, 8808)
    if is_good:
        address.check(auth)
        return
    with pytest.raises(InvalidConfig):
        address.check(auth)


@pytest.mark.parametrize(
    ("host", "auth", "header", "is_meant"),
    [
        ("127.0.0.1", NO_AUTH, "127.0.0.1:8808", True),
        ("127.0.0.1", NO_AUTH, "localhost", True),
        ("127.0.0.1", NO_AUTH, "[::1]:1", True),
        ("127.0.0.1", NO_AUTH, None, False),
        ("127.0.0.1", NO_AUTH, "", False),
        ("127.0.0.1", NO_AUTH, "127.0.0.1.evil.example", False),
        ("127.0.0.1", NO_AUTH, "127.0.0.1:80:80", False),
        ("192.0.2.1", ASKS, "192.0.2.1:8808", True),
        ("192.0.2.1", ASKS, "tools.example.com", False),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("tools.internal",)), "Tools.Internal:9", True),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("tools.internal:9",)), "tools.internal:8", False),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("tools.internal:9",)), "tools.internal:9", True),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("tools.internal",)), "0.0.0.0", False),
        ("0.0.0.0", replace(ASKS, public_url=f"{URL}/crib"), "tools.example.com", True),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("*",)), "10.0.0.7:8808", True),
    ],
)
def test_only_configured_host_headers_are_accepted(host: str, auth: Auth, header: str | None, is_meant: bool) -> None:
    assert Names(Address(host, 8808), auth).admit_host(header) is is_meant


@pytest.mark.parametrize(
    ("host", "auth", "header", "may_ask"),
    [
        ("127.0.0.1", NO_AUTH, None, True),
        ("127.0.0.1", NO_AUTH, "http://localhost:5173", True),
        ("127.0.0.1", NO_AUTH, "null", False),
        ("127.0.0.1", NO_AUTH, "file://", False),
        ("127.0.0.1", NO_AUTH, "chrome-extension://localhost", False),
        ("127.0.0.1", NO_AUTH, "https://evil.example", False),
        ("0.0.0.0", replace(ASKS, public_url=URL), "http://localhost:5173", False),
        ("0.0.0.0", replace(ASKS, public_url=URL), URL, True),
        ("0.0.0.0", replace(ASKS, public_url=URL), f"{URL}:8443", False),
        ("0.0.0.0", replace(ASKS, allowed_hosts=("*",)), URL, False),
        ("0.0.0.0", replace(ASKS, allowed_origins=("https://app.example.com",)), "https://APP.example.com", True),
        ("0.0.0.0", replace(ASKS, allowed_origins=("*",)), "https://any.example", True),
    ],
)
def test_only_local_or_configured_origins_are_accepted(
    host: str, auth: Auth, header: str | None, may_ask: bool
) -> None:
    assert Names(Address(host, 8808), auth).admit_origin(header) is may_ask
