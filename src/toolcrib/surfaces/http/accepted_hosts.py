"""The address that the server listens on, and the host names and origins that it accepts."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolcrib.config.access_settings import ANY, Auth, is_loopback
from toolcrib.core.errors import InvalidConfig

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/?#@\s]+)(?::(?P<port>\d{1,5}))?")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int
    """The port to listen on. 0 chooses a free port."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `HOST:PORT`, `[IPV6]:PORT`, `:PORT` or `PORT`. Without a host, the address is 127.0.0.1.

        Raises:
            InvalidConfig: the string has none of these forms.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        if not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
            raise InvalidConfig(f"`{text}` is not a HOST:PORT address, for example 127.0.0.1:8808")
        return cls(host, int(port))

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback(self.host)

    @property
    def is_every(self) -> bool:
        """Whether this is a wildcard address such as 0.0.0.0, which clients cannot use as a host name."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def written(self) -> str:
        """The host in the form that URLs use."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def check(self, auth: Auth) -> None:
        """Check that requests to this address can be authenticated and that clients can name the server.

        Raises:
            InvalidConfig: other machines can reach the address, but there is no authentication or no name for the
                server.
        """
        if self.is_private:
            return
        if not auth.is_required:
            raise InvalidConfig(
                f"Refusing to listen on `{self.host}` without authentication. "
                "Listen on 127.0.0.1, or configure tokens under `toolcrib.auth`.",
                hints=[
                    "Create one with `toolcrib token NAME`.",
                    "Or put a reverse proxy that authenticates in front.",
                ],
            )
        has_name = auth.jwt is None and (auth.allowed_hosts or not self.is_every)
        if auth.public_url is None and not has_name:
            raise InvalidConfig(
                f"Clients cannot reach `{self.host}` by that name. "
                "Set `toolcrib.auth.public_url` to the address that clients use."
            )


class Names:
    """Decides which `Host` and `Origin` headers are accepted.

    Source: MCP 2026-07-28, "Transports", security warning on DNS rebinding: an attacker can point a host name of a
    foreign page to this server. Such a page must not reach the tools.
    """

    def __init__(self, address: Address, auth: Auth, *, in_app: bool = False) -> None:
        """`in_app`: a program mounts the application, and sets the names by the arguments of `Toolcrib.app`."""
        where = "the `auth` of `Toolcrib.app`" if in_app else "`toolcrib.auth`"
        self.hosts_set_by = f"{'`url` of `Toolcrib.app`' if in_app else '`public_url`'} and `allowed_hosts` in {where}"
        """The settings by which the owner can add a host, for a hint."""
        self.origins_set_by = f"`allowed_origins` in {where}"
        """The setting by which the owner can add an origin, for a hint."""
        own = {address.written.lower()} - ({address.host} if address.is_every else set())
        public = urlsplit(auth.public_url).netloc.lower() if auth.public_url else None
        self._hosts = {*_LOOPBACK, *own, *auth.allowed_hosts, *([public] if public else [])}
        self._origins = set(auth.allowed_origins)
        self._pages = {*_LOOPBACK, *own} if address.is_private else own
        if auth.public_url is not None:
            self._origins.add(f"{urlsplit(auth.public_url).scheme}://{public}")

    def admit_host(self, header: str | None) -> bool:
        """Whether a `Host` header names this server. A configured name without a port matches any port."""
        if ANY in self._hosts:
            return True
        found = _HOST.fullmatch((header or "").lower())
        return found is not None and (found["name"] in self._hosts or found[0] in self._hosts)

    def admit_origin(self, header: str | None) -> bool:
        """Whether requests with this `Origin` are allowed.

        Requests without the header are, since only web pages send it.
        """
        if header is None or ANY in self._origins or header.lower() in self._origins:
            return True
        scheme, _, host = header.lower().partition("://")
        found = _HOST.fullmatch(host)
        return scheme in {"http", "https"} and found is not None and found["name"] in self._pages
