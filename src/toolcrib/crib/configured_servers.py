"""The servers of configurations: how each is built, which principals have it, and its state."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.audit.redaction import Redaction
from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.intake import Intake, Judge
from toolcrib.catalog.isolated_sources import IsolatedSources
from toolcrib.config import ServerConfig
from toolcrib.config.config_file import workspace_of
from toolcrib.core import uris
from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.placeholders import unfilled
from toolcrib.core.principal import LOCAL
from toolcrib.crib.configured_sources import ConfiguredSources, SourceChange
from toolcrib.secrets.secret_store import SecretStore
from toolcrib.secrets.secret_values import SecretValues
from toolcrib.sources.base import Condition, Source, UnavailableSource
from toolcrib.sources.cached import CachedSource
from toolcrib.sources.definition_cache import Definitions
from toolcrib.sources.limited import LimitedSource
from toolcrib.sources.mcp.filled_servers import fill_for
from toolcrib.sources.mcp.server_spec import HttpServer, McpServer, StdioServer, address, identity

if TYPE_CHECKING:
    from toolcrib.sources.mcp.mcp_source import McpSource
    from toolcrib.sources.mcp.oauth.credentials import Credentials
    from toolcrib.sources.mcp.oauth.grants import GrantStore

SERVING = "TOOLCRIB_SERVING"
"""The environment variable that tells servers which configurations they were started from.

