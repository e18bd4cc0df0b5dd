"""How owners arrange a catalog: the categories they set up, and what they say of tools that others define."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import MetadataOverride, Overrides, with_claims


@dataclass(frozen=True)
class Arrangement:
    """What one place says: a configuration, a store, or a program."""

    categories: tuple[Category, ...] = ()
    """In the order in which they claim tools."""
    overrides: tuple[MetadataOverride, ...] = ()
    """The last word last."""

    @classmethod
    def of(cls, each: Iterable[Arrangement]) -> Arrangement:
        """All of them as one, in their order."""
        each = tuple(each)
        return cls(
            tuple(category for one in each for category in one.categories),
            tuple(override for one in each for override in one.overrides),
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
