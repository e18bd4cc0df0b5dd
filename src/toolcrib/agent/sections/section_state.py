"""The events of a prompt's sections in a conversation, and the state that results from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidPrompt

SectionPath = tuple[str, ...]
"""The place of a section in its prompt: the keys from the outermost section down."""


class SectionVisibility(StrEnum):
    """How much of a section a model is shown."""

    FULL = "full"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class SetVisibilityOverride:
    """Sets the visibility of a section from now on, independent of its own setting.

    Source: dynamic tool registration, "Session State Changes".
    """

    path: SectionPath
    visibility: SectionVisibility


@dataclass(frozen=True, slots=True)
class ToolsInjected:
    """Tools of a section became callable in the middle of a conversation.

    Source: dynamic tool registration, "Observability".
    """

    tool_names: tuple[str, ...]
    """The names that the model uses."""
    section_key: str
    """The key of the section, with dots."""
    timestamp: float
    """The time in seconds since 1970."""


SectionEvent = SetVisibilityOverride | ToolsInjected


def dotted(path: SectionPath) -> str:
    """Return the key by which a model reads a section: `guide.api`. Keys contain no dots, so each path has its own."""
    return ".".join(path)


def undotted(key: str) -> SectionPath:
    return tuple(key.split("."))


@dataclass(frozen=True, slots=True)
class SectionState:
    """Which sections were opened or closed. Do not change the mapping inside.

    A path without a section in the prompt is ignored, because a state may be older than the prompt.
    """

    overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict[SectionPath, SectionVisibility])
    """The last setting of each section."""

    def after(self, event: SectionEvent) -> SectionState:
        if not isinstance(event, SetVisibilityOverride):
            return self
        return SectionState({**self.overrides, event.path: event.visibility})

    def to_wire(self) -> dict[str, Any]:
        """Return JSON by dotted keys, sorted. Equal states have equal bytes."""
        return {"overrides": {dotted(path): self.overrides[path].value for path in sorted(self.overrides)}}

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read the result of `to_wire`.

        Raises:
            InvalidPrompt: `wire` is not a saved state of sections.
        """
        try:
            overrides = cast("Mapping[str, Mapping[str, str]]", wire)["overrides"]
            return cls({undotted(key): SectionVisibility(value) for key, value in overrides.items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPrompt("Not a saved state of sections.") from error
