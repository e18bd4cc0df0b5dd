"""A local authorization server that signs tokens and publishes its keys. Tests can make it fail."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

Json = dict[str, Any]

AUDIENCE = "https://tools.example.com/mcp"


@dataclass(frozen=True)
class Key:
    """A private key with its signature algorithm."""

    private: Any
    algorithm: str
    jwk: Json
    """The public part."""


@cache
def rsa_key(name: str) -> Key:
    """Returns the same key for the same name, because generating a key is slow."""
    private = rsa.generate_private_key(65537, 2048)
    return Key(private, "RS256", {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": name, "use": "sig"})


@cache
def ec_key(name: str) -> Key:
    private = ec.generate_private_key(ec.SECP256R1())
    return Key(private, "ES256", {**ECAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": name})


@cache
def ed_key(name: str) -> Key:
    private = ed25519.Ed25519PrivateKey.generate()
    return Key(private, "EdDSA", {**OKPAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": name})


@dataclass
class Issuer:
    """The state of the authorization server at `url`."""

    url: str
    keys: list[Json] = field(default_factory=lambda: [key("1").jwk for key in (rsa_key, ec_key, ed_key)])
    answer: tuple[int, bytes] | None = None
    """The status and body to send instead of the keys."""
    holds: threading.Event = field(default_factory=threading.Event)
    """The server answers only after this event is set."""
    asked: int = 0
    """The number of requests for the keys."""

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/keys"

    def token(self, key: Key | None = None, /, headers: Json | None = None, **claims: Any) -> str:
        """Signs a token that is valid for five minutes. `claims` replace the default claims; None removes a claim."""
        key = key or rsa_key("1")
        now = int(time.time())
        told = {"iss": self.url, "aud": AUDIENCE, "sub": "dana", "exp": now + 300, "iat": now, **claims}
        told = {name: value for name, value in told.items() if value is not None}
        named = {"kid": key.jwk["kid"], **(headers or {})}
        return jwt.encode(told, key.private, key.algorithm, {name: each for name, each in named.items() if each})

    def respond(self, path: str) -> tuple[int, bytes]:
        match path:
            case "/keys":
                self.asked += 1
                self.holds.wait(30)
                return self.answer or (200, json.dumps({"keys": self.keys}).encode())
            case "/elsewhere":
                return 200, json.dumps({"keys": self.keys}).encode()
            case "/.well-known/openid-configuration" | "/.well-known/oauth-authorization-server":
                metadata = {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": self.jwks_url,
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["client_credentials"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                    "code_challenge_methods_supported": ["S256"],
                }
                return 200, json.dumps(metadata).encode()
            case _:
                return 404, b"{}"

    def grant(self, form: Mapping[str, list[str]]) -> bytes:
        """Returns a token response for the resource that the client requests."""
        scope = form.get("scope", [""])[0]
        token = self.token(aud=form["resource"][0], sub="the client", scope=scope)
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": scope}).encode()


@contextmanager
def issuing() -> Generator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*issuer.respond(self.path))

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._send(*((200, issuer.grant(form)) if self.path == "/token" else (404, b"{}")))

        def _send(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the client has disconnected
                return

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
            """Suppress the request log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
        issuer.holds.set()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            issuer.holds.set()
            server.shutdown()
            thread.join()


def segment(part: bytes) -> str:
    """Encodes one segment of a token."""
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def unsigned_token(header: Json, claims: Json) -> str:
    """Returns an unsigned token."""
    return f"{segment(json.dumps(header).encode())}.{segment(json.dumps(claims).encode())}."
