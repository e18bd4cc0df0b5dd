"""`mcp.json`: which servers there are, and what stands under our own key of the same file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from toolcrib.catalog.access import Rules
from toolcrib.catalog.arrangement import Arrangement
from toolcrib.catalog.bundles import NO_BUNDLES, Bundles
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.categories import NO_CATEGORIES, Categories
from toolcrib.catalog.lockers import MAX_LOCKERS
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
from toolcrib.sources.mcp.server import DEFAULT_PATIENCE, Patience

if TYPE_CHECKING:
    from toolcrib.sources.declared.definition import DeclaredTools

OUR_KEY = "toolcrib"

SERVER_KEYS = ("mcpServers", "servers")
"""Where the servers stand: `mcpServers` in most clients, `servers` in VS Code."""

_TIMEOUTS = {
    "start_timeout_s": "start_s",
    "list_timeout_s": "list_s",
    "call_timeout_s": "call_s",
    "idle_timeout_s": "idle_s",
}

_KEEPS_OUT = ("policy", "auth")
"""Settings without which more is open."""

_MOST_CALLS = 1_000_000
_MOST_LOCKERS = 100_000

SETTINGS: Mapping[str, str] = {
    "start_timeout_s": "Seconds a server may take from its start to the end of the handshake (60).",
    "list_timeout_s": "Seconds it may take for each page of its tools (30).",
    "call_timeout_s": "Seconds it may take to answer a call (300).",
    "idle_timeout_s": "Seconds without a call after which a server whose definitions are kept is stopped (3600).",
    "max_concurrent_calls": "Calls that run at one server at once (32).",
    "max_queued_calls": "Calls that wait for those, first come first served; one more is refused (256).",
    "calls_per_minute": "Calls that each principal may make in a minute; 0 sets no limit (1000).",
    "burst_calls": "How many of those may come at once (as many as in a minute).",
    "lookups_per_minute": "Operations of all kinds that each principal may ask for in a minute, calls and refused "
    "requests included; 0 sets no limit (5000, or five times `calls_per_minute` or `burst_calls` if that is more; "
    "no limit where `calls_per_minute` is 0). A third of them may come at once.",
    "max_isolated_principals": "Principals whose isolated servers run at once; who was away longest makes room (100).",
    "max_text_bytes": "Bytes of text in one result beyond which the rest is paged, as UTF-8 (400000).",
    "max_binary_bytes": "Bytes of one image, audio or file in a result beyond which it is left out (8388608).",
    "categories": "Nodes of your own, by name: what is inside, and which tools hang in them.",
    "tools": "By id or pattern of ids: what you say of tools that you do not define.",
    "plugins": "Which installed plugins are taken in: `true` (all, as if not said), `false`, or a list of names.",
    "capabilities": "What tools may need of the system, by name: how to look for it, what to do where it is missing.",
    "declared": "Tools that are commands or HTTP requests, by source and name.",
    "bundles": "Named sets of tools that a session, a request or the gateway can be kept within.",
    "policy": "Who may see and call what: `rules` in order, and `otherwise`.",
    "auth": "Who may ask over HTTP: `tokens`, `jwt`, and the names that it is reached under.",
    "audit": "Whether what is done is written down: `true` (as if not said), `false`, or an object that says how.",
    "pins": "What becomes of tools whose definitions nobody approved of as they are.",
    "search": "How tools are found: signals to do `without`, an `embedder`, whether past calls count (`history`).",
    "sources": "By name of a server or plugin: `title`, `summary`, `trusted`; time-outs and limits of its own.",
}
"""Every key below `toolcrib`, with what it does."""

SOURCE_SETTINGS: Mapping[str, str] = {
    "title": "What to call the server instead of what it calls itself.",
    "summary": "One line on what it is for; models read it before they search.",
    "trusted": "`true` where what its tools claim of themselves (read-only, idempotent) may be relied on.",
    "plain_names": "`true` keeps the server's own names of prompts and resources, and of tools where they are listed.",
    "isolation": "`shared` (the default), or `principal`: each principal has a server of its own.",
    "principals": "Who has an isolated server, by principal id, each with `headers` or `env` of its own.",
    **{key: SETTINGS[key] for key in (*_TIMEOUTS, "max_concurrent_calls", "max_queued_calls")},
}
"""Every key below `toolcrib.sources.NAME`."""


MIN_ROOM = 1_000
MAX_ROOM = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Room:
    """How large a result may be before it is not handed over in one piece, in bytes."""

    text: int = 400_000
    """All text of a result, as UTF-8: about 100,000 tokens, more than most models take in at once."""
    binary: int = 8 * 1024 * 1024
    """One image, sound or file."""


DEFAULT_ROOM = Room()


@dataclass(frozen=True, slots=True)
class Config:
    """What one file says, at one moment."""

    path: Path
    servers: tuple[ServerConfig, ...] = ()
    room: Room = DEFAULT_ROOM
    patience: Patience = DEFAULT_PATIENCE
    """Of servers that are given none of their own."""
    capacity: Capacity = DEFAULT_CAPACITY
    """Likewise."""
    max_isolated_principals: int = MAX_LOCKERS
    """Principals whose isolated servers run at once."""
    rate: Rate | None = DEFAULT_RATE
    lookup_rate: Rate | None = DEFAULT_LOOKUP_RATE
    """How fast each principal may call; None where there is no limit."""
    search: Search = DEFAULT_SEARCH
    """How tools are found."""
    said_of_pins: PinPolicy | None = None
    """What becomes of tools whose definitions nobody approved of; None where the file does not say."""
    audit: Audit | None = DEFAULT_AUDIT
    """None where nothing is to be written down."""
    categories: Categories = NO_CATEGORIES
    """Those that are set up, and those that `overrides` name."""
    overrides: Overrides = NO_OVERRIDES
    bundles: Bundles = NO_BUNDLES
    capabilities: tuple[Capability, ...] = ()
    policy: Rules | None = None
    """None where everybody may see and call everything."""
    auth: Auth = NO_AUTH
    """Who may ask over HTTP."""
    source_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those of the servers, by what the file calls them."""
    plugins: tuple[PluginConfig, ...] = ()
    chooses_plugins: bool = False
    """Whether the file says which, and does not only leave it out."""
    """Those that are installed and taken in, and those that are asked for and not there."""

    declared: tuple[DeclaredTools, ...] = ()
    """The sources whose tools stand in the file itself."""

    @property
    def pins(self) -> PinPolicy:
        """The same, said or not."""
        return DEFAULT_PINS if self.said_of_pins is None else self.said_of_pins

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement(self.categories.given, self.overrides.given, self.bundles.given, self.capabilities)

    @property
    def enabled(self) -> tuple[ServerConfig, ...]:
        return tuple(server for server in self.servers if not server.disabled)


