"""What owners set for a catalog: categories, metadata overrides, bundles and capabilities, from one or more places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from toolcrib.catalog.bundles import Bundles, ToolBundle
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import MetadataOverride, Overrides, with_claims
from toolcrib.core.properties import cached_property


@dataclass(frozen=True)
class CatalogSettings:
    """The settings from one place: a configuration, a store, or a program."""

    categories: tuple[Category, ...] = ()
    """The categories, in the order in which they claim tools."""
    overrides: tuple[MetadataOverride, ...] = ()
    """The metadata overrides; a later one takes precedence over an earlier one."""
    bundles: tuple[ToolBundle, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    """The capabilities. If two have the same name, the last one counts."""

    @classmethod
    def of(cls, each: Iterable[CatalogSettings]) -> CatalogSettings:
        """Join several settings into one, in their order."""
        each = tuple(each)
        return cls(
            tuple(category for one in each for category in one.categories),
            tuple(override for one in each for override in one.overrides),
            tuple(bundle for one in each for bundle in one.bundles),
            tuple(capability for one in each for capability in one.capabilities),
        )

    @cached_property
    def all_overrides(self) -> Overrides:
        return Overrides(self.overrides)

    @cached_property
    def all_categories(self) -> Categories:
        """The configured categories, and those that overrides name.

        Raises:
            InvalidConfig: two categories have the same path, or one is below itself.
        """
        return Categories(with_claims(self.categories, self.all_overrides.claims))

    @cached_property
    def all_bundles(self) -> Bundles:
        """The configured bundles.

        Raises:
            InvalidConfig: two bundles have the same name, or one includes an unknown bundle or itself.
        """
        return Bundles(self.bundles)


@dataclass(frozen=True)
class Reserved:
    """The names that a program itself uses. They take precedence over registered items."""

    catalog_settings: CatalogSettings = field(default_factory=CatalogSettings)
    sources: frozenset[str] = frozenset()
    """The names of the program's own sources."""


NOTHING_RESERVED = Reserved()
