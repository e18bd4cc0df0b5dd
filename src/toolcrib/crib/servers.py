"""The servers of configurations: how each is built, which principals have it, and its state."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.audit.redaction import Redaction
from toolcrib.catalog.intake import Intake, Judge
from toolcrib.catalog.lockers import Lockers
from toolcrib.catalog.state import SourceEntry
from toolcrib.config import Config, ServerConfig
from toolcrib.core import uris
from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.placeholders import unfilled
from toolcrib.core.principal import LOCAL
from toolcrib.sources.base import Condition, Source, UnavailableSource
from toolcrib.sources.cached import CachedSource
from toolcrib.sources.definition_cache import Definitions
from toolcrib.sources.limited import LimitedSource
from toolcrib.sources.mcp.server_spec import HttpServer, McpServer, StdioServer, address, identity

if TYPE_CHECKING:
    from toolcrib.sources.mcp.mcp_source import McpSource

SERVING = "TOOLCRIB_SERVING"
"""The environment variable that tells servers which configurations they were started from.

A server that is Toolcrib must not serve one of these files again.
"""


@dataclass(frozen=True)
class _Assembled:
    """A server that can be started: the connection to it, its cached definitions and its limits."""

    server: McpSource
    kept: CachedSource | None
    limited: LimitedSource

    @property
    def condition(self) -> Condition:
        breaker = self.server.breaker
        return Condition(self.limited.running, self.limited.waiting, breaker.failures, breaker.retry_after_s)


@dataclass(frozen=True)
class _Placed:
    """A server of a configuration file."""

    config: ServerConfig
    path: Path
    assembled: _Assembled | None = None
    """None if the server cannot be started, or if it is isolated."""
    entry: SourceEntry | None = None
    """None if the server is isolated."""

    @property
    def is_isolated(self) -> bool:
        return self.config.isolation == "principal"


@dataclass(frozen=True)
class Change:
    """The difference between the current servers and those of a new configuration. Nothing of it is applied yet."""

    config: Config
    gone: tuple[str, ...]
    """Names of the servers that are removed or changed."""
    new: tuple[_Placed, ...]
    """The servers to add, in the order of the configuration."""

    @property
    def added(self) -> tuple[ServerConfig, ...]:
        """The servers to add whose names are new."""
        return tuple(placed.config for placed in self.new if placed.config.name not in self.gone)

    @property
    def told(self) -> str:
        """A summary of the change for the owner's log. Empty if no server changes."""
        new = {placed.config.name for placed in self.new}
        changes = {
            "added": [server.name for server in self.added],
            "removed": [name for name in self.gone if name not in new],
            "changed": [name for name in self.gone if name in new],
        }
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in changes.items() if names)


