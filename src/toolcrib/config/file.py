"""Reads `mcp.json`: the servers, and Toolcrib's own settings in the same file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from toolcrib.catalog.access import Rules
from toolcrib.catalog.bundles import NO_BUNDLES, Bundles
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.catalog_settings import CatalogSettings
from toolcrib.catalog.categories import NO_CATEGORIES, Categories
from toolcrib.catalog.isolated_sources import MAX_ISOLATED_PRINCIPALS
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides, with_claims
from toolcrib.config.audit import DEFAULT_AUDIT, Audit, read_audit
from toolcrib.config.auth import NO_AUTH, Auth, read_auth
from toolcrib.config.bundles import read_bundles
from toolcrib.config.categories import read_categories
from toolcrib.config.isolation import Isolation, read_principals
from toolcrib.config.overrides import read_overrides
from toolcrib.config.pins import read_pins
from toolcrib.config.plugins import PluginConfig, read_plugins
from toolcrib.config.policy import read_policy
from toolcrib.config.search import DEFAULT_SEARCH, Search, read_search
from toolcrib.config.servers import ServerConfig, read_server
from toolcrib.config.settings import Settings, as_object, parsed
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.placeholders import for_each_principal
from toolcrib.core.schema import nearest
from toolcrib.definitions.drift import DEFAULT_PINS, PinPolicy
from toolcrib.operations.calling.limits import DEFAULT_LOOKUP_RATE, DEFAULT_RATE, OPERATIONS_PER_CALL, Rate
from toolcrib.sources.base import free_name, source_name
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
from toolcrib.sources.mcp.server_spec import DEFAULT_PATIENCE, Patience

if TYPE_CHECKING:
    from toolcrib.sources.declared.definition import DeclaredTools

OUR_KEY = "toolcrib"

SERVER_KEYS = ("mcpServers", "servers")
"""Keys that can hold the servers: `mcpServers` in most clients, `servers` in VS Code."""

_TIMEOUTS = {
    "start_timeout_s": "start_s",
    "list_timeout_s": "list_s",
    "call_timeout_s": "call_s",
    "idle_timeout_s": "idle_s",
}

_KEEPS_OUT = ("policy", "auth")
"""Settings that restrict access. Ignoring them in the wrong place would open more than the owner wants."""

_MOST_CALLS = 1_000_000
_MOST_LOCKERS = 100_000

SETTINGS: Mapping[str, str] = {
    "start_timeout_s": "Seconds that a server may take to start and complete the MCP handshake (60).",
    "list_timeout_s": "Seconds that a server may take for each page of its tools (30).",
    "call_timeout_s": "Seconds that a server may take to answer a call (300).",
    "idle_timeout_s": "Seconds without a call after which a server with cached definitions is stopped (3600).",
    "max_concurrent_calls": "Calls that run on one server at the same time (32).",
    "max_queued_calls": "Calls to one server that wait for a free place, in order. One more is refused (256).",
    "calls_per_minute": "Calls that each principal may make per minute; 0 means no limit (1000).",
    "burst_calls": "How many of these calls may come at the same time (all of them).",
    "lookups_per_minute": "Operations of all kinds that each principal may send per minute, including calls and "
    "refused requests; 0 means no limit (5000, or five times `calls_per_minute` or `burst_calls` if that is more; "
    "no limit if `calls_per_minute` is 0). A third of them may come at the same time.",
    "max_isolated_principals": "Principals whose isolated servers run at the same time. When there are more, the "
    "servers of the principal that was inactive longest are stopped (100).",
    "max_text_bytes": "The maximum text in one result, in bytes of UTF-8. The rest is delivered in pages (400000).",
    "max_binary_bytes": "The maximum size of an image, audio or file in a result. Larger ones are left out (8388608).",
    "categories": "Your own categories, by name, with the tools that are in them.",
    "tools": "Metadata for tools that others define, by tool id or pattern of ids.",
    "plugins": "Which installed plugins to load: `true` (all), `false`, or a list of names (`true`).",
    "capabilities": "What tools may need from the system, by name: how to check for it, and what to do without it.",
    "declared": "Tools that are commands or HTTP requests, by source and name.",
    "bundles": "Named sets of tools. A session, a request or the whole gateway can be limited to one.",
    "policy": "Who can see and call which tools: `rules` in order, and `otherwise`.",
    "auth": "Who can use the gateway over HTTP: `tokens`, `jwt`, and the host names of the gateway.",
    "audit": "Whether operations are recorded: `true`, `false`, or an object with settings (`true`).",
    "pins": "What happens to tools whose definitions are not pinned, or changed after they were pinned.",
    "search": "How tools are found: signals to turn off (`without`), an `embedder`, and learning from past calls "
    "(`history`).",
    "sources": "Settings of one server or plugin, by name: `title`, `summary`, `trusted`, time limits and others.",
}
"""Every key below `toolcrib`, with what it does."""

SOURCE_SETTINGS: Mapping[str, str] = {
    "title": "A title to show instead of the server's own.",
    "summary": "One line that says what the server is for. Models read it before they search.",
    "trusted": "`true` if the annotations of its tools (read-only, idempotent) can be relied on.",
    "plain_names": "`true` keeps the server's own names of prompts and resources, and of tools where they are listed.",
    "isolation": "`shared` (the default), or `principal`: each principal gets a separate instance of the server.",
    "principals": "Who gets an isolated server, by principal id, with separate `headers` or `env` for each.",
    **{key: SETTINGS[key] for key in (*_TIMEOUTS, "max_concurrent_calls", "max_queued_calls")},
}
"""Every key below `toolcrib.sources.NAME`."""


MIN_ROOM = 1_000
MAX_ROOM = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Room:
    """The largest result that is delivered in one piece, in bytes."""

    text: int = 400_000
    """The maximum text of a result, as UTF-8: about 100,000 tokens, more than most models can read at once."""
    binary: int = 8 * 1024 * 1024
    """The maximum size of one image, sound or file."""


DEFAULT_ROOM = Room()


@dataclass(frozen=True, slots=True)
class Config:
    """The content of one configuration file."""

    path: Path
    servers: tuple[ServerConfig, ...] = ()
    room: Room = DEFAULT_ROOM
    patience: Patience = DEFAULT_PATIENCE
    """The time limits of servers that do not set their own."""
    capacity: Capacity = DEFAULT_CAPACITY
    """The call limits of servers that do not set their own."""
    max_isolated_principals: int = MAX_ISOLATED_PRINCIPALS
    """How many principals' isolated servers run at the same time."""
    rate: Rate | None = DEFAULT_RATE
    lookup_rate: Rate | None = DEFAULT_LOOKUP_RATE
    """How fast each principal may call tools (`rate`) and use all operations (`lookup_rate`). None means no limit."""
    search: Search = DEFAULT_SEARCH
    """How tools are found."""
    said_of_pins: PinPolicy | None = None
    """What happens to tools whose definitions are not pinned. None if the file does not say."""
    audit: Audit | None = DEFAULT_AUDIT
    """None if the audit is off."""
    categories: Categories = NO_CATEGORIES
    """The categories of the file, including those that only `overrides` name."""
    overrides: Overrides = NO_OVERRIDES
    bundles: Bundles = NO_BUNDLES
    capabilities: tuple[Capability, ...] = ()
    policy: Rules | None = None
    """None if everyone can see and call everything."""
    auth: Auth = NO_AUTH
    """Who can use the gateway over HTTP."""
    source_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names of the servers' sources, by the labels in the file."""
    plugins: tuple[PluginConfig, ...] = ()
    """The installed plugins that are loaded, and those that the file asks for but that are not installed."""
    chooses_plugins: bool = False
    """Whether the file has the key `plugins`."""

    declared: tuple[DeclaredTools, ...] = ()
    """The sources whose tools are written in the file itself."""

    @property
    def pins(self) -> PinPolicy:
        """The pin policy of the file, or the default one."""
        return DEFAULT_PINS if self.said_of_pins is None else self.said_of_pins

    @property
    def catalog_settings(self) -> CatalogSettings:
        return CatalogSettings(self.categories.given, self.overrides.given, self.bundles.given, self.capabilities)

    @property
    def enabled(self) -> tuple[ServerConfig, ...]:
        return tuple(server for server in self.servers if not server.disabled)


