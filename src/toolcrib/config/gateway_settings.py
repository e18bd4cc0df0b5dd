"""All settings under `toolcrib`, and how a `Config` is made from them.

The settings of the catalog, of access and of search are in modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from toolcrib.catalog.bundles import NO_BUNDLES
from toolcrib.catalog.categories import NO_CATEGORIES
from toolcrib.catalog.isolated_sources import MAX_ISOLATED_PRINCIPALS
from toolcrib.catalog.overrides import NO_OVERRIDES
from toolcrib.config.access_settings import NO_AUTH, AuthSettings, PolicySettings
from toolcrib.config.catalog_sections import CatalogSections
from toolcrib.config.configuration import DEFAULT_AUDIT, DEFAULT_ROOM, OUR_KEY, Audit, Config, PluginConfig, Room
from toolcrib.config.inputs import Inputs
from toolcrib.config.json_document import JsonObject
from toolcrib.config.search_settings import DEFAULT_SEARCH, SearchSettings
from toolcrib.config.server_entries import Isolation, Personal, ServerConfig, read_server
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.json_settings import (
    Flag,
    Reader,
    Seconds,
    Section,
    Settings,
    Strings,
    Switch,
    Text,
    choice,
    errors_at,
    read_settings,
    whole_number,
    words,
)
from toolcrib.core.placeholders import WHO, Problem, expanded, expanded_members, for_each_principal
from toolcrib.core.values import read_strings, unknown
from toolcrib.definitions.drift import DEFAULT_PINS, PinPolicy, Verdict
from toolcrib.definitions.drift.suspicions import RULES
from toolcrib.operations.calling.limits import DEFAULT_LOOKUP_RATE, DEFAULT_RATE, OPERATIONS_PER_CALL, Rate
from toolcrib.sources.base import free_name, source_name
from toolcrib.sources.installed import installed_plugins
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
from toolcrib.sources.mcp.server_spec import DEFAULT_PATIENCE, HttpServer, McpServer, OAuthSettings, Patience

_MOST_CALLS = 1_000_000
_MOST_PRINCIPALS = 100_000
_LEAST_ROOM = 1_000
_MOST_ROOM = 1_000_000_000

Bytes = Annotated[int, whole_number(_LEAST_ROOM, _MOST_ROOM, "bytes")]


_GrantType = Literal["authorization_code", "client_credentials"]

Pin = Annotated[Verdict | None, choice({each.value: each for each in Verdict})]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PinSettings(Settings):
    """The settings under `toolcrib.pins`. The names of most fields are those of `PinPolicy`."""

    text: Pin = None
    """The verdict if only the wording of a pinned definition changed (`quarantine`)."""
    compatible: Pin = None
    """The verdict if the schemas of a pinned definition changed, but every valid call is still valid (`quarantine`)."""
    breaking: Pin = None
    """The verdict if a call that the pinned definition allowed may now fail (`quarantine`)."""
    weakened: Pin = None
    """The verdict if the annotations of a pinned tool changed, such as read-only (`quarantine`)."""
    source: Pin = None
    """The verdict if a different command or URL runs a pinned tool (`quarantine`)."""
    new: Pin = None
    """The verdict on a tool that is not pinned, if other tools of its source are pinned (`quarantine`)."""
    unpinned: Pin = None
    """The verdict on the tools of a source without any pins (`pass`)."""
    unreadable: Pin = None
    """The verdict on all tools while the file with the pins cannot be read (`quarantine`)."""
    suspicious: Pin = None
    """The verdict on a definition that is not pinned and contains something suspicious (`warn`)."""
    rules: Annotated[tuple[str, ...] | None, words(RULES, "a rule")] = None
    """The lint rules that find suspicious definitions. By default, all rules that `toolcrib lint` calls suspicious."""
    otherwise: Pin = None
    """The verdict for each key above that you do not set: `pass`, `warn`, or `quarantine` until you pin."""
    quarantined: Annotated[str, choice(("last", "hidden"))] = "last"
    """`last` shows the pinned definition of a quarantined tool while calls with it are valid; `hidden` never does."""
    older_handles: Flag = DEFAULT_PINS.takes_older
    """`true` accepts an older handle if the current definition accepts every call that the older one allowed."""

    def pins(self) -> PinPolicy:
        """Return the pin policy."""
        return PinPolicy(
            **{key: getattr(self, key) or self.otherwise or getattr(DEFAULT_PINS, key) for key in PinPolicy.verdicts()},
            rules=DEFAULT_PINS.rules if self.rules is None else frozenset(self.rules),
            keeps_last=self.quarantined == "last",
            takes_older=self.older_handles,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _PluginSettings(Settings):
    """The settings under `toolcrib.sources.NAME` that a plugin can have."""

    title: Text = ""
    """A title that replaces the server's own title."""
    summary: Text = ""
    """One line that says what the server is for. Models read it before they search."""
    trusted: Flag = False
    """`true` if Toolcrib may rely on the annotations of its tools (read-only, idempotent)."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _ServerLimits(Settings):
    """The limits for all servers, which each server can change for itself."""

    start_timeout_s: Seconds = DEFAULT_PATIENCE.start_s
    """Seconds that a server may take to start and complete the MCP handshake."""
    list_timeout_s: Seconds = DEFAULT_PATIENCE.list_s
    """Seconds that a server may take for each page of its tools."""
    call_timeout_s: Seconds = DEFAULT_PATIENCE.call_s
    """Seconds that a server may take to answer a call."""
    idle_timeout_s: Seconds = DEFAULT_PATIENCE.idle_s
    """Seconds without a call after which Toolcrib stops a server with cached definitions."""
    max_concurrent_calls: Annotated[int, whole_number(1, _MOST_CALLS, "calls")] = DEFAULT_CAPACITY.concurrent_calls
    """Calls that run on one server at the same time."""
    max_queued_calls: Annotated[int, whole_number(0, _MOST_CALLS, "calls")] = DEFAULT_CAPACITY.queued_calls
    """Calls that wait in the queue of one server. Toolcrib refuses any further call."""

    @property
    def patience(self) -> Patience:
        return Patience(self.start_timeout_s, self.list_timeout_s, self.call_timeout_s, self.idle_timeout_s)

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.max_concurrent_calls, self.max_queued_calls)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _PersonalSettings(Settings):
    """What one principal's instance of an isolated server gets. An error in a value affects only this principal."""

    headers: Any = None
    env: Any = None

    def personal(self, place: str, server: McpServer | None, environ: Mapping[str, str], inputs: Inputs) -> Personal:
        """Return the credentials for `server`, with variables filled in. Problems name their place as `place`."""
        if server is not None:
            needed, useless = ("headers", "env") if isinstance(server, HttpServer) else ("env", "headers")
            if getattr(self, useless) is not None:
                return Personal(problem=f"{place}.{useless}: this server takes its credentials as `{needed}`")
        try:
            return Personal(
                env=expanded_members(self.env, f"{place}.env", environ, inputs.wrong_with),
                headers=expanded_members(self.headers, f"{place}.headers", environ, inputs.wrong_with),
            )
        except Problem as problem:
            return Personal(problem=str(problem))


