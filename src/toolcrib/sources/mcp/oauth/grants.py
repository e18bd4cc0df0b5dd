"""Stores the sign-ins of people to servers, with their tokens, encrypted in one file that several processes share."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from toolcrib.core.digests import digest
from toolcrib.database import Database, Layout
from toolcrib.secrets.sealing import SealBroken
from toolcrib.sources.mcp.server_spec import HttpServer, identity

logger = logging.getLogger(__name__)

LAYOUT = 1
"""The version of the tables. A file that a newer Toolcrib wrote is not changed."""

BUSY_TIMEOUT_S = 5.0
"""How long to wait while a different process writes, in seconds."""

LEASE_S = 30.0
"""How long one process may take to renew a grant, in seconds. After that, a different process may try."""

SIGN_IN_S = 600.0
"""How long a person may take to sign in, in seconds."""

_MAX_SIGN_INS = 1_000
"""How many sign-ins may be in progress. More than that is not the work of people, so the oldest are dropped."""

_TABLES = (
    """
    CREATE TABLE grants (
        principal TEXT NOT NULL, server TEXT NOT NULL, issuer TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
        wanted TEXT NOT NULL DEFAULT '', lease TEXT, lease_until REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (principal, server)
    )
    """,
    """
    CREATE TABLE clients (
        principal TEXT NOT NULL, server TEXT NOT NULL, issuer TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (principal, server, issuer)
    )
    """,
    "CREATE TABLE sign_ins (id TEXT PRIMARY KEY, expires_at REAL NOT NULL, body BLOB NOT NULL)",
)
"""A grant is one row for each principal and server. `wanted` are more scopes that the server asked for. `lease` is the
mark of the process that is renewing the grant."""

_ONE = "SELECT issuer, name, body, wanted FROM grants WHERE principal = ? AND server = ?"
_SAVE = """
INSERT INTO grants (principal, server, issuer, name, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (principal, server) DO UPDATE SET
    issuer = excluded.issuer, name = excluded.name, body = excluded.body, wanted = '', lease = NULL
"""
_LEASED = "SELECT body, lease, lease_until FROM grants WHERE principal = ? AND server = ?"
_LEASE = "UPDATE grants SET lease = ?, lease_until = ? WHERE principal = ? AND server = ?"
_RENEW = "UPDATE grants SET body = ?, lease = NULL WHERE principal = ? AND server = ? AND lease = ?"
_RETURN = "UPDATE grants SET lease = NULL WHERE principal = ? AND server = ? AND lease = ?"
_CLIENT = "SELECT body FROM clients WHERE principal = ? AND server = ? AND issuer = ?"
_FORGET_EXPIRED = "DELETE FROM sign_ins WHERE expires_at < ? OR expires_at > ?"
_FORGET_OLDEST = "DELETE FROM sign_ins WHERE id NOT IN (SELECT id FROM sign_ins ORDER BY expires_at DESC LIMIT ?)"


class Sealing(Protocol):
    """Seals bytes so that they open only for the same `bound_to`. `toolcrib.secrets.sealing.Seal` implements it."""

    def seal(self, plain: bytes, bound_to: str) -> bytes: ...
    def unseal(self, sealed: bytes, bound_to: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """Toolcrib as an issuer knows it."""

    id: str
    secret: str | None = field(default=None, repr=False)
    method: str = "none"
    """How the client authenticates at the token endpoint.

    Source: RFC 7591, section 2, `token_endpoint_auth_method`.
    """
    redirect: str = ""
    """The redirect URI that the client registered. Empty for a client that Toolcrib did not register."""
    expires_at: float | None = None
    """When the secret expires, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The tokens of one principal for one server, and what is needed to renew and revoke them."""

    issuer: str
    """The issuer, exactly as in its metadata."""
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource: str
    """The URI of the server, for which the tokens are.

    Source: RFC 8707, section 2.
    """
    client: RegisteredClient
    scope: str = ""
    """The granted scopes, separated by spaces."""
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """When the access token expires, in seconds since 1970. None if the issuer did not say."""
    allow_private: bool = False
    """Whether the issuer may be in a private network although the server is not."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(each for each in (self.access_token, self.refresh_token, self.client.secret) if each)


@dataclass(frozen=True, slots=True)
class GrantKey:
    """Whose grant it is, and for which server."""

    principal: str
    server: str
    """A digest of what identifies the server."""

    @classmethod
    def of(cls, principal_id: str, server: HttpServer) -> GrantKey:
        return cls(principal_id, digest(identity(server)))


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant as it is stored."""

    key: GrantKey
    name: str
    """The name of the server at the time of the sign-in."""
    issuer: str
    grant: Grant | None
    """None if the row cannot be opened, because it was changed or the key is a different one."""
    version: str
    """A string that is different after every change of the grant."""
    wanted: str
    """More scopes that the server asked for since then, separated by spaces."""


class GrantStore:
    """Grants, registered clients and running sign-ins in one SQLite file. Secrets in it are sealed.

    A row that was changed, or that was sealed with a different key, counts as missing: the person signs in again.

    Raises:
        OSError, sqlite3.Error: the file cannot be used. Every method can raise these errors.
        KeyUnavailable: the key of the seals cannot be read. Every method that seals or opens can raise this error.
    """

    def __init__(self, path: Path, seal: Callable[[], Sealing], *, now: Callable[[], float] = time.time) -> None:
        """`seal` is called when something is sealed or opened. `now` is the clock, in seconds since 1970."""
        self.path = path
        self._seal = seal
        self.now = now
        self._database = Database(path, Layout.of(LAYOUT, _TABLES), BUSY_TIMEOUT_S)

    def stamp(self) -> tuple[int, int, int] | None:
        """Return a value that changes when the file is written or replaced, or None if there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    # -- grants -------------------------------------------------------------------------------------------------------

    def get(self, key: GrantKey) -> StoredGrant | None:
        """Return what is stored under `key`, or None."""
        if not self.path.exists():
            return None
        with self._database.reading() as file:
            row = None if file is None else file.execute(_ONE, (key.principal, key.server)).fetchone()
        return None if row is None else self._opened(key, *row)

    def all(self) -> tuple[StoredGrant, ...]:
        """Return all grants, by name and principal."""
        with self._database.reading() as file:
            rows = (
                []
                if file is None
                else file.execute(
                    "SELECT principal, server, issuer, name, body, wanted FROM grants ORDER BY name, principal"
                ).fetchall()
            )
        return tuple(self._opened(GrantKey(*row[:2]), *row[2:]) for row in rows)

    def save(self, key: GrantKey, name: str, grant: Grant) -> None:
        """Store the result of a sign-in, in place of an earlier grant for the same server."""
        body = self._sealed(grant, key, grant.issuer)
        with self._database.writing() as file:
            file.execute(_SAVE, (key.principal, key.server, grant.issuer, name, body))

    def forget(self, key: GrantKey) -> bool:
        """Remove the grant and the registered clients of `key`. Return whether there was a grant."""
        if not self.path.exists():  # `writing` would create the file
            return False
        with self._database.writing() as file:
            file.execute("DELETE FROM clients WHERE principal = ? AND server = ?", (key.principal, key.server))
            gone = file.execute("DELETE FROM grants WHERE principal = ? AND server = ?", (key.principal, key.server))
            return gone.rowcount == 1

    def want(self, key: GrantKey, scope: str) -> None:
        """Note more scopes for the next sign-in of `key`."""
        with self._database.writing() as file:
            file.execute(
                "UPDATE grants SET wanted = ? WHERE principal = ? AND server = ? AND wanted != ?",
                (scope, key.principal, key.server, scope),
            )

    # -- renewal ------------------------------------------------------------------------------------------------------

    def lease(self, stored: StoredGrant) -> str | None:
        """Take the right to renew a grant. Return its mark, or None if the grant has changed or a process renews it.

        A process that dies keeps the right for `LEASE_S`. A lease that ends later than that is from before a jump of
        the clock, so it does not count.
        """
        now, key = self.now(), stored.key
        with self._database.writing() as file:
            row = file.execute(_LEASED, (key.principal, key.server)).fetchone()
            if row is None:
                return None
            body, lease, until = row
            if _version(body) != stored.version or (lease is not None and now < until <= now + LEASE_S):
                return None
            mark = secrets.token_hex(8)
            file.execute(_LEASE, (mark, now + LEASE_S, key.principal, key.server))
            return mark

    def renew(self, key: GrantKey, mark: str, grant: Grant) -> bool:
        """Store a renewed grant, and return the right to renew it. Return False if the grant was changed meanwhile."""
        body = self._sealed(grant, key, grant.issuer)
        with self._database.writing() as file:
            return file.execute(_RENEW, (body, key.principal, key.server, mark)).rowcount == 1

    def give_back(self, key: GrantKey, mark: str) -> None:
        """Return the right to renew a grant, which stays as it is."""
        with self._database.writing() as file:
            file.execute(_RETURN, (key.principal, key.server, mark))

    # -- clients ------------------------------------------------------------------------------------------------------

    def client(self, key: GrantKey, issuer: str) -> RegisteredClient | None:
        """Return the client that was registered at `issuer` for `key`, unless its secret has expired."""
        with self._database.reading() as file:
            row = None if file is None else file.execute(_CLIENT, (key.principal, key.server, issuer)).fetchone()
        if row is None:
            return None
        try:
            body = json.loads(self._seal().unseal(row[0], _bound("client", key, issuer)))
        except SealBroken:
            logger.warning("a registered client in %s cannot be opened, so Toolcrib registers again", self.path)
            return None
        client = RegisteredClient(**body)
        return None if client.expires_at is not None and client.expires_at <= self.now() else client

    def save_client(self, key: GrantKey, issuer: str, client: RegisteredClient) -> None:
        body = self._seal().seal(json.dumps(asdict(client)).encode(), _bound("client", key, issuer))
        with self._database.writing() as file:
            file.execute(
                "INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?)", (key.principal, key.server, issuer, body)
            )

    def forget_client(self, key: GrantKey, issuer: str) -> None:
        with self._database.writing() as file:
            file.execute(
                "DELETE FROM clients WHERE principal = ? AND server = ? AND issuer = ?",
                (key.principal, key.server, issuer),
            )

    # -- running sign-ins ---------------------------------------------------------------------------------------------

    def put(self, state: str, body: dict[str, Any]) -> None:
        """Store a running sign-in under its `state` for `SIGN_IN_S`. Only a digest of `state` is stored."""
        now = self.now()
        sealed = self._seal().seal(json.dumps(body).encode(), _bound_sign_in(state))
        with self._database.writing() as file:
            file.execute(_FORGET_EXPIRED, (now, now + SIGN_IN_S))
            file.execute("INSERT INTO sign_ins VALUES (?, ?, ?)", (_hidden(state), now + SIGN_IN_S, sealed))
            file.execute(_FORGET_OLDEST, (_MAX_SIGN_INS,))

    def take(self, state: str) -> dict[str, Any] | None:
        """Remove and return a running sign-in, so that it is used only once. None if it expired or is unknown."""
        if not self.path.exists():
            return None
        now = self.now()
        with self._database.writing() as file:
            row = file.execute(
                "DELETE FROM sign_ins WHERE id = ? RETURNING expires_at, body", (_hidden(state),)
            ).fetchone()
        if row is None or not now < row[0] <= now + SIGN_IN_S:
            return None
        try:
            body: dict[str, Any] = json.loads(self._seal().unseal(row[1], _bound_sign_in(state)))
        except SealBroken:
            logger.warning("a running sign-in in %s cannot be opened", self.path)
            return None
        return body

    # -- sealing ------------------------------------------------------------------------------------------------------

    def _sealed(self, grant: Grant, key: GrantKey, issuer: str) -> bytes:
        return self._seal().seal(json.dumps(asdict(grant)).encode(), _bound("grant", key, issuer))

    def _opened(self, key: GrantKey, issuer: str, name: str, body: bytes, wanted: str) -> StoredGrant:
        try:
            read: dict[str, Any] = json.loads(self._seal().unseal(body, _bound("grant", key, issuer)))
            read["client"] = RegisteredClient(**read["client"])
            grant = Grant(**read)
        except (SealBroken, TypeError, KeyError):  # changed, or from a version with different fields
            logger.warning("the sign-in to %s in %s cannot be opened, so a new one is needed", name, self.path)
            grant = None
        return StoredGrant(key, name, issuer, grant, _version(body), wanted)


def scopes(*given: str | None) -> str:
    """Return all scopes in `given`, each once, separated by spaces."""
    return " ".join(dict.fromkeys(_each(given)))


def _each(given: tuple[str | None, ...]) -> Iterator[str]:
    for scope in given:
        yield from (scope or "").split()


def _bound(kind: str, key: GrantKey, issuer: str) -> str:
    return json.dumps([kind, key.principal, key.server, issuer])


def _bound_sign_in(state: str) -> str:
    return json.dumps(["sign-in", state])


def _hidden(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()


def _version(body: object) -> str:
    return hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else ""
