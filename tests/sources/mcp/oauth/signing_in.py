"""What the tests of sign-ins share: a store, a server, and a person who signs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from tests.servers.issuer import Issuer, browser

from toolcrib.secrets.sealing import Seal
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.oauth.credentials import Credentials
from toolcrib.sources.mcp.oauth.grants import Grant, GrantStore
from toolcrib.sources.mcp.oauth.sign_in import Applicant, SignIns
from toolcrib.sources.mcp.server_spec import HttpServer, OAuthSettings

REDIRECT = "http://127.0.0.1:9/callback"


@dataclass
class Client:
    """Toolcrib as a client of one server."""

    store: GrantStore
    server: HttpServer
    now: list[float]
    """How far the clock is ahead, in seconds."""

    @classmethod
    def of(cls, folder: Path, at: Issuer, /, **settings: Any) -> Client:
        ahead = [0.0]
        store = GrantStore(folder / "grants.sqlite", lambda: Seal([b"k" * 32]), now=lambda: time() + ahead[0])
        return cls(store, HttpServer(at.server, oauth=OAuthSettings(**settings)), ahead)

    @property
    def who(self) -> Applicant:
        return Applicant("local", "far", self.server)

    @property
    def grant(self) -> Grant | None:
        stored = self.store.get(self.who.key)
        return None if stored is None else stored.grant

    def source(self) -> McpSource:
        """Return a new source, as a program has it after a restart."""
        return McpSource("far", self.server, credentials=self.credentials())

    def credentials(self, draw: Callable[[], float] = lambda: 0.0) -> Credentials:
        return Credentials(self.store, "far", "local", self.server, draw=draw)

    async def sign_in(self) -> Grant:
        sign_ins = SignIns(self.store)
        link = await sign_ins.begin(self.who, REDIRECT)
        return (await sign_ins.finish(browser(link), "local")).grant
