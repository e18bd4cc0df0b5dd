"""The events of a prompt's sections in a conversation, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
