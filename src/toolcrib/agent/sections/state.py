"""The state of a prompt's sections in one conversation, computed from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

from toolcrib.agent.sections.events import (
    SectionEvent,
    SectionPath,
    SectionVisibility,
    SetVisibilityOverride,
    dotted,
    undotted,
)
from toolcrib.core.errors import InvalidPrompt


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
