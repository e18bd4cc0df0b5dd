"""Toolcrib as the client of one conformance scenario: it lists and calls a tool, and signs in whenever it has to.

The suite starts it with the address of a server, and gives credentials in `MCP_CONFORMANCE_CONTEXT`. The program does
what `toolcrib login` does, without a person: the suite's issuers redirect at once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import httpx2

from toolcrib.core.errors import SignInRequired
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.secrets.sealing import Seal
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.oauth.credentials import Credentials
from toolcrib.sources.mcp.oauth.grants import GrantStore
from toolcrib.sources.mcp.oauth.sign_in import Applicant, SignIns
from toolcrib.sources.mcp.server_spec import HttpServer, OAuthSettings

REDIRECT = "http://127.0.0.1:8763/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The address that the suite expects as the id of a client with a metadata document."""

MOST_SIGN_INS = 3


def settings(scenario: str, given: dict[str, Any], issuer: str) -> OAuthSettings:
    """Return what an owner would configure for the scenario."""
    if "client_id" not in given:
        return OAuthSettings(client_metadata_url=METADATA_URL)
    by_itself = "client-credentials" in scenario
    return OAuthSettings(
        client_id=given["client_id"],
        client_secret=given.get("client_secret", ""),
        private_key=given.get("private_key_pem", ""),
        grant="client_credentials" if by_itself else "authorization_code",
        issuer=issuer,
    )


async def named_issuer(url: str) -> str:
    """Return the issuer that the server names: an owner would copy it from the documentation."""
    async with httpx2.AsyncClient() as client:
        at = httpx2.URL(url)
        for path in (f"/.well-known/oauth-protected-resource{at.path}", "/.well-known/oauth-protected-resource"):
            response = await client.get(at.copy_with(path=path))
            if response.status_code == 200:
                return response.json()["authorization_servers"][0]
    return ""


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    issuer = (given.get("issuer") or await named_issuer(url)) if "client_id" in given else ""
    server = HttpServer(url, oauth=settings(scenario, given, issuer))
    with tempfile.TemporaryDirectory() as folder:
        store = GrantStore(Path(folder) / "grants.sqlite", lambda: Seal([b"k" * 32]))
        sign_ins, who = SignIns(store), Applicant(LOCAL.id, "suite", server)

        async def sign_in() -> None:
            link = await sign_ins.begin(who, REDIRECT)
            async with httpx2.AsyncClient() as browser:
                response = await browser.get(link, follow_redirects=False)
            await sign_ins.finish(response.headers["location"], LOCAL.id)

        async with McpSource("suite", server, credentials=Credentials(store, "suite", LOCAL.id, server)) as source:
            for attempt in range(MOST_SIGN_INS + 1):
                try:
                    source.try_again()
                    tools = (await source.list_tools()).tools
                    for tool in tools:
                        await source.call_tool(tool, {}, CallContext(LOCAL))
                    # An issuer may change between two requests.
                    await source.call_tool(tools[0], {}, CallContext(LOCAL))
                except SignInRequired:
                    if attempt == MOST_SIGN_INS:
                        raise
                    await sign_in()
                else:
                    return


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
