"""The servers of configurations: what each is made of, whose it is, and how it is doing."""

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
from toolcrib.core.client import NOBODY, Client
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.placeholders import unfilled
from toolcrib.core.principal import LOCAL
from toolcrib.sources.base import Source
from toolcrib.sources.cached import CachedSource
from toolcrib.sources.condition import Condition
from toolcrib.sources.definition_cache import Definitions
from toolcrib.sources.limited import LimitedSource
from toolcrib.sources.mcp.server import HttpServer, McpServer, StdioServer, address, identity
from toolcrib.sources.unavailable import UnavailableSource

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
    entry: SourceEntry | None = None
    """None where each principal has one of its own."""

    @property
    def is_isolated(self) -> bool:
        return self.config.isolation == "principal"


@dataclass(frozen=True)
class Change:
    """What another configuration makes of the servers there are; nothing of it counts yet."""

    config: Config
    gone: tuple[str, ...]
    """Names of those that are left: they are not in it, or not as they were."""
    new: tuple[_Placed, ...]
    """Those that come, in its order."""

    @property
    def added(self) -> tuple[ServerConfig, ...]:
        """Those that come under a name that none of them had."""
        return tuple(placed.config for placed in self.new if placed.config.name not in self.gone)

    @property
    def told(self) -> str:
        """What it changes, in words for the owner's log; empty where it changes no server."""
        new = {placed.config.name for placed in self.new}
        changes = {
            "added": [server.name for server in self.added],
            "removed": [name for name in self.gone if name not in new],
            "changed": [name for name in self.gone if name in new],
        }
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in changes.items() if names)


class ConfiguredServers:
    """Shared ones are handed to the intake; those that each principal has for itself stand in its locker."""

    def __init__(
        self, intake: Intake, definitions: Definitions | None, client: Callable[[], Client], judge: Judge | None = None
    ) -> None:
        """`client`: whom a server may ask while nobody calls; `judge` says which tools of one's own are shown."""
        self._intake = intake
        self._definitions = definitions
        self._client = client
        self._placed: dict[str, _Placed] = {}
        self._coming: frozenset[str] = frozenset()
        """Names of the servers that a change is about to bring."""
        self._own_servers: weakref.WeakSet[McpSource] = weakref.WeakSet()
        """Those that principals have for themselves, as long as their lockers hold them."""
        self.lockers = Lockers(self._isolated_for, self._isolated_entry, judge=judge)
        """What principals have for themselves."""

    @property
    def names(self) -> frozenset[str]:
        """Of those there are and those that are about to come: no other source can have one of them."""
        return self._coming.union(self._placed)

    @property
    def isolated(self) -> frozenset[str]:
        """Names of the servers that each principal has for itself."""
        return frozenset(name for name, placed in self._placed.items() if placed.is_isolated)

    @property
    def for_some(self) -> frozenset[str]:
        """Those of them that only the principals named in the configuration have."""
        return frozenset(name for name in self.isolated if self._placed[name].config.principals is not None)

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
            self._put(self._placed_in(server, config.path))

    def change_to(self, config: Config) -> Change:
        """What it takes to have exactly the servers of `config`; those that are the same go on."""
        wanted = {server.name: server for server in config.enabled}
        gone = tuple(name for name, placed in self._placed.items() if wanted.get(name) != placed.config)
        new = (server for name, server in wanted.items() if name in gone or name not in self._placed)
        return Change(config, gone, tuple(self._placed_in(server, config.path) for server in new))

    def leave(self, change: Change) -> None:
        """The first half of a change: what goes is out of sight at once, in its earlier form too, and ends later."""
        self._coming = frozenset(placed.config.name for placed in change.new)
        for name in change.gone:
            del self._placed[name]
        self._intake.remove(change.gone)
        # Of one of these, each principal keeps what is as it was for it; none is started before lockers are fitted.
        self._placed |= {placed.config.name: placed for placed in change.new if placed.is_isolated}
        self.lockers.withdraw()

    def join(self, change: Change) -> None:
        """The second half, with nothing in between that waits: what is new is started once what was left has ended."""
        self.lockers.most = change.config.max_isolated_principals
        running = (placed.assembled.server for placed in self._placed.values() if placed.assembled is not None)
        for server in (*running, *self._own_servers):
            server.try_again()
        for placed in change.new:
            self._put(placed)
        self._coming = frozenset()
        self.lockers.refit()

    def clear(self) -> None:
        """Forget all of them, which were left."""
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


def _entry(config: ServerConfig, path: Path, assembled: _Assembled | None, written: McpServer | None) -> SourceEntry:
    """`written`: the server as it stands in the file, whoever has it."""
    source: Source = (
        assembled.limited
        if assembled is not None
        else UnavailableSource(
            config.name,
            "It cannot be used as it is configured.",
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
    """What the owner of a server whose entry cannot be used can do, where its problem does not say that itself."""
    unset = re.search(r"the environment variable `(\w+)` is not set", problem)
    if unset is None:
        return ""
    return f"Set {unset[1]} where you start Toolcrib, or write a default into the file: ${{{unset[1]}:-VALUE}}."


_redaction = cache(Redaction)
"""Made once: its patterns take longer than what they are searched in."""


def shown(server: McpServer) -> str:
    """What makes it the one that somebody means, on one line and without what looks like a secret."""
    if isinstance(server, HttpServer):
        told = _redaction().text(uris.shown(server.url))
    else:
        line = [uris.shown(part) for part in (server.command, *server.args)]
        told = " ".join(map(str, _redaction().arguments({"line": line}, None)["line"]))
    return unfilled(told)


def _marked(server: McpServer, path: Path) -> McpServer:
    """`server`, told which configurations it is started from."""
    if not isinstance(server, StdioServer):
        return server
    above = os.environ.get(SERVING)
    here = os.path.realpath(path)
    return replace(server, env={**server.env, SERVING: f"{above}{os.pathsep}{here}" if above else here})
