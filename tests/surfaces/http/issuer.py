"""An authorization server of this machine: it signs tokens, tells its keys, and can be told to do so badly."""

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
    """A private key, and how it signs."""

    private: Any
    algorithm: str
    jwk: Json
    """The public part."""


@cache
def rsa_key(name: str) -> Key:
    """Always the same for one name: making one takes long."""
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
    """Answers at `url` as long as it is served."""

    url: str
    keys: list[Json] = field(default_factory=lambda: [key("1").jwk for key in (rsa_key, ec_key, ed_key)])
    answer: tuple[int, bytes] | None = None
    """What it answers instead of its keys."""
    holds: threading.Event = field(default_factory=threading.Event)
    """It answers only once this is set."""
    asked: int = 0
    """How often it was asked for its keys."""

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/keys"

    def token(self, key: Key | None = None, /, headers: Json | None = None, **claims: Any) -> str:
        """One that is good for five minutes; `claims` replace its own, and None leaves them out."""
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
        """A token for the resource that a client names."""
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
            except OSError:  # whoever asked has given up
                return

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as it is called there
            """Nobody reads along."""

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
    """A part of a token as it is written."""
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def written(header: Json, claims: Json) -> str:
    """A token that nobody signed."""
    return f"{segment(json.dumps(header).encode())}.{segment(json.dumps(claims).encode())}."
