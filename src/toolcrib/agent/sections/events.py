"""What happens to the sections of a prompt in a conversation, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SectionPath = tuple[str, ...]
"""Where a section stands in its prompt: the keys from the outermost section down."""


class SectionVisibility(StrEnum):
    """How much of a section a model is shown."""

    FULL = "full"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class SetVisibilityOverride:
    """From now on a section is shown so, whatever it says itself.

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
    """As the model knows them."""
    section_key: str
    """With dots."""
    timestamp: float
    """In seconds since 1970."""


SectionEvent = SetVisibilityOverride | ToolsInjected


def dotted(path: SectionPath) -> str:
    """The key that a model reads a section by: `guide.api`. No key holds a dot, so no two paths have the same."""
    return ".".join(path)


def undotted(key: str) -> SectionPath:
    return tuple(key.split("."))
