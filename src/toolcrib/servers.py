"""The servers of configurations: what each is made of, whose it is, and how it is doing."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.catalog.intake import Intake
from toolcrib.catalog.lockers import Lockers
from toolcrib.catalog.state import SourceEntry
from toolcrib.config import Config, ServerConfig
from toolcrib.core.client import NOBODY, Client
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import LOCAL
from toolcrib.sources.base import Source
from toolcrib.sources.cached import CachedSource
from toolcrib.sources.condition import Condition
from toolcrib.sources.limited import LimitedSource
from toolcrib.sources.mcp.server import McpServer, StdioServer, address
from toolcrib.sources.unavailable import UnavailableSource
from toolcrib.stores.definitions import DefinitionStore

if TYPE_CHECKING:
    from toolcrib.sources.mcp.source import McpSource

SERVING = "TOOLCRIB_SERVING"
"""Tells the servers of a configuration which file they stand in: one that would start Toolcrib on it again must not."""


@dataclass(frozen=True)
class _Assembled:
    """A server that can be started: the connection to it, its kept definitions and its limits."""

    server: McpSource
    kept: CachedSource | None
    limited: LimitedSource

    @property
    def condition(self) -> Condition:
        breaker = self.server.breaker
        return Condition(self.limited.running, self.limited.waiting, breaker.failures, breaker.retry_after_s)


@dataclass(frozen=True)
class _Placed:
    """A server as it stands in a file."""

    config: ServerConfig
    path: Path
    assembled: _Assembled | None = None
    """None where it cannot be started, or each principal has one of its own."""

    @property
    def is_isolated(self) -> bool:
        return self.config.isolation == "principal"


class ConfiguredServers:
    """Shared ones are handed to the intake; those that each principal has for itself stand in its locker."""

    def __init__(self, intake: Intake, definitions: DefinitionStore | None, client: Callable[[], Client]) -> None:
        """`client`: whom a server may ask while nobody calls."""
        self._intake = intake
        self._definitions = definitions
        self._client = client
        self._placed: dict[str, _Placed] = {}
        self._own_servers: weakref.WeakSet[McpSource] = weakref.WeakSet()
        """Those that principals have for themselves, as long as their lockers hold them."""
        self.lockers = Lockers(self._isolated_for, self._isolated_entry)
        """What principals have for themselves."""

    @property
    def isolated(self) -> frozenset[str]:
        """Names of the servers that each principal has for itself."""
        return frozenset(name for name, placed in self._placed.items() if placed.is_isolated)

    @property
    def has_kept(self) -> bool:
        """Whether kept definitions stand in for any of them."""
        assembled = (placed.assembled for placed in self._placed.values())
        return any(each.kept.stands_in for each in assembled if each is not None and each.kept is not None)

    def condition(self, name: str) -> Condition | None:
        """How a shared server is doing; None where there is no such server."""
        placed = self._placed.get(name)
        return None if placed is None or placed.assembled is None else placed.assembled.condition

    def add(self, config: Config, servers: Iterable[ServerConfig]) -> None:
        """Take in some servers of `config`."""
        self.lockers.most = config.max_isolated_principals
        for server in servers:
            self._add(server, config.path)

    async def take_over(self, config: Config) -> None:
        """Have exactly the servers of `config` from now on; those that are the same go on."""
        gone, new = self.changes(config)
        self.lockers.most = config.max_isolated_principals
        await self._intake.remove(gone)
        for name in gone:
            del self._placed[name]
        running = (placed.assembled.server for placed in self._placed.values() if placed.assembled is not None)
        for server in (*running, *self._own_servers):
            server.try_again()
        for server in new:
            self._add(server, config.path)
        await self.lockers.refit()

    def changes(self, config: Config) -> tuple[tuple[str, ...], tuple[ServerConfig, ...]]:
        """Names of the servers that are to go for `config`, and those that are to come, in its order."""
        wanted = {server.name: server for server in config.enabled}
        gone = tuple(name for name, placed in self._placed.items() if wanted.get(name) != placed.config)
        new = tuple(server for name, server in wanted.items() if name in gone or name not in self._placed)
        return gone, new

    def clear(self) -> None:
        """Forget all of them, which were left."""
        self._placed.clear()

    def _add(self, config: ServerConfig, path: Path) -> None:
        if config.isolation == "principal":
            self._placed[config.name] = _Placed(config, path)
            return
        assembled = None if config.server is None else self._assembled(config, config.server, path, None)
        entry = _entry(config, path, assembled)
        self._intake.add(entry.source, entry)
        self._placed[config.name] = _Placed(config, path, assembled)

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
        return _entry(config, path, assembled)

    def _assembled(self, config: ServerConfig, server: McpServer, path: Path, principal_id: str | None) -> _Assembled:
        from toolcrib.sources.mcp.source import McpSource  # noqa: PLC0415  the SDK takes half a second to import

        def client() -> Client:
            # Whoever is at this machine is not to be asked for what the server of somebody else wants to know.
            return self._client() if principal_id in {None, LOCAL.id} else NOBODY

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
            # Under what the file says, not under where it stands: a configuration that moved finds its definitions.
            at = address(server) if principal_id is None else {**address(server), "principal": principal_id}
            kept = CachedSource(source, definitions, at, client=client)
        return _Assembled(source, kept, LimitedSource(kept or source, config.capacity))


def refuse_own_file(path: Path) -> None:
    """Pass where `path` is not a configuration that this very program was started from as one of its servers.

    Raises:
        InvalidConfig: it is.
    """
    if os.path.realpath(path) in os.environ.get(SERVING, "").split(os.pathsep):
        raise InvalidConfig(f"{path}: Toolcrib serves this file already, and one of its servers is Toolcrib again")


def _entry(config: ServerConfig, path: Path, assembled: _Assembled | None) -> SourceEntry:
    source: Source = (
        assembled.limited
        if assembled is not None
        else UnavailableSource(config.name, f"{config.problem}.", diagnosis=f"It stands in {path}.")
    )
    return SourceEntry(
        source, title=config.title, summary=config.summary, trusted=config.trusted, plain_names=config.plain_names
    )


def _marked(server: McpServer, path: Path) -> McpServer:
    """`server`, told which configurations it is started from."""
    if not isinstance(server, StdioServer):
        return server
    above = os.environ.get(SERVING)
    here = os.path.realpath(path)
    return replace(server, env={**server.env, SERVING: f"{above}{os.pathsep}{here}" if above else here})