def read_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in the file at `path`.

    A server that is wrong in itself is kept with its `problem`; the others are not touched by it.

    Raises:
        InvalidConfig: the file cannot be read, is malformed, names a server twice, or has an unknown key of ours.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidConfig(
            f"{path}: there is no such file",
            hints=["Name the mcp.json of your client, or set TOOLCRIB_CONFIG to it."],
        ) from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: not UTF-8 text") from error
    return parse_config(text, path, environ)


def parse_config(text: str, path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in `text`, which stood at `path`; raises as `read_config` does."""
    document = parsed(text, path)
    for name in document.repeated:
        if name in (*SERVER_KEYS, OUR_KEY):
            raise InvalidConfig(f"{path}: {name}: it stands there twice")
    _check_place(document, path)
    key = next((key for key in SERVER_KEYS if key in document), SERVER_KEYS[0])
    if key not in document and (near := _meant_for_servers(document)) is not None:
        raise InvalidConfig(f"{path}: there is no `{key}`; `{near}` is not read (did you mean `{key}`?)")
    servers = as_object(document.get(key, {}), path, key)
    for name in servers.repeated:
        raise InvalidConfig(f"{path}: {key}: two servers are named `{name}`; give one of them another name")
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
        max_isolated_principals=ours.count("max_isolated_principals", MAX_LOCKERS, 1, _MOST_LOCKERS, "principals"),
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
    from toolcrib.config.capabilities import read_capabilities  # noqa: PLC0415  few configurations set any up

    return read_capabilities(ours.settings("capabilities"))


def _declared(ours: Settings, servers: Collection[str]) -> tuple[DeclaredTools, ...]:
    if "declared" not in ours:
        return ()
    from toolcrib.config.declared import read_declarations  # noqa: PLC0415  likewise

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
        problem = f"{settings.at('principals')}: credentials of principals need `isolation` to be `principal`"
        return replace(server, server=None, problem=problem)
    expressly = isolation == "shared" and "isolation" in settings
    return replace(server, isolation=isolation, is_expressly_shared=expressly, principals=principals)


def _check_place(document: Mapping[str, Any], path: Path) -> None:
    """What somebody wrote to keep others out is not passed over because it stands in the wrong place."""
    for key in document:
        if key != OUR_KEY and re.sub(r"[\W_]", "", key).casefold() == OUR_KEY:
            raise InvalidConfig(f"{path}: `{key}` is not read (did you mean `{OUR_KEY}`?)")
        if key in _KEEPS_OUT:
            raise InvalidConfig(f"{path}: `{key}` is not read here: it stands below `{OUR_KEY}`")


def _meant_for_servers(document: Mapping[str, Any]) -> str | None:
    """A key under which somebody may have meant servers to stand."""
    if "context_servers" in document:  # where Zed has them
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
        # Calls are counted here too. The default never refuses one that `rate` allows.
        for_calls = OPERATIONS_PER_CALL * max(rate.calls_per_minute, rate.burst_calls)
        usual = max(DEFAULT_LOOKUP_RATE.calls_per_minute, for_calls)
    per_minute = ours.count("lookups_per_minute", usual, 0, OPERATIONS_PER_CALL * _MOST_CALLS, "calls")
    return Rate(per_minute, max(1, per_minute // 3)) if per_minute else None


def _source_names(labels: Iterable[str]) -> dict[str, str]:
    """The name of each server's source, by its label."""
    names: dict[str, str] = {}
    for label in labels:
        names[label] = _free_name(label, {*names.values()})
    return names


def _free_name(label: str, taken: set[str]) -> str:
    """The source name of a server; two labels that come to the same name are told apart by a number."""
    return free_name(source_name(label) if re.search(r"\w", label) else "server", taken)
