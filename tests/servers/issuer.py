"""An issuer of tokens, and the MCP server that it protects, over real HTTP and on one port. Its faults can be set.

The server is the SDK's own. The issuer has discovery, dynamic registration, PKCE, rotating refresh tokens and
revocation. `browser` does what a person and a browser do. Run as a module, it is a browser: it opens one link.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

import anyio
import httpx2
import jwt
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCOPE = "tools"
MORE = "files:write"
"""The scope that the tool `write` needs in addition."""


@dataclass
class _Token:
    scope: str
    client: str
    expires_at: float


@dataclass
class Issuer:
    """The state of an issuer and its faults. A test may change all of it while the issuer runs."""

    url: str = ""
    expires_in: int | None = 3_600
    has_pkce: bool = True
    has_registration: bool = True
    takes_metadata_documents: bool = False
    sends_iss: bool = True
    iss: str | None = None
    """A wrong `iss` in redirects."""
    named_issuer: str | None = None
    """A wrong `issuer` in the metadata."""
    prm: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members that replace those of the server's own metadata."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members that replace those of the issuer's metadata."""
    challenges: bool = True
    """Whether a refusal names the server's metadata."""
    challenge_scope: str = ""
    """The scopes that a refusal names."""
    token_hangs: bool = False
    token_redirects_to: str | None = None
    token_fails_with: tuple[int, Mapping[str, str]] | None = None
    token_delay_s: float = 0.0
    rotates: bool = True
    has_refresh_tokens: bool = True
    requests: Counter[str] = field(default_factory=Counter[str])
    """How many requests there were: of tokens by their grant type, and of others by the path."""
    tokens: dict[str, _Token] = field(default_factory=dict[str, _Token])
    refresh_tokens: dict[str, _Token] = field(default_factory=dict[str, _Token])
    issued: list[str] = field(default_factory=list[str])
    """Every token and refresh token that there ever was."""
    spent: set[str] = field(default_factory=set[str])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sent: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The forms of all token requests, and the queries of all authorization requests."""
    public_key: str = ""
    """The public key in PEM of a client that signs assertions."""

    @property
    def server(self) -> str:
        """The address of the protected server."""
        return f"{self.url}/mcp"

    @property
    def secrets(self) -> set[str]:
        """Every token, refresh token and client secret that was issued."""
        return {*self.issued} | {each["client_secret"] for each in self.clients.values() if "client_secret" in each}

    def expire_tokens(self) -> None:
        for token in self.tokens.values():
            token.expires_at = 0

    def revoke_all(self) -> None:
        self.tokens.clear()
        self.spent |= {*self.refresh_tokens}
        self.refresh_tokens.clear()

    # -- what an issuer answers ---------------------------------------------------------------------------------------

    async def describe(self, _: Request) -> Response:
        self.requests["metadata"] += 1
        known: dict[str, Any] = {
            "issuer": self.named_issuer or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": self.sends_iss,
            "client_id_metadata_document_supported": self.takes_metadata_documents,
            **({"code_challenge_methods_supported": ["S256"]} if self.has_pkce else {}),
            **({"registration_endpoint": f"{self.url}/register"} if self.has_registration else {}),
            **self.metadata,
        }
        return JSONResponse({key: value for key, value in known.items() if value is not None})

    async def describe_server(self, _: Request) -> Response:
        self.requests["prm"] += 1
        known = {"resource": self.server, "authorization_servers": [self.url], "scopes_supported": [SCOPE]}
        return JSONResponse({**known, **self.prm})

    async def register(self, request: Request) -> Response:
        self.requests["register"] += 1
        client: dict[str, Any] = {**await request.json(), "client_id": f"client-{secrets.token_hex(4)}"}
        if client.get("token_endpoint_auth_method") != "none":
            client["client_secret"] = f"secret-{secrets.token_hex(16)}"
        self.clients[client["client_id"]] = client
        return JSONResponse(client, 201)

    async def authorize(self, request: Request) -> Response:
        """Sign everybody in at once, and send the browser back."""
        asked = dict(request.query_params)
        self.requests["authorize"] += 1
        self.sent.append(asked)
        client = self.clients.get(asked["client_id"], {})
        if "redirect_uris" in client and asked["redirect_uri"] not in client["redirect_uris"]:
            return PlainTextResponse("The redirect URI is not registered.", 400)
        code = f"code-{secrets.token_hex(16)}"
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"]}
        if self.sends_iss or self.iss:
            back["iss"] = self.iss or self.url
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}", 302)

    async def token(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        kind = form["grant_type"]
        self.requests[kind] += 1
        self.sent.append(form)
        if self.token_hangs:
            await anyio.sleep(60)
        if self.token_redirects_to is not None:
            return RedirectResponse(self.token_redirects_to, 307)
        await anyio.sleep(self.token_delay_s)
        if self.token_fails_with is not None:
            status, body = self.token_fails_with
            return JSONResponse(body, status)
        client, error = self._client(request, form)
        if error:
            return JSONResponse({"error": error}, 401)
        match kind:
            case "authorization_code":
                begun = self.codes.pop(form.get("code", ""), None)
                if begun is None or not _proves(form, begun) or form.get("redirect_uri") != begun["redirect_uri"]:
                    return JSONResponse({"error": "invalid_grant"}, 400)
                return self._issued(begun.get("scope", ""), client)
            case "refresh_token":
                known = self.refresh_tokens.get(form["refresh_token"])
                if known is None:
                    if form["refresh_token"] in self.spent:  # a thief may have it, so the whole family ends
                        self.revoke_all()
                    return JSONResponse({"error": "invalid_grant"}, 400)
                if self.rotates:
                    del self.refresh_tokens[form["refresh_token"]]
                    self.spent.add(form["refresh_token"])
                return self._issued(known.scope, client)
            case "client_credentials":
                return self._issued(form.get("scope", SCOPE), client, refreshes=False)
            case _:
                return JSONResponse({"error": "unsupported_grant_type"}, 400)

    def _client(self, request: Request, form: Mapping[str, str]) -> tuple[str, str]:
        """Return the id of the client that sent a token request, and an error code."""
        if "client_assertion" in form:
            audience = self.named_issuer or self.url
            claims = jwt.decode(form["client_assertion"], self.public_key, ["ES256"], audience=audience)
            return claims["sub"], ""
        name, secret = form.get("client_id", ""), form.get("client_secret")
        if (header := request.headers.get("authorization", "")).startswith("Basic "):
            name, _, secret = base64.b64decode(header[6:]).decode().partition(":")
            name, secret = unquote(name), unquote(secret)
        known = self.clients.get(name)
        if known is None and not name.startswith("https://"):
            return name, "invalid_client"
        return name, "" if known is None or known.get("client_secret") == secret else "invalid_client"

    def _issued(self, scope: str, client: str, *, refreshes: bool = True) -> Response:
        token, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        known = _Token(scope, client, time.time() + (self.expires_in or 3_600))
        self.tokens[token] = known
        self.issued += [token, refresh]
        body: dict[str, Any] = {"access_token": token, "token_type": "bearer", "scope": scope}
        if self.expires_in is not None:
            body["expires_in"] = self.expires_in
        if refreshes and self.has_refresh_tokens:
            self.refresh_tokens[refresh] = known
            body["refresh_token"] = refresh
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    async def revoke(self, request: Request) -> Response:
        self.requests["revoke"] += 1
        token = str((await request.form())["token"])
        self.tokens.pop(token, None)
        self.refresh_tokens.pop(token, None)
        return Response(status_code=200)

    # -- the protected server -----------------------------------------------------------------------------------------

    async def verify_token(self, token: str) -> AccessToken | None:
        known = self.tokens.get(token)
        if known is None or known.expires_at < time.time():
            return None
        return AccessToken(
            token=token, client_id=known.client, scopes=known.scope.split(), resource=self.server, subject="someone"
        )

    def guarded(self, app: ASGIApp) -> ASGIApp:
        """Wraps the server: refuses the tool `write` without its scope, and can leave out the challenge."""

        async def guard(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["method"] != "POST":
                await app(scope, receive, send)
                return
            self.requests["server"] += 1
            request = Request(scope, receive)
            body = await request.body()
            token = self.tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
            asked: dict[str, Any] = json.loads(body)
            if token is not None and asked.get("params", {}).get("name") == "write" and MORE not in token.scope.split():
                challenge = f'Bearer error="insufficient_scope", scope="{MORE}"'
                await Response(status_code=403, headers={"WWW-Authenticate": challenge})(scope, receive, send)
                return
            if token is None and not self.challenges:
                await Response(status_code=401)(scope, receive, send)
                return
            if token is None and self.challenge_scope:
                metadata = f"{self.url}/.well-known/oauth-protected-resource/mcp"
                challenge = f'Bearer resource_metadata="{metadata}", scope="{self.challenge_scope}"'
                await Response(status_code=401, headers={"WWW-Authenticate": challenge})(scope, receive, send)
                return
            await app(scope, _replayed(body, receive), send)

        return guard


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def _proves(form: Mapping[str, str], begun: Mapping[str, str]) -> bool:
    """Return whether the verifier of a token request belongs to the challenge of the link."""
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == begun["code_challenge"]


def _protected(issuer: Issuer) -> MCPServer[Any]:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(issuer.url),
        resource_server_url=AnyHttpUrl(issuer.server),
        required_scopes=[SCOPE],
        validate_token_resource=True,
    )
    server = MCPServer[Any]("protected", instructions="Tools after a sign-in.", auth=auth, token_verifier=issuer)

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool()
    def write(text: str) -> str:
        """Write a file. This needs one more scope."""
        return f"wrote {text}"

    @server.tool()
    def shout(ctx: Context[Any]) -> str:
        """Refuse the request, and quote its credentials."""
        request = ctx.request_context.request
        assert isinstance(request, Request)
        raise MCPError(-32_000, f"refused {request.headers['authorization']}")

    _ = add, write, shout
    return server


@contextmanager
def issuing(**given: Any) -> Generator[Issuer]:
    """Run an issuer and its server for the block. `given` are fields of `Issuer`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        issuer = Issuer(f"http://127.0.0.1:{listener.getsockname()[1]}", **given)
        protected = _protected(issuer).streamable_http_app()
        routes = [
            Route("/.well-known/oauth-protected-resource/mcp", issuer.describe_server),
            Route("/.well-known/oauth-authorization-server", issuer.describe),
            Route("/register", issuer.register, methods=["POST"]),
            Route("/authorize", issuer.authorize),
            Route("/token", issuer.token, methods=["POST"]),
            Route("/revoke", issuer.revoke, methods=["POST"]),
            Mount("/", app=issuer.guarded(protected)),
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            async with protected.router.lifespan_context(protected):
                yield

        app = Starlette(routes=routes, lifespan=lifespan)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        serving = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: serving.run(sockets=[listener]), daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            serving.should_exit = True
            thread.join(10)


def browser(link: str) -> str:
    """Sign in as a person would, and return the address to which the issuer redirects."""
    response = httpx2.get(link, follow_redirects=False, timeout=30)
    assert response.status_code == 302, response.text
    return response.headers["location"]


if __name__ == "__main__":
    httpx2.get(sys.argv[1], follow_redirects=True, timeout=30)
