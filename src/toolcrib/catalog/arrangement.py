"""How owners arrange a catalog: categories, what they say of tools, bundles, and what tools may need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from toolcrib.catalog.bundles import Bundles, ToolBundle
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import MetadataOverride, Overrides, with_claims
from toolcrib.core.properties import cached_property


@dataclass(frozen=True)
class Arrangement:
    """What one place says: a configuration, a store, or a program."""

    categories: tuple[Category, ...] = ()
    """In the order in which they claim tools."""
    overrides: tuple[MetadataOverride, ...] = ()
    """The last word last."""
    bundles: tuple[ToolBundle, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    """Of two with one name the last counts."""

    @classmethod
    def of(cls, each: Iterable[Arrangement]) -> Arrangement:
        """All of them as one, in their order."""
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
        """Those that are set up, and those that overrides name.

        Raises:
            InvalidConfig: two have the same path, or one hangs below itself.
        """
        return Categories(with_claims(self.categories, self.all_overrides.claims))

    @cached_property
    def all_bundles(self) -> Bundles:
        """Those that are set up.

        Raises:
            InvalidConfig: two have the same name, or one includes what is not there, or itself.
        """
        return Bundles(self.bundles)


@dataclass(frozen=True)
class Reserved:
    """What a program has of its own, which what is registered makes way for."""

    arrangement: Arrangement = field(default_factory=Arrangement)
    sources: frozenset[str] = frozenset()
    """Names of them."""


NOTHING_RESERVED = Reserved()
