"""How an MCP server is reached: the command or the address, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolcrib.sources.mcp.carrier import Carrier


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A program that speaks MCP over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the few variables that it inherits (see `toolcrib.sources.environment`)."""
    cwd: Path | None = None

    def __str__(self) -> str:
        return " ".join((self.command, *self.args))


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that speaks MCP over HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    transport: Literal["streamable-http", "sse"] = "streamable-http"

    def __str__(self) -> str:
        return self.url


McpServer = StdioServer | HttpServer
"""One that a configuration can name."""


@dataclass(frozen=True, slots=True)
class CarriedServer:
    """A server that speaks MCP within a connection that somebody else holds."""

    server_id: str
    """By which the other side of that connection knows it."""
    carrier: Carrier = field(repr=False)

    def __str__(self) -> str:
        return f"acp:{self.server_id}"


AnyServer = McpServer | CarriedServer


def address(server: AnyServer) -> dict[str, Any]:
    """Everything that makes a server another one, as a JSON value; secrets of its `env` and `headers` included."""
    if isinstance(server, CarriedServer):
        return identity(server)
    return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(server).items()}


def identity(server: AnyServer) -> dict[str, Any]:
    """What makes a server the one that somebody means, without its secrets: what is run, or where it is reached."""
    if isinstance(server, StdioServer):
        return {
            "command": server.command,
            "args": list(server.args),
            "cwd": None if server.cwd is None else str(server.cwd),
        }
    if isinstance(server, CarriedServer):
        return {"acp": server.server_id}
    return {"url": server.url}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server, in seconds."""

    start_s: float = 60.0
    """From its start to the end of the handshake; a first start may have to install the program."""
    list_s: float = 30.0
    """For each page of its tools."""
    call_s: float = 300.0
    """For the answer to one call."""
    idle_s: float = 3_600.0
    """For the next call, before a server whose definitions are kept is stopped; the call after that starts it again."""


DEFAULT_PATIENCE = Patience()