class ConfiguredServers:
    """Passes shared servers to the intake, and creates isolated servers for each principal."""

    def __init__(
        self, intake: Intake, definitions: Definitions | None, client: Callable[[], Client], judge: Judge | None = None
    ) -> None:
        """`client` is the client that a server may ask outside a call. `judge` decides which tools of isolated servers
        are shown.
        """
        self._intake = intake
        self._definitions = definitions
        self._client = client
        self._placed: dict[str, _Placed] = {}
        self._coming: frozenset[str] = frozenset()
        """Names of the servers that a running change is about to add."""
        self._own_servers: weakref.WeakSet[McpSource] = weakref.WeakSet()
        """The isolated servers of all principals, while `lockers` holds them."""
        self.lockers = Lockers(self._isolated_for, self._isolated_entry, judge=judge)
        """The isolated sources of each principal."""

    @property
    def names(self) -> frozenset[str]:
        """Names of current servers and of those about to be added. No other source can have one of these names."""
        return self._coming.union(self._placed)

    @property
    def isolated(self) -> frozenset[str]:
        """Names of the isolated servers."""
        return frozenset(name for name, placed in self._placed.items() if placed.is_isolated)

    @property
    def for_some(self) -> frozenset[str]:
        """Names of the isolated servers that only the principals named in the configuration have."""
        return frozenset(name for name in self.isolated if self._placed[name].config.principals is not None)

    @property
    def has_kept(self) -> bool:
        """Whether cached definitions are used in place of any of the servers."""
        assembled = (placed.assembled for placed in self._placed.values())
        return any(each.kept.stands_in for each in assembled if each is not None and each.kept is not None)

    def condition(self, name: str) -> Condition | None:
        """The state of a shared server. None if there is no such server."""
        placed = self._placed.get(name)
        return None if placed is None or placed.assembled is None else placed.assembled.condition

    def add(self, config: Config, servers: Iterable[ServerConfig]) -> None:
        """Add some servers of `config`."""
        self.lockers.most = config.max_isolated_principals
        for server in servers:
            self._put(self._placed_in(server, config.path))

    def change_to(self, config: Config) -> Change:
        """Compute the change to exactly the servers of `config`. Unchanged servers keep running."""
        wanted = {server.name: server for server in config.enabled}
        gone = tuple(name for name, placed in self._placed.items() if wanted.get(name) != placed.config)
        new = (server for name, server in wanted.items() if name in gone or name not in self._placed)
        return Change(config, gone, tuple(self._placed_in(server, config.path) for server in new))

    def leave(self, change: Change) -> None:
        """Do the first half of a change: hide removed servers, and old versions of changed servers. They stop later."""
        self._coming = frozenset(placed.config.name for placed in change.new)
        for name in change.gone:
            del self._placed[name]
        self._intake.remove(change.gone)
        # Each principal keeps an isolated server that is unchanged for it. None starts before `refit`.
        self._placed |= {placed.config.name: placed for placed in change.new if placed.is_isolated}
        self.lockers.withdraw()

    def join(self, change: Change) -> None:
        """Do the second half, without waiting in between: a new server starts after the old one has stopped."""
        self.lockers.most = change.config.max_isolated_principals
        running = (placed.assembled.server for placed in self._placed.values() if placed.assembled is not None)
        for server in (*running, *self._own_servers):
            server.try_again()
        for placed in change.new:
            self._put(placed)
        self._coming = frozenset()
        self.lockers.refit()

    def clear(self) -> None:
        """Discard the state of all servers. The intake has already removed them."""
        self._placed.clear()

    def _placed_in(self, config: ServerConfig, path: Path) -> _Placed:
        if config.isolation == "principal":
            return _Placed(config, path)
        assembled = None if config.server is None else self._assembled(config, config.server, path, None)
        return _Placed(config, path, assembled, _entry(config, path, assembled, config.server))

    def _put(self, placed: _Placed) -> None:
        if placed.entry is not None:
            self._intake.add(placed.entry.source, placed.entry)
        self._placed[placed.config.name] = placed

    def _isolated_for(self, principal_id: str) -> Mapping[str, tuple[ServerConfig, Path]]:
        return {
            name: (own, placed.path)
            for name, placed in self._placed.items()
            if placed.is_isolated and (own := placed.config.of(principal_id)) is not None
        }

    def _isolated_entry(self, principal_id: str, plan: tuple[ServerConfig, Path]) -> SourceEntry:
        config, path = plan
        assembled = None if config.server is None else self._assembled(config, config.server, path, principal_id)
        if assembled is not None:
            self._own_servers.add(assembled.server)
        return _entry(config, path, assembled, self._placed[config.name].config.server)

    def _assembled(self, config: ServerConfig, server: McpServer, path: Path, principal_id: str | None) -> _Assembled:
        from toolcrib.sources.mcp.mcp_source import McpSource  # noqa: PLC0415  the SDK takes half a second to import

        def client() -> Client:
            # The local user must not be asked for input that the server of a different principal wants.
            return self._client() if principal_id in {None, LOCAL.id} else NO_CLIENT

        definitions = self._definitions
        source = McpSource(
            config.name,
            _marked(server, path),
            patience=config.patience,
            stops_when_idle=definitions is not None,
            client=client,
        )
        kept = None
        if definitions is not None:
            # The cache key is the content of the entry and not its file, so a configuration that moved finds its
            # definitions.
            at = address(server) if principal_id is None else {**address(server), "principal": principal_id}
            kept = CachedSource(source, definitions, at, client=client)
        return _Assembled(source, kept, LimitedSource(kept or source, config.capacity))


def refuse_own_file(path: Path) -> None:
    """Raise if one of the servers in `path` started this program to serve the same file.

    Raises:
        InvalidConfig: this program runs as one of the servers of `path`.
    """
    if os.path.realpath(path) in os.environ.get(SERVING, "").split(os.pathsep):
        raise InvalidConfig(
            f"{path}: one of the servers in this file is Toolcrib serving the same file. Remove that entry"
        )


def _entry(config: ServerConfig, path: Path, assembled: _Assembled | None, written: McpServer | None) -> SourceEntry:
    """`written` is the server as the file describes it, before settings of a principal are applied."""
    source: Source = (
        assembled.limited
        if assembled is not None
        else UnavailableSource(
            config.name,
            "Its configuration is invalid.",
            diagnosis=f"{config.problem}, in {path}.",
            remedy=_remedy(config.problem or ""),
        )
    )
    return SourceEntry(
        source,
        title=config.title,
        summary=config.summary,
        trusted=config.trusted,
        identity="" if config.server is None else digest(identity(config.server)),
        origin="" if written is None else digest(identity(written)),
        address="" if written is None else shown(written),
        plain_names=config.plain_names,
    )


def _remedy(problem: str) -> str:
    """Return what the owner of a server with an invalid entry can do, if the problem does not already say so."""
    # `core.placeholders` writes this text. There is no structured form of the problem.
    unset = re.search(r"environment variable `(\w+)` is not set", problem)
    if unset is None:
        return ""
    return f"Set {unset[1]} where you start Toolcrib, or add a default in the file: ${{{unset[1]}:-VALUE}}."


_redaction = cache(Redaction)
"""Cached, because compiling its patterns takes longer than a search with them."""


def shown(server: McpServer) -> str:
    """Return one line that identifies the server for a person, without anything that looks like a secret."""
    if isinstance(server, HttpServer):
        told = _redaction().text(uris.shown(server.url))
    else:
        line = [uris.shown(part) for part in (server.command, *server.args)]
        told = " ".join(map(str, _redaction().arguments({"line": line}, None)["line"]))
    return unfilled(told)


def _marked(server: McpServer, path: Path) -> McpServer:
    """Return `server` with an environment variable that lists the configurations it was started from."""
    if not isinstance(server, StdioServer):
        return server
    above = os.environ.get(SERVING)
    here = os.path.realpath(path)
    return replace(server, env={**server.env, SERVING: f"{above}{os.pathsep}{here}" if above else here})
