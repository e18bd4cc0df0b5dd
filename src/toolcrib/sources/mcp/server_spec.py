"""Values that say how to reach an MCP server: a command or an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from toolcrib.sources.mcp.carrier import Carrier


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A program that speaks MCP over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that are added to the few that the program inherits (see `toolcrib.sources.environment`)."""
    cwd: Path | None = None
    env_file: str | None = None
    """The path of a file with more variables, which is read when the program starts. `env` takes precedence."""

    def __str__(self) -> str:
        return " ".join((self.command, *self.args))


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The owner's settings for signing in to a server. Toolcrib finds out everything that is empty."""

    client_id: str = ""
    """The id of Toolcrib at the issuer. If it is empty, Toolcrib registers itself."""
    client_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    """A private key in PEM, by which a machine signs in. It replaces `client_secret`."""
    client_metadata_url: str = ""
    """The address of a client ID metadata document."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """Whether a person signs in, or this client itself."""
    issuer: str = ""
    """The only issuer to use."""
    scopes: tuple[str, ...] = ()
    """The scopes to ask for, in place of those that the server names."""
    redirect_port: int = 0
    """The port of the redirect to this machine. 0: any free port."""
    allow_private: bool = False
    """Whether the issuer may be in a private network although the server is not."""


NO_OAUTH_SETTINGS = OAuthSettings()


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that speaks MCP over HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    oauth: OAuthSettings = NO_OAUTH_SETTINGS

    @property
    def has_own_token(self) -> bool:
        """Whether the configuration has a token for the server, so that no other is used."""
        return any(name.lower() == "authorization" for name in self.headers) or bool(urlsplit(self.url).username)

    def __str__(self) -> str:
        return self.url


McpServer = StdioServer | HttpServer
"""A server that a configuration can define."""


@dataclass(frozen=True, slots=True)
class CarriedServer:
    """A server that speaks MCP through a connection of a different component."""

    server_id: str
    """The id of the server on the other side of that connection."""
    carrier: Carrier = field(repr=False)

    def __str__(self) -> str:
        return f"acp:{self.server_id}"


AnyServer = McpServer | CarriedServer


def address(server: AnyServer) -> dict[str, Any]:
    """Return everything that identifies the server and its settings, as a JSON value, including secrets in `env` and
    `headers` that the configuration contains. References to stored secrets stay references."""
    if isinstance(server, CarriedServer):
        return identity(server)
    said = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(server).items()}
    # Keys of definitions that are cached already do not have these two.
    if said.get("env_file", "") is None:
        del said["env_file"]
    if isinstance(server, HttpServer) and server.oauth == NO_OAUTH_SETTINGS:
        del said["oauth"]
    return said


def identity(server: AnyServer) -> dict[str, Any]:
    """Return what identifies the server to its owner, without secrets: what is run, or its address."""
    if isinstance(server, StdioServer):
        return {
            "command": server.command,
            "args": list(server.args),
            "cwd": None if server.cwd is None else str(server.cwd),
        }
    if isinstance(server, CarriedServer):
        return {"acp": server.server_id}
    return {"url": server.url}


def texts_of(server: McpServer) -> tuple[str, ...]:
    """Return all strings of a server that can contain references to stored values."""
    if isinstance(server, HttpServer):
        return (server.url, *server.headers.values())
    rest = (str(each) for each in (server.cwd, server.env_file) if each is not None)
    return (server.command, *server.args, *server.env.values(), *rest)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server, in seconds."""

    start_s: float = 60.0
    """The time from the start to the end of the handshake. A first start may have to install the program."""
    list_s: float = 30.0
    """The time for each page of the server's tools."""
    call_s: float = 300.0
    """The time for the answer to one call."""
    idle_s: float = 3_600.0
    """The time without a call after which a server with cached definitions is stopped. The next call starts it
    again."""


DEFAULT_PATIENCE = Patience()
