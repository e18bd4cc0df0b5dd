"""How the sources that configurations define get into the catalog, change, and leave it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

SettingsT = TypeVar("SettingsT")
"""The settings from which a source is made. Equal settings make equal sources."""


@dataclass(frozen=True)
class SourceChange(Generic[SettingsT]):
    """The difference between the current sources of one kind and those of a new configuration.

    Call `leave`, then apply the rules of the new configuration, then call `join`. Removed sources disappear before the
    new rules apply, because the new rules may not mention them. New sources appear only after the rules that are about
    them apply.
    """

    sources: ConfiguredSources[SettingsT]
    gone: tuple[str, ...]
    """Names of the sources that are removed or changed."""
    new: Mapping[str, SettingsT]
    """The settings of the sources to add, including changed ones, by name, in the order of the configuration."""

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the sources to add that did not exist before."""
        return tuple(name for name in self.new if name not in self.gone)

    @property
    def summary(self) -> str:
        """A summary of the change for the owner's log. Empty if nothing changes."""
        changes = {
            "added": self.added,
            "removed": [name for name in self.gone if name not in self.new],
            "changed": [name for name in self.gone if name in self.new],
        }
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in changes.items() if names)

    def leave(self) -> None:
        self.sources.leave(self)

    def join(self) -> None:
        self.sources.join(self)


class ConfiguredSources(ABC, Generic[SettingsT]):
    """The sources of one kind that configurations define."""

    def __init__(self) -> None:
        self._settings: dict[str, SettingsT] = {}
        """The settings of each source that is in the catalog, by its name there."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the sources. No other source can have one of these names."""
        return frozenset(self._settings)

    def leave(self, change: SourceChange[SettingsT]) -> None:
        """Do the first half of a change: hide removed sources, and old versions of changed sources."""
        for name in change.gone:
            del self._settings[name]
        self._remove(change.gone)

    def join(self, change: SourceChange[SettingsT]) -> None:
        """Do the second half of a change, after the new rules apply: add new sources."""
        for name, settings in change.new.items():
            self._put(name, settings)
            self._settings[name] = settings

    def clear(self) -> None:
        """Discard the state of all sources, which have already left the catalog."""
        self._settings.clear()

    def _change_to(self, wanted: Mapping[str, SettingsT]) -> SourceChange[SettingsT]:
        """Compute the change to exactly the sources of `wanted`. Nothing of it is applied yet."""
        gone = tuple(name for name, settings in self._settings.items() if wanted.get(name) != settings)
        new = {name: settings for name, settings in wanted.items() if self._settings.get(name) != settings}
        return SourceChange(self, gone, new)

    @abstractmethod
    def _put(self, name: str, settings: SettingsT) -> None:
        """Make the source with this name, and put it into the catalog."""

    @abstractmethod
    def _remove(self, names: Collection[str]) -> None:
        """Take the sources with these names out of the catalog. Running calls finish."""
