"""The address that is listened at, and the names under which requests may mean it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolcrib.config.auth import ANY, Auth, is_loopback
from toolcrib.core.errors import InvalidConfig

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/?#@\s]+)(?::(?P<port>\d{1,5}))?")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int
    """0 takes a free one."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT`, `[IPV6]:PORT`, `:PORT` or `PORT`; without a host, on this machine alone.

        Raises:
            InvalidConfig: no such form.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        if not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
            raise InvalidConfig(f"`{text}` is no HOST:PORT")
        return cls(host, int(port))

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    @property
    def is_every(self) -> bool:
        """Whether it stands for all addresses of this machine, and so for none that a client would name."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def written(self) -> str:
        """The host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def check(self, auth: Auth) -> None:
        """Pass where requests that arrive here can be told apart: who sends them, and whom they mean.

        Raises:
            InvalidConfig: others reach it and nobody asks who they are, or they have no name to reach it by.
        """
        if self.is_private:
            return
        if not auth.is_required:
            raise InvalidConfig(
                f"`{self.host}` can be reached from other machines, and nobody is asked who they are; "
                "listen on 127.0.0.1, or say in `toolcrib.auth` who may ask",
                hints=["`toolcrib token NAME` makes a token.", "A reverse proxy that asks can stand in front."],
            )
        has_name = auth.jwt is None and (auth.allowed_hosts or not self.is_every)
        if auth.public_url is None and not has_name:
            raise InvalidConfig(
                f"`{self.host}` is not what clients call it; say in `toolcrib.auth.public_url` what they do"
            )


class Names:
    """Which requests mean this server, and which web pages may send some.

    Source: MCP 2026-07-28, "Transports", security warning on DNS rebinding: a page elsewhere, whose name an attacker
    has point here, must not reach the tools.
    """

    def __init__(self, address: Address, auth: Auth, *, in_app: bool = False) -> None:
        """`in_app`: a program mounts the application, and names it by the arguments of `Toolcrib.app`."""
        where = "the `auth` of `Toolcrib.app`" if in_app else "`toolcrib.auth`"
        self.hosts_set_by = f"{'`url` of `Toolcrib.app`' if in_app else '`public_url`'} and `allowed_hosts` in {where}"
        """What the owner changes to have another host admitted, for a hint."""
        self.origins_set_by = f"`allowed_origins` in {where}"
        """The same for a page."""
        own = {address.written.lower()} - ({address.host} if address.is_every else set())
        public = urlsplit(auth.public_url).netloc.lower() if auth.public_url else None
        self._hosts = {*_LOOPBACK, *own, *auth.allowed_hosts, *([public] if public else [])}
        self._origins = set(auth.allowed_origins)
        self._pages = {*_LOOPBACK, *own} if address.is_private else own
        if auth.public_url is not None:
            self._origins.add(f"{urlsplit(auth.public_url).scheme}://{public}")

    def admit_host(self, header: str | None) -> bool:
        """Whether a `Host` header means this server. A name without a port is good with any."""
        if ANY in self._hosts:
            return True
        found = _HOST.fullmatch((header or "").lower())
        return found is not None and (found["name"] in self._hosts or found[0] in self._hosts)

    def admit_origin(self, header: str | None) -> bool:
        """Whether a page of this `Origin` may ask; what is no page says of none."""
        if header is None or ANY in self._origins or header.lower() in self._origins:
            return True
        scheme, _, host = header.lower().partition("://")
        found = _HOST.fullmatch(host)
        return scheme in {"http", "https"} and found is not None and found["name"] in self._pages
