"""What one conversation made of a prompt's sections: a fold of its events."""

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
    """Which sections were opened or closed. The mapping inside is read-only by agreement.

    A path that the prompt has no section at does nothing: a state may be older than the prompt.
    """

    overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict[SectionPath, SectionVisibility])
    """The last that was said of each section."""

    def after(self, event: SectionEvent) -> SectionState:
        if not isinstance(event, SetVisibilityOverride):
            return self
        return SectionState({**self.overrides, event.path: event.visibility})

    def to_wire(self) -> dict[str, Any]:
        """JSON, by dotted keys, sorted: equal states have equal bytes."""
        return {"overrides": {dotted(path): self.overrides[path].value for path in sorted(self.overrides)}}

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """What `to_wire` wrote.

        Raises:
            InvalidPrompt: it wrote no such thing.
        """
        try:
            overrides = cast("Mapping[str, Mapping[str, str]]", wire)["overrides"]
            return cls({undotted(key): SectionVisibility(value) for key, value in overrides.items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPrompt("This is no saved state of sections.") from error