# The order of the bases is that of the documentation's table, from last to first.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SourceSettings(_ServerLimits, _PluginSettings):
    """The settings under `toolcrib.sources.NAME`."""

    plain_names: Flag = False
    """`true` keeps the server's own names of prompts and resources. With `--operations all`, also of tools."""
    isolation: Annotated[Isolation | None, choice(get_args(Isolation))] = None
    """`shared` (the default), or `principal`: each principal gets a separate instance of the server."""
    principals: Section[dict[str, _PersonalSettings] | None] = None
    """The principals that get an isolated server, by id, each with its own `headers` or `env`."""
    oauth: Section[OAuthSection | None] = None
    """How to sign in to the server, for the few servers that need settings for that."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OAuthSection(Settings):
    """The settings under `toolcrib.sources.NAME.oauth`: how to sign in to a server. Most servers need none."""

    client_id: Any = ""
    """The id of an application that you registered at the issuer. By default, Toolcrib registers itself."""
    client_secret: Any = ""
    """The secret of this application. Use a placeholder such as `${GITHUB_CLIENT_SECRET}`. Requires `issuer`."""
    private_key: Any = ""
    """A private key in PEM (RSA, EC or Ed25519). A program uses it to sign in instead of `client_secret`."""
    client_metadata_url: Any = ""
    """The https URL of a client ID metadata document that you publish. The page about signing in shows its content."""
    grant: Annotated[_GrantType, choice(get_args(_GrantType))] = "authorization_code"
    """`authorization_code`: a person signs in. `client_credentials`: the application itself signs in."""
    issuer: Any = ""
    """The only issuer to use. Required with `client_secret` and `private_key`, so that no other issuer gets them."""
    scopes: Strings = ()
    """The scopes to ask for. By default, those that the server names."""
    redirect_port: Annotated[int, whole_number(0, 65_535, "ports")] = 0
    """The port of the redirect to this machine. Set it if the issuer accepts only one port; 0 means any free port."""
    allow_private: Flag = False
    """`true` if the issuer may be in a private network although the server is not, and may use plain http."""

    def oauth(self, place: str, environ: Mapping[str, str]) -> OAuthSettings:
        """Return the settings, with variables filled in. Problems name their place as `place`.

        Raises:
            Problem: a value is not a string, a variable is not set, or two settings contradict each other.
        """
        texts = ("client_id", "client_secret", "private_key", "client_metadata_url", "issuer")
        filled = {
            key: expanded(value, f"{place}.{key}", environ) if (value := getattr(self, key)) else "" for key in texts
        }
        read = OAuthSettings(
            **filled,
            grant=self.grant,
            scopes=self.scopes,
            redirect_port=self.redirect_port,
            allow_private=self.allow_private,
        )
        if WHO in "".join(filled.values()):
            raise Problem(f"{place}: `${{principal}}` is not allowed here")
        secret = "client_secret" if read.client_secret else "private_key"
        if getattr(read, secret) and not (read.client_id and read.issuer):
            raise Problem(f"{place}.{secret}: needs `client_id` and `issuer`, so that it is sent to no other issuer")
        if read.private_key and read.grant != "client_credentials":
            raise Problem(f"{place}.private_key: is only allowed with `grant` set to `client_credentials`")
        if read.grant == "client_credentials" and not (read.client_secret or read.private_key):
            raise Problem(f"{place}.grant: `client_credentials` needs `client_secret` or `private_key`")
        if read.client_metadata_url and not re.fullmatch(r"https://[^/\s]+/\S+", read.client_metadata_url):
            raise Problem(f"{place}.client_metadata_url: must be an https URL with a path")
        if read.issuer and not re.match(r"https?://[^/\s]", read.issuer):
            raise Problem(f"{place}.issuer: must be the URL of the issuer")
        return read


def _read_plugins(value: object, place: str) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        raise ValueError("must be true, false or a list of names")  # noqa: TRY004  Pydantic catches only this one
    return read_strings(cast("list[object]", value), place)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ToolcribSettings(CatalogSections, _ServerLimits):
    """All settings under `toolcrib`."""

    calls_per_minute: Annotated[int, whole_number(0, _MOST_CALLS, "calls")] = DEFAULT_RATE.calls_per_minute
    """Calls that each principal may make per minute; 0 means no limit."""
    burst_calls: Annotated[int | None, whole_number(1, _MOST_CALLS, "calls")] = None
    """How many of these calls a principal may make at the same time (all of them)."""
    lookups_per_minute: Annotated[int | None, whole_number(0, OPERATIONS_PER_CALL * _MOST_CALLS, "calls")] = None
    """Operations of all kinds that each principal may send per minute, including calls and refused requests; 0 means no
    limit. A principal may send a third of them at the same time. Default: 5000, or five times `calls_per_minute` or
    `burst_calls` if that is more; no limit if `calls_per_minute` is 0."""
    max_isolated_principals: Annotated[int, whole_number(1, _MOST_PRINCIPALS, "principals")] = MAX_ISOLATED_PRINCIPALS
    """Principals whose isolated servers run at the same time. If there are more, Toolcrib stops the servers of the
    principal that was inactive for the longest time."""
    max_text_bytes: Bytes = DEFAULT_ROOM.text
    """The maximum text in one result, in bytes of UTF-8. Longer text is split into pages."""
    max_binary_bytes: Bytes = DEFAULT_ROOM.binary
    """The maximum size of an image, a sound or a file in a result, in bytes. Larger ones are left out."""
    plugins: Annotated[bool | tuple[str, ...] | None, Reader(_read_plugins)] = None
    """Which installed plugins to load: `true` (all), `false`, or a list of names (`true`)."""
    policy: Section[PolicySettings | None] = None
    """Who can see and call which tools: `rules` in order, and `otherwise`."""
    auth: Section[AuthSettings | None] = None
    """Who can use the gateway over HTTP: `tokens`, `jwt`, and the host names of the gateway."""
    audit: Switch[Audit | None] = DEFAULT_AUDIT
    """Whether operations are recorded: `true`, `false`, or an object with settings (`true`)."""
    pins: Section[PinSettings | None] = None
    """What happens to tools whose definitions are not pinned, or changed after they were pinned."""
    search: Section[SearchSettings | None] = None
    """How tools are found: signals to turn off (`without`), an `embedder`, and learning from past calls (`history`)."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Settings of one server or plugin, by name: `title`, `summary`, `trusted`, time limits and others."""

    def rates(self) -> tuple[Rate | None, Rate | None]:
        """Return how fast a principal may call tools, and how fast it may use all operations."""
        per_minute = self.calls_per_minute
        rate = Rate(per_minute, self.burst_calls or per_minute) if per_minute else None
        lookups = self.lookups_per_minute
        if lookups is None:
            # Calls count as lookups, too. The default must never refuse a call that `rate` allows.
            for_calls = 0 if rate is None else OPERATIONS_PER_CALL * max(rate.calls_per_minute, rate.burst_calls)
            lookups = for_calls and max(DEFAULT_LOOKUP_RATE.calls_per_minute, for_calls)
        return rate, Rate(lookups, max(1, lookups // 3)) if lookups else None


def config_of(
    ours: ToolcribSettings,
    servers: Mapping[str, object],
    inputs: Inputs,
    *,
    path: Path,
    key: str,
    environ: Mapping[str, str],
) -> Config:
    """Return the content of the file at `path`, which has the settings `ours`, and `servers` by label under `key`.

    Raises:
        InvalidConfig: a setting is invalid.
    """
    names = _source_names(servers)
    place = f"{path}: {OUR_KEY}"
    catalog = ours.catalog_settings(place, names)
    with errors_at(f"{place}.categories: "):
        has_categories = catalog.categories or catalog.overrides
        categories = catalog.all_categories if has_categories else NO_CATEGORIES
    with errors_at(f"{place}.bundles: "):
        bundles = catalog.all_bundles if catalog.bundles else NO_BUNDLES
    rate, lookup_rate = ours.rates()
    config = Config(
        path,
        inputs=inputs,
        room=Room(ours.max_text_bytes, ours.max_binary_bytes),
        patience=ours.patience,
        capacity=ours.capacity,
        max_isolated_principals=ours.max_isolated_principals,
        rate=rate,
        lookup_rate=lookup_rate,
        search=DEFAULT_SEARCH if ours.search is None else ours.search.search(path, f"{OUR_KEY}.search", environ),
        said_of_pins=None if ours.pins is None else ours.pins.pins(),
        audit=None if ours.audit is None else ours.audit.below(path.parent),
        categories=categories,
        overrides=catalog.all_overrides if catalog.overrides else NO_OVERRIDES,
        bundles=bundles,
        capabilities=catalog.capabilities,
        policy=None if ours.policy is None else ours.policy.policy(f"{place}.policy", categories, names),
        auth=NO_AUTH if ours.auth is None else ours.auth.auth(),
        source_names=names,
        plugins=tuple(_plugins(ours, servers, path)),
        chooses_plugins=ours.plugins is not None,
        declared=ours.declared_tools(path, OUR_KEY, [*names.values()]),
    )
    known = [*servers, *(plugin.name for plugin in config.plugins)]
    for label in ours.sources:
        if label not in known:
            raise InvalidConfig(f"{place}.sources: unknown key `{label}`{unknown(label, known)}")
    return replace(config, servers=tuple(_servers(ours, servers, key, config, environ)))


def _plugins(ours: ToolcribSettings, servers: Collection[str], path: Path) -> Iterator[PluginConfig]:
    """Yield the plugins to load, with their settings. If a server has the same name, the settings are the server's."""
    if ours.plugins is False:
        return
    for plugin in installed_plugins(ours.plugins if isinstance(ours.plugins, tuple) else None):
        if plugin.name not in ours.sources or plugin.name in servers:
            yield PluginConfig(plugin)
            continue
        given = read_settings(_PluginSettings, ours.sources[plugin.name], f"{path}: {OUR_KEY}.sources.{plugin.name}")
        yield PluginConfig(plugin, given.title or None, given.summary, given.trusted)


def _servers(
    ours: ToolcribSettings, servers: Mapping[str, object], key: str, config: Config, environ: Mapping[str, str]
) -> Iterator[ServerConfig]:
    """Yield the servers, with their settings from `toolcrib.sources`. Limits that are not set there are those of
    `ours`."""
    limits = {field.name: getattr(ours, field.name) for field in fields(_ServerLimits)}
    for_each = for_each_principal(environ)
    for label, entry in servers.items():
        place = f"{OUR_KEY}.sources.{label}"
        given = SourceSettings(**limits)
        if label in ours.sources:
            own: object = ours.sources[label]
            whole = limits | own if isinstance(own, JsonObject) else own
            given = read_settings(SourceSettings, whole, f"{config.path}: {place}")
        is_isolated = given.isolation == "principal"
        read = read_server(
            config.source_names[label], entry, f"{key}.{label}", for_each if is_isolated else environ, config.inputs
        )
        if given.oauth is not None and not read.disabled:
            read = _with_oauth(read, given.oauth, f"{place}.oauth", for_each)
        server = replace(
            read,
            title=given.title or None,
            summary=given.summary,
            trusted=given.trusted,
            plain_names=given.plain_names,
            patience=given.patience,
            capacity=given.capacity,
        )
        if given.principals is not None and not is_isolated and not server.disabled:
            problem = f"{place}.principals: is only allowed with `isolation` set to `principal`"
            yield replace(server, server=None, problem=problem)
            continue
        yield replace(
            server,
            isolation=given.isolation or "shared",
            is_expressly_shared=given.isolation == "shared",
            shares_sign_in=given.isolation is not None or not (config.auth.is_required and _may_want_sign_in(read)),
            principals=given.principals
            and {
                each: personal.personal(f"{place}.principals.{each}", server.server, for_each, config.inputs)
                for each, personal in given.principals.items()
            },
        )


def _may_want_sign_in(server: ServerConfig) -> bool:
    return isinstance(server.server, HttpServer) and not server.server.has_own_token


def _with_oauth(server: ServerConfig, section: OAuthSection, place: str, environ: Mapping[str, str]) -> ServerConfig:
    """Return `server` with its settings for signing in, or with their problem."""
    if server.server is None:
        return server
    try:
        if not isinstance(server.server, HttpServer):
            raise Problem(f"{place}: only a server with a `url` can have it")
        if server.server.has_own_token:
            raise Problem(f"{place}: the server has a token in its `headers`; remove one of them")
        return replace(server, server=replace(server.server, oauth=section.oauth(place, environ)))
    except Problem as problem:
        return replace(server, server=None, problem=str(problem))


def _source_names(labels: Iterable[str]) -> dict[str, str]:
    """Return the name of each server's source, by its label. If two labels lead to one name, a number is added."""
    names: dict[str, str] = {}
    for label in labels:
        name = source_name(label) if re.search(r"\w", label) else "server"
        names[label] = free_name(name, {*names.values()})
    return names