def read_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read the configuration file at `path`.

    A server with an invalid entry is kept with its `problem`, and does not affect the others.

    Raises:
        InvalidConfig: the file cannot be read or is malformed, or has a duplicate server name or an unknown key of
            ours.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidConfig(
            f"{path}: file not found",
            hints=["Pass the path of your client's mcp.json, or set TOOLCRIB_CONFIG."],
        ) from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot read the file: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: must be UTF-8 text") from error
    return parse_config(text, path, environ)


def parse_config(text: str, path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Parse the configuration in `text`, the content of the file at `path`. Raises the same errors as `read_config`."""
    document = parsed(text, path)
    for name in document.repeated:
        if name in (*SERVER_KEYS, OUR_KEY):
            raise InvalidConfig(f"{path}: duplicate key `{name}`")
    _check_place(document, path)
    key = next((key for key in SERVER_KEYS if key in document), SERVER_KEYS[0])
    if key not in document and (near := _meant_for_servers(document)) is not None:
        raise InvalidConfig(f"{path}: unknown key `{near}` (did you mean `{key}`?)")
    servers = as_object(document.get(key, {}), path, key)
    for name in servers.repeated:
        raise InvalidConfig(f"{path}: {key}: duplicate server name `{name}`. Rename one of them.")
    ours = Settings(as_object(document.get(OUR_KEY, {}), path, OUR_KEY), path, OUR_KEY)
    ours.only(SETTINGS)
    names = _source_names(servers)
    overrides = read_overrides(ours.settings("tools"), names)
    categories = read_categories(ours.settings("categories"), names)
    if overrides.claims:
        categories = Categories(with_claims(categories.given, overrides.claims))
    config = Config(
        path,
        room=Room(
            text=ours.count("max_text_bytes", DEFAULT_ROOM.text, MIN_ROOM, MAX_ROOM, "bytes"),
            binary=ours.count("max_binary_bytes", DEFAULT_ROOM.binary, MIN_ROOM, MAX_ROOM, "bytes"),
        ),
        patience=_patience(DEFAULT_PATIENCE, ours),
        capacity=_capacity(DEFAULT_CAPACITY, ours),
        max_isolated_principals=ours.count(
            "max_isolated_principals", MAX_ISOLATED_PRINCIPALS, 1, _MOST_LOCKERS, "principals"
        ),
        rate=(rate := _rate(ours)),
        lookup_rate=_lookup_rate(ours, rate),
        search=read_search(ours.settings("search")),
        said_of_pins=read_pins(ours.settings("pins")) if "pins" in ours else None,
        audit=read_audit(ours),
        categories=categories,
        overrides=overrides,
        bundles=read_bundles(ours.settings("bundles"), names),
        capabilities=_capabilities(ours),
        policy=read_policy(ours.settings("policy"), categories, names) if "policy" in ours else None,
        auth=read_auth(ours.settings("auth")),
        source_names=names,
        plugins=read_plugins(ours, servers),
        chooses_plugins="plugins" in ours,
        declared=_declared(ours, {*names.values()}),
    )
    sources = ours.settings("sources")
    sources.only([*servers, *(plugin.name for plugin in config.plugins)])
    read: list[ServerConfig] = []
    for label, entry in servers.items():
        name = names[label]
        settings = sources.settings(label)
        settings.only(SOURCE_SETTINGS)
        is_isolated = _isolation(settings) == "principal"
        server = read_server(name, entry, f"{key}.{label}", for_each_principal(environ) if is_isolated else environ)
        server = _with_settings(server, settings, config)
        read.append(_with_isolation(server, settings, environ))
    return replace(config, servers=tuple(read))


def _capabilities(ours: Settings) -> tuple[Capability, ...]:
    if "capabilities" not in ours:
        return ()
    from toolcrib.config.capabilities import read_capabilities  # noqa: PLC0415  few configurations need it

    return read_capabilities(ours.settings("capabilities"))


def _declared(ours: Settings, servers: Collection[str]) -> tuple[DeclaredTools, ...]:
    if "declared" not in ours:
        return ()
    from toolcrib.config.declared import read_declarations  # noqa: PLC0415  few configurations need it

    return read_declarations(ours.settings("declared"), servers)


def _with_settings(server: ServerConfig, settings: Settings, config: Config) -> ServerConfig:
    return replace(
        server,
        title=settings.text("title") or None,
        summary=settings.text("summary"),
        trusted=settings.flag("trusted"),
        plain_names=settings.flag("plain_names"),
        patience=_patience(config.patience, settings),
        capacity=_capacity(config.capacity, settings),
    )


def _isolation(settings: Settings) -> Isolation:
    return "principal" if settings.choice("isolation", get_args(Isolation), "shared") == "principal" else "shared"


def _with_isolation(server: ServerConfig, settings: Settings, environ: Mapping[str, str]) -> ServerConfig:
    isolation, principals = _isolation(settings), read_principals(settings, server.server, environ)
    if principals is not None and isolation == "shared" and not server.disabled:
        problem = f"{settings.at('principals')}: is only allowed with `isolation` set to `principal`"
        return replace(server, server=None, problem=problem)
    expressly = isolation == "shared" and "isolation" in settings
    return replace(server, isolation=isolation, is_expressly_shared=expressly, principals=principals)


def _check_place(document: Mapping[str, Any], path: Path) -> None:
    """Refuse `policy` and `auth` in the wrong place: ignoring them would give access that the owner wants to refuse."""
    for key in document:
        if key != OUR_KEY and re.sub(r"[\W_]", "", key).casefold() == OUR_KEY:
            raise InvalidConfig(f"{path}: unknown key `{key}` (did you mean `{OUR_KEY}`?)")
        if key in _KEEPS_OUT:
            raise InvalidConfig(f"{path}: move `{key}` under the key `{OUR_KEY}`")


def _meant_for_servers(document: Mapping[str, Any]) -> str | None:
    """Return a key that may be a misspelled `mcpServers` or `servers`, or None."""
    if "context_servers" in document:  # the key in Zed's settings
        return "context_servers"
    return next((near for key in SERVER_KEYS if (near := nearest(key, document)) is not None), None)


def _patience(base: Patience, settings: Settings) -> Patience:
    return replace(base, **{field: settings.seconds(key, getattr(base, field)) for key, field in _TIMEOUTS.items()})


def _capacity(base: Capacity, settings: Settings) -> Capacity:
    return Capacity(
        concurrent_calls=settings.count("max_concurrent_calls", base.concurrent_calls, 1, _MOST_CALLS, "calls"),
        queued_calls=settings.count("max_queued_calls", base.queued_calls, 0, _MOST_CALLS, "calls"),
    )


def _rate(ours: Settings) -> Rate | None:
    per_minute = ours.count("calls_per_minute", DEFAULT_RATE.calls_per_minute, 0, _MOST_CALLS, "calls")
    at_once = ours.count("burst_calls", per_minute or 1, 1, _MOST_CALLS, "calls")
    return Rate(per_minute, at_once) if per_minute else None


def _lookup_rate(ours: Settings, rate: Rate | None) -> Rate | None:
    usual = 0
    if rate is not None:
        # Calls count as lookups, too. The default must never refuse a call that `rate` allows.
        for_calls = OPERATIONS_PER_CALL * max(rate.calls_per_minute, rate.burst_calls)
        usual = max(DEFAULT_LOOKUP_RATE.calls_per_minute, for_calls)
    per_minute = ours.count("lookups_per_minute", usual, 0, OPERATIONS_PER_CALL * _MOST_CALLS, "calls")
    return Rate(per_minute, max(1, per_minute // 3)) if per_minute else None


def _source_names(labels: Iterable[str]) -> dict[str, str]:
    """Return the name of each server's source, by its label."""
    names: dict[str, str] = {}
    for label in labels:
        names[label] = _free_name(label, {*names.values()})
    return names


def _free_name(label: str, taken: set[str]) -> str:
    """Return the source name of a server. If two labels lead to the same name, a number is added."""
    return free_name(source_name(label) if re.search(r"\w", label) else "server", taken)
