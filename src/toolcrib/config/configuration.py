"""The content of a configuration file, as frozen values. `config_file.py` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import platformdirs

from toolcrib.audit.redaction import is_pattern
from toolcrib.catalog.access import Rules
from toolcrib.catalog.bundles import NO_BUNDLES, Bundles
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.catalog_settings import CatalogSettings
from toolcrib.catalog.categories import NO_CATEGORIES, Categories
from toolcrib.catalog.isolated_sources import MAX_ISOLATED_PRINCIPALS
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.config.access_settings import NO_AUTH, Auth
from toolcrib.config.inputs import NO_INPUTS, Inputs
from toolcrib.config.search_settings import DEFAULT_SEARCH, Search
from toolcrib.config.server_entries import ServerConfig
from toolcrib.core.json_settings import Flag, Reader, Settings, whole_number
from toolcrib.core.values import read_string, read_strings
from toolcrib.definitions.drift import DEFAULT_PINS, PinPolicy
from toolcrib.operations.calling.limits import DEFAULT_LOOKUP_RATE, DEFAULT_RATE, Rate
from toolcrib.sources.installed import InstalledPlugin
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
from toolcrib.sources.mcp.server_spec import DEFAULT_PATIENCE, Patience

if TYPE_CHECKING:
    from toolcrib.sources.declared.definition import DeclaredTools

OUR_KEY = "toolcrib"
"""The key of a configuration that has Toolcrib's own settings."""


@dataclass(frozen=True, slots=True)
class Room:
    """The largest result that is delivered in one piece, in bytes."""

    text: int = 400_000
    """The maximum text of a result, as UTF-8: about 100,000 tokens, more than most models can read at once."""
    binary: int = 8 * 1024 * 1024
    """The maximum size of one image, sound or file."""


DEFAULT_ROOM = Room()


def _read_path(value: object, place: str) -> Path | None:
    path = "" if value is None else read_string(value, place)
    try:
        return Path(path).expanduser() if path else None
    except RuntimeError as error:  # `~name`, and there is no such user
        raise ValueError(str(error)) from error


def _read_patterns(value: object, place: str) -> tuple[str, ...]:
    patterns = () if value is None else read_strings(value, place)
    if not all(map(is_pattern, patterns)):
        raise ValueError("each string needs a letter or a digit")
    return patterns


@dataclass(frozen=True)
class Audit(Settings):
    """The settings of the audit."""

    path: Annotated[Path | None, Reader(_read_path)] = None
    """The audit file. A relative path starts at the folder of this configuration."""
    max_mb: Annotated[int, whole_number(1, 100_000, "megabytes")] = 64
    """Maximum size in megabytes. When it is full, the principals that use most lose their oldest traces."""
    max_days: Annotated[int, whole_number(1, 36_500, "days")] = 30
    """Days to keep a trace."""
    arguments: Flag = False
    """`true` records the arguments of tools and prompts, without what looks like a secret."""
    redact: Annotated[tuple[str, ...], Reader(_read_patterns)] = ()
    """More strings that mark a secret: the value of a key that contains one of them is not recorded."""

    @property
    def place(self) -> Path:
        """The audit file, by default in this user's state folder."""
        return self.path or platformdirs.user_state_path("toolcrib") / "audit.sqlite"

    def below(self, folder: Path) -> Audit:
        """Return the settings with a relative path resolved from `folder`."""
        return self if self.path is None else replace(self, path=folder / self.path)


DEFAULT_AUDIT = Audit()


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """A plugin that a file names, or that is loaded because it is installed."""

    installed: InstalledPlugin
    title: str | None = None
    summary: str = ""
    trusted: bool = False

    @property
    def name(self) -> str:
        return self.installed.name


@dataclass(frozen=True, slots=True)
class Config:
    """The content of one configuration file."""

    path: Path
    servers: tuple[ServerConfig, ...] = ()
    inputs: Inputs = NO_INPUTS
    """The values that a person enters once, for the servers that refer to them."""
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
