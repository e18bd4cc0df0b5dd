"""The settings that arrange the catalog: declared tools, categories, metadata, bundles and capabilities.

A configuration and the registrations can contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.catalog.bundles import ToolBundle
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.catalog_settings import CatalogSettings
from toolcrib.catalog.categories import Category
from toolcrib.catalog.overrides import MetadataOverride
from toolcrib.config.server_entries import under_source_names
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.json_settings import Flag, Paths, Seconds, Section, Settings, Strings, Text, errors_at, read_settings
from toolcrib.core.metadata import KEYS
from toolcrib.core.tools import ROOT
from toolcrib.core.tools import Path as NodePath
from toolcrib.core.values import unknown

if TYPE_CHECKING:
    from toolcrib.catalog.capability_checks import Checker
    from toolcrib.sources.declared.definition import DeclaredTools


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CategorySettings(Settings):
    """One category, with the categories below it."""

    title: Text = ""
    """The title that people see."""
    summary: Text = ""
    """One line about the content. Models read it before they look inside."""
    tags: Strings = ()
    """What the category is about, in single words."""
    tools: Strings = ()
    """The tools in this category: tool ids, or patterns of ids such as `git.*`."""
    tagged: Strings = ()
    """Tools with one of these tags are in this category as well."""
    also_under: Paths = ()
    """Paths of other categories that contain this one as well: `[["Quality"]]`."""
    group: Flag = False
    """`true` lets the catalog show more than a dozen tools in groups."""
    categories: dict[str, Any] = field(default_factory=dict)
    """The categories below this one, by name, with the same keys."""

    def category(self, path: NodePath, names: Mapping[str, str]) -> Category:
        """Return the category at `path`, without those below it. `names` maps labels to the names of sources."""
        return Category(
            path,
            self.title or None,
            self.summary,
            self.tags,
            under_source_names(self.tools, names),
            self.tagged,
            self.also_under,
            self.group,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BundleSettings(Settings):
    """One bundle."""

    description: Text = ""
    """One line that says what the bundle is for."""
    required: Strings = ()
    """The bundle is incomplete without these: tool ids, patterns of ids (`git.*`), names or aliases."""
    optional: Strings = ()
    """Tools that also belong to the bundle if they are available."""
    includes: Strings = ()
    """Names of other bundles. Their tools belong to this bundle as well."""

    def bundle(self, name: str, names: Mapping[str, str]) -> ToolBundle:
        """Return the bundle. `names` maps labels to the names of sources."""
        # A required entry that begins with the label of a server could never match. So its other form replaces it.
        required = (under_source_names((entry,), names)[-1] for entry in self.required)
        optional = under_source_names(self.optional, names)
        return ToolBundle(name, self.description, tuple(dict.fromkeys(required)), optional, self.includes)


_KINDS = ("program", "env", "path", "package", "address")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CapabilitySettings(Settings):
    """One capability: how to check for it, and what to do without it."""

    program: Text = ""
    """Available if a program with this name is on the PATH."""
    env: Text = ""
    """Available if this environment variable is set and not empty."""
    path: Text = ""
    """Available if this file or folder exists; `~` is the home folder."""
    address: Text = ""
    """Available if this `"host:port"` accepts connections."""
    package: Text = ""
    """Available if this Python package can be imported."""
    remedy: Text = ""
    """What to do if it is missing, in sentences that models and people read."""
    lifetime_s: Seconds = 60.0
    """Seconds until the next check after it was found."""
    missing_lifetime_s: Seconds = 5.0
    """Seconds until the next check after it was missing."""
    timeout_s: Seconds = 5.0
    """Seconds to wait for an answer from an address before it counts as missing."""

    def __post_init__(self) -> None:
        if sum(bool(getattr(self, kind).strip()) for kind in _KINDS) != 1:
            raise ValueError(f"needs exactly one of {', '.join(_KINDS)}")
        host, port = self._host_and_port
        if self.address.strip() and not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
            raise ValueError('.address: must be a host and a port, for example "localhost:5432"')

    def capability(self, name: str) -> Capability:
        """Return the capability with this name."""
        return Capability(name, self._checker(), self.remedy, self.lifetime_s, self.missing_lifetime_s, self.timeout_s)

    def _checker(self) -> Checker:
        from toolcrib.catalog.capability_checks import (  # noqa: PLC0415  few configurations need it
            AddressAccepts,
            PackageImportable,
            PathExists,
            ProgramOnPath,
            VariableSet,
        )

        if self.address.strip():
            host, port = self._host_and_port
            return AddressAccepts(host.removeprefix("[").removesuffix("]"), int(port))
        quick: Mapping[str, Callable[[str], Checker]] = {
            self.program: ProgramOnPath,
            self.env: VariableSet,
            self.path: PathExists,
            self.package: PackageImportable,
        }
        (checker,) = (make(value) for value, make in quick.items() if value.strip())
        return checker

    @property
    def _host_and_port(self) -> tuple[str, str]:
        host, _, port = self.address.rpartition(":")
        return host, port


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CatalogSections(Settings):
    """The settings that arrange the catalog."""

    declared: dict[str, Any] = field(default_factory=dict)
    """Tools that are commands or HTTP requests, by source and name."""
    categories: dict[str, Any] = field(default_factory=dict)
    """Your own categories, by name, with the tools that are in them."""
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Metadata for tools that others define, by tool id or pattern of ids."""
    bundles: Section[dict[str, BundleSettings]] = field(default_factory=dict)
    """Named sets of tools. A session, a request or the whole gateway can be limited to one."""
    capabilities: Section[dict[str, CapabilitySettings]] = field(default_factory=dict)
    """What tools may need from the system, by name: how to check for it, and what to do without it."""

    def catalog_settings(self, place: str, names: Mapping[str, str]) -> CatalogSettings:
        """Return everything but the declared tools, in the order of the file, with outer categories before inner ones.

        Errors name its place as `place`. `names` maps the labels of servers to the names of their sources: ids may
        begin with either. Links between categories and between bundles are not checked.

        Raises:
            InvalidConfig: an entry is invalid.
        """
        with errors_at(f"{place}.bundles: "):
            bundles = tuple(bundle.bundle(name, names) for name, bundle in self.bundles.items())
        return CatalogSettings(
            tuple(self._categories(f"{place}.categories", names)),
            tuple(self._overrides(f"{place}.tools", names)),
            bundles,
            tuple(capability.capability(name) for name, capability in self.capabilities.items()),
        )

    def declared_tools(self, path: Path, where: str, servers: Collection[str] = ()) -> tuple[DeclaredTools, ...]:
        """Return the declared sources, in the order of the file. None of them may have the name of one of `servers`.

        Raises:
            InvalidConfig: a declaration is invalid. The message names its place below `where` in the file at `path`.
        """
        if not self.declared:
            return ()
        from toolcrib.sources.declared.definition import (  # noqa: PLC0415  few configurations need it
            read_declared_source,
        )

        found: list[DeclaredTools] = []
        for name, source in self.declared.items():
            here = f"{where}.declared.{name}"
            if name in servers:
                raise InvalidConfig(f"{path}: {here}: a server already has this name; rename one of them")
            with errors_at(f"{path}: "):
                found.append(read_declared_source(name, source, where=here))
        return tuple(found)

    def _categories(self, place: str, names: Mapping[str, str]) -> Iterator[Category]:
        # Not a recursion, because a file can nest categories more deeply than Python nests calls.
        waiting: list[tuple[NodePath, str, Mapping[str, Any]]] = [(ROOT, place, self.categories)]
        for above, where, members in waiting:
            for name, body in members.items():
                path, here = (*above, name), f"{where}.{name}"
                settings = read_settings(CategorySettings, body, here)
                yield settings.category(path, names)
                waiting.append((path, f"{here}.categories", settings.categories))

    def _overrides(self, place: str, names: Mapping[str, str]) -> Iterator[MetadataOverride]:
        if any(not pattern.strip() for pattern in self.tools):
            raise InvalidConfig(f"{place}: a key must be a tool id or a pattern of ids, and must not be empty")
        for pattern, members in self.tools.items():
            for key in members:
                if key not in KEYS:
                    raise InvalidConfig(f"{place}.{pattern}: unknown key `{key}`{unknown(key, KEYS)}")
            for meant in under_source_names((pattern,), names):
                with errors_at(f"{place}.{pattern}."):
                    override = MetadataOverride.from_wire(meant, members)
                yield override