A server that is Toolcrib must not serve one of these files again.
"""


@dataclass(frozen=True)
class _Assembled:
    """A server that can be started: the connection to it, its cached definitions and its limits."""

    server: McpSource
    cached: CachedSource | None
    limited: LimitedSource

    @property
    def condition(self) -> Condition:
        breaker = self.server.breaker
        return Condition(self.limited.running, self.limited.waiting, breaker.failures, breaker.retry_after_s)


@dataclass(frozen=True)
class _Server:
    """A server of a configuration, and the file that defines it."""

    config: ServerConfig
    path: Path = field(compare=False)

    @property
    def is_isolated(self) -> bool:
        return self.config.isolation == "principal"


class ConfiguredServers(ConfiguredSources[_Server]):
    """Passes shared servers to the intake, and creates isolated servers for each principal."""

    def __init__(
        self,
        intake: Intake,
        definitions: Definitions | None,
        client: Callable[[], Client],
        judge: Judge | None = None,
        grants: GrantStore | None = None,
    ) -> None:
        """`client` is the client that a server may ask outside a call. `judge` decides which tools of isolated servers
        are shown. `grants` stores the sign-ins to servers.
        """
        super().__init__()
        self._intake = intake
        self._definitions = definitions
        self._grants = grants
        self._client = client
        self._secrets = SecretStore()
        self._assembled: dict[str, _Assembled] = {}
        """The shared servers that can be started, by name."""
        self._coming: frozenset[str] = frozenset()
        """Names of the servers that a running change is about to add."""
        self._own_servers: weakref.WeakSet[McpSource] = weakref.WeakSet()
        """The isolated servers of all principals, while `isolated_sources` holds them."""
        self.isolated_sources = IsolatedSources(self._isolated_for, self._isolated_entry, judge=judge)
        """The isolated sources of each principal."""

    @property
    def names(self) -> frozenset[str]:
        """Names of current servers and of those about to be added. No other source can have one of these names."""
        return self._coming | super().names

    @property
    def isolated(self) -> frozenset[str]:
        """Names of the isolated servers."""
        return frozenset(name for name, settings in self._settings.items() if settings.is_isolated)

    @property
    def for_some(self) -> frozenset[str]:
        """Names of the isolated servers that only the principals named in the configuration have."""
        return frozenset(name for name in self.isolated if self._settings[name].config.principals is not None)

    @property
    def uses_cached_definitions(self) -> bool:
        """Whether cached definitions are used in place of any of the servers."""
        return any(each.cached is not None and each.cached.stands_in for each in self._assembled.values())

    def condition(self, name: str) -> Condition | None:
        """The state of a shared server. None if there is no such server."""
        assembled = self._assembled.get(name)
        return None if assembled is None else assembled.condition

    def change_to(self, servers: Iterable[ServerConfig], path: Path, *, adding: bool = False) -> SourceChange[_Server]:
        """Compute the change to exactly these servers of the file at `path`, or with `adding` to these and the current
        ones. Unchanged servers keep running.
        """
        before = self._settings if adding else {}
        return self._change_to({**before, **{server.name: _Server(server, path) for server in servers}})

    def leave(self, change: SourceChange[_Server]) -> None:
        """Hide removed servers, and old versions of changed servers. They stop later."""
        self._coming = frozenset(change.new)
        super().leave(change)
        # Each principal keeps an isolated server that is unchanged for it. None starts before `refit`.
        self._settings |= {name: settings for name, settings in change.new.items() if settings.is_isolated}
        self.isolated_sources.are_configured = bool(self.isolated)
        self.isolated_sources.remove_outdated()

    def join(self, change: SourceChange[_Server]) -> None:
        """Add new servers without waiting: a new server starts after the old one has stopped."""
        for server in (*(each.server for each in self._assembled.values()), *self._own_servers):
            server.try_again()
        super().join(change)
        self._coming = frozenset()
        self.isolated_sources.refit()

    def clear(self) -> None:
        super().clear()
        self._assembled.clear()

    def _put(self, name: str, settings: _Server) -> None:
        if not settings.is_isolated:
            config, assembled = settings.config, None
            if config.server is not None:
                assembled = self._assembled[name] = self._assemble(config, config.server, settings.path, None)
            entry = _entry(config, settings.path, assembled, config.server)
            self._intake.add(entry.source, entry)

    def _remove(self, names: Collection[str]) -> None:
        for name in names:
            self._assembled.pop(name, None)
        self._intake.remove(names)

    def _isolated_for(self, principal_id: str) -> Mapping[str, tuple[ServerConfig, Path]]:
        return {
            name: (own, settings.path)
            for name, settings in self._settings.items()
            if settings.is_isolated and (own := settings.config.of(principal_id)) is not None
        }

    def _isolated_entry(self, principal_id: str, plan: tuple[ServerConfig, Path]) -> SourceEntry:
        config, path = plan
        assembled = None if config.server is None else self._assemble(config, config.server, path, principal_id)
        if assembled is not None:
            self._own_servers.add(assembled.server)
        return _entry(config, path, assembled, self._settings[config.name].config.server)

    def _assemble(self, config: ServerConfig, server: McpServer, path: Path, principal_id: str | None) -> _Assembled:
        from toolcrib.sources.mcp.mcp_source import McpSource  # noqa: PLC0415  the SDK takes half a second to import

        def client() -> Client:
            # The local user must not be asked for input that the server of a different principal wants.
            return self._client() if principal_id in {None, LOCAL.id} else NO_CLIENT

        definitions = self._definitions
        marked = _marked(server, path)
        source = McpSource(
            config.name,
            marked,
            fill=fill_for(marked, SecretValues(path, self._secrets), workspace_of(path)),
            patience=config.patience,
            stops_when_idle=definitions is not None,
            client=client,
            credentials=self._credentials(config, server, principal_id),
        )
        cached = None
        if definitions is not None:
            # The cache key is the content of the entry and not its file, so a configuration that moved finds its
            # definitions.
            at = address(server) if principal_id is None else {**address(server), "principal": principal_id}
            cached = CachedSource(source, definitions, at, client=client)
        return _Assembled(source, cached, LimitedSource(cached or source, config.capacity))

    def _credentials(self, config: ServerConfig, server: McpServer, principal_id: str | None) -> Credentials | None:
        """Return the tokens from signing in to a server over HTTP. All principals that share a server share those of
        the local principal."""
        if self._grants is None or not isinstance(server, HttpServer) or server.has_own_token:
            return None
        if not config.shares_sign_in:
            return None
        from toolcrib.sources.mcp.oauth.credentials import Credentials  # noqa: PLC0415  as above

        return Credentials(self._grants, config.name, principal_id or LOCAL.id, server)


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
        line = _redaction().text(uris.shown(server.url))
    else:
        parts = [uris.shown(part) for part in (server.command, *server.args)]
        line = " ".join(map(str, _redaction().arguments({"line": parts}, None)["line"]))
    return unfilled(line)


def _marked(server: McpServer, path: Path) -> McpServer:
    """Return `server` with an environment variable that lists the configurations it was started from."""
    if not isinstance(server, StdioServer):
        return server
    above = os.environ.get(SERVING)
    here = os.path.realpath(path)
    return replace(server, env={**server.env, SERVING: f"{above}{os.pathsep}{here}" if above else here})
